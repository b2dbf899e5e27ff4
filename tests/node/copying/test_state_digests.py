"""Checksums of the state of copies: a row that is not like the others' is seen."""

import asyncio
from contextlib import closing

import pytest

from eventlog.batch.entries import encode_entry
from eventlog.errors import CorruptData, Unavailable
from eventlog.node.copying.state_digests import StateDigest, read_state
from eventlog.segment.keys import TAG_ENTRY, entry_key, expiry_key, tag_range
from eventlog.segment.memory import open_store
from eventlog.segment.port import StoreOptions
from eventlog.wire import eventlog_pb2 as pb
from tests.node.nodes import cache_of, submit, with_node

ENDS = 77
ROWS = {
    **{entry_key(3, 1, b"k%03d" % number): encode_entry(number << 10, b"v%d" % number) for number in range(300)},
    entry_key(3, 1, b"short"): encode_entry(5 << 10, b"v", expiry=ENDS),
    expiry_key(3, 1, ENDS, b"short"): b"",
}


def digest_of(tmp_path, rows, without=()):
    with closing(open_store(str(tmp_path), segments=8, options=StoreOptions())) as store:
        store.apply(list(rows.items()))
        found = StateDigest()
        read_state(store.snapshot(), 3, 1, without=set(without), found=found)
        return found.entries, found.digest


def test_equal_states_have_equal_digests(tmp_path):
    digest = digest_of(tmp_path / "a", ROWS)
    assert digest == digest_of(tmp_path / "b", ROWS)
    assert digest[0] == 301


@pytest.mark.parametrize(
    "change",
    [
        {entry_key(3, 1, b"k007"): encode_entry(7 << 10, b"v8")},
        {entry_key(3, 1, b"k007"): encode_entry(8 << 10, b"v7")},
        {entry_key(3, 1, b"k007"): None},
        {entry_key(3, 1, b"k0070"): encode_entry(7 << 10, b"v7")},
        {expiry_key(3, 1, ENDS, b"short"): None},
    ],
    ids=["value", "version", "missing", "too many", "nothing ends it"],
)
def test_a_changed_row_is_seen_unless_its_key_is_left_out(tmp_path, change):
    changed = {key: value for key, value in (ROWS | change).items() if value is not None}
    assert digest_of(tmp_path / "a", changed) != digest_of(tmp_path / "b", ROWS)
    keys = {b"k007", b"k0070", b"short"}
    assert digest_of(tmp_path / "c", changed, without=keys) == digest_of(tmp_path / "d", ROWS, without=keys)


def test_a_row_of_the_state_too_many_that_ends_nothing_is_not_counted(tmp_path):
    late = ROWS | {expiry_key(3, 1, ENDS - 1, b"short"): b""}  # a backup deletes such rows when they are due
    assert digest_of(tmp_path / "a", late) == digest_of(tmp_path / "b", ROWS)


def test_a_state_whose_changes_retention_removes_while_it_is_read_has_no_digest(tmp_path):
    async def act(node):
        cache, rows = await cache_of(node), [(b"key%d" % number, b"v") for number in range(200)]
        await submit(node, cache, rows)
        pin = await node.state_digests.pin_of(0)
        await submit(node, cache, rows)
        upto = await node.state_digests.pin_of(0) - 1
        asked = pb.DigestSegments(segments=[0], state_pin=pin, state_from=pin - 1, state_upto=upto)
        assert (await node.state_digests.own(0, asked)).entries < int(cache.live[0])
        asyncio.get_running_loop().call_soon(cache.trimmed_ids.__setitem__, 0, upto)  # when the reading has begun
        with pytest.raises(Unavailable, match="retention"):
            await node.state_digests.own(0, asked)

    with_node(tmp_path, act)


@pytest.mark.parametrize("how", ["an entry is gone", "an entry is too many"])
def test_a_state_that_its_counter_does_not_know_has_no_digest(tmp_path, how):
    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"key%d" % number, b"v") for number in range(200)])
        segment = int(cache.live.argmax())
        kept = int(cache.live[segment])
        own, _ = (await node.storage.run(lambda: node.store.read_state(*tag_range(segment, cache.cache_id, TAG_ENTRY), limit=1)))[0]
        put = (own, None) if how == "an entry is gone" else (own + b"0", encode_entry(1 << 10, b"v"))
        await node.storage.run(lambda: node.store.apply([put]))
        pin = await node.state_digests.pin_of(segment)
        asked = pb.DigestSegments(segments=[segment], state_pin=pin, state_from=pin - 1, state_upto=pin - 1)
        with pytest.raises(CorruptData, match=f"segment {segment}.*the counter knows {kept}"):
            await node.state_digests.own(segment, asked)

    with_node(tmp_path, act)


def test_entries_are_counted_as_of_the_pin_while_writing_goes_on(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        for round_ in range(20):
            await submit(node, cache, [(b"key%d %d" % (round_, number), b"v") for number in range(50)])
            pin, more = await asyncio.gather(node.state_digests.pin_of(0), submit(node, cache, [(b"more%d" % round_, b"v")]))
            del more
            asked = pb.DigestSegments(segments=[0], state_pin=pin, state_from=pin - 1, state_upto=pin - 1)
            await node.state_digests.own(0, asked)

    with_node(tmp_path, act)
