"""Filters in use: where their events can be, and that nothing else is read for them."""

import asyncio

import pytest

from eventlog.hashing import hash_key, segment_of
from eventlog.node.reading.filters import context_of, segments_of
from eventlog.predicate.compile import compile_filter
from eventlog.predicate.spec import FilterSpec
from eventlog.segment.keys import parse_log_key
from eventlog.wire.eventlog_pb2 import Filter, Poll
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node
from tests.stores import open_stepped


def segment(key: bytes) -> int:
    return segment_of(hash_key(key), SEGMENTS)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("key = 'k1'", {segment(b"k1")}),
        ("key IN ('k1', 'k2') AND value.n > 1", {segment(b"k1"), segment(b"k2")}),
        ("segment = 3", {3}),
        ("segment IN (3, 5) OR key = 'k1'", None),
        ("key LIKE 'k%'", None),
        ("value.n = 1", None),
    ],
)
def test_named_keys_and_segments_say_where_to_look(tmp_path, where, expected):
    async def act(node):
        cache = await cache_of(node, format="json")
        found = segments_of(compile_filter(FilterSpec(where=where), context_of(cache)), cache)
        assert found is None if expected is None else found.tolist() == sorted(expected)
        stateless = await cache_of(node, "log", format="json", state=False, before=False)
        if "key" in where:  # in such a log the segment of every key of a block is not checked
            assert segments_of(compile_filter(FilterSpec(where=where), context_of(stateless)), stateless) is None

    with_node(tmp_path, act)


async def read(node, cache, where):
    """Return the keys and values that match, and where the reader stood at the end."""
    poll, found = Poll(cache_id=cache.cache_id, filter=Filter(where=where), max_events=3), []
    matches = await node.reads.filters.of_poll(cache, poll)
    while True:
        pull = node.reads.begin(poll, matches=matches)
        done = asyncio.get_running_loop().create_future()
        pull.done, pull.owner = done.set_result, "test"
        node.reads.pull(pull)
        delivered = await done
        found.append(delivered.events)
        if delivered.is_end:
            return sum(found), delivered.upto
        poll.after = delivered.upto


@pytest.mark.parametrize("is_history", [False, True])
def test_a_key_is_looked_for_in_its_segment_alone(tmp_path, is_history):
    read_segments = set()

    def noted(read, ranges, bounds):
        read_segments.update(parse_log_key(lower)[0] for lower, _ in ranges)
        return read(ranges, bounds)

    async def act(node):
        cache = await cache_of(node, format="json")
        for n in range(30):
            result = await submit(node, cache, [(b"k%d" % key, b'{"n": %d}' % n) for key in range(20)])
        if is_history:
            node.tail.skip(int(result.ids.max()))
        node.store.instead["read_logs_and_next"] = noted
        events, upto = await read(node, cache, "key = 'k7' AND value.n >= 10")
        assert (events, upto >= int(result.ids.max())) == (20, True)
        assert read_segments == ({segment(b"k7")} if is_history else set())
        assert (await read(node, cache, "key = 'k7' OR value.n = 3"))[0] == 30 + 19

    with_node(tmp_path, act, engine=open_stepped)
