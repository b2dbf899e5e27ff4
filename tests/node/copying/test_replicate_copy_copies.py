"""Reading copies of segments piece by piece."""

import pytest

from eventlog.errors import CorruptData
from eventlog.node.copying.replicate_copy import STATE, SegmentCopy, unpack
from eventlog.segment import keys
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds


class FlakyState:
    """A state of which the second piece cannot be read the first time."""

    def __init__(self, store):
        self.calls = 0
        self._snapshot = store.snapshot()

    def read(self, lower, upper, *, rows_max, bytes_max):
        self.calls += 1
        if self.calls == 2:
            raise CorruptData(where="state", why="a file cannot be read")
        return self._snapshot.read(lower, upper, rows_max=rows_max, bytes_max=bytes_max)


def store_of(rows):
    store = MemoryStore(MemoryDisk(segments=1, ends=StoreEnds.empty(1)))
    store.apply(rows)
    return store


def test_a_piece_that_could_not_be_read_is_read_whole_the_next_time():
    rows = [(keys.entry_key(0, 1, b"%05d" % number), b"v") for number in range(3_000)]
    store = store_of(rows)
    copy = SegmentCopy(store, 0, state=FlakyState(store), pin=0)
    with pytest.raises(CorruptData):
        copy.read(bytes_max=1 << 20)
    kind, piece = copy.read(bytes_max=1 << 20)
    assert (kind, unpack(piece, segment=0)) == (STATE, rows)
    assert copy.read(bytes_max=1 << 20) is None


def test_producers_are_read_by_cache_and_go_with_the_counters_alone():
    producers = [(keys.producer_key(0, cache, number), b"%d" % number) for cache in (1, 2) for number in range(1, 3_000)]
    store = store_of([(keys.entry_key(0, 1, b"k"), b"v"), *producers])
    copy = SegmentCopy(store, 0, state=store.snapshot(), pin=0)
    kind, piece = copy.read(bytes_max=1 << 20)
    assert (kind, unpack(piece, segment=0)) == (STATE, [(keys.entry_key(0, 1, b"k"), b"v")])
    assert copy.producers(2) == [(number, b"%d" % number) for number in range(1, 3_000)]
    assert copy.producers(3) == []
