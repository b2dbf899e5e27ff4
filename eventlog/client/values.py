"""What a client's calls return. Plain values: nothing here knows a connection."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.events import KIND_NAMES, Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Format = Literal["json", "bytes", "avro"]
KeyFormat = Literal["utf8", "bytes"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a put became: the id of its event and whether that is `CREATED` or `MODIFIED`.

    `previous` is the value that was replaced, if the call asked for it and there was one. A cache without before-images does not know it
    any more when the answer was lost and the write had to be asked for again.
    """

    id: int
    kind: str
    previous: Any = None


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal became, likewise. `id` and `kind` are None where there was nothing to remove."""

    id: int | None
    kind: str | None
    previous: Any = None


class StoredMany:
    """What many writes became, in the order in which they were given.

    `id_column` (int64, 0: nothing to remove) and `kind_column` (uint8) are what `ids` and `kinds` are made from.
    """

    def __init__(self, ids: "npt.NDArray[np.int64]", kinds: "npt.NDArray[np.uint8]") -> None:
        self.id_column = ids
        self.kind_column = kinds

    def __len__(self) -> int:
        return len(self.id_column)

    @cached_property
    def ids(self) -> list[int | None]:
        """Ids of the events; None for a removal that found nothing."""
        ids: list[int | None] = self.id_column.tolist()
        return ids if self.id_column.all() else [own or None for own in ids]

    @cached_property
    def kinds(self) -> list[str | None]:
        """Kinds of the events, likewise."""
        return list(map(kind_name, self.kind_column.tolist()))

    @property
    def events(self) -> int:
        """How many events were made."""
        return int((self.id_column != 0).sum())

    @property
    def last_id(self) -> int | None:
        """The highest id, None if there is no event."""
        return int(self.id_column.max(initial=0)) or None

    @property
    def first_id(self) -> int | None:
        """The lowest id, None if there is no event."""
        return int(self.id_column[self.id_column > 0].min()) if self.events else None

    def __repr__(self) -> str:
        return f"StoredMany({len(self)} items, {self.events} events, last_id={self.last_id})"


_NAMES: dict[int, str | None] = {**dict(enumerate(KIND_NAMES)), ABSENT: None, REFUSED: None}
_MODIFIED = int(Kind.MODIFIED)


def kind_name(number: int) -> str | None:
    """Return the name of a kind, None for an item without an event."""
    return _NAMES[number]


def written(id_: int, kind: int, previous: Any = None) -> Stored | Removed:
    """Return what one write became, by the number of its kind; `id_` is 0 where there is no event."""
    return Stored(id_, KIND_NAMES[kind], previous) if kind <= _MODIFIED else Removed(id_ or None, _NAMES[kind], previous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The current entry of a key. `version` is the id of its last event; `expires_ms` is milliseconds since 1970, None for never.

    `value_bytes` is the value as it is stored, which for JSON need not be how it would be written now.
    """

    value: Any
    value_bytes: bytes
    version: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInfo:
    """A cache and its options; they hold from the id `from_id` on. A limit or lifespan of None is none; `schema` is JSON, of avro alone."""

    name: str
    id: int
    format: Format
    key_format: KeyFormat
    events: bool
    state: bool
    before: bool
    retain_time_ms: int | None
    retain_bytes: int | None
    retain_events: int | None
    lifespan_ms: int | None
    route_by_prefix: bool
    from_id: int
    promote: tuple[str, ...] = ()
    wait_listeners: tuple[str, ...] = ()
    wait_ms: int | None = None
    wait_proceeds: bool = False
    schema: str = ""
