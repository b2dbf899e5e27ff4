import numpy as np
import pytest

from eventlog.batch.layout import VALUE_HEAD_BYTES
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.ids import ID_MAX, ID_STEP
from eventlog.segment import keys
from eventlog.segment.memory import MemoryStore, open_store
from eventlog.segment.recovery import recover
from eventlog.segment.retention import CacheLog, OwnStep, RetentionLimits, StoredHead, flushed_ceiling, plan_retention, refine
from eventlog.segment.trimming import find_trims, flush_marks, heads_between, read_heads, trim_ranges, trim_write
from tests.segment.worlds import World


@pytest.fixture
def world():
    world = World(open_store("", segments=4))
    for number in range(10):
        text = b"%d" % number
        world.group((number % 3, 1, [(b"a" + text, text), (b"b" + text, text)]), (1, 2, [(b"c", text)]))
    world.mark()
    return world


def make_plan(world, limits, *, per_step=1):
    marks = flush_marks(world.store)
    steps = world.steps[1]
    log = CacheLog(trimmed=OwnStep(0, 0, 0), steps=steps[::per_step], now=steps[-1])
    return plan_retention(1, log, limits, physical_ms=0, ceiling=flushed_ceiling(marks, world.ends.ids))


def trim(world, plan):
    before = recover(world.store, keyed={1, 2}).caches[plan.cache]
    trims = find_trims(world.store, plan, before.trimmed_ids)
    world.store.trim(*trim_write(trims))
    return trims


def kept(world, cache):
    found = []
    for segment in range(4):
        found += world.store.read_log(*keys.cache_range(segment, cache), bytes_max=1 << 30)
    return [pair for pair in sorted(world.log.items()) if keys.parse_log_key(pair[0])[1] == cache], found


def test_a_plan_removes_whole_values_of_one_cache_in_every_segment(world):
    plan = make_plan(world, RetentionLimits(events=6))
    trims = trim(world, plan)
    assert {row.segment for row in trims} == {0, 1, 2}
    before, after = kept(world, 1)
    assert after == [pair for pair in before if keys.parse_log_key(pair[0])[2] > plan.cut.id]
    assert len(after) == 3
    before, after = kept(world, 2)
    assert after == before


def test_the_rows_name_the_last_event_that_went(world):
    trim(world, make_plan(world, RetentionLimits(events=6)))
    recovery = recover(world.store, keyed={1, 2})
    assert recovery.refusals == ()
    for segment in range(3):
        first = world.store.read_log(*keys.cache_range(segment, 1), bytes_max=1)
        gone = [key for key in world.log if keys.parse_log_key(key)[:2] == (segment, 1) and key < first[0][0]]
        assert recovery.caches[1].trimmed_ids[segment] == keys.parse_log_key(max(gone))[2] + ID_STEP
        assert recovery.caches[1].trimmed_offsets[segment] == 2 * len(gone) - 1


def test_a_second_trim_removes_only_what_is_new(world):
    trim(world, make_plan(world, RetentionLimits(events=10)))
    assert trim(world, make_plan(world, RetentionLimits(events=10))) == []
    assert trim(world, make_plan(world, RetentionLimits(events=6))) != []


def test_a_cut_within_a_step_is_found_from_headers(world):
    plan = make_plan(world, RetentionLimits(events=6), per_step=8)
    assert plan.window is not None
    fine = refine(plan, read_heads(world.store, plan))
    assert fine.cut == make_plan(world, RetentionLimits(events=6)).cut


def test_heads_are_read_page_by_page(world):
    plan = make_plan(world, RetentionLimits(nothing=True, events=0), per_step=50)
    whole = make_plan(world, RetentionLimits(events=1), per_step=50)
    assert whole.window is not None
    heads = read_heads(world.store, whole)
    assert read_heads(world.store, whole, bytes_max=1) == heads
    assert len(heads) == 10
    assert read_heads(world.store, plan) == [] or plan.window is not None


def test_a_value_on_both_sides_of_the_cut_stays(world):
    plan = make_plan(world, RetentionLimits(events=6))
    inside = plan.cut._replace(id=plan.cut.id - ID_STEP)
    trims = find_trims(
        world.store, type(plan)(cache=1, rule=plan.rule, trimmed=plan.trimmed, cut=inside, now=plan.now, top=plan.top), [0] * 4
    )
    assert max(row.last_id for row in trims) < inside.id


def test_what_counts_as_trimmed_is_not_trimmed_again(world):
    plan = make_plan(world, RetentionLimits(events=6))
    assert {row.segment for row in find_trims(world.store, plan, [plan.cut.id, 0, 0, 0])} == {1, 2}


@pytest.mark.parametrize("bit", range(0, 8 * VALUE_HEAD_BYTES, 5))
def test_what_a_damaged_value_says_of_itself_is_not_kept_as_what_was_removed(world, bit):
    """Where the log begins would be told wrong for ever, on disk and to all copies, and nothing be left that shows it."""
    plan = make_plan(world, RetentionLimits(events=6))
    [row, *_] = find_trims(world.store, plan, np.zeros(4, np.int64))
    [(key, data)] = [pair for pair in world.log.items() if keys.parse_log_key(pair[0]) == (row.segment, 1, row.last_id - ID_STEP)]
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    world.store.append([(key, bytes(damaged))], [])
    with pytest.raises((CorruptData, UnsupportedFormat)):
        find_trims(world.store, plan, np.zeros(4, np.int64))


@pytest.mark.parametrize("bit", range(0, 8 * VALUE_HEAD_BYTES, 5))
def test_a_damaged_value_counts_for_its_bytes_alone_and_keeps_nobody_from_the_others(world, bit):
    """A start reads them to count what came since the last step: what is damaged is mended later, by whoever reads it."""
    found = heads_between(world.store, 1, range(3), after=0, upto=ID_MAX - 1)
    key = sorted(key for key in world.log if keys.parse_log_key(key)[:2] == (0, 1))[1]
    damaged = bytearray(world.log[key])
    damaged[bit // 8] ^= 1 << bit % 8
    world.store.append([(key, bytes(damaged))], [])
    after = heads_between(world.store, 1, range(3), after=0, upto=ID_MAX - 1)
    assert after == [*found[:1], StoredHead(keys.parse_log_key(key)[2], 0, len(damaged)), *found[2:]]


def test_ranges_begin_with_the_cache(world):
    trims = find_trims(world.store, make_plan(world, RetentionLimits(events=6)), [0] * 4)
    for (lower, upper), row in zip(trim_ranges(trims), trims, strict=True):
        assert lower == keys.cache_range(row.segment, 1)[0]
        assert keys.log_key(row.segment, 1, row.last_id) < upper <= keys.log_key(row.segment, 1, row.last_id + 1)


def test_nothing_above_the_durable_marks_is_removed_so_a_crash_loses_no_state(world):
    world.group((0, 1, [(b"late", b"1")]))
    world.mark()
    marks = flush_marks(world.store)
    world.group((0, 1, [(b"later", b"1")]))
    world.mark()  # applied, not flushed
    log = CacheLog(trimmed=OwnStep(0, 0, 0), steps=world.steps[1], now=world.steps[1][-1])
    plan = plan_retention(1, log, RetentionLimits(nothing=True), physical_ms=0, ceiling=flushed_ceiling(marks, world.ends.ids))
    trim(world, plan)
    world.store.sync(world.ends)
    world.store.disk.crash()

    after = MemoryStore(world.store.disk)
    assert recover(after, keyed={1, 2}).refusals == ()
    in_state = {key for key, _ in after.read_state(b"", b"\xf0", limit=1_000)}
    in_log = {key for key, _ in after.read_log(b"", b"\xf0", bytes_max=1 << 30)}
    lost = set(world.state) - in_state
    assert lost == {keys.entry_key(0, 1, b"later")}
    assert keys.log_key(0, 1, world.ends.ids[0]) in in_log, "what the state lost is in the log"
