"""What is kept of a listener. A filter that was altered stays with the ids it was for."""

import re
from dataclasses import dataclass

import msgspec

from eventlog.errors import CorruptData, InvalidArgument
from eventlog.predicate.spec import FilterSpec

FILTERS_MAX = 16  # of one listener; of more alterations the oldest are forgotten: whoever reads there gets the oldest one kept
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
class Reach:
    """The filter for events after a place, and the last id that it is for; 0: all that follow."""

    spec: FilterSpec
    until_id: int


def filter_after(record: ListenerRecord, after: int) -> Reach:
    """Return what a reader who has everything up to `after` is to be answered with."""
    until = 0
    for found in reversed(record.filters):
        if found.from_id <= after:
            return Reach(found.spec, until)
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
