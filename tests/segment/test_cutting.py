"""Cutting logs: what goes, where the log ends then, and that a crash in between leaves what may be cut again."""

from eventlog.batch.layout import ValueHead, encode_value
from eventlog.ids import ID_STEP
from eventlog.segment import keys
from eventlog.segment.cutting import caches_in, plan_cuts
from eventlog.segment.memory import open_store
from eventlog.segment.port import StoreEnds
from eventlog.segment.walking import read_segment


def value(segment, cache, base, *, epoch=1):
    head = ValueHead(flags=0, sections=0, epoch=epoch, count=0, bitmap=0, kinds=0, producers=0, base=base, first_offset=0)
    return keys.log_key(segment, cache, base), encode_value(head, segment=segment, cache=cache, sections=[])


def world(*bases, cache_of=lambda base: 1 + base % 2):
    """A store whose segment 1 has a value at each id, in two caches, and epochs 1 and, from id 40 on, 2."""
    store = open_store("", segments=4)
    store.append([value(1, cache_of(base), base, epoch=1 + (base >= 40)) for base in bases], [])
    store.append([value(2, 1, 99)], [keys.encode_epoch(1, 1, 1, previous=0), keys.encode_epoch(1, 2, 40, previous=31)])
    ends = StoreEnds.empty(4)
    ends.ids[1], ends.epochs[1] = max(bases, default=0), 2
    return store, ends


def cut(store, ends, *cuts):
    plan = plan_cuts(store, cuts, ends=ends)
    store.drop(plan.log_ranges, [], plan.meta_ranges, meta=plan.meta, ends=ends)
    return plan


def left(store):
    return sorted(keys.parse_log_key(key)[2] for key, _ in store.read_log(*keys.segment_range(1), bytes_max=1 << 20))


def test_everything_above_goes_in_every_cache_and_with_it_the_epochs_that_begin_there():
    store, ends = world(10, 21, 30, 31, 40, 51)
    assert cut(store, ends, (1, 31)).ends == [(31, 1)]
    assert left(store) == [10, 21, 30, 31]
    assert [keys.decode_epoch(pair)[1] for pair in store.read_meta(*keys.epoch_range(1))] == [1]
    assert store.read_log(*keys.segment_range(2), bytes_max=1) != []


def test_a_log_ends_with_the_last_value_that_is_left_not_with_the_id_of_the_cut():
    store, ends = world(10, 21, 40)
    assert cut(store, ends, (1, 39)).ends == [(21, 1)]


def test_nothing_is_done_to_a_log_that_ends_below():
    store, ends = world(10, 21)
    plan = cut(store, ends, (1, 21), (3, 5))
    assert plan.is_empty
    assert plan.ends == [(21, 2), (0, 0)]


def test_an_end_that_was_trimmed_or_dropped_is_still_one():
    store, ends = world(10, 40)
    store.append([], [keys.encode_trim(7, 1, 35, 3), keys.encode_end(1, 33, 1)])
    assert cut(store, ends, (1, 34)).ends == [(33, 1)]
    store, ends = world(10, 40)
    store.append([], [keys.encode_trim(7, 1, 35, 3), keys.encode_end(1, 33, 1)])
    assert cut(store, ends, (1, 36)).ends == [(35, 1)]


def test_a_cut_that_a_crash_undid_is_made_again():
    store, ends = world(10, 21, 40)
    store.sync(ends)
    plan_cuts(store, [(1, 21)], ends=ends)  # and the process ends here
    store.disk.crash()
    assert left(store) == [10, 21, 40]
    assert cut(store, ends, (1, 21)).ends == [(21, 1)]
    assert left(store) == [10, 21]


def test_a_segment_is_read_over_all_caches_in_the_order_of_ids_part_by_part():
    store, _ = world(*range(10, 60, 3))
    assert list(caches_in(store, 1)) == [1, 2]
    whole = read_segment(store, 1, after=0, upto=100 * ID_STEP, bytes_max=1 << 20)
    size = len(whole.data[0])
    for bytes_max in (1, size, 3 * size, 7 * size):
        after, seen = 12, []
        while after < 55:
            part = read_segment(store, 1, after=after, upto=55, bytes_max=bytes_max)
            assert part.after == after < part.upto <= 55
            seen += part.data
            after = part.upto
        assert seen == [data for base, data in zip(range(10, 60, 3), whole.data, strict=True) if 12 < base <= 55]


def test_a_part_without_values_reaches_to_where_it_was_asked_for():
    store, _ = world(10)
    assert read_segment(store, 1, after=10, upto=50, bytes_max=1).upto == 50
