"""`eventlog consume`: what happened after an id, as lines."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import click

from eventlog.ids import id_before
from eventlog_cli.conventions import common_options, open_client, settings
from eventlog_cli.output import note_interrupt, stdout
from eventlog_cli.parameters import DURATION, ID, MOMENT, PARAM, POSITIVE, SEGMENTS, START
from eventlog_cli.position_file import PositionFile
from eventlog_cli.render import Render, renderer

if TYPE_CHECKING:
    from eventlog.client.batches import EventBatch

Start = int | str


@click.command("consume")
@click.argument("cache_name", metavar="CACHE")
@click.option("--from-id", type=START, metavar="ID|earliest|latest|TOKEN", help="Begin after this id or position.  [default: earliest]")
@click.option("--from-time", type=MOMENT, help="Begin at this time: ISO 8601, or a duration for that long ago.")
@click.option("--until-id", type=ID, help="End after this id, inclusive.")
@click.option("--max", "events_max", type=POSITIVE, metavar="N", help="End after N events.")
@click.option("--follow", is_flag=True, help="Go on with what happens from now on.")
@click.option("--poll-interval", "poll_interval_ms", type=DURATION, help="With --follow: ask at this interval instead of being woken.")
@click.option(
    "--position-file", type=click.Path(dir_okay=False), help="Begin where this file says, if it exists; rewritten after each batch printed."
)
@click.option("--segments", type=SEGMENTS, help="These segments alone, as in 0,3-7.")
@click.option(
    "--on-trimmed", type=click.Choice(["error", "earliest"]), default="error", show_default=True, help="If retention took events."
)
@click.option("--where", metavar="SQL", help="Only events that match this condition, as in \"value.total > 2 AND kind <> 'REMOVED'\".")
@click.option("--filter", "filter", metavar="NAME[@VERSION]", help="Only what this filter, installed on the nodes, lets through.")
@click.option("--param", "params", type=PARAM, multiple=True, help="A parameter of --filter; again for more.")
@click.option("--select", metavar="FIELDS", help="These fields of the value alone, as in total,customer.name.")
@click.option("--format", "format_name", type=click.Choice(["json", "raw", "csv"]), default="json", show_default=True, help="How to print.")
@common_options
def command(
    cache_name: str,
    *,
    from_id: Start | None,
    from_time: int | None,
    events_max: int | None,
    position_file: str | None,
    format_name: str,
    params: tuple[tuple[str, Any], ...],
    **reading: Any,
) -> None:
    """Print the events of CACHE after an id, one a line, in the order of their ids.

    Ends at the log's end of now, or goes on with --follow. Ctrl-C prints where to resume.
    """
    if from_id is not None and from_time is not None:
        raise click.UsageError("--from-id and --from-time exclude each other")
    if settings().is_json and format_name != "json":
        raise click.UsageError(f"--json and --format {format_name} exclude each other")
    file = PositionFile(position_file) if position_file else None
    start: Start = from_id if from_id is not None else "earliest" if from_time is None else id_before(from_time)
    reading["follow"] = reading["follow"] or start == "latest"
    reading["params"] = dict(params) or None
    if file is not None:
        start = file.read() or start
    with open_client() as client:
        batches = client.cache(cache_name).event_batches(from_id=start, **reading)
        printer = Printer(renderer(format_name), file=file, events_max=events_max)
        try:
            printer.run(batches)
        except KeyboardInterrupt:
            note_interrupt(_resume_hint(printer.last_id, start, position_file))
            raise


def _resume_hint(last_id: int | None, start: Start, position_file: str | None) -> str:
    if position_file is not None:
        return f"interrupted; resume with: --position-file {position_file}"
    return f"interrupted; resume with: --from-id {start if last_id is None else last_id}"


class Printer:
    """Prints batches. `last_id` is where to resume: everything up to it was handed to whoever reads stdout."""

    def __init__(self, render: Render, *, file: PositionFile | None, events_max: int | None) -> None:
        self._render = render
        self._file = file
        self._left = events_max
        self.last_id: int | None = None

    def run(self, batches: "Iterator[EventBatch]") -> None:
        """Print until the batches end or enough was printed."""
        with _Interrupts() as interrupts:
            while True:
                with interrupts.let_through():
                    batch = next(batches, None)
                if batch is None:
                    return
                self._print(batch)
                if self._left == 0:
                    return

    def _print(self, batch: "EventBatch") -> None:
        is_cut = self._left is not None and self._left < len(batch)
        events = list(islice(batch.events(), self._left))
        out = stdout()
        out.write(self._render(events))
        # nothing that was printed waits in a buffer: readers of a followed log see it now, and the position may be kept
        out.flush()
        self.last_id = events[-1].id if is_cut else batch.last_id
        if self._left is not None:
            self._left -= len(events)
        if self._file is not None:
            self._file.write(batch.source.position_at(self.last_id))


class _Interrupts:
    """Holds Ctrl-C back while a batch is printed, so that the id to resume from is exact; a second one is not held back."""

    def __init__(self) -> None:
        self._is_let_through = False
        self._is_held_back = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        if self._is_held_back:
            raise KeyboardInterrupt

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        if self._is_let_through or self._is_held_back:
            self._is_held_back = False
            raise KeyboardInterrupt
        self._is_held_back = True

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let Ctrl-C end what runs inside, also one that was held back before."""
        self._is_let_through = True
        try:
            if self._is_held_back:
                self._is_held_back = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_let_through = False
