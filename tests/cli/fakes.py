"""A client in memory, as much of it as the commands' output needs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from eventlog.errors import EventsTrimmed
from eventlog.events import Event, EventSource, Kind
from eventlog.read import token
from eventlog.read.position import Position


@dataclass(frozen=True)
class Source:
    """As `EventSource`, with positions that can be read."""

    cache: str = "c"
    cache_id: int = 1
    cluster: str = "x"
    text_keys: bool = True
    may_repeat: Any = None
    json_values: bool = True
    values: Any = None

    def position_at(self, event_id: int) -> str:
        return token_at(event_id)


def token_at(event_id: int) -> str:
    """Return the token of a reader that has everything up to an id."""
    return token.to_text(Position(cluster="x", cache_id=1, segments=8, at=event_id))


@dataclass
class Batch:
    """Some events, as `EventBatch`."""

    found: list[Event]
    last_id: int
    source: Any = Source()

    def __len__(self) -> int:
        return len(self.found)

    def events(self) -> Iterator[Event]:
        return iter(self.found)

    def __iter__(self) -> Iterator[Event]:
        return self.events()


def event(number: int, *, key: bytes = b"k", value: bytes | None = None, source: EventSource | None = None) -> Event:
    given: Any = source or Source()
    return Event(
        id=number,
        kind_number=Kind.CREATED,
        key_bytes=key,
        value_bytes=b'{"n":%d}' % number if value is None else value,
        segment=0,
        offset=number,
        source=given,
    )


@dataclass
class Cache:
    """A cache whose answers were given beforehand; `asked` has what was asked."""

    batches: list[Batch | BaseException] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    first_id: int | None = None
    trimmed_id: int = 0
    last_id: int = 9

    tail_id: int | None = None
    archive: str = ""
    was_whole: bool = False

    def info(self) -> Self:
        return self

    def log_ends(self, *, tail: int | None = None, segments: list[int] | None = None, whole: bool = False) -> Self:
        self.was_whole = whole
        self.tail_id = None if tail is None else self.last_id - tail + (0 if segments is None else len(segments))
        return self

    def poll(self, after: int, *, max_events: int) -> None:
        assert max_events == 1
        if after < self.trimmed_id:
            raise EventsTrimmed(first_id=self.first_id, lost=3)

    def event_batches(self, **asked: Any) -> Iterator[Batch]:
        self.asked = asked
        for batch in self.batches:
            if isinstance(batch, BaseException):
                raise batch
            yield batch


@dataclass
class Client:
    """A client of one cache."""

    the_cache: Any
    connected_with: tuple[Any, ...] = ()

    def connect(self, *addresses: str, **options: Any) -> Self:
        self.connected_with = (addresses, options)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cache(self, name: str) -> Any:
        assert name == "c"
        return self.the_cache
