"""What is missing in the middle of a log, or at its beginning, is named; what is only damaged is not."""

import pytest

from eventlog.errors import CorruptData, LostDisk
from eventlog.ids import ID_MAX, ID_STEP
from eventlog.segment import keys
from eventlog.segment.memory import open_store
from eventlog.segment.recovery import recover
from eventlog.segment.walking import read_sound
from tests.segment.worlds import World

KEYED = {1, 2}


@pytest.fixture
def world():
    """Three values of cache 1 and two of cache 2 in segment 0, one in segment 1; all with two events but the last."""
    made = World(open_store("", segments=2))
    for number in range(3):
        made.group((0, 1, [(b"a", b"%d" % number), (b"b", b"")]))
        if number < 2:
            made.group((0, 2, [(b"c", b"%d" % number), (b"d", b"")]))
    made.group((1, 1, [(b"z", b"1")]))
    made.mark()
    return made


def own_keys(world, segment, cache):
    return sorted(key for key in world.log if key.startswith(keys.cache_range(segment, cache)[0]))


def gaps(world):
    found = recover(world.store, keyed=KEYED)
    assert len(found.faults) == len(found.gaps)
    assert all(isinstance(refusal, LostDisk) for refusal in found.refusals)
    return [(gap.segment, gap.cache, gap.offset, gap.first_offset) for gap in found.gaps]


def test_a_whole_log_has_none(world):
    assert gaps(world) == []


@pytest.mark.parametrize(("cache", "lost", "offsets"), [(1, [0], (0, 2)), (1, [1], (2, 4)), (1, [0, 1], (0, 4)), (2, [0], (0, 2))])
def test_missing_values_are_named_with_their_offsets(world, cache, lost, offsets):
    for number in lost:
        world.store.disk.log.delete(own_keys(world, 0, cache)[number])
    assert gaps(world) == [(0, cache, *offsets)]


def test_the_refusal_says_segment_cache_offsets_and_ids(world):
    first, second, third = own_keys(world, 0, 1)
    world.store.disk.log.delete(second)
    (refusal,) = recover(world.store, keyed=KEYED).refusals
    after, base = keys.parse_log_key(first)[2] + ID_STEP, keys.parse_log_key(third)[2]
    assert "segment 0, cache 1" in str(refusal)
    assert f"offsets 2 to 3 are missing, between the ids {after} and {base}" in str(refusal)


def test_what_retention_removed_is_not_missing(world):
    first = own_keys(world, 0, 1)[0]
    world.store.trim([(first, first + b"\0")], [keys.encode_trim(1, 0, keys.parse_log_key(first)[2] + ID_STEP, 1)])
    assert gaps(world) == []


def test_what_lies_below_what_has_settled_is_not_looked_at(world, monkeypatch):
    first, second, _ = own_keys(world, 0, 1)
    reached = recover(world.store, keyed=KEYED).ends.ids
    reached[0] = keys.parse_log_key(second)[2] + ID_STEP
    monkeypatch.setattr(type(world.store), "settled", property(lambda _: reached))
    world.store.disk.log.delete(first)
    assert gaps(world) == []
    world.store.disk.log.delete(second)
    assert gaps(world) == [(0, 1, 0, 4)]


@pytest.mark.parametrize("at", [20, 34, -1])
def test_a_damaged_value_is_there_and_is_left_to_who_reads_it(world, at):
    second = own_keys(world, 0, 1)[1]
    data = bytearray(world.log[second])
    data[at] ^= 1
    world.store.append([(second, bytes(data))], [])
    assert gaps(world) == []


def test_who_hands_values_to_others_does_not_hand_on_a_hole(world):
    _, second, _ = own_keys(world, 0, 1)
    read_sound(world.store, 0, after=0, upto=ID_MAX - 1, bytes_max=1 << 20)
    world.store.disk.log.delete(second)
    with pytest.raises(CorruptData, match=r"segment 0, cache 1.*offsets 2 to 3 are missing"):
        read_sound(world.store, 0, after=0, upto=ID_MAX - 1, bytes_max=1 << 20)


def test_a_value_that_begins_too_early_or_is_of_an_older_epoch_is_damage(world):
    world.epoch = 3
    world.store.append([], [keys.encode_epoch(0, 3, world.next_id, previous=0)])
    world.group((0, 1, [(b"a", b"")]))
    world.epoch = 1
    world.group((0, 1, [(b"a", b"")]))
    assert "epoch 1 does not follow" in str(recover(world.store, keyed=KEYED).refusals[0])
