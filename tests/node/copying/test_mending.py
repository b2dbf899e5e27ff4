"""Damage that cannot be mended."""

import pytest

from eventlog.errors import CorruptData
from tests.node.nodes import cache_of, submit, with_node


def test_a_file_that_cannot_be_read_ends_no_node(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k", b"v")])

        def unreadable(*_, **__):
            raise CorruptData(where="log", why="the checksum of a block is wrong")

        node.store.read_log, kept = unreadable, node.store.read_log
        with pytest.raises(CorruptData):
            await node.mending.read(unreadable)
        assert not await node.mending.mend(cache)
        node.store.read_log = kept
        assert await node.mending.mend(cache)

    with_node(tmp_path, act)
