"""Reading copies of segments piece by piece."""

import pytest

from eventlog.errors import CorruptData
from eventlog.node.copying.copies import STATE, SegmentCopy, unpack
from eventlog.segment import keys
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import LogEnds


class FlakyStore(MemoryStore):
    """Fails to read the state on the second call."""

    calls = 0

    def read_state(self, lower, upper, *, limit):
        self.calls += 1
        if self.calls == 2:
            raise CorruptData(where="state", why="a file cannot be read")
        return super().read_state(lower, upper, limit=limit)


def test_a_piece_that_could_not_be_read_is_read_whole_the_next_time():
    store = FlakyStore(MemoryDisk(segments=1, ends=LogEnds.empty(1)))
    rows = [(keys.entry_key(0, 1, b"%05d" % number), b"v") for number in range(3_000)]
    store.apply(rows)
    copy = SegmentCopy(store, 0, pin=0)
    with pytest.raises(CorruptData):
        copy.read(bytes_max=1 << 20)
    kind, piece = copy.read(bytes_max=1 << 20)
    assert (kind, unpack(piece, segment=0)) == (STATE, rows)
    assert copy.read(bytes_max=1 << 20) is None
