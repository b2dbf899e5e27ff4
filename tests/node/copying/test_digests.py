"""Checksums of copies of a segment."""

import pytest

from eventlog.errors import EventLogError, Unavailable
from eventlog.ids import ID_MAX
from eventlog.node.copying.digests import read_digest
from eventlog.segment.keys import log_range, parse_log_key
from eventlog.segment.memory import open_store
from eventlog.segment.port import StoreOptions
from eventlog.wire import eventlog_pb2 as pb
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node

ROWS = [(b"key%d" % number, b"value%d" % number) for number in range(200)]


async def written(node, *, rounds=1):
    """Return a cache with events in every segment, and what its log holds, by segment."""
    cache = await cache_of(node)
    for _ in range(rounds):
        await submit(node, cache, ROWS)
    values = {}
    for segment in range(SEGMENTS):
        lower, upper = log_range(segment, cache.cache_id, after=0, upto=ID_MAX - 1)
        values[segment] = node.store.read_log(lower, upper, bytes_max=1 << 30)
    return cache, values


def copy_of(tmp_path, pairs):
    store = open_store(tmp_path, segments=SEGMENTS, options=StoreOptions())
    store.append(pairs, [])
    return store


def test_equal_copies_have_equal_digests_and_a_flipped_bit_is_seen(tmp_path):
    async def act(node):
        cache, values = await written(node)
        pairs = values[3]
        assert pairs
        after, upto = {cache.cache_id: 0}, ID_MAX - 1
        own = read_digest(node.store, 3, after=after, upto=upto)
        assert own == read_digest(copy_of(tmp_path / "a", pairs), 3, after=after, upto=upto)
        key, data = pairs[0]
        spoilt = data[:-1] + bytes([data[-1] ^ 1])
        other = read_digest(copy_of(tmp_path / "b", [(key, spoilt), *pairs[1:]]), 3, after=after, upto=upto)
        assert other[:2] == own[:2]
        assert other[2] != own[2]

    with_node(tmp_path / "n", act)


def test_only_what_lies_between_the_bounds_counts(tmp_path):
    async def act(node):
        cache, values = await written(node, rounds=3)
        first, *_, last = values[0]
        assert first != last
        everything = read_digest(node.store, 0, after={cache.cache_id: 0}, upto=ID_MAX - 1)
        less = read_digest(node.store, 0, after={cache.cache_id: 0}, upto=everything[1] - 1024 * 1_000_000)
        assert less[0] < everything[0]
        assert read_digest(node.store, 0, after={cache.cache_id: everything[1]}, upto=ID_MAX - 1) == (0, 0, 0)

    with_node(tmp_path, act)


def test_what_retention_removes_before_it_was_read_is_no_difference(tmp_path):
    async def act(node):
        cache, values = await written(node, rounds=3)
        first = values[0][0]
        bounds = {"after": {cache.cache_id: 0}, "upto": ID_MAX - 1}
        end_of_first = read_digest(node.store, 0, after={cache.cache_id: 0}, upto=parse_log_key(first[0])[2])[1]
        kept = copy_of(tmp_path / "kept", values[0][1:])
        with pytest.raises(Unavailable, match="retention"):
            read_digest(kept, 0, **bounds, trimmed=lambda _: end_of_first)
        with pytest.raises(Unavailable, match="retention"):
            read_digest(copy_of(tmp_path / "empty", []), 0, **bounds, trimmed=lambda _: end_of_first)

    with_node(tmp_path / "n", act)


def test_what_retention_removes_after_it_was_read_does_not_matter(tmp_path):
    async def act(node):
        cache, values = await written(node, rounds=3)
        bounds = {"after": {cache.cache_id: 0}, "upto": ID_MAX - 1}
        calls = iter([0, ID_MAX])
        first = parse_log_key(values[0][0][0])[2]
        with pytest.raises(Unavailable, match="retention"):
            read_digest(node.store, 0, **bounds, trimmed=lambda _: next(calls))
        calls = iter([0, first])
        assert read_digest(node.store, 0, **bounds, trimmed=lambda _: next(calls)) == read_digest(node.store, 0, **bounds)

    with_node(tmp_path, act)


def test_a_node_that_has_trimmed_more_by_now_has_no_digest(tmp_path):
    async def act(node):
        cache, values = await written(node, rounds=3)
        cache.trimmed_ids[0] = parse_log_key(values[0][0][0])[2]
        asked = pb.DigestSegments(segments=[0], after=[pb.CacheBound(cache=cache.cache_id, id=0)])
        with pytest.raises(Unavailable, match="retention"):
            await node.digests.own(asked)

    with_node(tmp_path, act)


def test_a_comparison_that_retention_disturbs_is_made_again(tmp_path):
    class Rising:
        """Where a cache is trimmed: nowhere when it is looked at first, and then beyond its first value."""

        def __init__(self, upto):
            self.looks = 0
            self._upto = upto

        def __getitem__(self, segment):
            self.looks += 1
            return self._upto if self.looks > 1 else 0

    async def act(node):
        cache, values = await written(node, rounds=3)
        kept, cache.trimmed_ids = cache.trimmed_ids, Rising(parse_log_key(values[0][0][0])[2])
        found = await node.digests.compare(0, [node.number])
        assert cache.trimmed_ids.looks > 2
        assert found.why == ""
        cache.trimmed_ids = kept

    with_node(tmp_path, act)


def test_a_node_tells_digests_of_what_it_holds_up_to_its_watermark(tmp_path):
    async def act(node):
        await written(node)
        answer = await node.digests.own(pb.DigestSegments(segments=[0, 1, 99]))
        assert [found.segment for found in answer.digests] == [0, 1]
        assert sum(found.events for found in answer.digests) > 0
        assert all(found.node == node.name and found.high_watermark >= found.last_id for found in answer.digests)
        bounds = await node.digests.own(pb.DigestSegments(segments=[0], bounds_only=True))
        assert (bounds.digests[0].events, bounds.digests[0].digest) == (0, 0)

    with_node(tmp_path, act)


def test_a_copy_alone_is_equal_to_itself_and_one_that_is_not_there_is_said(tmp_path):
    async def act(node):
        await written(node)
        found = await node.digests.compare(2, [node.number])
        assert found.why == ""
        assert found.digests[node.number].events > 0
        missing = await node.digests.compare(2, [node.number, 77])
        assert "node 77" in missing.why
        assert missing.digests == {}

    with_node(tmp_path, act)


def test_damage_is_an_error_and_not_a_digest(tmp_path):
    async def act(node):
        cache, values = await written(node)
        key, _ = values[1][0]
        with pytest.raises(EventLogError):
            read_digest(copy_of(tmp_path / "x", [(key, b"short")]), 1, after={cache.cache_id: 0}, upto=ID_MAX - 1)

    with_node(tmp_path / "n", act)
