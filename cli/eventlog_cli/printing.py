"""Batches of events, printed as they come: an interrupt never leaves it open what was printed."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from threading import main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from eventlog_cli.output import stdout
from eventlog_cli.position_file import PositionFile
from eventlog_cli.readers import StdoutWatch
from eventlog_cli.render import Render

if TYPE_CHECKING:
    from eventlog.client.reading.batches import EventBatch
    from eventlog.events import Event

    Printed = Callable[[EventBatch, list[Event]], None]


class Printer:
    """Prints batches. `position` is where to resume: everything up to it was handed to whoever reads stdout.

    `printed` is told of each batch with those of its events that were printed: all, or the first ones where `events_max` ends it.
    """

    def __init__(self, render: Render, *, file: PositionFile | None, events_max: int | None, printed: "Printed | None" = None) -> None:
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
        with _Interrupts() as interrupts, StdoutWatch(interrupts.lose_reader):
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
        self.position = batch.source.position_at(self.last_id)
        if self._file is not None:
            self._file.write(self.position)
        if self._printed is not None:
            self._printed(batch, events)


class _Interrupts:
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

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        if self._held_back is KeyboardInterrupt:
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
