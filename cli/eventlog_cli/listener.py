"""`eventlog listener`: filters registered with the cluster, and how far their readers are.

And `eventlog filter`: the named filters that operators have installed on the nodes.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from eventlog.ids import id_fields
from eventlog_cli.conventions import common_options, open_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import note, print_row, print_text, table
from eventlog_cli.parameters import (
    ID,
    PARAM,
    SPAN,
    START,
    Parsed,
    distinct,
    format_duration,
    format_seconds,
    format_size,
    parse_duration,
    parse_id,
    parse_size,
)

if TYPE_CHECKING:
    from eventlog.client.listeners import ListenerInfo

LISTENER = click.argument("listener", metavar="ID")
Hold = tuple[str, int]


def parse_hold(text: str) -> Hold:
    """Return what `--hold` says: `hold` in bytes, or `hold_ms`.

    Raises:
        ValueError: it is neither a size nor a duration, or may be both.
    """
    found: list[Hold] = []
    for name, parse in (("hold", parse_size), ("hold_ms", parse_duration)):
        with suppress(ValueError):
            found.append((name, parse(text)))
    if not found:
        raise ValueError(f"{text!r} is neither a size nor a duration: write 1GiB, or 24h")
    if len(found) > 1 and found[0][1]:
        raise ValueError(f"{text!r} may be megabytes or minutes: write 5MB, or 300s")
    return found[0]


HOLD = Parsed("size|duration", parse_hold)
BEGIN = Parsed("id|earliest", lambda text: text if text == "earliest" else parse_id(text))


def _filtering(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--where", metavar="SQL", help="Only events that match this condition."),
            click.option("--filter", "filter", metavar="NAME[@VERSION]", help="Only what this installed filter lets through."),
            click.option(
                "--param", "params", type=PARAM, multiple=True, callback=distinct, help="A parameter of --filter; again for more."
            ),
            click.option("--select", metavar="FIELDS", help="These fields of the value alone."),
            click.option("--continuous", is_flag=True, help="What enters, changes in or leaves the set of matching entries."),
            click.option("--hold", type=HOLD, help="Retention keeps what is not acknowledged up to this size, or this age; 0: nothing."),
            click.option("--expire", "expire_ms", type=SPAN, help="Without --durable: gone when unused for so long.  [default: 10m]"),
        )
    ):
        function = option(function)
    return function


@click.group("listener", cls=SynonymGroup, synonyms={"delete": "remove", "drop": "remove", "show": "describe", "ls": "list"})
@common_options
def command() -> None:
    """Register, list, describe, alter and remove listeners."""


@command.command("register")
@click.argument("cache_name", metavar="CACHE")
@_filtering
@click.option("--durable", is_flag=True, help="Keep it, and its position, until it is removed.")
@click.option("--id", "id", metavar="ID", help="Its name; made up by the cluster if not given.")
@click.option("--from-id", type=BEGIN, metavar="ID|earliest", help="It begins behind this id.  [default: behind what is there now]")
@common_options
def register(cache_name: str, *, hold: Hold | None, params: tuple[tuple[str, Any], ...], **options: Any) -> None:
    """Register a listener on CACHE: poll it by its id at any node, with `eventlog consume CACHE --listener ID`."""
    given = options | dict([hold] if hold else []) | {"params": dict(params) or None}
    with open_client() as client:
        found = client.cache(cache_name).register(**given)
    if settings().is_json:
        print_row({"listener_id": found.id, **id_fields(last_id=found.last_id, first_id=found.first_id or None)})
    else:
        print_text(f"listener {found.id} of {found.cache}; what follows {found.last_id} is new")


@command.command("list")
@click.argument("cache_name", metavar="[CACHE]", required=False)
@common_options
def list_(cache_name: str | None) -> None:
    """Print all listeners, or those of CACHE."""
    with open_client() as client:
        cache_id = client.cache(cache_name).info().id if cache_name else 0
        found = client.listeners.list(cache_id=cache_id)
    if settings().is_json:
        for one in found:
            print_row(_row(one))
        return
    rows = [
        (one.id, one.cache, _wants(one), "yes" if one.durable else "no", _hold(one), one.lag_events, format_size(one.lag_bytes), _held(one))
        for one in found
    ]
    print_text(table(("listener", "cache", "wants", "durable", "hold", "lag", "lag bytes", "window used"), rows))


@command.command("describe")
@LISTENER
@common_options
def describe(listener: str) -> None:
    """Print what the listener ID wants and where it is."""
    with open_client() as client:
        _tell(client.listeners.describe(listener))


@command.command("alter")
@LISTENER
@_filtering
@click.option("--from-id", type=ID, default=0, help="The new filter is for events after this id.  [default: from now on]")
@common_options
def alter(listener: str, *, hold: Hold | None, params: tuple[tuple[str, Any], ...], **options: Any) -> None:
    """Change what the listener ID wants from an id on, or what it may hold back.

    --where, --filter, --param, --select and --continuous are one filter, which is replaced as a whole: name all that it is to have.
    Without any of them it stays.
    """
    holds = {"hold": 0, "hold_ms": 0} | dict([hold]) if hold else {}  # the one that is named takes the place of the other
    given = options | holds | {"params": dict(params) or None}
    if all(value is None or value is False for name, value in given.items() if name != "from_id"):
        raise click.UsageError("name at least one option to change")
    with open_client() as client:
        client.listeners.alter(listener, **given)
        _tell(client.listeners.describe(listener))  # what alters it does not count how far it lags


@command.command("acknowledge")
@LISTENER
@click.argument("upto", type=START, metavar="UPTO")
@common_options
def acknowledge(listener: str, *, upto: int | str) -> None:
    """Note that the reader of the listener ID has had everything up to UPTO, an id or a position: it is held back no longer."""
    with open_client() as client:
        client.listeners.acknowledge(listener, upto)
        _tell(client.listeners.describe(listener))  # what moves it does not count how far it lags


@command.command("remove")
@LISTENER
@common_options
def remove(listener: str) -> None:
    """Remove the listener ID: polls are refused, and retention waits for it no longer."""
    with open_client() as client:
        client.listeners.remove(listener)
    if settings().is_json:
        print_row({"listener_id": listener, "removed": True})
    else:
        note(f"removed listener {listener}")


def _tell(one: "ListenerInfo") -> None:
    if settings().is_json:
        print_row(_row(one))
        return
    facts = [
        ("listener", one.id),
        ("cache", one.cache),
        ("wants", _wants(one)),
        ("wants it after", one.from_id or "all"),
        ("registered at", one.last_id),
        ("durable", "yes" if one.durable else f"no, goes when unused for {format_duration(one.expire_ms or 0)}"),
    ]
    if one.durable:
        facts += [
            ("may hold back", _hold(one)),
            ("acknowledged", one.position_id),
            ("lag", f"{one.lag_events} events, {format_size(one.lag_bytes)}, {format_seconds(one.lag_ms / 1000)}"),
            ("window used", _held(one)),
        ]
    print_text("\n".join(f"{name:<16}{value}" for name, value in facts))


def _row(one: "ListenerInfo") -> dict[str, Any]:
    return {
        "listener_id": one.id,
        **id_fields(last_id=one.last_id, first_id=one.first_id or None),
        "cache": one.cache,
        "where": one.where,
        "filter": one.filter,
        "select": list(one.select),
        "continuous": one.continuous,
        **id_fields(from_id=one.from_id),
        "durable": one.durable,
        "hold_bytes": one.hold_bytes,
        "hold_ms": one.hold_ms,
        "expire_ms": one.expire_ms,
        **id_fields(position=one.position_id if one.durable else None),
        "lag": one.lag_events if one.durable else None,
        "lag_bytes": one.lag_bytes if one.durable else None,
        "lag_seconds": one.lag_ms / 1000 if one.durable else None,
        "held_percent": one.held_percent if one.durable else None,
    }


def _wants(one: "ListenerInfo") -> str:
    parts = [one.where or one.filter or "everything"]
    if one.select:
        parts.append(f"fields {', '.join(one.select)}")
    return "; ".join(parts)


def _hold(one: "ListenerInfo") -> str:
    size = format_size(one.hold_bytes) if one.hold_bytes else ""
    time = format_duration(one.hold_ms) if one.hold_ms else ""
    return ", ".join(filter(None, (size, time))) or "nothing"


def _held(one: "ListenerInfo") -> str:
    return f"{one.held_percent} %" if one.durable else ""


@click.group("filter", cls=SynonymGroup, synonyms={"ls": "list"})
@common_options
def filters() -> None:
    """Look at the named filters on the nodes."""


@filters.command("list")
@common_options
def list_filters() -> None:
    """List the named filters, one line a node that has it."""
    with open_client() as client:
        found = client.list_filters()
    if settings().is_json:
        for one in found:
            print_row({"filter": one.name, "version": one.version, "node": one.node, "parameters": one.parameters, "summary": one.summary})
        return
    rows = [
        (one.name, one.version, one.node, ", ".join(f"{name}: {kind}" for name, kind in one.parameters.items()), one.summary)
        for one in found
    ]
    print_text(table(("filter", "version", "node", "parameters", "what it does"), rows))
