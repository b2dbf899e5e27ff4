"""Which segments hold readers up: those that stand still are told. One timer for all, none when nobody waits."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from eventlog.arrays import Ints
from eventlog.errors import NotPrimary
from eventlog.ids import TIME_SHIFT, time_of
from eventlog.limits import STALLED_MS
from eventlog.node.reading.pulls import Pull, ReadContext
from eventlog.node.reading.rounds import Rounds
from eventlog.wire.eventlog_pb2 import Stalled

_SEGMENTS_MAX = 64


class Stalls:
    """Tells followers that stand still what holds them: `say` ends their pull with it. `refresh` brings the limits up to date."""

    def __init__(
        self,
        context: ReadContext,
        rounds: Rounds,
        *,
        refresh: Callable[[], object],
        say: Callable[[Pull, Sequence[Stalled]], None],
        stalled_ms: int = STALLED_MS,
    ) -> None:
        self._context = context
        self._stalled_ms = stalled_ms
        self._rounds = rounds
        self._refresh = refresh
        self._say = say
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Tell nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def holding(self, pull: Pull) -> list[Stalled]:
        """Return which asked segments have held a reader for a while."""
        return self.among(pull.cursor.asked)

    def among(self, asked: Ints | None) -> list[Stalled]:
        """Return which of `asked` (None: all segments) stand still."""
        context = self._context
        below = context.now_2020() - self._stalled_ms << TIME_SHIFT
        held = context.low.holders(asked, below=below)[:_SEGMENTS_MAX].tolist()
        limits = context.low.limits
        return [Stalled(segment=segment, node=context.leader_of(segment), since_ms=time_of(int(limits[segment]))) for segment in held]

    def everywhere(self) -> list[Stalled]:
        """Return which segments stand still; raises as `check_reached`."""
        self.check_reached()
        self._refresh()
        return self.among(None)

    def check_reached(self) -> None:
        """Refuse to speak for all segments where some cannot be read.

        Raises:
            NotPrimary: a segment has no copy here, and its primary is not reached.
        """
        context = self._context
        for segment in np.flatnonzero(~context.low.here).tolist():
            if not context.closing.reaches(context.leader_of(segment)):
                raise NotPrimary(segment=segment)

    def watch(self) -> None:
        """Look after the readers that wait now, until none does."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._stalled_ms / 1000, self._look)

    def _look(self) -> None:
        self._timer = None
        waiting = [pull for pull in self._rounds.waiting() if pull.says_stalled]
        if not waiting:
            return
        self._refresh()
        for pull in waiting:
            stalled = self.holding(pull)
            if stalled and self._rounds.remove(pull):
                self._say(pull, stalled)
        self.watch()
