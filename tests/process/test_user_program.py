"""What a user sees of the client's objects: their types are as the lane of types checks them, and they say what they are of."""

import asyncio
import pickle
import re
from collections.abc import Iterator

import pytest

import eventlog
import eventlog.blocking
from tests import user_program
from tests.process.nodes import NodeProcess


@pytest.mark.smoke
def test_what_type_checkers_were_told_is_so(node: NodeProcess) -> None:
    asyncio.run(user_program.use(node.address))
    user_program.use_blocking(node.address)


def shown(client: eventlog.blocking.Client) -> Iterator[tuple[object, str]]:
    cache = client.create_cache("shown", if_exists="use")
    cache.put_many({"a": 1, "b": 2})
    of = f"cluster {client.cluster} of 1 nodes, at 127.0.0.1:[0-9]+"
    yield client, f"<eventlog.blocking.Client: {of}>"
    yield cache, f"<eventlog.blocking.Cache 'shown': {of}>"
    yield client.listeners, f"<eventlog.blocking.ListenerAdmin: {of}>"
    yield client.groups, f"<eventlog.blocking.GroupAdmin: {of}>"
    yield client.admin, f"<eventlog.blocking.ClusterAdmin: {of}>"
    yield cache.near(), f"<eventlog.blocking.NearCache of cache 'shown': {of}>"
    yield cache.scan(), "<eventlog.blocking.Scan>"
    yield cache.events(), "<eventlog.blocking.Flat>"
    with cache.consumer("g") as consumer, cache.consumer("w", mode="work") as workers:
        yield consumer, f"<eventlog.blocking.Consumer of group 'g' over cache 'shown', member {consumer.member_id}: {of}>"
        yield workers, f"<eventlog.blocking.WorkConsumer of group 'w' over cache 'shown', member {workers.member_id}: {of}>"
        task = next(iter(workers))
        yield task, re.escape(f"Task(event={task.event!r}, deliveries=1)")
    (batch,) = cache.event_batches()
    yield batch, f"<eventlog.EventBatch of cache 'shown': 2 events, up to id {batch.last_id}>"
    with cache.entries() as rows:
        yield next(rows.batches()), "<eventlog.EntryBatch: [12] entries>"


def test_objects_say_by_public_names_what_they_are_of_and_what_to_send_instead_of_them(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        for one, wanted in shown(client):
            assert re.fullmatch(wanted, repr(one)), repr(one)
            name = re.match(r"<([\w.]+)", repr(one))
            place, _, kind = name[1].rpartition(".") if name else ("eventlog", "", "Task")
            assert hasattr(eventlog.blocking if place.endswith("blocking") else eventlog, kind)
            with pytest.raises(
                TypeError, match=r"cannot be pickled: send its (address or name, and connect in the other process|arrow\(\))"
            ):
                pickle.dumps(one)
    assert repr(client).endswith(", closed>")
