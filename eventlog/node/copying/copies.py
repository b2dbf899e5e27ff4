"""A copy of a segment on its way to another node: its log, its state and its counters in pieces, all of them as of one id, the pin.

Whoever gets the copy may be forced to lead before the log behind the pin has reached it. So the state is read from a snapshot of the step
in which the pin was set, and holds nothing that the log of the copy does not say. Every piece carries a checksum. For threads beside
the loop.
"""

from collections.abc import Iterable
from struct import Struct

import msgspec

from eventlog.checksum import crc32c
from eventlog.errors import BadMessage
from eventlog.limits import MIB
from eventlog.segment import keys
from eventlog.segment.cutting import caches_in
from eventlog.segment.port import Pair, Snapshot, Store
from eventlog.segment.walking import check_sum

COUNTERS, LOG, STATE = 1, 2, 3  # kinds of pieces
_PAIR = Struct("<HI")
_CRC_BYTES = 4
_STATE_ROWS = 2_000
_PRODUCERS_BYTES = 4 * MIB


class CacheCounters(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a cache in the segment: at the pin, but for what is trimmed, as of the end of the copy."""

    cache_id: int
    next_offset: int
    trimmed_id: int
    trimmed_offset: int
    live: int
    may_expire: bool
    producers: list[tuple[int, bytes]]


class Counters(msgspec.Struct, array_like=True, frozen=True):
    """All caches of the segment."""

    caches: list[CacheCounters]


class SegmentCopy:
    """Reads one segment piece by piece; `read` returns None after the last. `state` holds the segment as of `pin`."""

    def __init__(self, store: Store, segment: int, *, state: Snapshot, pin: int) -> None:
        self._store = store
        self._state = state
        self._segment = segment
        self._pin = pin
        self._caches: list[int] | None = None
        self._log_from = 0
        self._state_from = keys.segment_range(segment)[0]

    def read(self, *, bytes_max: int) -> tuple[int, bytes] | None:
        """Return the next piece, (kind, content) of about `bytes_max`; the same again after a call that failed.

        Raises:
            CorruptData: a value's checksum is wrong, or a file cannot be read.
            ClientClosed: the state that it reads from was closed.
        """
        if self._caches is None:
            self._caches = list(caches_in(self._store, self._segment))
        while self._caches:
            span = keys.log_range(self._segment, self._caches[0], after=self._log_from, upto=self._pin)
            if pairs := self._store.read_log(*span, bytes_max=bytes_max):
                for _, value in pairs:
                    check_sum(self._segment, self._caches[0], value)
                self._log_from = keys.parse_log_key(pairs[-1][0])[2]
                return LOG, pack(pairs)
            self._caches.pop(0)
            self._log_from = 0
        return self._read_state(bytes_max)

    def _read_state(self, bytes_max: int) -> tuple[int, bytes] | None:
        lower, upper = self._state_from, keys.segment_range(self._segment)[1]
        found: list[Pair] = []
        nbytes = 0
        while nbytes < bytes_max:
            rows = self._state.read(lower, upper, rows_max=_STATE_ROWS, bytes_max=bytes_max)
            if not rows.keys:
                break
            lower = rows.keys[-1] + b"\0"
            pairs = zip(rows.keys, rows.values, strict=True)
            kept = [row for row in pairs if keys.parse_state_key(row[0])[2] != keys.TAG_PRODUCER]  # they go with the counters
            nbytes += sum(len(key) + len(value) for key, value in kept)
            found += kept
        self._state_from = lower
        return (STATE, pack(found)) if found else None

    def producers(self, cache_id: int) -> list[tuple[int, bytes]]:
        """Return the producers of a cache that wrote to the segment, as they are stored. Raises as `read`."""
        lower, upper = keys.tag_range(self._segment, cache_id, keys.TAG_PRODUCER)
        found: list[tuple[int, bytes]] = []
        is_end = False
        while not is_end:
            rows = self._state.read(lower, upper, rows_max=_STATE_ROWS, bytes_max=_PRODUCERS_BYTES)
            is_end = rows.is_end
            found += [(int.from_bytes(keys.parse_state_key(key)[3]), data) for key, data in zip(rows.keys, rows.values, strict=True)]
            lower = rows.keys[-1] + b"\0" if rows.keys else upper
        return found


def seal(content: bytes) -> bytes:
    """Return a piece with its checksum."""
    return int(crc32c(content)).to_bytes(_CRC_BYTES, "little") + content


def unseal(piece: bytes) -> bytes:
    """Return what is in a piece.

    Raises:
        BadMessage: it is damaged.
    """
    content = piece[_CRC_BYTES:]
    if crc32c(content) != int.from_bytes(piece[:_CRC_BYTES], "little"):
        raise BadMessage(why="a piece of a copy whose checksum is wrong")
    return content


def pack(pairs: Iterable[Pair]) -> bytes:
    """Return pairs as one piece."""
    return seal(b"".join([part for key, value in pairs for part in (_PAIR.pack(len(key), len(value)), key, value)]))


def unpack(piece: bytes, *, segment: int) -> list[Pair]:
    """Return the pairs of a piece; all of them belong to `segment`.

    Raises:
        BadMessage: it is damaged, or of another segment.
    """
    content, prefix = unseal(piece), keys.segment_range(segment)[0]
    at, pairs = 0, []
    while at < len(content):
        key_size, value_size = _PAIR.unpack_from(content, at)
        at += _PAIR.size
        key, value = content[at : at + key_size], content[at + key_size : at + key_size + value_size]
        at += key_size + value_size
        if not key.startswith(prefix) or len(value) != value_size:
            raise BadMessage(why=f"a piece of a copy of segment {segment} holds what is not of it")
        pairs.append((key, value))
    return pairs
