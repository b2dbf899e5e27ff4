"""How far readers may see, and which segments hold them up.

The low watermark, with what this node can promise by itself, is looked up once in a while and when it rose. Readers that stand still
are told which segments hold them: one timer for all, none when nobody waits.
"""

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

_AGE_S = 0.02
_SEGMENTS_MAX = 64


class Reach:
    """The low watermark as of a moment ago. It covers everything that was acknowledged before `limit` was called."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._limit = 0
        self._until = 0.0

    def limit(self, asked: Ints | None = None) -> int:
        """Return the id up to which a reader of `asked` may see."""
        if asyncio.get_running_loop().time() >= self._until:
            self.refresh()
        return self._limit if asked is None else self._context.low.limit(asked)

    def refresh(self) -> int:
        """Promise what the clock allows, and return how far all segments may be seen by now."""
        self._context.closing.close_up()
        self._limit = self._context.low.limit()
        self._until = asyncio.get_running_loop().time() + _AGE_S
        return self._limit

    def rose(self) -> None:
        """Look again with the next question: something was committed or promised."""
        self._until = 0.0


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
