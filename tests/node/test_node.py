"""A node's own tasks, to the end of the node; what its start says."""

import asyncio
from types import SimpleNamespace

import pytest

from eventlog.errors import ClientClosed
from eventlog.limits import SEGMENTS_DEFAULT
from eventlog.node.handlers import TABLE
from eventlog.node.node import dispatcher
from eventlog.wire.eventlog_pb2 import Message
from tests.node.nodes import SEGMENTS, with_node


async def use_the_store() -> None:
    await asyncio.sleep(0)
    raise ClientClosed(what="store")


def test_a_task_that_comes_when_all_have_ended_ends_too(tmp_path):
    async def act(node):
        await node.end_tasks()
        late = asyncio.ensure_future(use_the_store())
        node.own(late)
        await asyncio.wait([late])
        assert late.cancelled()

    with_node(tmp_path, act)


@pytest.mark.parametrize(("asked", "said"), [(SEGMENTS, False), (SEGMENTS_DEFAULT, False), (2 * SEGMENTS, True)])
def test_a_number_of_segments_that_cannot_be_had_is_said_where_somebody_asked_for_it(tmp_path, caplog, asked, said):
    async def count(node):
        return node.segments

    assert with_node(tmp_path, count, storage="rocksdb") == SEGMENTS
    caplog.clear()
    assert with_node(tmp_path, count, storage="rocksdb", segments=asked) == SEGMENTS
    assert any(record.message.startswith("segments_fixed") for record in caplog.records) is said


def test_what_takes_long_is_the_last_that_its_connection_asks_in_a_turn(tmp_path):
    async def act(node):
        dispatch = dispatcher(node, TABLE)
        for kind, ends_turn in (("list_nodes", True), ("ping", False)):
            answers = []
            connection = SimpleNamespace(state={}, ends_turn=False)
            exchange = SimpleNamespace(kind=kind, message=Message(), body=b"", connection=connection, answer=answers.append)
            dispatch(exchange)
            assert len(answers) == 1
            assert exchange.connection.ends_turn is ends_turn

    with_node(tmp_path, act)
