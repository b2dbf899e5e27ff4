"""Segments that begin or end: a start waits for those that are still its own, and the log has a line a moment, not a line a segment."""

import asyncio
import logging

import msgspec
import numpy as np

from eventlog.control.records import Versioned
from eventlog.errors import MetadataConflict, MetadataUnavailable
from eventlog.node.copying.takeover import Tally
from tests.node.nodes import with_node


def learn(node, segment, *, primary):
    """Have the record of a segment's next term arrive."""
    found = node.view.segments[segment]
    epoch = node.core.epochs.item(segment) + 1
    later = msgspec.structs.replace(found.record, epoch=epoch, owners=(primary,))
    node.replicas.learn_now([Versioned(later, found.revision + epoch)])


def test_nobody_waits_for_a_term_that_ended_before_it_was_served(tmp_path):
    async def act(node):
        async def no_lease():
            raise MetadataUnavailable(outcome="none", why="away")

        node.clock.observe(node.clock.ceiling)  # no id for a marker, so the term cannot begin
        node.lease.renew = no_lease
        learn(node, 0, primary=node.number)
        waiting = asyncio.create_task(node.takeover.served(np.array([0]), wait_ms=3_600_000))
        await asyncio.sleep(0)
        assert not waiting.done()
        learn(node, 0, primary=node.number + 1)
        return await asyncio.wait_for(waiting, 30), await node.takeover.served(np.array([1]), wait_ms=0)

    assert with_node(tmp_path, act) == (False, True)


def test_a_term_begins_however_often_others_change_the_record_before_its_lease_is_renewed(tmp_path):
    async def act(node):
        renew, conflicts = node.lease.renew, iter(range(2))

        async def beaten():
            if next(conflicts, None) is not None:
                raise MetadataConflict(key="node/1")
            await renew()

        node.clock.observe(node.clock.ceiling)
        node.lease.renew = beaten
        learn(node, 0, primary=node.number)
        return await node.takeover.served(np.array([0]), wait_ms=30_000)

    assert with_node(tmp_path, act)


def test_segments_that_begin_one_by_one_are_one_line(caplog):
    logged = asyncio.Event()

    class Watch(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            logged.set()

    async def begin() -> None:
        tally = Tally(of=lambda: 256)
        for _ in range(256):
            tally.add("leading", 1)
        tally.add("resigned", 2)
        await logged.wait()

    watch = Watch()
    logging.getLogger("eventlog.node").addHandler(watch)
    try:
        with caplog.at_level(logging.INFO):
            asyncio.run(asyncio.wait_for(begin(), 60))
    finally:
        logging.getLogger("eventlog.node").removeHandler(watch)
    assert caplog.messages == ["leading segments=256 of=256", "resigned segments=2 of=256"]
