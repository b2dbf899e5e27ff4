"""`eventlog consume`: what happened after an id, as lines.

From the top: the command and what it refuses, a member of a group, what is said of a beginning outside of the log, and the printing. An
interrupt never leaves it open what was printed.
"""

import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from itertools import islice
from pathlib import Path
from threading import main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import click

from eventlog.client.reading.wanted import one_id, read_token, shortest, start_of
from eventlog.errors import EventsTrimmed, InvalidArgument, StaleMember, Unavailable
from eventlog.ids import IdTimes, id_before, time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX
from eventlog_cli.conventions import EndingInOrder, common_options, load_archives, open_client, settings
from eventlog_cli.output import note, note_interrupt, stdout
from eventlog_cli.parameters import ID, MOMENT, PARAM, POSITIVE, SEGMENTS, SPAN, START, distinct
from eventlog_cli.render import Render, renderer

if TYPE_CHECKING:
    from eventlog.blocking import Cache, Client
    from eventlog.client.reading.batches import EventBatch
    from eventlog.client.reports import LogEnds
    from eventlog.events import Event

    Printed = Callable[[EventBatch, list[Event] | None], None]

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
@click.option("--param", "params", type=PARAM, multiple=True, callback=distinct, help="A parameter of --filter; again for more.")
@click.option("--continuous", is_flag=True, help="With --where on entries: what enters, changes in or leaves the set of those that match.")
@click.option("--listener", metavar="ID", help="What this listener wants, from where it has acknowledged.")
@click.option("--select", metavar="FIELDS", help="These fields of the value alone, as in value.total,value.customer.name.")
@click.option("--archive", metavar="PATH", help="Take from this archive what it has, and from the nodes what follows.  [default: as noted]")
@click.option("--no-archive", is_flag=True, help="Read what the nodes keep, whatever archive is noted with CACHE.")
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
    archive: str | None,
    no_archive: bool,
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
    is_noted = _check_archived(archive, no_archive=no_archive, tail=tail, group=group, state_first=state_first, **reading)
    if group is not None:
        refuse_beside_group(position_file=position_file, **reading)
        chosen = GroupRead(group=group, from_id=from_id, from_time=from_time, events_max=events_max)
        consume_group(cache_name, chosen, render, params=dict(params) or None, **reading)
        return
    file = PositionFile(position_file) if position_file else None
    start: Start = from_id if from_id is not None else "earliest" if from_time is None else id_before(from_time)
    reading["follow"] = reading["follow"] or start == "latest"
    reading["params"] = dict(params) or None
    start = (kept := None if file is None else file.read()) or start
    with open_client() as client:
        cache, listener = client.cache(cache_name), reading["listener"]
        if tail is not None and kept is None:
            ends = cache.log_ends(tail=tail, segments=reading["segments"], whole=not reading["follow"])
            start = ends.tail_id or _from_first_kept(cache, no_archive=no_archive)
            reading["until_id"] = None if reading["follow"] else ends.last_id
        elif start == "latest":
            start = cache.log_ends().last_id  # a place to resume from, should an interrupt come before any event
        else:
            archive = archive or _noted(cache, start if is_noted else None)
            if kept is None and archive is None:
                say_beginning(cache, start, is_time=from_time is not None)
        if file is not None and kept is None and start != "earliest":
            file.write(str(start))
        goes_on = listener is not None and from_id is None and from_time is None and start == "earliest"
        batches: Iterator[EventBatch] = (
            cache.event_batches(from_id=None if goes_on else start, state_first=state_first, **reading)
            if archive is None
            else _over_archive(client, cache_name, archive, start, **reading)
        )
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


_NOT_OF_ARCHIVES = ("tail", "group", "state_first", "filter", "continuous", "listener")


def _check_archived(archive: str | None, *, no_archive: bool, **options: Any) -> bool:
    """Raise a usage error for options that archives do not have; return whether one that is noted can have a part in the read."""
    if archive is None:
        return not no_archive and options["on_trimmed"] != "resync" and not any(options[name] for name in _NOT_OF_ARCHIVES)
    if no_archive:
        raise click.UsageError("--archive and --no-archive exclude each other")
    for name in _NOT_OF_ARCHIVES:
        if options[name]:
            raise click.UsageError(f"--archive and --{name.replace('_', '-')} exclude each other: that is the nodes' to answer")
    if options["on_trimmed"] == "resync":
        raise click.UsageError("--archive and --on-trimmed resync exclude each other: the archive has what was trimmed")
    return False


def _noted(cache: "Cache", start: Start | None) -> str | None:
    """Return the archive that is noted with a cache, if a read from there has need of it; None has not, nor has a position by segment."""
    place = "" if start is None else cache.info().archive
    if not place or (isinstance(start, str) and start != "earliest" and one_id(read_token(start)) is None):
        return None
    try:
        if start not in {"earliest", 0}:
            cache.poll(start, max_events=0)
            return None  # the nodes keep everything behind it
    except EventsTrimmed:
        pass
    note(f"note: what the nodes keep no more comes from the archive at {place}; --no-archive leaves it aside")
    return place


def _from_first_kept(cache: "Cache", *, no_archive: bool) -> int:
    """Return 0, behind which all that the nodes keep is read; say where older events are, if an archive has some that they keep no more."""
    place = "" if no_archive else cache.info().archive
    try:
        if place:
            cache.poll(1, max_events=0)
    except EventsTrimmed:
        note(f"note: --tail counts what the nodes keep, which is less; what came before is in the archive at {place}")
    return 0


def _over_archive(client: "Client", cache: str, path: str, start: Start, **reading: Any) -> "Iterator[EventBatch]":
    if isinstance(start, str) and start != "earliest":
        position = read_token(start)
        at, held = one_id(position), position.segments_held()
        if at is None:
            raise InvalidArgument(why="the position is one of each segment; an archive goes on behind one id")
        if len(held) < position.segments:
            if not set(reading["segments"] or held) <= set(held):
                raise InvalidArgument(why="the position does not hold all segments asked for")
            reading["segments"] = reading["segments"] or held
        start = at
    archives = load_archives()
    options = {name: value for name, value in reading.items() if value is not None and name not in (*_NOT_OF_ARCHIVES, "params")}
    found: Iterator[EventBatch] = archives.event_batches(
        archives.open(path), client, cache, None if start == "earliest" else start, **options
    )
    return found


def _resume_hint(position: str, start: Start, position_file: str | None) -> str:
    if position_file is not None:
        return f"interrupted; resume with: --position-file {position_file}"
    if not position and start == "earliest":  # or where a listener has acknowledged, or with the state
        return "interrupted before there was anything; begin anew with the same command"
    return f"interrupted; resume with: --from-id {shortest(position) if position else start}"


_NOT_IN_GROUPS = ("segments", "position_file", "poll_interval_ms", "continuous")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRead:
    """What is asked for. `from_id` and `from_time` say where a new group begins; an existing one goes on where it is."""

    group: str
    from_id: int | str | None
    from_time: int | None
    events_max: int | None

    @property
    def start(self) -> int | str | None:
        """Where a new group begins."""
        if self.from_time is not None:
            return id_before(self.from_time)
        return None if self.from_id == "committed" else self.from_id


def refuse_beside_group(**options: Any) -> None:
    """Raise a usage error for options that make no sense beside --group."""
    for name in _NOT_IN_GROUPS:
        if options.get(name):
            raise click.UsageError(f"--group and --{name.removesuffix('_ms').replace('_', '-')} exclude each other: the group has its own")


def consume_group(cache_name: str, chosen: GroupRead, render: Render, **reading: Any) -> None:
    """Print what falls to this member, to the log's end of now or on and on; each batch is committed once it is written out.

    One that goes on and on does so also where a commit fails for now: the next one makes up for it, within a second where that is possible.
    """
    follow, until_id = reading.pop("follow"), reading.pop("until_id")
    goes_on = follow and chosen.events_max is None
    options = {name: value for name, value in reading.items() if name not in _NOT_IN_GROUPS and value is not None}
    with open_client() as client:
        cache = client.cache(cache_name)
        say_beginning(cache, chosen.start, is_time=chosen.from_time is not None)
        if not follow:
            last_id = cache.log_ends(whole=True).last_id
            until_id = last_id if until_id is None else min(until_id, last_id)
        with cache.consumer(chosen.group, from_id=chosen.start, auto_commit=goes_on, **options) as consumer:

            def printed(_batch: "EventBatch", events: "list[Event] | None") -> None:
                if events is None:
                    with suppress(*((Unavailable, StaleMember) if goes_on else ())):
                        consumer.commit()
                    return
                for event in {event.segment: event for event in events}.values():
                    consumer.commit(event)

            printer = Printer(render, file=None, events_max=chosen.events_max, printed=printed)
            try:
                printer.run(consumer.batches(chosen.events_max or 0, until_id=until_id))
            except KeyboardInterrupt:
                note_interrupt(f"interrupted; resume with: --group {chosen.group}")
                raise
            if chosen.events_max is None:
                consumer.commit()


def say_beginning(cache: "Cache", start: int | str | None, *, is_time: bool) -> None:
    """Say on stderr where a read begins outside of the log; `is_time`: `start` is what lies before a time that was asked for.

    Raises:
        InvalidArgument: no event can have the id yet.
    """
    if not isinstance(start, int) or start == 0:
        return
    with suppress(Unavailable, EventsTrimmed):  # the reader is told so, or waits
        ends = cache.log_ends()
        said = outside(start, ends, is_time=is_time, now_ms=time.time_ns() // 1_000_000)
        if said is None:
            return
        if start <= ends.last_id:
            cache.poll(start, max_events=1)  # where retention has passed it the error says all of that
        note(f"note: {said}")


def outside(start: int, ends: "LogEnds", *, is_time: bool, now_ms: int) -> str | None:
    """Return what to say of a read after an id, None where that lies in the log.

    Raises:
        InvalidArgument: no event can have the id yet, neither by the nodes' clocks nor by this one.
    """
    what, end = "the time asked for" if is_time else f"id {_shown(start)}", f"id {_shown(ends.last_id)}"
    if not is_time and time_of(start) > max(time_of(ends.last_id), now_ms) + CLOCK_AHEAD_MS_MAX:
        why = f"{what} is of the future: no event can have it yet; the log ends at {end}"
        raise InvalidArgument(why=f"{why}: use --from-id latest for what comes next, or --from-time")
    if start > ends.last_id:
        return f"{what} lies ahead of the log's end, {end}: nothing is behind it yet"
    if not is_time and ends.first_id is not None and start < ends.first_id:
        return f"{what} lies before the first event kept, id {_shown(ends.first_id)}"
    return None


def _shown(id_: int) -> str:
    return f"{id_} of {IdTimes().text(id_)}"


class Printer:
    """Prints batches. `position` is where to resume: everything up to it was handed to the reader of stdout.

    `printed` is told of each batch with those of its events that were printed: None for all, or the first ones where `events_max` ends it.
    """

    def __init__(self, render: Render, *, file: "PositionFile | None", events_max: int | None, printed: "Printed | None" = None) -> None:
        self._render = render
        self._file = file
        self._printed = printed
        self._left = events_max
        self.last_id: int | None = None
        self.position = ""

    def run(self, batches: "Iterator[EventBatch]") -> None:
        """Print until the batches end or enough was printed.

        Raises:
            BrokenPipeError: nobody reads stdout any more, be there anything to print or not.
            KeyboardInterrupt: no batch is printed in part.
        """
        with Interrupts() as interrupts, StdoutWatch(interrupts.lose_reader):
            while True:
                with interrupts.let_through():
                    batch = next(batches, None)
                if batch is None:
                    return
                self._print(batch)
                if self._left == 0:
                    return

    def _print(self, batch: "EventBatch") -> None:
        first = list(islice(batch.events(), self._left)) if self._left is not None and self._left < len(batch) else None
        out = stdout()
        out.write(self._render(batch if first is None else first))
        # nothing that was printed waits in a buffer: readers of a followed log see it now, and the position may be kept
        out.flush()
        self.last_id = batch.last_id if first is None else first[-1].id
        if self._left is not None:
            self._left -= len(batch) if first is None else len(first)
        self.position = batch.source.position_at(self.last_id)
        if self._file is not None:
            self._file.write(self.position)
        if self._printed is not None:
            self._printed(batch, first)


class Interrupts:
    """Holds Ctrl-C back while a batch is printed, so that the id to resume from is exact; a second one is not held back.

    A reader of stdout that goes away ends a wait by the same signal; what is being printed meanwhile finds out by itself.
    """

    def __init__(self) -> None:
        self._is_let_through = False
        self._coming: type[BaseException] = KeyboardInterrupt  # what the next signal means
        self._held_back: type[BaseException] | None = None
        self._previous: Any = None

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        if self._held_back is KeyboardInterrupt and kind is None:  # what broke is told, and not that it was ended
            raise KeyboardInterrupt

    def lose_reader(self) -> None:
        """End a wait, in the main thread, from any other."""
        self._coming = BrokenPipeError
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        came, self._coming = self._coming, KeyboardInterrupt
        if self._is_let_through or came is self._held_back is KeyboardInterrupt:
            self._held_back = None
            raise came
        self._held_back = came

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let Ctrl-C end what runs inside, also one that was held back before."""
        self._is_let_through = True
        try:
            if self._held_back is not None:
                raise self._held_back
            yield
        finally:
            self._is_let_through = False
            self._held_back = None


class PositionFile:
    """The file at `path`. Its directory must exist; the file need not."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._draft = self._path.with_name(self._path.name + ".new")

    def read(self) -> str | None:
        """Return the token, None if there is no file yet.

        Raises:
            InvalidArgument: the file holds anything but a position, or could not be replaced: found out before anything is printed.
            OSError: it cannot be read.
        """
        if not os.access(self._path.parent, os.W_OK | os.X_OK):
            raise InvalidArgument(why=f"{self._path} cannot be written: {self._path.parent} is no directory that can be written to")
        try:
            words = self._path.read_bytes().split()
        except FileNotFoundError:
            return None
        try:
            (word,) = (word.decode("ascii") for word in words)
            start_of(from_id=word, from_time=None, position=None)
        except (ValueError, InvalidArgument) as error:  # not one word, not ASCII, or no position
            raise InvalidArgument(why=f"{self._path} holds no position; remove it to begin anew") from error
        return word

    def write(self, token: str) -> None:
        """Replace the file: its reader, also after a crash of this process, finds the old token or the new one."""
        with self._draft.open("w") as draft:
            draft.write(token + "\n")
            draft.flush()
            os.fsync(draft.fileno())
        self._draft.replace(self._path)


class StdoutWatch:
    """Calls `gone` once, in a thread of its own, when stdout is a pipe or a socket and its reader has closed its end.

    Not before it is entered, and never again once it is left.
    """

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        self._thread: threading.Thread | None = None
        self._ends: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        stdout = _pipe()
        if stdout is not None:
            self._ends = own, _ = os.pipe()
            self._thread = threading.Thread(target=self._watch, args=(stdout, own), name="stdout-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._ends is not None and self._thread is not None:
            own, told = self._ends
            os.close(told)
            self._thread.join()
            os.close(own)

    def _watch(self, stdout: int, own: int) -> None:
        poll = select.poll()
        poll.register(stdout, 0)  # errors and hang-ups are told without being asked for
        poll.register(own, 0)
        if stdout in dict(poll.poll()):
            self._gone()


def _pipe() -> int | None:
    """Return stdout if its reader can go, and None for files, terminals, and what is no file at all."""
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, UnsupportedOperation):
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
