"""What is known of every segment at this node, as columns that the cores share, each of which writes its own part; and rows of APPEND."""

from collections.abc import Sequence
from struct import Struct

import numpy as np

from eventlog.arrays import Ints
from eventlog.ids import ID_MAX
from eventlog.replication.messages import ACK, APPEND, HISTORY
from eventlog.replication.terms import EpochStart, Options, Replica, Term, epoch_at, starts_in

NEVER = -1
NOBODY = -1
_UNNAMED = -2
Row = tuple[int, int, int, int, int, int, int, int]

ONE_APPEND = Struct("<HHIqqqII")
ONE_ACK = Struct("<HHIqII")
assert (ONE_APPEND.size, ONE_ACK.size) == (APPEND.itemsize, ACK.itemsize), "the same layout without numpy"
FEW_ROWS_MAX = 8  # go one after the other: an array costs as much for one number as for a hundred


class SegmentColumns:
    """State of segments `[0, segments)`; `Replication` says what the public columns mean.

    For backups: `matched`: the own log is known to be a prefix of that of the epoch's primary. `heard`: highest watermark of this
    epoch's primary. `busy`: a cut, an install or a deletion is under way. `sources`: the number, as of `number_of`, of the replica
    that the record names as primary of this epoch: its rows alone are taken. 0: no such record was seen; NOBODY: it is this node.
    No id above `ids_max` is taken from anybody.
    What is `busy` is never `matched`: whatever begins that makes it so, and no row is compared before it ends.

    For primaries: `starts`: id of the epoch's marker, NEVER before it is registered. `appended_ms`: when the oldest append that is
    not committed was made. `told`: the watermark that the last rows carried. `trimmed`: what retention has removed.
    """

    def __init__(self, segments: int, *, own: Replica, session: str, options: Options) -> None:
        self.segments = segments
        self.own = own
        self.session = session
        self.options = options
        self.epochs = np.zeros(segments, np.uint32)
        self.end_epochs = np.zeros(segments, np.uint32)
        self.ends = np.zeros(segments, np.int64)
        self.durable = np.zeros(segments, np.int64)
        self.watermark = np.zeros(segments, np.int64)
        self.leads = np.zeros(segments, bool)
        self.adopted = np.zeros(segments, bool)
        self.holds = np.zeros(segments, bool)
        self.matched = np.zeros(segments, bool)
        self.busy = np.zeros(segments, bool)
        self.heard = np.zeros(segments, np.int64)
        self.sources = np.zeros(segments, np.int64)
        self.starts = np.full(segments, NEVER, np.int64)
        self.appended_ms = np.zeros(segments, np.int64)
        self.told = np.zeros(segments, np.int64)
        self.trimmed = np.zeros(segments, np.int64)
        self.histories: list[list[EpochStart]] = [[] for _ in range(segments)]
        self.terms: list[Term | None] = [None] * segments
        self.ids_max = ID_MAX
        self._numbers: dict[Replica, int] = {}  # of the primaries that records named, from 1 on

    def number_of(self, sender: Replica) -> int:
        """Return by what `sources` knows a replica; one that no record named as primary is no segment's source."""
        return self._numbers.get(sender, _UNNAMED)

    def source_of(self, term: Term) -> int:
        """Return the number of a term's primary: the incarnation that is in sync, for no other one leads."""
        primary = next((replica for replica in term.in_sync if replica.node == term.primary), self.own)
        return NOBODY if primary.node == self.own.node else self._numbers.setdefault(primary, len(self._numbers) + 1)

    def fence(self, segment: int, *, epoch: int, source: int) -> None:
        """Know of a higher epoch: nothing of a lower one counts any more, and nothing is known yet of how the logs compare."""
        assert epoch > self.epochs[segment], "an epoch only grows"
        self.epochs[segment] = epoch
        self.sources[segment] = source
        self.matched[segment] = False
        self.heard[segment] = self.watermark[segment]

    def end_with(self, segment: int, end: int) -> None:
        """Note that the log, on disk too, was made to end with `end` at most."""
        history = self.histories[segment]
        while history and history[-1].first > end:
            history.pop()
        self.ends[segment] = self.durable[segment] = end
        self.end_epochs[segment] = epoch_at(history, end)
        self.matched[segment] = False

    def forget(self, segment: int) -> None:
        """Note that log and state of a segment are gone."""
        self.end_with(segment, 0)
        self.histories[segment].clear()
        self.watermark[segment] = self.heard[segment] = 0
        self.busy[segment] = False


def plain_rows(columns: SegmentColumns, segments: Ints, *, previous: Ints, last: Ints, counts: Ints | None) -> bytes:
    """Return plain rows; one value each with `counts` None."""
    rows = np.zeros(len(segments), APPEND)
    rows["segment"], rows["epoch"] = segments, columns.epochs[segments]
    rows["previous"], rows["last"] = previous, last
    rows["watermark"] = columns.watermark[segments]
    rows["values"] = 1 if counts is None else counts
    return rows.tobytes()


def plain_row(columns: SegmentColumns, segment: int, *, previous: int, last: int, count: int) -> bytes:
    """Do what `plain_rows` does, for one segment and without arrays."""
    return ONE_APPEND.pack(segment, 0, columns.epochs.item(segment), previous, last, columns.watermark.item(segment), count, 0)


def rows_with_history(columns: SegmentColumns, spans: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Return plain rows for spans (segment, previous, last, values), each behind the epochs that begin in it."""
    rows: list[Row] = []
    for segment, previous, last, count in spans:
        epoch, watermark = columns.epochs.item(segment), columns.watermark.item(segment)
        rows += history_rows(segment, epoch, starts_in(columns.histories[segment], after=previous, upto=last))
        rows.append((segment, 0, epoch, previous, last, watermark, count, 0))
    return pack_rows(rows)


def history_rows(segment: int, epoch: int, starts: Sequence[EpochStart]) -> list[Row]:
    return [(segment, HISTORY, epoch, start.previous, start.first, 0, start.epoch, 0) for start in starts]


def pack_rows(rows: Sequence[Row]) -> bytes:
    return np.array(rows, APPEND).tobytes()
