"""What an event is: its kinds, the object that an application sees, its headers as bytes, and how deep a JSON value of one may nest."""

import re
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any, Protocol

import msgspec

from eventlog.limits import JSON_DEPTH_MAX

TOO_DEEP = f"it is nested deeper than {JSON_DEPTH_MAX} levels"
_DEEP_BYTES_MIN = 2 * JSON_DEPTH_MAX  # what opens and closes
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACE, _OPEN, _CLOSE = ord("{") & ~ord("["), ord("{"), ord("}")


class Kind(IntEnum):
    """What a change did. In a client's block, before the primary decides, CREATED stands for a put and REMOVED for a removal."""

    CREATED = 0
    MODIFIED = 1
    REMOVED = 2
    EXPIRED = 3
    STATE = 4  # a row of a state read, never stored


class Change(IntEnum):
    """What an event is to a continuous query: the entry comes to match, matches as before, matches no more."""

    JOINED = 1
    UPDATED = 2
    LEFT = 3


CHANGE_NAMES = (None, *(change.name for change in Change))
KIND_NAMES = tuple(kind.name for kind in Kind)


class ValueFormat(Protocol):
    """How values are decoded that are neither JSON nor just bytes."""

    def decode(self, data: bytes) -> Any:
        """Return what a stored value stands for."""
        ...

    def json(self, data: bytes) -> bytes:
        """Return a stored value as JSON."""
        ...

    @property
    def type(self) -> Any:
        """The `pyarrow.DataType` of `array`."""
        ...

    def array(self, values: Sequence[bytes | None]) -> Any:
        """Return stored values as a `pyarrow.Array`, null where one is None."""
        ...


class EventSource(msgspec.Struct, frozen=True, gc=False):
    """What the events of one reader share: how to read keys and values, and where they come from.

    Where `values` is None they are JSON, or with `json_values` False bytes as they are.
    """

    cache: str
    cache_id: int
    cluster: str
    text_keys: bool
    json_values: bool
    position_at: Callable[[int], str] = str  # the token to go on with after an id; an id alone is one, too
    may_repeat: "Callable[[Event], bool] | None" = None  # whether an event may have come before, to this reader or another; None: never
    values: ValueFormat | None = None
    has_changes: bool = False  # whether they may be changes of a continuous query: a listener can be altered to one
    columns: tuple[str, ...] | None = None  # those that were asked for; None: all

    def decode(self, data: bytes) -> Any:
        """Return what a stored value stands for."""
        return decode_value(data, json_values=self.json_values) if self.values is None else self.values.decode(data)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change. Keys and values are decoded when they are asked for, so forwarding an event costs nothing more.

    Events are equal where all that they say is, however they were read.
    """

    id: int
    kind_number: int
    key_bytes: bytes
    value_bytes: bytes
    segment: int
    offset: int
    source: EventSource
    before_bytes: bytes | None = None
    header_bytes: bytes | None = None
    change_number: int = 0

    def __repr__(self) -> str:
        return (
            f"Event(id={self.id}, kind={self.kind!r}, key={self.key!r}, value={self.value!r}, segment={self.segment}, offset={self.offset})"
        )

    def __eq__(self, other: object) -> bool:
        return self._said() == other._said() if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.source.cluster, self.source.cache_id, self.id))

    def _said(self) -> tuple[object, ...]:
        source, own = self.source, (self.id, self.kind_number, self.key_bytes, self.value_bytes, self.segment, self.offset)
        return source.cluster, source.cache_id, *own, self.before_bytes, self.header_bytes, self.change_number

    @property
    def kind(self) -> str:
        """`CREATED`, `MODIFIED`, `REMOVED`, `EXPIRED`, or `STATE` for a row of a state read."""
        return KIND_NAMES[self.kind_number]

    @property
    def key(self) -> str | bytes:
        """The key: text, or bytes where the cache was created with `key_format="bytes"`."""
        return self.key_bytes.decode() if self.source.text_keys else self.key_bytes

    @property
    def value(self) -> Any:
        """The value as the cache's format reads it; None for REMOVED and EXPIRED."""
        if self.kind_number in _WITHOUT_VALUE:
            return None
        return self.source.decode(self.value_bytes)

    @property
    def before(self) -> Any:
        """The value that this change replaced, or None where there was none or the cache keeps none."""
        return None if self.before_bytes is None else self.source.decode(self.before_bytes)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers given with the write, in order."""
        return decode_headers(self.header_bytes) if self.header_bytes else {}

    @property
    def change(self) -> str | None:
        """`JOINED`, `UPDATED` or `LEFT` where a continuous query is read, else None."""
        return CHANGE_NAMES[self.change_number]

    @property
    def position(self) -> str:
        """Where to go on after this event, in any reader of this cache: a token for `position=`."""
        return self.source.position_at(self.id)

    @property
    def maybe_repeated(self) -> bool:
        """Whether its reader may have been told already: compare ids with what is known of the key."""
        return self.source.may_repeat is not None and self.source.may_repeat(self)

    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970 in the event's id."""
        return (self.id >> 22) + 1_577_836_800_000


_WITHOUT_VALUE = frozenset({Kind.REMOVED, Kind.EXPIRED})


def decode_value(data: bytes, *, json_values: bool) -> Any:
    """Return what `data` stands for: parsed JSON, or the bytes themselves."""
    return msgspec.json.decode(data) if json_values else data


def are_too_deep(values: Collection[bytes]) -> bool:
    """Return whether one of many values is; that none is large enough is found out without a call for each."""
    return max(map(len, values), default=0) >= _DEEP_BYTES_MIN and any(map(is_too_deep, values))


def is_too_deep(value: bytes) -> bool:
    """Return whether JSON is nested deeper than allowed: how deep a decoder can go hangs on how deep its caller is already."""
    if len(value) < _DEEP_BYTES_MIN or value.count(b"[") + value.count(b"{") <= JSON_DEPTH_MAX:
        return False
    import numpy as np  # noqa: PLC0415 -- hardly a value has as many brackets, and a short command does without it

    text = np.frombuffer(_TEXTS.sub(b"", value), np.uint8) | np.uint8(_BRACE)  # makes braces of brackets
    depth = (text == _OPEN).astype(np.int64) - (text == _CLOSE)
    return bool(depth.cumsum().max(initial=0) > JSON_DEPTH_MAX)


def encode_headers(headers: dict[str, bytes]) -> bytes:
    """Return headers as `name length u16 | value length u32 | name | value` each, big-endian; empty for none."""
    parts: list[bytes] = []
    for name, value in headers.items():
        text = name.encode()
        parts += (len(text).to_bytes(2), len(value).to_bytes(4), text, value)
    return b"".join(parts)


def decode_headers(data: bytes) -> dict[str, bytes]:
    """Return what `encode_headers` was given.

    Raises:
        ValueError: `data` ends in the middle of a header or a name is not UTF-8.
    """
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        name_end = at + 6 + int.from_bytes(data[at : at + 2])
        end = name_end + int.from_bytes(data[at + 2 : at + 6])
        if at + 6 > len(data) or end > len(data):
            raise ValueError("headers end in the middle")
        found[data[at + 6 : name_end].decode()] = data[name_end:end]
        at = end
    return found
