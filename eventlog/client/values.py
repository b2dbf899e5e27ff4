"""What a client's calls return, how messages of the wire say it, and what it hands out shows itself as. Nothing here knows a connection."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import index
from os import PathLike, fspath
from os.path import abspath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, SupportsFloat, SupportsIndex

from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.errors import InvalidArgument
from eventlog.events import KIND_NAMES, Kind
from eventlog.ids import ID_MAX
from eventlog.wire import eventlog_pb2 as pb

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
class ClientUsage:
    """What a client holds at a moment: open connections, and bytes and frames of writes whose outcome it does not know yet."""

    connections: int
    bytes_unanswered: int
    frames_undecided: int


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
    """A cache and its options; they hold from the id `from_id` on. A limit or lifespan of None is none; `schema` is JSON.

    `archive` is the path or address of an archive of its events, empty where none is noted.
    """

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
    validate: bool = False
    archive: str = ""


_FORMATS: dict[int, Format] = {pb.JSON: "json", pb.BYTES: "bytes", pb.AVRO: "avro"}
_FORMAT_NUMBERS: dict[str, pb.Format] = {"json": pb.JSON, "bytes": pb.BYTES, "avro": pb.AVRO}
_CONSISTENCIES = {"primary": pb.PRIMARY, "linear": pb.LINEAR, "any": pb.ANY}


def consistency_number(name: object) -> pb.Consistency:
    """Return the wire's number for how fresh a read has to be."""
    if not isinstance(name, str) or name not in _CONSISTENCIES:
        raise InvalidArgument(why=f"consistency {name!r:.60}: use primary, linear or any")
    return _CONSISTENCIES[name]


def checked_id(number: int, name: str = "") -> int:
    """Return `number` if an id can be that.

    Raises:
        InvalidArgument: it cannot; names the option, where it has a name.
    """
    # what the request does not take as a number would end the sending of everything behind it
    if isinstance(number, bool | type) or not hasattr(number, "__index__") or not 0 <= (whole := index(number)) <= ID_MAX:
        raise InvalidArgument(why=f"{name and name + ' '}{number!r:.60} is not an id")
    return whole


def checked_whole(name: str, number: object, *, low: int = 0, high: int = (1 << 32) - 1) -> int:
    """Return the whole number that an option is given, numpy's too.

    Raises:
        InvalidArgument: it is none, or not in `[low, high]`; names the option.
    """
    if isinstance(number, bool | type) or not isinstance(number, SupportsIndex) or not low <= (whole := index(number)) <= high:
        raise InvalidArgument(why=f"{name} is {number!r:.60}: give a whole number from {low} to {high}")
    return whole


def checked_text(name: str, text: object) -> str:
    """Return the text that an option is given. Raises InvalidArgument: it is none, or UTF-8 cannot hold it; names the option."""
    if not isinstance(text, str):
        raise InvalidArgument(why=f"{name} is {text!r:.60}: give text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(why=f"{name} is {text!r:.60}, which UTF-8 cannot hold: {error.reason}") from error
    return text


def checked_flag(name: str, given: object) -> bool:
    """Return whether an option is chosen, numpy's words for it too. Raises InvalidArgument: it is something else; names the option."""
    if isinstance(given, bool):
        return given
    if type(given).__name__ not in {"bool", "bool_"}:
        raise InvalidArgument(why=f"{name} is {given!r:.60}: give True or False")
    return bool(given)


def checked_bound(name: str, number: object) -> int:
    """Return how many there may be at most. Raises InvalidArgument: it is no whole number above 0; names the option."""
    if isinstance(number, bool | type) or not isinstance(number, SupportsIndex) or index(number) <= 0:
        raise InvalidArgument(why=f"{name} is {number!r:.60}: give a number above 0, and a whole one")
    return index(number)


def checked_span(name: str, span_ms: Any, *, or_else: str = "") -> Any:
    """Return a time above 0 in milliseconds, which may have a fraction.

    Raises:
        InvalidArgument: it is none; names the option.
    """
    if isinstance(span_ms, bool | type) or not isinstance(span_ms, SupportsFloat) or not float(span_ms) > 0:  # so is NaN not
        raise InvalidArgument(why=f"{name} is {span_ms!r:.60}: give a number above 0{or_else}")
    return span_ms


def cache_options(options: dict[str, object]) -> pb.CacheOptions:
    """Return options as the wire has them; what is None stays unset, except a limit, where `no limit` is 0.

    Raises:
        InvalidArgument: naming what is unknown or out of range.
    """
    given = dict(options)
    found = pb.CacheOptions()
    _take_format(found, given)
    key_format = given.pop("key_format", None)
    if key_format is not None:
        if key_format not in ("utf8", "bytes"):
            raise InvalidArgument(why=f"key_format {key_format!r}: use utf8 or bytes")
        found.bytes_keys = key_format == "bytes"
    _take_lists(found, given)
    archive = given.pop("archive", None)
    if archive is not None:
        found.archive = _archive_place(archive)
    for name in ("events", "state", "before", "route_by_prefix", "wait_proceeds", "validate"):
        value = given.pop(name, None)
        if value is not None:
            setattr(found, name, checked_flag(name, value))
    for name in ("retain_time_ms", "retain_bytes", "retain_events", "lifespan_ms", "wait_ms"):
        value = given.pop(name, None)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
                raise InvalidArgument(why=f"{name} is {value!r}: give a whole number, 0 for no limit")
            setattr(found, name, value)
    if given:
        raise InvalidArgument(why=f"unknown cache options: {', '.join(sorted(given))}")
    return found


def _archive_place(archive: object) -> str:
    """Return where an archive is for everybody, whatever folder they are in."""
    given = fspath(archive) if isinstance(archive, PathLike) else archive
    if not isinstance(given, str):
        raise InvalidArgument(why=f"archive is {archive!r}: give a path, or an address of an object store")
    return abspath(given) if given and "://" not in given else given  # noqa: PTH100 -- short commands do without pathlib


def _take_lists(found: pb.CacheOptions, given: dict[str, object]) -> None:
    for name in ("promote", "wait_listeners"):
        value = given.pop(name, None)
        if value is not None:
            if isinstance(value, bytes | type) or not isinstance(value, Iterable):
                raise InvalidArgument(why=f"{name} is {value!r:.60}: give a list of names, or a text with commas between them")
            setattr(found, name, ",".join(checked_text(name, one) for one in ([value] if isinstance(value, str) else value)))


def _take_format(found: pb.CacheOptions, given: dict[str, object]) -> None:
    name = given.pop("format", None)
    if name is not None:
        number = _FORMAT_NUMBERS.get(str(name))
        if number is None:
            raise InvalidArgument(why=f"format {name!r}: use {', '.join(_FORMAT_NUMBERS)}")
        found.format = number
    schema = given.pop("schema", None)
    if schema is not None:
        found.schema = checked_text("schema", schema)


def cache_info(cache: pb.CacheDescription) -> CacheInfo:
    """Return a cache as callers see it."""
    options = cache.options
    return CacheInfo(
        name=cache.name,
        id=cache.id,
        format=_FORMATS[options.format],
        key_format="bytes" if options.bytes_keys else "utf8",
        events=options.events,
        state=options.state,
        before=options.before,
        retain_time_ms=options.retain_time_ms or None,
        retain_bytes=options.retain_bytes or None,
        retain_events=options.retain_events or None,
        lifespan_ms=options.lifespan_ms or None,
        route_by_prefix=options.route_by_prefix,
        promote=tuple(filter(None, options.promote.split(","))),
        wait_listeners=tuple(filter(None, options.wait_listeners.split(","))),
        wait_ms=options.wait_ms or None,
        wait_proceeds=options.wait_proceeds,
        schema=options.schema,
        validate=options.validate,
        archive=options.archive,
        from_id=cache.from_id,
    )


class Shown:
    """What stays in the process that has the connections: its public name is its `repr`, and pickling says what to send instead."""

    _place: ClassVar[str] = "eventlog"

    def _described(self) -> str:
        """Return what stands behind the name."""
        return ""

    def __repr__(self) -> str:
        return f"<{self._place}.{type(self).__name__}{self._described()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: send its address or name, and connect in the other process")
