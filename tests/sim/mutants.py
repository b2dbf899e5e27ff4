"""Bugs that only a whole node can have, each planted in place of a method; the simulator must find every one of them."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from eventlog.testing.mutants import Mutant


def _tell_before_it_is_written(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_and_tell(self: Any, append: Any, told: Any) -> None:
        original(self, append, lambda _error: None)
        asyncio.get_running_loop().call_soon(told, None)

    return append_and_tell


def _show_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, _entries, nbytes: original(self, [], nbytes)


MUTANTS: Final = (
    Mutant(
        name="commit before the storage thread's answer",
        target="eventlog.node.writing.storage:StorageThread.append_and_tell",
        make=_tell_before_it_is_written,
        seed=0,
    ),
    Mutant(
        name="overlay without what the state does not hold yet",
        target="eventlog.write.overlay:Overlay.push",
        make=_show_nothing,
        seed=0,
    ),
    Mutant(
        name="promise above what is in flight",
        target="eventlog.read.watermark:Promises.begin",
        make=lambda _: lambda *_args, **_options: None,
        seed=0,
    ),
    Mutant(
        name="write that comes again is written again",
        target="eventlog.state.producers:ProducerTable.is_next",
        make=lambda _: lambda self, number, _segment, _sequence: number in self._producers,
        also=(("eventlog.state.producers:ProducerTable._sort_block", lambda _: lambda *_args, **_options: None),),
        seed=0,
    ),
)
