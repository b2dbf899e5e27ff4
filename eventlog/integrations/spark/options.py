"""The options of `format("eventlog")`, checked once and made into values. Pure.

Spark passes names in lower case, and some of its own beside them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal

import orjson

from eventlog.errors import BadMessage, InvalidArgument
from eventlog.ids import ID_MAX, id_before
from eventlog.integrations.archive.ranges import PARTITIONS_MAX
from eventlog.integrations.archive.values import Corrupt
from eventlog.integrations.spark.travelling import Travelling
from eventlog.limits import ANSWER_BYTES_MAX, STAGE_KEEP_MS_DEFAULT, STAGE_KEEP_MS_MAX
from eventlog.read.token import from_text

WAIT_MS_MAX: Final = 60_000
HOLD_BYTES: Final = 1 << 30
_NAMES: Final = {
    "servers": "servers",
    "cache": "cache",
    "startingposition": "starting_position",
    "endingposition": "ending_position",
    "segments": "segments",
    "where": "where",
    "parameters": "parameters",
    "filter": "filter",
    "params": "params",
    "select": "select",
    "columns": "columns",
    "failondataloss": "fail_on_data_loss",
    "maxeventspertrigger": "max_events_per_trigger",
    "maxbytespertrigger": "max_bytes_per_trigger",
    "maxwaitms": "max_wait_ms",
    "partitions": "partitions",
    "maxpartitions": "max_partitions",
    "fetchbytes": "fetch_bytes",
    "readfrom": "read_from",
    "rows": "rows",
    "asof": "as_of",
    "archive": "archive",
    "hold": "hold",
    "holdbytes": "hold_bytes",
    "value_schema": "value_schema",
    "corrupt": "corrupt",
}
_SHOWN: Final = (
    *("servers", "cache", "startingPosition", "endingPosition", "segments", "where", "parameters", "filter", "params", "select", "columns"),
    *(
        "failOnDataLoss",
        "maxEventsPerTrigger",
        "maxBytesPerTrigger",
        "maxWaitMs",
        "partitions",
        "maxPartitions",
        "fetchBytes",
        "readFrom",
        "rows",
        "asOf",
    ),
    *("archive", "hold", "holdBytes", "value_schema", "corrupt"),
)
_SINK_NAMES: Final = {
    "servers": "servers",
    "cache": "cache",
    "txnid": "transaction",
    "removecolumn": "remove_column",
    "stagettlms": "keep_ms",
    "mode": "mode",
    "rate": "rate",
    "tasks": "tasks",
}
_SINK_SHOWN: Final = ("servers", "cache", "mode", "txnId", "removeColumn", "stageTtlMs", "rate", "tasks")
_SPARKS: Final = {"path", "checkpointlocation", "queryname", "schema", "outputmode", "header"}
_CLIENT: Final = "client."
_CLIENT_NAMES: Final = {"timeout_ms": int, "connect_timeout_ms": int, "reconnect_ms_max": int, "routing": str, "name": str}
_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")

Word = Literal["earliest", "latest"]
Rows = Literal["events", "state", "ranges"]
WriteMode = Literal["upsert", "insert"]
ReadFrom = Literal["owner", "any"]
_CORRUPT: Final[dict[str, Corrupt]] = {"column": "column", "null": "null", "fail": "fail"}
_MODES: Final[dict[str, WriteMode]] = {"upsert": "upsert", "insert": "insert"}
_ROWS: Final[dict[str, Rows]] = {"events": "events", "state": "state", "ranges": "ranges"}
_READ_FROM: Final[dict[str, ReadFrom]] = {"owner": "owner", "any": "any"}
_WORDS: Final[dict[str, Word]] = {"earliest": "earliest", "latest": "latest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin or end: a word, behind an id, where a listener is, or at a token."""

    word: Word | None = None
    id: int = 0
    listener: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(Travelling):
    """What a source is asked for. It is plain values, so it travels to the tasks as it is.

    `archive` is None where nothing is said of one, and empty where none is to be read; `is_noted`: it is that of the cache. `hold` names
    the durable listener by which retention keeps what a stream has not done, up to `hold_bytes`.
    """

    servers: tuple[str, ...]
    cache: str
    starting_position: Start | None = None
    ending_position: Start = Start(word="latest")
    segments: tuple[int, ...] = ()
    where: str | None = None
    parameters: Any = None
    filter: str | None = None
    params: Mapping[str, Any] | None = None
    select: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    max_events_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    max_wait_ms: int = 500
    partitions: int = 0
    max_partitions: int = PARTITIONS_MAX
    fetch_bytes: int = ANSWER_BYTES_MAX
    read_from: ReadFrom = "owner"
    rows: Rows = "events"
    as_of: Start | None = None
    archive: str | None = None
    is_noted: bool = False
    hold: str = ""
    hold_bytes: int = HOLD_BYTES
    value_schema: str = ""
    corrupt: Corrupt = "column"
    client: Mapping[str, Any] = field(default_factory=dict)

    def over(self, noted: str) -> "SourceOptions":
        """Return the same with the archive that is noted with the cache, where nothing is said of one and it has a part in the read."""
        is_of_nodes = self.filter is not None or self.rows == "ranges" or (self.rows == "state" and self.as_of is None)
        if self.archive is not None or not noted or is_of_nodes:
            return self
        return replace(self, archive=noted, is_noted=True)

    def reading(self) -> dict[str, Any]:
        """Return what every read of events is asked for."""
        found: dict[str, Any] = {"where": self.where, "filter": self.filter}
        if self.where is not None:
            found["parameters"] = self.parameters
        if self.filter is not None:
            found["params"] = self.params
        if self.select:
            found["select"] = list(self.select)
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(Travelling):
    """What a sink is asked for. `transaction`: the query's id where it is empty, and one by chance for a batch.

    `rate`: events per second over all of at most `tasks` tasks, 0 for any number.
    """

    servers: tuple[str, ...]
    cache: str
    transaction: str = ""
    remove_column: str = ""
    keep_ms: int = STAGE_KEEP_MS_DEFAULT
    mode: WriteMode = "upsert"
    rate: int = 0
    tasks: int = 0
    client: Mapping[str, Any] = field(default_factory=dict)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Return what Spark passes on as options of a source.

    Raises:
        InvalidArgument: naming what is unknown, with the nearest name, or cannot be.
    """
    found = _read(given, _NAMES, shown=_SHOWN)
    _check(found)
    return SourceOptions(**found)


def check_stream(asked: SourceOptions, *, takes_limits: bool = True) -> None:
    """Raise InvalidArgument for options that a stream does not have, or this PySpark does not."""
    for name, limit in (("maxEventsPerTrigger", asked.max_events_per_trigger), ("maxBytesPerTrigger", asked.max_bytes_per_trigger)):
        if limit and not takes_limits:
            raise InvalidArgument(why=f"{name} needs PySpark 4.2: older ones have no limits of a trigger for such a source")
    if asked.rows == "ranges":
        raise InvalidArgument(why="rows=ranges is for a batch: they are those of one plan")
    if asked.rows == "state":
        raise InvalidArgument(why="rows=state is for a batch: entries are as of a moment, and what happens to them are events")
    if asked.ending_position != Start(word="latest"):
        raise InvalidArgument(why="endingPosition is for a batch: a stream goes on, and with the trigger AvailableNow up to the log's end")


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return what Spark passes on as options of a sink. Raises as `read_options`."""
    if "truncate" in {name.lower() for name in given}:
        raise InvalidArgument(why=NOT_WRITTEN_OVER)
    found = _read(given, _SINK_NAMES, shown=_SINK_SHOWN)
    _check_place(found)
    if found.get("mode") == "insert" and found.get("remove_column"):
        raise InvalidArgument(why="removeColumn removes keys, and mode=insert writes new ones alone")
    if bool(found.get("rate")) != bool(found.get("tasks")):
        raise InvalidArgument(
            why="rate is shared by the tasks that write: give rate and tasks, and have as many partitions, with repartition"
        )
    if found.get("rate", 0) < found.get("tasks", 0):
        raise InvalidArgument(why=f"rate is {found['rate']} and tasks {found['tasks']}: each task has one event a second at least")
    return SinkOptions(**found)


def _read(given: Mapping[str, str], names: Mapping[str, str], *, shown: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for name, text in given.items():
        key = name.lower()
        if key in _SPARKS:
            continue
        if key.startswith(_CLIENT):
            client |= _client_option(name[len(_CLIENT) :].lower(), text)
        elif key in names:
            found[names[key]] = _value(names[key], text, option=_shown(key))
        else:
            raise InvalidArgument(why=f"there is no option {name!r}{_nearest(name, shown)}")
    return found | {"client": client}


def _check_place(found: Mapping[str, Any]) -> None:
    for name in ("servers", "cache"):
        if not found.get(name):
            raise InvalidArgument(why=f"the option {name} is missing")


def _check(found: Mapping[str, Any]) -> None:
    _check_place(found)
    _check_rows(found)
    if "corrupt" in found and not found.get("value_schema"):
        raise InvalidArgument(why="corrupt says what becomes of values that do not fit value_schema: name that, too")
    if found.get("archive") and found.get("filter"):
        raise InvalidArgument(why="filter is a filter of the nodes, which archives do not have: use where")
    if found.get("max_partitions") == 0:
        raise InvalidArgument(why="maxPartitions is 0: a read has one task at least")
    for name, needs in (("parameters", "where"), ("params", "filter")):
        if found.get(name) and not found.get(needs):
            raise InvalidArgument(why=f"{name} are for {needs}: name that, too")
    if "hold_bytes" in found and not found.get("hold"):
        raise InvalidArgument(why="holdBytes says how much hold keeps: name that, too")
    if found.get("max_events_per_trigger") and found.get("max_bytes_per_trigger"):
        raise InvalidArgument(why="give maxEventsPerTrigger or maxBytesPerTrigger: Spark takes one limit")


def _check_rows(found: Mapping[str, Any]) -> None:
    if found.get("rows") == "state":
        for name in ("starting_position", "ending_position"):
            if name in found:
                raise InvalidArgument(why=f"{_shown(name.replace('_', ''))} is for events; entries are as of now, or asOf an id or a time")
        if found.get("archive") and "as_of" not in found:
            raise InvalidArgument(why="archive is for events, and for entries as they were: give asOf, too; entries of now are the nodes'")
    elif "as_of" in found:
        raise InvalidArgument(why="asOf is for rows=state: events are between startingPosition and endingPosition")
    if found.get("rows") == "ranges":
        for name in ("where", "filter", "select", "value_schema", "archive"):
            if found.get(name):
                raise InvalidArgument(why=f"{_shown(name)} is for who reads events: rows=ranges only says where they are")


def _shown(key: str) -> str:
    return next(name for name in (*_SHOWN, *_SINK_SHOWN) if name.lower() == key)


def _nearest(name: str, shown: tuple[str, ...]) -> str:
    meant = get_close_matches(name.lower(), [one.lower() for one in shown], n=1)
    return f"; did you mean {_shown(meant[0])}?" if meant else f"; there are {', '.join(shown)}, and client.*"


def _client_option(name: str, text: str) -> dict[str, Any]:
    kind = _CLIENT_NAMES.get(name)
    if kind is None:
        raise InvalidArgument(why=f"there is no option client.{name}; there are {', '.join(f'client.{one}' for one in _CLIENT_NAMES)}")
    return {name: _number(text, option=f"client.{name}", high=1 << 31) if kind is int else text}


NOT_WRITTEN_OVER: Final = 'a cache is not written over: clear it first, with client.cache(NAME).clear(), and write with mode "append"'
_KINDS: Final = {one.name: one.type for one in (*fields(SourceOptions), *fields(SinkOptions))}
_HIGHS: Final = {
    "keep_ms": STAGE_KEEP_MS_MAX,
    "max_wait_ms": WAIT_MS_MAX,
    "partitions": 4_096,
    "max_partitions": 4_096,
    "tasks": 4_096,
    "fetch_bytes": ANSWER_BYTES_MAX,
}


def _value(name: str, text: str, *, option: str) -> Any:
    read = _READERS.get(name)
    if read is not None:
        return read(text, option=option)
    if _KINDS[name] is int:
        return _number(text, option=option, high=_HIGHS.get(name, 1 << 62))
    return text


def _list(text: str, *, option: str) -> tuple[str, ...]:
    del option  # any text is one
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _json(text: str, *, option: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise InvalidArgument(why=f"{option} is no JSON: {error}") from error


def _flag(text: str, *, option: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidArgument(why=f"{option} is {text!r}: use true or false")
    return text.lower() == "true"


def _number(text: str, *, option: str, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= high):
        raise InvalidArgument(why=f"{option} is {text!r}: give a whole number from 0 to {high}")
    return int(text)


def _position(text: str, *, option: str) -> Start:
    if text in _WORDS:
        return Start(word=_WORDS[text])
    kind, _, rest = text.partition(":")
    if kind == "id":
        return Start(id=_number(rest, option=option, high=ID_MAX))
    if kind == "time":
        try:
            moment = datetime.fromisoformat(rest)
        except ValueError as error:
            raise InvalidArgument(why=f"{option} is {text!r}: {error}") from error
        if moment.tzinfo is None:
            raise InvalidArgument(why=f"{option} is {text!r}: say of which zone the time is, as in 2026-11-20T10:00:00Z")
        return Start(id=max(id_before(int(moment.timestamp() * 1000)), 0))
    if kind == "listener" and rest:
        return Start(listener=rest)
    try:
        from_text(text)
    except BadMessage as error:
        raise InvalidArgument(why=f"{option} is {text!r}: use earliest, latest, id:N, time:ISO, listener:ID or a token") from error
    return Start(token=text)


def _archive(text: str, *, option: str) -> str:
    if not text.strip():
        raise InvalidArgument(why=f"{option} is empty: give a path or an address, or none for what the nodes keep alone")
    return "" if text.lower() == "none" else text


def _one_of(words: Mapping[str, Any]) -> Callable[..., Any]:
    def read(text: str, *, option: str) -> Any:
        if text not in words:
            raise InvalidArgument(why=f"{option} is {text!r}: use {', '.join(words)}")
        return words[text]

    return read


def _moment(text: str, *, option: str) -> Start:
    found = _position(text, option=option)
    if found.word is not None or found.listener or found.token:
        raise InvalidArgument(why=f"{option} is {text!r}: use id:N or time:ISO")
    return found


def _segments(text: str, *, option: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InvalidArgument(why=f"{option} is {text!r}: write numbers and ranges, as in 0-63,128")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


_READERS: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("servers", "select", "columns"), _list),
    **dict.fromkeys(("parameters", "params"), _json),
    **dict.fromkeys(("starting_position", "ending_position"), _position),
    "segments": _segments,
    "rows": _one_of(_ROWS),
    "corrupt": _one_of(_CORRUPT),
    "archive": _archive,
    "mode": _one_of(_MODES),
    "as_of": _moment,
    "read_from": _one_of(_READ_FROM),
    "fail_on_data_loss": _flag,
}
