"""Registered listeners, as decisions: what is kept of one, how far it has acknowledged, and what retention must leave it. Pure.

The entries are in the internal cache `__listeners`, one route a listener: its record, and behind it its position if it is durable. The
primary of that route keeps the position in memory and writes it down now and then (`eventlog/node/consumers/listener_home.py`). A
position never falls, whichever client polls for the listener, and wherever. A filter that was altered stays with the ids it was for.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from eventlog.arrays import NONE, Ints
from eventlog.errors import CorruptData, InvalidArgument
from eventlog.predicate.spec import FilterSpec
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions

FILTERS_MAX = 16  # of one listener; of more alterations the oldest are forgotten: a reader there gets the oldest one kept
ID_BYTES_MAX = 100
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ID_BYTES_MAX - 1}}}")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class FilterFrom(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of events after `from_id`."""

    from_id: int
    spec: FilterSpec


class ListenerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A registered listener. `filters` rise by `from_id`, the first one's is 0. Of an ephemeral one, holds are 0."""

    id: str
    cache_id: int
    cache: str
    filters: tuple[FilterFrom, ...]
    durable: bool = False
    hold_bytes: int = 0
    hold_ms: int = 0
    expire_ms: int = 0
    last_id: int = 0
    first_id: int = 0

    @property
    def newest(self) -> FilterFrom:
        """Return the filter of whatever comes next."""
        return self.filters[-1]

    @property
    def asked_for(self) -> tuple[object, ...]:
        """Return what was asked for: the same of two that differ in nothing but when they were registered."""
        return self.cache_id, self.newest.spec, self.durable, self.hold_bytes, self.hold_ms, self.expire_ms


@dataclass(frozen=True, slots=True)
class FilterReach:
    """The filter for events after a place, and the last id that it is for; 0: all that follow."""

    spec: FilterSpec
    until_id: int


def filter_after(record: ListenerRecord, after: int) -> FilterReach:
    """Return what a reader that has everything up to `after` is to be answered with."""
    until = 0
    for found in reversed(record.filters):
        if found.from_id <= after:
            return FilterReach(found.spec, until)
        until = found.from_id
    raise AssertionError("the first filter is for all ids before the second's")


def altered(record: ListenerRecord, spec: FilterSpec, *, from_id: int) -> ListenerRecord:
    """Return the listener with another filter for events after `from_id`; what was planned for behind it is forgotten."""
    filters = [*(found for found in record.filters if found.from_id < from_id), FilterFrom(from_id=from_id, spec=spec)][-FILTERS_MAX:]
    filters[0] = msgspec.structs.replace(filters[0], from_id=0)
    return msgspec.structs.replace(record, filters=tuple(filters))


def record_key(listener: str) -> bytes:
    """Return the key of a listener's record; its route is the listener."""
    return listener.encode() + b"\0"


def position_key(listener: str) -> bytes:
    """Return the key of a durable listener's position."""
    return listener.encode() + b"\0position"


def listener_of(key: bytes) -> tuple[str, bool]:
    """Return which listener a key is of, and whether it is the one of its record."""
    route, _, rest = key.partition(b"\0")
    return route.decode(errors="replace"), not rest


def encode_record(record: ListenerRecord) -> bytes:
    """Return a record as it is stored."""
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> ListenerRecord:
    """Return a stored record.

    Raises:
        CorruptData: not one.
    """
    try:
        return msgspec.json.decode(data, type=ListenerRecord)
    except msgspec.DecodeError as error:
        raise CorruptData(where="listener", why=str(error)) from error


def checked_listener(listener: str) -> str:
    """Return what may name a listener.

    Raises:
        InvalidArgument: it may not.
    """
    if _ID.fullmatch(listener) is None:
        raise InvalidArgument(why=f"{listener[:ID_BYTES_MAX]!r} does not name a listener: use 1 to {ID_BYTES_MAX} of A-Z a-z 0-9 . _ -")
    return listener


def listener_name(number: int) -> str:
    """Return a name made of a number that nobody else has."""
    digits = ""
    while number:
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return f"l{digits}"


class ListenerProgress:
    """A position that moves forward only. Over all segments it is one id; a place in each costs memory for each."""

    __slots__ = ("_epochs", "_ids", "_offsets", "_scope", "all_id")

    def __init__(self, cluster: str, cache_id: int, segments: int, *, all_id: int = 0) -> None:
        self._scope = (cluster, cache_id, segments)
        self.all_id = all_id
        self._ids: Ints | None = None
        self._offsets = self._epochs = NONE

    @property
    def cache_id(self) -> int:
        """Of which cache it is."""
        return self._scope[1]

    def move(self, position: Position) -> bool:
        """Take in where a listener was polled at; return whether that is any further, in any segment.

        Raises:
            PositionMismatch: it is a position of something else.
        """
        cluster, cache_id, segments = self._scope
        position.check(cluster=cluster, cache_id=cache_id, segments=segments)
        at = position.at
        if position.unread:
            return False  # it reads the state, and has nothing of what happened
        if isinstance(at, SegmentPositions):
            return self._move_places(at)
        if at <= self.all_id:
            return False
        self.all_id = at
        if self._ids is not None and bool((self._ids <= at).all()):
            self._ids = None
        return True

    def _move_places(self, at: SegmentPositions) -> bool:
        if not bool((at.ids > self._below(at.of)).any()):
            return False
        if self._ids is None:
            segments = self._scope[2]
            self._ids = np.full(segments, self.all_id, np.int64)
            self._offsets = np.full(segments, OFFSET_UNKNOWN, np.int64)
            self._epochs = np.zeros(segments, np.int64)
        further = at.ids > self._below(at.of)
        rows = at.of[further]
        self._ids[rows], self._offsets[rows], self._epochs[rows] = at.ids[further], at.offsets[further], at.epochs[further]
        return True

    def _below(self, segments: Ints) -> Ints:
        if self._ids is None:
            return np.full(len(segments), self.all_id, np.int64)
        return np.maximum(self._ids[segments], self.all_id)

    @property
    def lowest(self) -> int:
        """Return the id up to which everything is acknowledged, in all segments."""
        return self.all_id if self._ids is None else max(self.all_id, int(self._ids.min()))

    def covers(self, segments: Sequence[int], ids: Sequence[int]) -> bool:
        """Return whether an id in each of some segments is acknowledged."""
        return bool((self._below(np.array(segments, np.int64)) >= np.array(ids, np.int64)).all())

    def position(self) -> Position:
        """Return it as a position to go on from."""
        cluster, cache_id, segments = self._scope
        position = Position(cluster=cluster, cache_id=cache_id, segments=segments, at=self.all_id)
        if self._ids is None:
            return position
        below = self._ids < self.all_id
        at = SegmentPositions(
            of=np.arange(segments),
            ids=np.where(below, self.all_id, self._ids),
            offsets=np.where(below, OFFSET_UNKNOWN, self._offsets),
            epochs=np.where(below, 0, self._epochs),
        )
        return replace(position, at=at)
