import random

import pytest

from eventlog.batch.entries import encode_entry
from eventlog.batch.views import decode_value
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.segment import keys
from eventlog.segment.port import StoreOptions
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store
from tests.process.store_child import GROUP_IDS, IDENTITY, ROOMY, SEGMENTS, SMALL, expected, expected_state, faults, groups_upto, read_all
from tests.process.stores import run_story, write_until_killed


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_process_leaves_everything_it_acknowledged_and_nothing_half(tmp_path, seed):
    acknowledged = write_until_killed(tmp_path, random.Random(seed).choice([1, 3, 20, 150, 400]))
    store = open_store(tmp_path, segments=SEGMENTS, options=SMALL)
    assert not store.stopped_cleanly
    recovery = recover(store, keyed={1}, acknowledged=acknowledged)
    assert recovery.refusals == ()
    assert recovery.last_id >= acknowledged
    groups = groups_upto(recovery.last_id)
    assert recovery.last_id == groups * GROUP_IDS * ID_STEP, "whole groups only"
    assert read_all(store) == expected(groups)
    assert faults(store) == []
    store.close()


def test_state_is_never_behind_its_mark_after_a_kill(tmp_path):
    run_story("kill", tmp_path, "300")
    store = open_store(tmp_path, segments=SEGMENTS, options=SMALL)
    recovery = recover(store, keyed={1})
    assert recovery.marks.min() > 0, "some of the state was flushed"
    assert recovery.segments_to_replay
    assert faults(store) == []
    store.close()


def test_a_kill_between_a_trim_and_the_next_flush_loses_no_state(tmp_path):
    lines = run_story("trim", tmp_path, "careful")
    store = open_store(tmp_path, segments=SEGMENTS, options=ROOMY)
    recovery = recover(store, keyed={1})
    assert recovery.refusals == ()
    assert f"trimmed {recovery.caches[1].trimmed_ids.max()}" in lines
    assert recovery.segments_to_replay == list(range(SEGMENTS))
    left = read_all(store)
    assert len(left) < 21 * SEGMENTS
    assert expected(60).items() - expected(40).items() <= left.items(), "what was not flushed is in the log"
    assert replayed_state(store, left) == expected_state(60), "what is not in the log is in the state"
    assert faults(store) == []
    store.close()


def replayed_state(store, log):
    """Return the state as a node would have it after replaying the log above the marks."""
    marks, _ = keys.decode_marks(store.get_many(keys.applied_keys(SEGMENTS)), SEGMENTS)
    state = dict(store.read_state(b"", b"\xf0", limit=1_000))
    for place, data in log.items():
        segment, cache, base = keys.parse_log_key(place)
        if base <= marks[segment]:
            continue
        value = decode_value(segment, cache, data)
        for version, change, text, kind in zip(
            value.ids.tolist(),
            value.blocks[0].keys.to_list(),
            value.blocks[0].values.to_list(),
            value.blocks[0].kinds.tolist(),
            strict=True,
        ):
            state.pop(keys.entry_key(segment, cache, change), None)
            if kind == Kind.CREATED:
                state[keys.entry_key(segment, cache, change)] = encode_entry(version, text)
    return state


def test_a_trim_without_the_flush_before_it_is_found_out(tmp_path):
    """What the flush is for: without it the same story loses 40 groups of state, and recovery says so."""
    run_story("trim", tmp_path, "hasty")
    store = open_store(tmp_path, segments=SEGMENTS, options=ROOMY)
    assert {type(refusal).__name__ for refusal in recover(store, keyed={1}).refusals} == {"LostDisk"}
    store.close()


def test_a_clean_stop_says_so_and_keeps_the_state(tmp_path):
    run_story("stop", tmp_path, "33")
    store = open_store(tmp_path, segments=SEGMENTS, options=StoreOptions(identity=IDENTITY))
    assert store.stopped_cleanly
    recovery = recover(store, keyed={1})
    assert recovery.refusals == ()
    assert read_all(store) == expected(33)
    assert len(recovery.segments_to_replay) == SEGMENTS, "marks were written for 30 groups of 33"
    assert faults(store) == []
    store.close()
