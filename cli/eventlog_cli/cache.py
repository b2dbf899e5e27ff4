"""`eventlog cache`: caches and their options."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eventlog.ids import IdTimes, decode_id, id_fields
from eventlog_cli.conventions import common_options, load_archives, open_client, open_small_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import print_row, print_text, table
from eventlog_cli.parameters import COUNT, DURATION, SIZE, format_duration, format_size

if TYPE_CHECKING:
    from eventlog.client.values import CacheInfo

Function = TypeVar("Function", bound=Callable[..., Any])
NAME = click.argument("name")
RETAINED = "older ones go by whole stored values, so some more stay. 0 for no limit."
_SCHEMA_TYPES = {"avro": "AVRO", "json": "JSON"}  # what a registry calls those of a format of caches


@click.group("cache", cls=SynonymGroup, synonyms={"delete": "drop", "remove": "drop", "show": "describe", "ls": "list"})
@common_options
def command() -> None:
    """Create, list, describe, alter and drop caches."""


def _alterable(function: Function) -> Function:
    """Give a command the options that may change during a cache's life."""
    options = (
        click.option(
            "--schema",
            metavar="FILE|SUBJECT",
            help="Schema of the values, Avro or JSON Schema: a file, or the registry's latest of a subject.",
        ),
        click.option("--validate/--no-validate", default=None, help="Refuse values that the schema does not take.  [new: store any]"),
        click.option("--events/--no-events", default=None, help="Keep events to be read.  [new: keep]"),
        click.option(
            "--before/--no-before", default=None, help="Keep the value before each change.  [new: keep for json and avro with state]"
        ),
        click.option("--retain-time", "retain_time_ms", type=DURATION, help="Keep events this long; 0 for ever.  [new: 7d]"),
        click.option("--retain-bytes", type=SIZE, help=f"Keep at least the newest events of this size; {RETAINED}  [new: 10GiB]"),
        click.option("--retain-events", type=COUNT, help=f"Keep at least this many of the newest events; {RETAINED}  [new: 0]"),
        click.option("--lifespan", "lifespan_ms", type=DURATION, help="Let entries expire after this time; 0 for never.  [new: 0]"),
        click.option("--wait", "wait_ms", type=DURATION, help="How long writes wait for listeners at most.  [new: 1s]"),
        click.option("--wait-proceeds/--wait-fails", default=None, help="Then go on, or fail: the event is written.  [new: fail]"),
        click.option(
            "--promote", metavar="FIELDS", help="Store these fields, as in value.a,value.b.c, beside values for filters; '' for none."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("create")
@NAME
@click.option("--format", type=click.Choice(["json", "bytes", "avro"]), help="What values are.  [default: json]")
@click.option("--state/--no-state", default=None, help="Keep current entries; without, events alone.  [default: keep]")
@click.option("--key-format", type=click.Choice(["utf8", "bytes"]), help="What keys are.  [default: utf8]")
@click.option("--if-not-exists", is_flag=True, help="Use the cache that is there, if the options given hold for it, too.")
@_alterable
@common_options
def create(name: str, *, if_not_exists: bool, **options: Any) -> None:
    """Create the cache NAME."""
    with open_client() as client:
        cache = client.create_cache(name, if_exists="use" if if_not_exists else "error", **_given(options, of=options["format"] or "json"))
        _tell(cache.info())


@command.command("list")
@click.option("--internal", is_flag=True, help="The cluster's own as well.")
@common_options
def list_caches(*, internal: bool) -> None:
    """List all caches."""
    with open_small_client() as client:
        caches = client.list_caches(internal=internal)
    if settings().is_json:
        for info in caches:
            print_row(as_row(info))
        return
    rows = [(info.name, info.format, info.events, info.state, info.before, *_limits(info)) for info in caches]
    print_text(table(("cache", "format", "events", "state", "before", "retain time", "retain bytes", "retain events"), rows))


@command.command("describe")
@NAME
@common_options
def describe(name: str) -> None:
    """Print the options of the cache NAME, and how much it holds."""
    with open_client() as client:
        info = client.describe_cache(name)
        cache = client.cache(name)
        ends, entries = cache.log_ends(), cache.size() if info.state else None
        size = sum(segment.bytes for segment in client.segments(name))
    _tell(info, Held(entries=entries, events=ends.events, bytes=size, first_id=ends.first_id, last_id=ends.last_id))


@command.command("alter")
@NAME
@_alterable
@click.option("--wait-listeners", metavar="IDS", help="Writes wait until these durable listeners have acknowledged; '' for none.")
@click.option("--archive", type=click.Path(), metavar="PATH", help="Have readers take what the nodes have forgotten from this archive.")
@click.option("--no-archive", is_flag=True, help="Know of no archive any more; its files stay.")
@common_options
def alter(name: str, *, archive: str | None, no_archive: bool, **options: Any) -> None:
    """Change options of the cache NAME; format, state and keys are fixed."""
    given = _given(options)
    if archive is not None and no_archive:
        raise click.UsageError("--archive and --no-archive exclude each other")
    if archive == "":
        raise click.BadParameter("give a path or an address; --no-archive takes one away", param_hint="'--archive'")
    if archive is not None or no_archive:
        given["archive"] = archive or ""
    if not given:
        raise click.UsageError("name at least one option to change")
    archives = None if archive is None else load_archives()
    with open_client() as client:
        if archives is not None:
            archives.open(archive).check_of(client, name)
        _tell(client.alter_cache(name, **given))


@command.command("drop")
@NAME
@click.option("--yes", is_flag=True, help="Do it.")
@common_options
def drop(name: str, *, yes: bool) -> None:
    """Drop the cache NAME with all its entries and events, its listeners and its groups."""
    if not yes:
        raise click.UsageError(f"this drops {name} with all its entries and events; say --yes to do it")
    with open_client() as client:
        client.drop_cache(name)
    if settings().is_json:
        print_row({"cache": name, "dropped": True})
    else:
        print_text(f"dropped {name}")


def _given(options: dict[str, Any], *, of: str | None = None) -> dict[str, Any]:
    found = {name: value for name, value in options.items() if value is not None}
    if "schema" in found:
        try:
            found["schema"] = _schema_text(found["schema"], of=of)
        except UnicodeDecodeError as error:
            raise click.BadParameter(f"{found['schema']} is not UTF-8", param_hint="--schema") from error
    return found


def as_row(info: "CacheInfo") -> dict[str, Any]:
    """Return a cache as one JSON object; null where there is no limit."""
    return {
        "cache": info.name,
        "format": info.format,
        **({"schema": json.loads(info.schema)} if info.schema else {}),
        "validate": info.validate,
        "key_format": info.key_format,
        "events": info.events,
        "state": info.state,
        "before": info.before,
        "retain_time": None if info.retain_time_ms is None else format_duration(info.retain_time_ms),
        "retain_time_ms": info.retain_time_ms,
        "retain_bytes": info.retain_bytes,
        "retain_events": info.retain_events,
        "lifespan_ms": info.lifespan_ms,
        "promote": list(info.promote),
        "wait_listeners": list(info.wait_listeners),
        "archive": info.archive or None,
        "cache_id": info.id,
        **id_fields(from_id=info.from_id),
    }


def _limits(info: "CacheInfo") -> tuple[str | None, str | None, int | None]:
    time = None if info.retain_time_ms is None else format_duration(info.retain_time_ms)
    return time, None if info.retain_bytes is None else format_size(info.retain_bytes), info.retain_events


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a cache holds: entries (None: it has no state), and the log's events up to the low watermark, `bytes` on one replica."""

    entries: int | None
    events: int
    bytes: int
    first_id: int | None
    last_id: int

    @property
    def events_per_second(self) -> float | None:
        """Return how many came a second, from the first event kept until now; None where none is kept."""
        if self.first_id is None:
            return None
        return self.events / max((decode_id(self.last_id)[0] - decode_id(self.first_id)[0]) / 1_000, 1)


def _tell(info: "CacheInfo", held: Held | None = None) -> None:
    if settings().is_json:
        print_row(as_row(info) | ({} if held is None else _held_row(held)))
        return
    time, size, events = _limits(info)
    lines = (
        ("cache", info.name),
        ("format", f"{info.format}, {_type_name(info)}" if info.schema else info.format),
        ("values", "checked by the schema" if info.validate else "not checked"),
        ("keys", info.key_format),
        ("events", "kept" if info.events else "not kept"),
        ("state", "kept" if info.state else "not kept: events alone"),
        ("before-images", "kept" if info.before else "not kept"),
        ("retention", ", ".join(text for text in (time, size, f"{events:,} events" if events else None) if text) or "for ever"),
        ("lifespan", "none" if info.lifespan_ms is None else format_duration(info.lifespan_ms)),
        ("promoted", ", ".join(info.promote) or "none"),
        ("writes wait", f"for {', '.join(info.wait_listeners)}" if info.wait_listeners else "for no listener"),
        ("archive", info.archive or "none noted"),
    )
    for name, value in (*lines, *(() if held is None else _held_lines(held))):
        print_text(f"{name:<14} {value}")


def _schema_text(given: str, *, of: str | None) -> str:
    """Return what `--schema` names: a file that is there, else the latest schema of a subject, as caches `of` a format take it."""
    from pathlib import Path  # noqa: PLC0415 -- which listing caches does without

    if (file := Path(given)).is_file():
        return file.read_text(encoding="utf-8")
    from eventlog_cli.schema import latest_text  # noqa: PLC0415 -- which asks over HTTP

    if "/" in given or file.suffix:
        raise click.BadParameter(f"{given} is no file", param_hint="--schema")
    return latest_text(given, types=[_SCHEMA_TYPES[of]] if of in _SCHEMA_TYPES else [*_SCHEMA_TYPES.values()])


def _type_name(info: "CacheInfo") -> str:
    """Return what a schema is called, and of Avro how many fields it has."""
    schema = json.loads(info.schema)
    if info.format == "avro":
        return _avro_name(schema)
    title = schema.get("title") if isinstance(schema, dict) else None
    return f"schema {title}: --json has it" if title else "with a schema: --json has it"


def _avro_name(schema: Any) -> str:
    if not isinstance(schema, dict):
        return schema if isinstance(schema, str) else "a union"
    name, fields = schema.get("name") or schema.get("type"), schema.get("fields")
    return f"{name} with {len(fields)} fields: --json has the schema" if fields is not None else _avro_name(name)


def _held_row(held: Held) -> dict[str, Any]:
    per_second = held.events_per_second
    return {
        "entries": held.entries,
        "kept": held.events,
        "kept_bytes": held.bytes,
        "kept_per_second": None if per_second is None else round(per_second, 3),
        **id_fields(first_id=held.first_id, last_id=held.last_id),
    }


def _held_lines(held: Held) -> list[tuple[str, str]]:
    lines = [] if held.entries is None else [("entries", f"{held.entries:,}")]
    if held.first_id is None:
        return [*lines, ("log", "no events")]
    each = format_size(held.bytes // max(held.events, 1))
    since = IdTimes().text(held.first_id)
    return [
        *lines,
        ("log", f"{held.events:,} events, {format_size(held.bytes)}, {each} each"),
        ("rate", f"{held.events_per_second:,.1f} events a second since {since}"),
    ]
