"""What is left of a damaged store opens again, and what was whole is untouched."""

import pytest

from eventlog.ids import ID_STEP
from eventlog.segment import keys
from eventlog.segment.memory import MemoryStore, open_store
from eventlog.segment.port import StoreEnds
from eventlog.segment.recovery import recover
from eventlog.segment.salvage import cut_faulty, drop_faulty
from tests.segment.worlds import World

KEYED = {1, 2}
EVERYTHING = (b"", b"\xff" * 16)


@pytest.fixture
def world():
    made = World(open_store("", segments=4))
    made.group((0, 1, [(b"a", b"1")]), (1, 1, [(b"b", b"1")]), (1, 2, [(b"c", b"1")]))
    made.group((0, 1, [(b"a", b"2")]), (1, 1, [(b"b", b"2"), (b"d", b"2")]))
    made.mark()
    return made


def damage(world, segment, cache, *, values=1):
    own = [key for key in world.log if key.startswith(keys.cache_range(segment, cache)[0])]
    for key in sorted(own)[-values:]:
        world.store.append([(key, world.log[key][:-1] + b"\xff")], [])


def reopened(world):
    world.store.close()
    return MemoryStore(world.store.disk)


def log_of(store, segment):
    return [key for key, _ in store.read_log(*keys.segment_range(segment), bytes_max=1 << 20)]


def entries_of(store, segment):
    return [keys.parse_state_key(key)[3] for key, _ in store.read_state(*keys.segment_range(segment), limit=100)]


def test_a_segment_with_a_fault_is_deleted_and_the_others_are_as_they_were(world):
    damage(world, 1, 1)
    store = reopened(world)
    assert recover(store, keyed=KEYED).faulty == [1]
    whole = log_of(store, 0)
    assert drop_faulty(store, keyed=KEYED) == [1]
    store.close()
    store = MemoryStore(world.store.disk)
    recovery = recover(store, keyed=KEYED)
    assert recovery.faults == ()
    assert (log_of(store, 0), log_of(store, 1)) == (whole, [])
    assert entries_of(store, 1) == []
    assert entries_of(store, 0) == [b"a"]
    assert recovery.ends.ids.tolist()[1] == recovery.marks.tolist()[1] == 0


@pytest.mark.parametrize("values", [1, 2])
def test_damaged_values_at_the_end_are_cut_and_the_state_stays(world, values):
    damage(world, 1, 1, values=values)
    store = reopened(world)
    end = recover(store, keyed=KEYED).ends.ids.tolist()
    assert cut_faulty(store, keyed=KEYED) == [1]
    store.close()
    store = MemoryStore(world.store.disk)
    recovery = recover(store, keyed=KEYED)
    assert recovery.faults == ()
    assert recovery.ends.ids[0] == end[0]
    assert recovery.ends.ids[1] == recovery.marks[1] == 3 * ID_STEP
    assert len(log_of(store, 1)) == 3 - values
    assert entries_of(store, 1) == [b"b", b"d", b"c"]


def test_a_log_that_lost_its_end_is_taken_as_it_is(world):
    store = reopened(world)
    lost = log_of(store, 0)[-1]
    store.trim([(lost, lost + b"\0")], [])
    assert recover(store, keyed=KEYED).faulty == [0]
    cut_faulty(store, keyed=KEYED)
    store.close()
    store = MemoryStore(world.store.disk)
    assert recover(store, keyed=KEYED).faults == ()
    assert len(log_of(store, 0)) == 1
    assert entries_of(store, 0) == [b"a"]


def test_a_segment_of_which_nothing_can_be_believed_is_deleted_even_where_it_is_the_only_copy(world):
    store = reopened(world)
    store.trim([], [], meta_ranges=[keys.epoch_range(1)])  # the history of the log is gone
    assert cut_faulty(store, keyed=KEYED) == [1]
    store.close()
    store = MemoryStore(world.store.disk)
    assert recover(store, keyed=KEYED).faults == ()
    assert log_of(store, 1) == entries_of(store, 1) == []


def test_a_store_without_faults_stays_as_it_is(world):
    store = reopened(world)
    before = store.read_log(*EVERYTHING, bytes_max=1 << 20), store.read_state(*EVERYTHING, limit=1 << 20)
    assert drop_faulty(store, keyed=KEYED) == cut_faulty(store, keyed=KEYED) == []
    assert (store.read_log(*EVERYTHING, bytes_max=1 << 20), store.read_state(*EVERYTHING, limit=1 << 20)) == before
    assert isinstance(store.ends, StoreEnds)


def test_a_log_with_a_hole_begins_after_it_and_keeps_the_state(world):
    world.group((0, 1, [(b"e", b"3")]))
    world.mark()
    store = reopened(world)
    first, second, third = log_of(store, 0)
    store.trim([(second, second + b"\0")], [])
    assert recover(store, keyed=KEYED).faulty == [0]
    assert cut_faulty(store, keyed=KEYED) == [0]
    store.close()
    store = MemoryStore(world.store.disk)
    recovery = recover(store, keyed=KEYED)
    assert recovery.faults == ()
    assert log_of(store, 0) == [third]
    assert recovery.caches[1].trimmed_offsets[0] == 1
    assert entries_of(store, 0) == [b"a", b"e"]
    assert first < second < third


@pytest.mark.parametrize("others", [[], [(0, 2, [(b"f", b"3")])]])
def test_a_state_behind_a_hole_goes_on_after_it_unless_others_would_lose_by_it(world, others):
    """The mark is one for all caches of a segment: what others have below its new place would not be replayed."""
    lost = world.group((0, 1, [(b"e", b"3")]), *others)
    world.group((0, 1, [(b"g", b"4")]))
    store = reopened(world)
    gone = keys.log_key(0, 1, lost - len(others) * ID_STEP)
    store.trim([(gone, gone + b"\0")], [])
    cut_faulty(store, keyed=KEYED)
    store.close()
    store = MemoryStore(world.store.disk)
    assert recover(store, keyed=KEYED).faults == ()
    assert len(log_of(store, 0)) == (0 if others else 1)
