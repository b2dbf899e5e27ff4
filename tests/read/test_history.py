"""Reading what has left the tail, chunk by chunk."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.ids import ID_STEP
from eventlog.limits import HISTORY_READ_BYTES_FIRST
from eventlog.read.answer import Limits
from eventlog.read.cursor import Cursor
from eventlog.read.history import ChunkEnd, History, HistoryRead, LogBounds
from eventlog.read.position import SegmentPositions
from eventlog.segment.keys import parse_log_key
from tests.node.polling import FakeNode


class CountingStore:
    """A store that counts reads."""

    def __init__(self, store):
        self._store = store
        self.reads = self.nbytes = self.largest = 0

    def read_logs_and_next(self, ranges, bounds, *, bytes_max):
        self.reads += 1
        pairs, behind = self._store.read_logs_and_next(ranges, bounds, bytes_max=bytes_max)
        size = sum(len(value) for _, value in pairs)
        self.nbytes, self.largest = self.nbytes + size, max(self.largest, size)
        return pairs, behind

    def last_log(self, lower, upper):
        return self._store.last_log(lower, upper)

    def last_logs(self, ranges):
        return self._store.last_logs(ranges)


def written(groups=10, size=100, segments=4):
    """Return a store with a log of one cache, and the last id of each group."""
    node = FakeNode(segments=segments)
    cache = node.cache()
    lasts = []
    for _ in range(groups):
        group = node.stamp((cache, {segment: [bytes(size)] for segment in range(segments)}))
        cache.next_offsets += 1
        lasts.append(group.last_id)
    return CountingStore(node.store), node.store.disk.log, lasts


def bounds(*, groups=1 << 20, trimmed_id=0, kept_offset=0):
    """Return the bounds of a log with `groups` events in each segment, and no more than that."""
    places = [np.full(4, place) for place in (trimmed_id, kept_offset, groups)]
    return LogBounds(trimmed_ids=places[0], kept_offsets=places[1], next_offsets=places[2])


def wanted(lasts, *, after=0, ends=None, chunk_after=0, nbytes_max=1 << 30, own=None, **limits):
    return HistoryRead(
        cache_id=1,
        cursor=Cursor(4, after),
        top=lasts[-1],
        limits=Limits(**limits),
        chunk_after=chunk_after,
        ends=ends or (ChunkEnd(id=lasts[-1], nbytes=0),),
        nbytes_max=nbytes_max,
        bounds=own or bounds(),
    )


def ends_at(lasts, *, nbytes):
    """Return an end at each id, `nbytes` after the one before it."""
    return tuple(ChunkEnd(id=last, nbytes=nbytes * number) for number, last in enumerate(lasts, 1))


def test_a_chunk_is_read_once_for_all_its_answers():
    store, _, lasts = written()
    history = History(store)
    seen = 0
    for after in (0, *lasts[:-1]):
        seen += history.read(wanted(lasts, after=after, events=40, nbytes=1)).events
    assert store.reads == 1
    assert seen >= 10
    used, limit, peak = history.figures()["history_cache_bytes"]
    assert 0 < used <= peak <= limit


def test_chunks_are_kept_within_their_bound():
    store, _, lasts = written()
    history = History(store, bytes_max=1_000)
    for _ in range(2):
        assert history.read(wanted(lasts)).events == 40
    assert store.reads == 2, "too large to keep"
    assert history.nbytes == 0
    history = History(store, bytes_max=12_000)
    for low, high in pairwise(lasts):
        read = wanted([high], after=low, chunk_after=low, events=4)
        assert history.read(read).events == 4
        assert history.nbytes <= 12_000


def test_a_chunk_that_is_too_much_is_read_up_to_an_earlier_end():
    store, _, lasts = written(groups=16, size=200_000)
    answer = History(store).read(wanted(lasts, ends=ends_at(lasts, nbytes=0), nbytes_max=1 << 20))
    assert 1 <= answer.events < 64
    assert answer.upto < lasts[-1]


@pytest.mark.parametrize("nbytes_max", [1 << 20, 5 << 20])
def test_memory_is_bounded_where_no_step_says_how_much_there_is(nbytes_max):
    store, _, lasts = written(groups=40, size=100_000)
    history, after, seen = History(store), 0, 0
    while after < lasts[-1]:
        answer = history.read(wanted(lasts, after=after, chunk_after=after, nbytes_max=nbytes_max))
        assert answer.upto > after
        after, seen = answer.upto, seen + answer.events
    assert seen == 160
    assert store.largest < nbytes_max + 101_000
    assert store.nbytes < 4 * 160 * 100_000, "not much is read in vain"


def test_one_value_larger_than_all_that_is_read_at_once_is_read():
    store, _, lasts = written(groups=1, size=3 << 20)
    history, after, seen = History(store), 0, 0
    while after < lasts[-1]:
        answer = history.read(wanted(lasts, after=after, chunk_after=after, nbytes_max=1 << 20))
        after, seen = answer.upto, seen + answer.events
    assert seen == 4


def test_who_goes_on_reads_more_at_once_than_who_begins():
    store, _, lasts = written(groups=64, size=200_000)
    history, after, chunks = History(store), 0, []
    while after < lasts[-1]:
        before = store.reads, store.nbytes
        ahead = [end for end in ends_at(lasts, nbytes=800_000) if end.id > after]
        ends = tuple(ChunkEnd(id=end.id, nbytes=end.nbytes - ahead[0].nbytes + 800_000) for end in ahead)
        after = history.read(wanted(lasts, after=after, chunk_after=after, ends=ends, nbytes=1)).upto
        if store.reads > before[0]:
            chunks.append(store.nbytes - before[1])
    assert chunks[0] <= HISTORY_READ_BYTES_FIRST
    assert chunks[1] > 1.5 * chunks[0]
    assert sum(chunks) == store.nbytes, "nothing is read twice"


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_value_on_both_sides_of_a_chunk_is_not_missed(is_kept):
    node = FakeNode(segments=4)
    cache = node.cache()
    group = node.stamp((cache, {segment: [b"v"] * 5 for segment in range(4)}))
    inside = group.caches[0].bases[2] + ID_STEP  # two events of segment 2 lie at or below it
    history = History(node.store, bytes_max=1 << 20 if is_kept else 0)
    first = history.read(wanted([inside], ends=(ChunkEnd(id=inside, nbytes=0),)))
    assert (first.events, first.upto) == (12, inside)
    rest = history.read(wanted([group.last_id], after=inside, chunk_after=inside))
    assert (rest.events, rest.first_id) == (8, inside + ID_STEP)


def damage(log, key, change):
    value = bytearray(log.rows[key])
    change(value)
    log.rows[key] = bytes(value)


def test_damage_is_named_with_its_place():
    def flip(value):
        value[-1] ^= 1

    def cut(value):
        del value[30:]

    for change, why in ((flip, "checksum"), (cut, "shorter")):
        store, log, lasts = written()
        damage(log, log.keys[13], change)
        with pytest.raises(CorruptData, match=why) as caught:
            History(store).read(wanted(lasts))
        assert caught.value.where == "log of segment 1, cache 1"


def test_a_value_under_another_key_is_refused():
    store, log, lasts = written()
    key = log.keys[5]
    value = log.rows[key]
    log.delete(key)
    log.put(key[:-1] + bytes([key[-1] ^ 2]), value)
    with pytest.raises(CorruptData, match="another base id"):
        History(store).read(wanted(lasts))


def test_a_value_of_another_segment_is_refused():
    store, log, lasts = written()
    log.put(log.keys[5], log.rows[log.keys[35]])
    with pytest.raises(CorruptData, match="checksum"):
        History(store).read(wanted(lasts))


def test_a_newer_format_is_told_from_damage():
    from crc32c import crc32c

    from eventlog.batch.layout import place_seed

    store, log, lasts = written()

    def renew(value):
        value[4] = 9
        value[:4] = crc32c(bytes(value[4:]), place_seed(1, 1)).to_bytes(4, "little")

    damage(log, log.keys[13], renew)
    with pytest.raises(UnsupportedFormat) as caught:
        History(store).read(wanted(lasts))
    assert caught.value.found == 9


def test_a_value_missing_between_two_others_is_damage_whatever_the_steps_say():
    store, log, lasts = written()
    log.delete(log.keys[13])
    with pytest.raises(CorruptData, match="missing"):
        History(store).read(wanted(lasts))


def test_nothing_there_is_an_empty_answer():
    store, log, lasts = written()
    log.delete_range(b"", b"\xff" * 20)
    answer = History(store).read(wanted(lasts))
    assert (answer.events, answer.upto) == (0, lasts[-1])


# ---------------------------------------------------------------- what is missing at the edges


def lacking(segment, *numbers, groups=10):
    """Return a store that lacks some values of a segment, and the last id of each group."""
    store, log, lasts = written(groups=groups)
    own = sorted(key for key in log.keys if parse_log_key(key)[0] == segment)
    for number in numbers:
        log.delete(own[number])
    return store, lasts


def refused(history, read):
    with pytest.raises(CorruptData, match=r"segment 2, cache 1.*missing") as caught:
        history.read(read)
    return str(caught.value)


@pytest.mark.parametrize("lost", [(0,), (0, 1, 2)])
def test_a_log_that_lost_its_beginning_is_no_shorter_log(lost):
    store, lasts = lacking(2, *lost)
    assert f"offsets 0 to {len(lost) - 1}" in refused(History(store), wanted(lasts))


def test_what_retention_removed_is_not_missing_and_what_it_is_removing_may_be_there():
    store, lasts = lacking(2, 0, 1)
    own = bounds(trimmed_id=lasts[1], kept_offset=2)
    assert History(store).read(wanted(lasts, after=lasts[1], chunk_after=lasts[1], own=own)).events == 32
    assert History(store).read(wanted(lasts, own=own)).events == 38
    store, lasts = lacking(2, 2)
    assert "offsets 2 to 2" in refused(History(store), wanted(lasts, after=lasts[1], chunk_after=lasts[1], own=own))


def test_a_gap_at_the_beginning_of_a_chunk_in_the_middle_is_found():
    store, lasts = lacking(2, 5)
    assert "offsets 5 to 5" in refused(History(store), wanted(lasts, after=lasts[4], chunk_after=lasts[4]))


@pytest.mark.parametrize("lost", [(4,), (3, 4), (4, 5), (0, 1, 2, 3, 4)])
def test_a_gap_at_the_end_of_a_chunk_is_found_before_anything_is_answered(lost):
    store, lasts = lacking(2, *lost)
    refused(History(store), wanted(lasts, ends=ends_at(lasts[4:5], nbytes=1)))


def test_a_reader_of_one_segment_knows_where_it_stood():
    store, lasts = lacking(2, 5)
    places = SegmentPositions(of=np.array([2]), ids=np.array([lasts[4]]), offsets=np.array([5]), epochs=np.array([1]))
    read = replace(wanted(lasts, chunk_after=lasts[4]), cursor=Cursor(4, places))
    refused(History(store), read)


def test_what_was_not_committed_when_the_read_began_is_no_matter():
    store, lasts = lacking(2, 5)
    assert History(store).read(wanted(lasts, ends=ends_at(lasts[4:5], nbytes=1), own=bounds(groups=5))).events == 20
