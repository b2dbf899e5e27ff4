"""Moments of the state: exact while everything changes, bounded in number, time and memory."""

import asyncio
import random

import pytest

from eventlog.errors import ClientClosed
from eventlog.hashing import hash_key
from eventlog.limits import PIN_AGE_MS_MAX, PIN_IDLE_MS_MAX, PIN_SHARED_MS_MAX, PINS_MAX
from eventlog.segment.keys import TAG_ENTRY, tag_range
from eventlog.write.groups import WriteResult
from tests.loops import until
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node


def state_of(pin, cache, segment):
    rows = pin.snapshot.read(*tag_range(segment, cache.cache_id, TAG_ENTRY), rows_max=10_000, bytes_max=1 << 30)
    return {key[7:]: value[10:] for key, value in zip(rows.keys, rows.values, strict=True)}


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_a_pin_holds_what_the_log_says_up_to_its_id_and_nothing_else(tmp_path, storage):
    async def act(node):
        cache = await cache_of(node)
        chance, log, taken = random.Random(3), [], []

        async def write(number):
            for turn in range(60):
                rows = [(b"k%d" % chance.randrange(40), None if chance.random() < 0.2 else b"%d.%d" % (number, turn)) for _ in range(3)]
                result = await submit(node, cache, list(dict(rows).items()))
                assert isinstance(result, WriteResult)
                log.extend((id_, key, value) for (key, value), id_ in zip(dict(rows).items(), in_order(result, rows), strict=True) if id_)

        async def pin():
            while len(log) < 400:
                taken.append(await node.state_reads.pins.take())
                await asyncio.sleep(0)

        await asyncio.gather(*map(write, range(4)), pin())
        assert len(taken) > 5
        for found in taken[:: max(1, len(taken) // 20)]:
            for segment in range(SEGMENTS) if found.is_open else ():
                assert state_of(found, cache, segment) == expected(log, segment, found.id_of(segment))

    with_node(tmp_path, act, storage=storage)


def expected(log, segment, upto):
    """Return what a segment holds after the changes up to an id."""
    last = {key: value for id_, key, value in sorted(log, key=lambda row: row[0]) if id_ <= upto and segment_of_key(key) == segment}
    return {key: value for key, value in last.items() if value is not None}


def segment_of_key(key):
    return hash_key(key) >> (64 - (SEGMENTS - 1).bit_length())


def in_order(result, rows):
    """Return the ids of a frame's rows in the order in which they were given: blocks are sorted by segment."""
    keys = list(dict(rows))
    order = sorted(range(len(keys)), key=lambda row: segment_of_key(keys[row]))
    ids = [0] * len(keys)
    for place, row in enumerate(order):
        ids[row] = int(result.ids[place])
    return ids


def test_nothing_changed_is_the_same_pin_and_a_change_is_another(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        pins = node.state_reads.pins
        async with asyncio.timeout(60):
            while (first := await pins.take()) is not await pins.take():
                pass  # the node's own first steps are changes, too
        assert await pins.take(at_least=(0, first.id_of(0) + (1 << 40))) is not first
        later = await pins.take()
        later.born -= (PIN_SHARED_MS_MAX + 1) / 1000
        assert await pins.take() is not later, "readers want what was a moment ago"
        await submit(node, cache, [(b"a", b"1")])
        second = await pins.take()
        assert second is not first
        found = pins.find(0, first.id_of(0))
        assert found is not None
        assert found.id_of(0) == first.id_of(0)
        assert pins.find(0, 12345) is None

    with_node(tmp_path, act)


def test_pins_are_few_and_those_that_were_not_used_for_longest_go_first(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        pins = node.state_reads.pins
        taken = []
        for number in range(PINS_MAX + 4):
            await submit(node, cache, [(b"k", b"%d" % number)])
            taken.append(await pins.take())
            pins.use(taken[0])
        assert len(pins) == PINS_MAX
        assert taken[0].is_open
        assert [pin.is_open for pin in taken[1:6]] == [False] * 4 + [True]
        with pytest.raises(ClientClosed):
            taken[1].snapshot.read(b"", b"\xff", rows_max=1, bytes_max=1)

    with_node(tmp_path, act)


@pytest.mark.parametrize(("born_ms", "used_ms"), [(0, PIN_IDLE_MS_MAX + 1), (PIN_AGE_MS_MAX + 1, 0)])
def test_a_pin_goes_when_it_is_idle_or_old(tmp_path, born_ms, used_ms):
    async def act(node):
        node.state_reads.pins.sweep_s = 0.01
        pin = await node.state_reads.pins.take()
        pin.born -= born_ms / 1000
        pin.used -= used_ms / 1000
        await until(lambda: not pin.is_open)
        assert len(node.state_reads.pins) == 0

    with_node(tmp_path, act)
