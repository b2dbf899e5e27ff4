import numpy as np
import pytest

from eventlog.errors import CorruptData, LostDisk
from eventlog.ids import ID_MAX, ID_STEP
from eventlog.segment import keys
from eventlog.segment.memory import MemoryStore, open_store
from eventlog.segment.port import StoreEnds
from eventlog.segment.recovery import recover
from eventlog.segment.walking import read_sound
from tests.segment.worlds import World, stored_value

KEYED = {1, 2}


@pytest.fixture
def world():
    return World(open_store("", segments=4))


def reopened(world):
    world.store.close()
    return MemoryStore(world.store.disk)


def refusals(store, **more):
    return [(type(refusal), str(refusal)) for refusal in recover(store, keyed=KEYED, **more).refusals]


def test_an_empty_store_begins_at_zero():
    recovery = recover(open_store("", segments=4), keyed=KEYED)
    assert recovery.ends.ids.tolist() == [0] * 4
    assert recovery.caches == {}
    assert recovery.refusals == ()
    assert recovery.segments_to_replay == []
    assert recovery.last_id == 0


def test_ends_and_next_offsets_are_those_of_the_last_values(world):
    world.group((0, 1, [(b"a", b"1"), (b"b", b"2")]), (2, 1, [(b"c", b"3")]), (2, 2, [(b"d", b"4")]))
    world.group((0, 1, [(b"a", None)]))
    world.mark()
    recovery = recover(reopened(world), keyed=KEYED)
    assert recovery.refusals == ()
    assert recovery.ends.ids.tolist() == [5 * ID_STEP, 0, 4 * ID_STEP, 0]
    assert recovery.ends.epochs.tolist() == [1, 1, 1, 1]
    assert recovery.caches[1].next_offsets.tolist() == [3, 0, 1, 0]
    assert recovery.caches[1].ends.tolist() == [5 * ID_STEP, 0, 3 * ID_STEP, 0]
    assert recovery.caches[2].next_offsets.tolist() == [0, 0, 1, 0]
    assert recovery.last_id == 5 * ID_STEP


def test_epoch_histories_rise_and_the_end_has_the_epoch_of_its_value(world):
    world.group((0, 1, [(b"a", b"1")]))
    world.epoch = 3
    world.store.append([], [keys.encode_epoch(0, 3, world.next_id, previous=0)])
    world.group((0, 1, [(b"a", b"2")]))
    recovery = recover(world.store, keyed=KEYED)
    assert [(row.epoch, row.first_id) for row in recovery.epochs[0]] == [(1, 0), (3, 2 * ID_STEP)]
    assert recovery.ends.epochs.tolist() == [3, 1, 1, 1]


def test_what_lies_above_the_marks_is_to_be_replayed(world):
    world.group((0, 1, [(b"a", b"1")]), (1, 1, [(b"b", b"1")]))
    world.mark()
    world.group((1, 1, [(b"b", b"2")]))
    recovery = recover(world.store, keyed=KEYED)
    assert recovery.segments_to_replay == [1]
    assert recovery.marks.tolist() == [ID_STEP, 2 * ID_STEP, 0, 0]
    assert recovery.mark_epochs.tolist() == [1, 1, 0, 0]


def test_trimming_everything_does_not_lower_the_end(world):
    last = world.group((0, 1, [(b"a", b"1"), (b"b", b"1")]))
    world.mark()
    world.store.trim([keys.cache_range(0, 1)], [keys.encode_trim(1, 0, last, 1)])
    recovery = recover(reopened(world), keyed=KEYED)
    assert recovery.refusals == ()
    assert recovery.ends.ids.tolist() == [last, 0, 0, 0]
    assert recovery.ends.epochs.tolist()[0] == 1
    assert recovery.caches[1].next_offsets.tolist()[0] == 2
    assert recovery.caches[1].trimmed_ids.tolist()[0] == last
    assert recovery.caches[1].trimmed_offsets.tolist() == [1, -1, -1, -1]


def test_dropping_a_cache_keeps_the_end_by_its_row(world):
    last = world.group((0, 1, [(b"a", b"1")]))
    world.mark()
    world.store.drop([keys.cache_range(0, 1)], [keys.cache_range(0, 1)], [], meta=[keys.encode_end(0, last, 1)])
    recovery = recover(reopened(world), keyed=KEYED)
    assert recovery.refusals == ()
    assert recovery.ends.ids.tolist()[0] == last
    assert recovery.ends.epochs.tolist()[0] == 1
    assert recovery.caches == {}


# ---------------------------------------------------------------- refusals


def test_a_log_shorter_than_the_ends_beside_it_is_a_lost_disk(world):
    first = world.group((2, 1, [(b"a", b"1")]))
    second = world.group((2, 1, [(b"a", b"2")]))
    world.mark()
    world.store.disk.log.delete(keys.log_key(2, 1, second))
    ((kind, text), *_) = refusals(reopened(world))
    assert kind is LostDisk
    assert "segment 2" in text
    assert str(first) in text
    assert str(second) in text


def test_an_emptied_log_is_a_lost_disk_in_each_segment_that_had_one(world):
    world.group((0, 1, [(b"a", b"1")]), (3, 1, [(b"b", b"1")]))
    for family in (world.store.disk.log, world.store.disk.meta, world.store.disk.state):
        family.delete_range(b"", b"\xff" * 20)
    found = refusals(reopened(world))
    assert [kind for kind, _ in found] == [LostDisk, LostDisk]
    assert "segment 0" in found[0][1]
    assert "segment 3" in found[1][1]


def test_an_end_of_an_older_epoch_is_a_lost_disk(world):
    last = world.group((0, 1, [(b"a", b"1")]))
    ids = np.array([last, 0, 0, 0])
    world.store.sync(StoreEnds(ids=ids, epochs=np.array([2, 0, 0, 0], np.uint32)))
    assert [kind for kind, _ in refusals(reopened(world))] == [LostDisk]


def test_a_damaged_last_value_is_named_and_never_counted(world):
    last = world.group((1, 2, [(b"a", b"1")]))
    world.mark()
    key = keys.log_key(1, 2, last)
    world.store.disk.log.put(key, world.log[key][:-1] + b"\xff")
    found = refusals(reopened(world))
    assert found[0][0] is CorruptData
    assert "segment 1, cache 2" in found[0][1]


def test_a_value_under_another_key_is_damage(world):
    last = world.group((1, 1, [(b"a", b"1")]))
    world.store.append([(keys.log_key(1, 1, last + ID_STEP), world.log[keys.log_key(1, 1, last)])], [])
    assert refusals(world.store)[0][0] is CorruptData


def test_a_value_in_another_segment_is_damage(world):
    last = world.group((1, 1, [(b"a", b"1")]))
    world.store.append([(keys.log_key(2, 1, last), world.log[keys.log_key(1, 1, last)])], [])
    assert refusals(world.store)[0][0] is CorruptData


def test_a_state_ahead_of_the_log_is_a_lost_disk(world):
    world.group((0, 1, [(b"a", b"1")]))
    ids = np.array([9 * ID_STEP, 0, 0, 0])
    world.store.apply([keys.encode_marks(0, ids, np.ones(4, np.uint32))])
    found = refusals(world.store)
    assert [kind for kind, _ in found] == [LostDisk]
    assert str(9 * ID_STEP) in found[0][1]


def test_a_state_that_lost_what_the_log_no_longer_has_is_a_lost_disk(world):
    world.group((0, 1, [(b"a", b"1")]))
    world.mark()
    last = world.group((0, 1, [(b"a", b"2")]), (1, 9, [(b"b", b"2")]))
    world.store.trim(
        [keys.cache_range(0, 1), keys.cache_range(1, 9)],
        [keys.encode_trim(1, 0, last - ID_STEP, 1), keys.encode_trim(9, 1, last, 0)],
    )
    found = refusals(world.store)
    assert [kind for kind, _ in found] == [LostDisk], "cache 9 has no state to lose"
    assert "cache 1" in found[0][1]


def test_an_epoch_without_its_row_is_damage(world):
    world.epoch = 2
    world.group((0, 1, [(b"a", b"1")]))
    found = refusals(world.store)
    assert [kind for kind, _ in found] == [CorruptData]
    assert "epoch 2" in found[0][1]


def test_a_directory_that_ends_before_what_was_acknowledged_is_an_older_copy(world):
    last = world.group((0, 1, [(b"a", b"1")]))
    assert refusals(world.store, acknowledged=last) == []
    found = refusals(world.store, acknowledged=last + 1)
    assert [kind for kind, _ in found] == [LostDisk]
    assert "older copy" in found[0][1]


def test_a_directory_that_gave_its_log_away_is_no_older_copy(world):
    last = world.group((0, 1, [(b"a", b"1")]))
    world.store.append([], [keys.encode_left(last + 5)])
    assert refusals(world.store, acknowledged=last + 5) == []
    assert [kind for kind, _ in refusals(world.store, acknowledged=last + 6)] == [LostDisk]


def test_an_empty_value_counts_for_the_end_and_not_for_offsets(world):
    world.group((0, 1, [(b"a", b"1")]))
    base = world.next_id
    world.store.append([(keys.log_key(0, 1, base), stored_value(0, 1, [], base=base, offset=1))], [])
    recovery = recover(world.store, keyed=KEYED)
    assert recovery.ends.ids.tolist()[0] == base
    assert recovery.caches[1].next_offsets.tolist()[0] == 1


@pytest.fixture
def filled():
    """Three values of cache 1 and two of cache 2 in segment 0, one in segment 1; all with two events but the last."""
    made = World(open_store("", segments=2))
    for number in range(3):
        made.group((0, 1, [(b"a", b"%d" % number), (b"b", b"")]))
        if number < 2:
            made.group((0, 2, [(b"c", b"%d" % number), (b"d", b"")]))
    made.group((1, 1, [(b"z", b"1")]))
    made.mark()
    return made


def own_keys(filled, segment, cache):
    return sorted(key for key in filled.log if key.startswith(keys.cache_range(segment, cache)[0]))


def gaps(filled):
    found = recover(filled.store, keyed=KEYED)
    assert len(found.faults) == len(found.gaps)
    assert all(isinstance(refusal, LostDisk) for refusal in found.refusals)
    return [(gap.segment, gap.cache, gap.offset, gap.first_offset) for gap in found.gaps]


def test_a_whole_log_has_none(filled):
    assert gaps(filled) == []


@pytest.mark.parametrize(("cache", "lost", "offsets"), [(1, [0], (0, 2)), (1, [1], (2, 4)), (1, [0, 1], (0, 4)), (2, [0], (0, 2))])
def test_missing_values_are_named_with_their_offsets(filled, cache, lost, offsets):
    for number in lost:
        filled.store.disk.log.delete(own_keys(filled, 0, cache)[number])
    assert gaps(filled) == [(0, cache, *offsets)]


def test_the_refusal_says_segment_cache_offsets_and_ids(filled):
    first, second, third = own_keys(filled, 0, 1)
    filled.store.disk.log.delete(second)
    (refusal,) = recover(filled.store, keyed=KEYED).refusals
    after, base = keys.parse_log_key(first)[2] + ID_STEP, keys.parse_log_key(third)[2]
    assert "segment 0, cache 1" in str(refusal)
    assert f"offsets 2 to 3 are missing, between the ids {after} and {base}" in str(refusal)


def test_what_retention_removed_is_not_missing(filled):
    first = own_keys(filled, 0, 1)[0]
    filled.store.trim([(first, first + b"\0")], [keys.encode_trim(1, 0, keys.parse_log_key(first)[2] + ID_STEP, 1)])
    assert gaps(filled) == []


class Settled(MemoryStore):
    """A store in memory of which a part has been looked through, as of a real engine."""

    reached: np.ndarray

    @property
    def settled(self):
        return self.reached


def test_what_lies_below_what_has_settled_is_not_looked_at(filled):
    first, second, _ = own_keys(filled, 0, 1)
    reached = recover(filled.store, keyed=KEYED).ends.ids
    reached[0] = keys.parse_log_key(second)[2] + ID_STEP
    filled.store.close()
    filled.store = Settled(filled.store.disk)
    filled.store.reached = reached
    filled.store.disk.log.delete(first)
    assert gaps(filled) == []
    filled.store.disk.log.delete(second)
    assert gaps(filled) == [(0, 1, 0, 4)]


@pytest.mark.parametrize("at", [20, 34, -1])
def test_a_damaged_value_is_there_and_is_left_to_who_reads_it(filled, at):
    second = own_keys(filled, 0, 1)[1]
    data = bytearray(filled.log[second])
    data[at] ^= 1
    filled.store.append([(second, bytes(data))], [])
    assert gaps(filled) == []


def test_who_hands_values_to_others_does_not_hand_on_a_hole(filled):
    _, second, _ = own_keys(filled, 0, 1)
    read_sound(filled.store, 0, after=0, upto=ID_MAX - 1, bytes_max=1 << 20)
    filled.store.disk.log.delete(second)
    with pytest.raises(CorruptData, match=r"segment 0, cache 1.*offsets 2 to 3 are missing"):
        read_sound(filled.store, 0, after=0, upto=ID_MAX - 1, bytes_max=1 << 20)


def test_a_value_that_begins_too_early_or_is_of_an_older_epoch_is_damage(filled):
    filled.epoch = 3
    filled.store.append([], [keys.encode_epoch(0, 3, filled.next_id, previous=0)])
    filled.group((0, 1, [(b"a", b"")]))
    filled.epoch = 1
    filled.group((0, 1, [(b"a", b"")]))
    assert "epoch 1 does not follow" in str(recover(filled.store, keyed=KEYED).refusals[0])
