"""`eventlog consume`: what happened after an id, as lines."""

from typing import Any

import click

from eventlog.client.reading.wanted import read_token, shortest
from eventlog.errors import InvalidArgument
from eventlog.ids import id_before
from eventlog_cli.beginning import say_beginning
from eventlog_cli.consume_group import GroupRead, consume_group, refuse_beside_group
from eventlog_cli.conventions import common_options, open_client, settings
from eventlog_cli.ending import EndingInOrder
from eventlog_cli.output import note_interrupt
from eventlog_cli.parameters import ID, MOMENT, PARAM, POSITIVE, SEGMENTS, SPAN, START
from eventlog_cli.position_file import PositionFile
from eventlog_cli.printing import Printer
from eventlog_cli.render import Render, renderer

Start = int | str
_PLACES = frozenset({"earliest", "latest", "committed"})


@click.command("consume")
@click.argument("cache_name", metavar="CACHE")
@click.option(
    "--from-id", type=START, metavar="ID|earliest|latest|committed|TOKEN", help="Begin after this id or position.  [default: earliest]"
)
@click.option("--from-time", type=MOMENT, help="Begin at this time: ISO 8601, or a duration for that long ago.")
@click.option("--tail", type=POSITIVE, metavar="N", help="Begin with the last N events of the log; see above.")
@click.option("--until-id", type=ID, help="End after this id, inclusive.")
@click.option("--group", help="Read as a member of this group: its share of the segments, from where it is; committed when printed.")
@click.option("--max", "events_max", type=POSITIVE, metavar="N", help="End after N events.")
@click.option("--follow", is_flag=True, help="Go on with what happens from now on.")
@click.option("--poll-interval", "poll_interval_ms", type=SPAN, help="With --follow: ask at this interval instead of being woken.")
@click.option(
    "--position-file", type=click.Path(dir_okay=False), help="Begin where this file says, if it exists; rewritten after each batch printed."
)
@click.option("--segments", type=SEGMENTS, help="These segments alone, as in 0,3-7.")
@click.option(
    "--on-trimmed", type=click.Choice(["error", "earliest", "resync"]), default="error", show_default=True, help="If retention took events."
)
@click.option("--state-first", is_flag=True, help="Print the entries that there are first, of kind STATE, then what happens after them.")
@click.option("--where", metavar="SQL", help="Only events that match this condition, as in \"value.total > 2 AND kind <> 'REMOVED'\".")
@click.option("--filter", "filter", metavar="NAME[@VERSION]", help="Only what this filter, installed on the nodes, lets through.")
@click.option("--param", "params", type=PARAM, multiple=True, help="A parameter of --filter; again for more.")
@click.option("--continuous", is_flag=True, help="With --where on entries: what enters, changes in or leaves the set of those that match.")
@click.option("--listener", metavar="ID", help="What this listener wants, from where it has acknowledged.")
@click.option("--select", metavar="FIELDS", help="These fields of the value alone, as in value.total,value.customer.name.")
@click.option("--format", "format_name", type=click.Choice(["json", "raw", "csv"]), default="json", show_default=True, help="How to print.")
@click.option("--output-format", "pattern", metavar="PATTERN", help=r"Print each event by a pattern, as in '%k %v\n'; see above.")
@common_options
@EndingInOrder()
def command(
    cache_name: str,
    *,
    group: str | None,
    from_id: Start | None,
    from_time: int | None,
    tail: int | None,
    events_max: int | None,
    position_file: str | None,
    state_first: bool,
    format_name: str,
    pattern: str | None,
    params: tuple[tuple[str, Any], ...],
    **reading: Any,
) -> None:
    r"""Print the events of CACHE after an id, one a line, in the order of their ids.

    Ends at the log's end of now, or goes on with --follow. Ctrl-C prints where to resume.

    --tail N begins N events before the log's end of now, counted over all segments, or over --segments, and without reading them. Of these
    --where, --filter and --continuous print what matches, --max ends sooner, and a --position-file that exists goes first.

    In a pattern stand %k key, %v value, %b value before, %h headers, %i id, %t time, %s segment, %o offset, %e kind of the event, %c
    change of a continuous query, %K and %V the bytes that key and value have, and %% for a per cent sign; \n, \t, \r, \0, \\ and \xHH as
    in C. Bytes are printed as they are, JSON and Avro as JSON on one line: load --key-separator reads what '%k\t%v\n' prints.
    """
    render = _render(format_name, pattern, has_changes=reading["continuous"])
    _check_start(from_id=from_id, from_time=from_time, tail=tail, state_first=state_first, group=group, **reading)
    _check_wanted(params=params, group=group, **reading)
    if group is not None:
        refuse_beside_group(position_file=position_file, **reading)
        chosen = GroupRead(group=group, from_id=from_id, from_time=from_time, events_max=events_max)
        consume_group(cache_name, chosen, render, params=dict(params) or None, **reading)
        return
    file = PositionFile(position_file) if position_file else None
    start: Start = from_id if from_id is not None else "earliest" if from_time is None else id_before(from_time)
    reading["follow"] = reading["follow"] or start == "latest"
    reading["params"] = dict(params) or None
    kept = None if file is None else file.read()
    start = kept or start
    with open_client() as client:
        cache, listener = client.cache(cache_name), reading["listener"]
        if tail is not None and kept is None:
            ends = cache.log_ends(tail=tail, segments=reading["segments"])
            start = ends.tail_id or 0
            reading["until_id"] = None if reading["follow"] else ends.last_id
        elif start == "latest":
            start = cache.log_ends().last_id  # a place to resume from, should an interrupt come before any event
        elif kept is None:
            say_beginning(cache, start, is_time=from_time is not None)
        if file is not None and kept is None and start != "earliest":
            file.write(str(start))
        goes_on = listener is not None and from_id is None and from_time is None and start == "earliest"
        batches = cache.event_batches(from_id=None if goes_on else start, state_first=state_first, **reading)
        printer = Printer(render, file=file, events_max=events_max)
        try:
            printer.run(batches)
        except KeyboardInterrupt:
            note_interrupt(_resume_hint(printer.position, start, position_file))
            raise
        if listener is not None and printer.position:
            cache.poll(position=printer.position, listener=listener, max_events=0)  # nobody asks for more: what was printed is had


def _render(format_name: str, pattern: str | None, *, has_changes: bool) -> Render:
    if settings().is_json and format_name != "json":
        raise click.UsageError(f"--json and --format {format_name} exclude each other")
    if pattern is not None and (settings().is_json or format_name != "json"):
        raise click.UsageError("--output-format excludes --json and --format")
    try:
        return renderer(format_name, has_changes=has_changes, pattern=pattern)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--output-format'") from error


def _check_start(
    *, from_id: Start | None, from_time: int | None, tail: int | None, state_first: bool, group: str | None, **reading: Any
) -> None:
    """Raise a usage error for what is no place to begin at, or for two; whether a token fits the cache is for the nodes to say."""
    if from_id is not None and from_time is not None:
        raise click.UsageError("--from-id and --from-time exclude each other")
    if state_first and (group is not None or from_time is not None or from_id not in {None, "earliest"}):
        raise click.UsageError("--state-first begins with the entries: it excludes --group, --from-time and --from-id")
    if from_id == "committed" and group is None:
        raise click.UsageError("--from-id committed needs a --group")
    if tail is not None:
        others = {"from-id": from_id, "from-time": from_time, "until-id": reading["until_id"], "group": group}
        others |= {"listener": reading["listener"], "state-first": state_first or None}
        if found := [name for name, given in others.items() if given is not None]:
            raise click.UsageError(f"--tail and --{found[0]} exclude each other: --tail begins so many events before the log's end")
    if isinstance(from_id, str) and from_id not in _PLACES:
        try:
            read_token(from_id)
        except InvalidArgument as error:
            raise click.BadParameter(error.why, param_hint="'--from-id'") from error


def _check_wanted(*, params: tuple[tuple[str, Any], ...], group: str | None, **reading: Any) -> None:
    """Raise a usage error for options that mean nothing, alone or beside others."""
    if params and reading["filter"] is None:
        raise click.UsageError("--param is a parameter of --filter, and none is named")
    if reading["poll_interval_ms"] is not None and not reading["follow"]:
        raise click.UsageError("--poll-interval needs --follow")
    if reading["where"] is not None and not reading["where"].strip():
        raise click.UsageError("--where is empty: leave it out, or give a condition")
    if reading["select"] is not None and not all(field.strip() for field in reading["select"].split(",")):
        raise click.UsageError("--select names fields of the value, with commas between them")
    if group is not None and reading["on_trimmed"] == "resync":
        raise click.UsageError("--group and --on-trimmed resync exclude each other: a group does not read state")
    if reading["listener"] is not None and (group or any(reading[name] for name in ("where", "filter", "select", "continuous"))):
        raise click.UsageError("--listener says what is wanted: it excludes --group, --where, --filter, --select and --continuous")


def _resume_hint(position: str, start: Start, position_file: str | None) -> str:
    if position_file is not None:
        return f"interrupted; resume with: --position-file {position_file}"
    if not position and start == "earliest":  # or where a listener has acknowledged, or with the state
        return "interrupted before there was anything; begin anew with the same command"
    return f"interrupted; resume with: --from-id {shortest(position) if position else start}"
