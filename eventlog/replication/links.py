"""What a primary knows of each peer it can reach: how far each segment's stream is, and what is under way to it."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eventlog.replication.terms import Replica

UNUSED, PROBE, LIVE, CATCH_UP, SNAPSHOT, FAILED = range(6)
"""UNUSED: nothing to do with the segment. PROBE: asked where its log ends. LIVE: gets every append at once. CATCH_UP: gets what it lacks
from the log. SNAPSHOT: gets state and log, since the log does not reach back. FAILED: holds as committed what this log lacks."""


@dataclass(slots=True, eq=False)
class InFlight:
    """Bytes sent in catching up and not acknowledged; `last` is the id, or the part of a snapshot, that acknowledges them."""

    last: int
    nbytes: int


@dataclass(slots=True, eq=False)
class Transfer:
    """A snapshot on its way. `pin` is -1 until it is open; `part` is the next to read, -1 until the backup has begun."""

    number: int
    pin: int = -1
    part: int = -1
    is_reading: bool = False
    is_read: bool = False


@dataclass(slots=True, eq=False)
class SegmentStream:
    """A segment that does not simply follow live. What is sent, or being read with `reserved` bytes granted, ends with `after`.

    `asked_ms`: the last sign of life.
    """

    asked_ms: int
    after: int = 0
    reserved: int = 0
    flights: deque[InFlight] = field(default_factory=deque)
    transfer: Transfer | None = None


class PeerLink:
    """A peer with a connection. `streams` has an entry for every segment that is neither UNUSED nor plainly LIVE.

    `used_bytes` are those of all flights and reservations. `queue`: segments that want to read on, in order. `flown_ms`: when
    something sent in catching up was last acknowledged. `turns`: refusals of messages before the one of this number are old news, since
    the segment's stream has changed direction. `counts_from`: the same for what is acknowledged, since the replica may have dropped its
    copy; `newest` is the highest of these.
    """

    def __init__(self, replica: Replica, slot: int, segments: int, *, number: int) -> None:
        self.replica = replica
        self.slot = slot
        self.modes: npt.NDArray[np.uint8] = np.zeros(segments, np.uint8)
        self.turns: npt.NDArray[np.int64] = np.zeros(segments, np.int64)
        self.counts_from: npt.NDArray[np.int64] = np.full(segments, number, np.int64)
        self.newest = number
        self.streams: dict[int, SegmentStream] = {}
        self.queue: dict[int, None] = {}
        self.used_bytes = 0
        self.probes: list[int] = []  # to be asked at the end of this input
        self.flown_ms = 0

    def stream(self, segment: int, *, now_ms: int) -> SegmentStream:
        """Return the stream of a segment, a new one if there is none."""
        found = self.streams.get(segment)
        if found is None:
            found = self.streams[segment] = SegmentStream(asked_ms=now_ms)
        found.asked_ms = now_ms
        return found

    def count_from(self, segment: int, number: int) -> None:
        """Count what is acknowledged of a segment from the message of this number on."""
        self.counts_from[segment] = self.newest = number

    def counts(self, segments: npt.NDArray[np.int64], correlation: int) -> npt.NDArray[np.bool_]:
        """Return where what was acknowledged in answer to a message counts."""
        late: npt.NDArray[np.bool_] = correlation >= self.counts_from[segments]
        return late

    def land(self, stream: SegmentStream, last: int) -> None:
        """Take back the room of what is acknowledged."""
        while stream.flights and stream.flights[0].last <= last:
            self.used_bytes -= stream.flights.popleft().nbytes

    def clear(self, stream: SegmentStream) -> None:
        """Take back all room of a stream."""
        self.used_bytes -= stream.reserved + sum(flight.nbytes for flight in stream.flights)
        stream.reserved = 0
        stream.flights.clear()
