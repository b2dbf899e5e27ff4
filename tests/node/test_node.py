"""A node's own tasks, to the end of the node."""

import asyncio

from eventlog.errors import ClientClosed
from tests.node.nodes import with_node


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
