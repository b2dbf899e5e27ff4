import pytest

from eventlog.batch.entries import encode_entry
from eventlog.ids import ID_STEP
from eventlog.segment import keys
from eventlog.segment.check import Checked, check
from eventlog.segment.memory import open_store
from tests.segment.worlds import World, stored_value


@pytest.fixture
def world():
    world = World(open_store("", segments=4))
    world.group((0, 1, [(b"a", b"1"), (b"b", b"1")]), (1, 1, [(b"c", b"1")]))
    world.group((0, 1, [(b"a", None)]), (1, 5, [(b"x", b"1")]))
    world.group((0, 1, [(b"b", b"2")]))
    world.mark()
    return world


def findings(world, keyed=(1,)):
    return [str(finding) for finding in check(world.store, keyed=keyed)]


def corrupt(world, family, key, change):
    rows = getattr(world.store.disk, family)
    rows.put(key, change(rows.rows[key]))


FIRST = keys.log_key(0, 1, ID_STEP)
SECOND = keys.log_key(0, 1, 4 * ID_STEP)


def test_a_whole_store_has_no_findings_and_is_counted(world):
    checked = Checked()
    assert list(check(world.store, keyed={1}, checked=checked)) == []
    assert (checked.values, checked.events, checked.entries) == (5, 6, 2)
    assert checked.nbytes == sum(map(len, world.log.values()))


@pytest.mark.parametrize("at", [0, 4, 8, 12, 24, 32, 50, -1])
def test_a_flipped_bit_anywhere_in_a_value_is_found(world, at):
    def flip(value):
        changed = bytearray(value)
        changed[at] ^= 4
        return bytes(changed)

    corrupt(world, "log", FIRST, flip)
    assert findings(world)[0].startswith(f"segment 0, cache 1: value at id {ID_STEP}")


def test_a_missing_value_is_found_by_the_offsets(world):
    world.store.disk.log.delete(SECOND)
    found = findings(world)
    assert f"segment 0, cache 1: value at id {6 * ID_STEP}: it begins at offset 3, expected 2" in found


def test_a_missing_first_value_is_found_unless_it_was_trimmed(world):
    world.store.disk.log.delete(FIRST)
    assert any("expected 0" in found for found in findings(world))
    world.store.append([], [keys.encode_trim(1, 0, 2 * ID_STEP, 1)])
    assert findings(world) == []


def test_ids_of_two_caches_that_overlap_are_found(world):
    base = 2 * ID_STEP
    world.store.append([(keys.log_key(0, 9, base), stored_value(0, 9, [(b"q", b"1")], base=base, offset=0))], [])
    assert findings(world) == [f"segment 0, cache 9: ids from {base} overlap those of cache 1 up to {base}"]


def test_an_epoch_that_falls_is_found(world):
    world.store.append([], [keys.encode_epoch(0, 2, 0, previous=0)])
    world.epoch = 2
    world.group((0, 1, [(b"b", b"3")]))
    world.epoch = 1
    world.group((0, 1, [(b"b", b"4")]))
    assert any("epoch 1, the one before of 2" in text for text in findings(world))


def test_an_epoch_outside_the_history_is_found(world):
    world.epoch = 7
    world.group((0, 1, [(b"b", b"3")]))
    world.mark()
    assert any("epoch 7 is not in the history" in text for text in findings(world))


def test_an_entry_that_is_missing_is_found(world):
    world.store.apply([(keys.entry_key(0, 1, b"b"), None)])
    assert findings(world) == [f"segment 0, cache 1: entry b'b' is missing, event {6 * ID_STEP} made it"]


def test_an_entry_of_an_older_version_is_found(world):
    world.store.apply([(keys.entry_key(0, 1, b"b"), encode_entry(2 * ID_STEP, b"1"))])
    assert findings(world) == [f"segment 0, cache 1: entry b'b' of version {2 * ID_STEP}: event {6 * ID_STEP} changed it"]


def test_an_entry_that_an_event_removed_is_found(world):
    world.store.apply([(keys.entry_key(0, 1, b"a"), encode_entry(ID_STEP, b"1"))])
    assert f"event {4 * ID_STEP} removed it" in findings(world)[0]


def test_an_entry_that_no_event_made_is_found_unless_its_event_was_trimmed(world):
    world.store.apply([(keys.entry_key(0, 1, b"z"), encode_entry(ID_STEP, b"1"))])
    assert "the log has no event of this key" in findings(world)[0]
    world.store.trim([keys.log_range(0, 1, after=0, upto=ID_STEP)], [keys.encode_trim(1, 0, 2 * ID_STEP, 1)])
    assert findings(world) == []


def test_an_entry_ahead_of_the_log_is_found(world):
    world.store.apply([(keys.entry_key(0, 1, b"b"), encode_entry(99 * ID_STEP, b"1"))])
    assert "the log ends at" in findings(world)[0]


def test_an_entry_that_cannot_be_read_is_found(world):
    world.store.apply([(keys.entry_key(0, 1, b"b"), b"\x01")])
    assert "entry b'b'" in findings(world)[0]


def test_entries_above_the_mark_may_be_missing_or_ahead(world):
    world.group((0, 1, [(b"b", None), (b"n", b"1")]), apply=False)
    assert findings(world) == []
    world.store.apply([(keys.entry_key(0, 1, b"n"), encode_entry(8 * ID_STEP, b"1"))])
    assert findings(world) == []


def test_a_lifespan_without_its_end_is_found(world):
    entry = encode_entry(6 * ID_STEP, b"2", expiry=77)
    world.store.apply([(keys.entry_key(0, 1, b"b"), entry)])
    assert findings(world) == ["segment 0, cache 1: entry b'b' has a lifespan and nothing that ends it"]
    world.store.apply([(keys.expiry_key(0, 1, 77, b"b"), b"")])
    assert findings(world) == []


def test_what_recovery_refuses_is_a_finding(world):
    world.store.disk.log.delete(keys.log_key(1, 1, 3 * ID_STEP))
    world.store.disk.log.delete(keys.log_key(1, 5, 5 * ID_STEP))
    assert "segment 1: its state has events up to" in findings(world)[0]


def test_caches_without_state_are_not_asked_for_it(world):
    world.store.disk.state.delete_range(b"", b"\xff" * 9)
    world.mark()
    assert findings(world, keyed=()) == []
    assert findings(world, keyed=(1,)) != []
