"""What a client's calls return. Plain values: nothing here knows a connection."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.events import KIND_NAMES, Event

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Format = Literal["json", "bytes", "avro"]
KeyFormat = Literal["utf8", "bytes"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a write became. `id` and `kind` are None for a removal that found nothing.

    `previous` is the value that was replaced or removed, if the call asked for it and there was one. A cache without before-images does
    not know it any more when the answer was lost and the write had to be asked for again.
    """

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


def kind_name(number: int) -> str | None:
    """Return the name of a kind, None for an item without an event."""
    return _NAMES[number]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """A segment whose primary holds ordered readers up, and since when (milliseconds since 1970)."""

    segment: int
    node: int
    since_ms: int

    def __str__(self) -> str:
        who = f"node {self.node}" if self.node else "nobody"
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"segment {self.segment}, which {who} leads, holds readers of all events since {since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a poll found. `position` and `last_id` are where to go on, also past what is not in `events`.

    `is_end`: there was nothing more at that moment. Everything committed up to `low_watermark` could be read.
    `held_percent`: how much a durable listener has used up of what it may hold back, if that is much.
    """

    events: Sequence[Event]
    position: str
    last_id: int
    is_end: bool
    low_watermark: int
    stalled: Sequence[Stalled]
    held_percent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """Where a cache's log begins and ends. `first_id` is None if nothing is kept; `last_id` is the low watermark.

    `stalled` are the segments that hold it, where it stands still: there is more above it.
    """

    first_id: int | None
    last_id: int
    events: int
    stalled: Sequence[Stalled] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The cluster as one node sees it. `advice` says what to do next."""

    cluster: str
    health: str
    controller: str
    metastore: str
    nodes: int
    nodes_live: int
    segments: int
    without_primary: int
    under_replicated: int
    low_watermark: int
    low_watermark_age_ms: int
    held_by: str
    rebalance: str
    advice: Sequence[str]
    unwritable: int = 0
    unreadable: int = 0
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What of the cluster works now: shares of the segments, 0 to 1, that can be written and read, and the nodes that are missing."""

    writable: float
    readable: float
    missing: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """One segment of the cluster, or of one cache in it. `under_replicated`: fewer copies are in sync and there than the cluster keeps.

    `unwritable`, `unreadable`: its primary lacks in-sync replicas for that, or it has none.
    """

    segment: int
    primary: str
    owners: Sequence[str]
    in_sync: Sequence[str]
    epoch: int
    first_id: int
    last_id: int
    high_watermark: int
    events: int
    bytes: int
    under_replicated: bool
    unwritable: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRow:
    """What retention removed, or would remove, of one segment of a cache; `first_id` is the first id kept."""

    cache: str
    segment: int
    removed: int
    first_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRun:
    """What one run of retention did, or would do. Everything up to `cut_id` was looked at."""

    rows: Sequence[RetentionRow]
    removed: int
    cut_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check of stored data read, and what it found wrong."""

    values: int
    events: int
    entries: int
    problems: Sequence[str]
