"""Damage that cannot be mended."""

import pytest

from eventlog.errors import CorruptData
from eventlog.segment.keys import parse_log_key
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


def test_what_a_copy_has_that_is_not_read_here_yet_is_looked_through_as_well(tmp_path):
    """The state of such a copy is to be made from it: it would wait for ever, and nobody could lead it here."""

    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k", b"v")])
        ((key, data),) = [pair for pair in node.store.read_log(b"", b"\xff" * 8, bytes_max=1 << 20) if parse_log_key(pair[0])[1]]
        node.store.append([(key, data[:-1] + bytes([data[-1] ^ 1]))], [])
        node.low.here[:] = False
        assert not await node.mending.mend(cache), "nobody else has it"
        node.store.append([(key, data)], [])
        assert await node.mending.mend(cache)

    with_node(tmp_path, act)
