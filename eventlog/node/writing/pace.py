"""When groups begin: which are in flight, which of them hold up the next one, and what wants none to begin at all.

A group costs each of its nodes the same few hundred microseconds however small it is. So a new one begins when the last ones are on disk
here, and small ones wait until these are committed, too: what arrives meanwhile goes together. Two things end that wait. What waits may
be worth a group of its own, and then the next write here goes side by side with the backups' last one. And a group may be late: its
backup is slow or silent, for nobody knows how long, and what shares nothing with it does not wait for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from eventlog.clock import LOOP_STEP_S

LATE_S = 0.02  # several times what a sync and a round trip take
WORTH_A_GROUP_BYTES = 32 << 10  # of frames that wait: a few hundred single puts


class Pace:
    """Groups between their stamp and their end, in the order in which they began. `wake` is called when one may begin again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._began: dict[object, float] = {}
        self._unwritten = 0  # groups that are not on disk here
        self._is_making_ready = False
        self._timer: asyncio.TimerHandle | None = None
        self._holders = 0
        self._holding = asyncio.Lock()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __len__(self) -> int:
        return len(self._began)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight, or being made ready to be."""
        return not (self._began or self._is_making_ready)

    @property
    def is_turn(self) -> bool:
        """Whether what began before is on disk here, and nobody wants to be alone."""
        return not (self._unwritten or self._holders or self._is_making_ready)

    def has_room(self, *, groups: int, waiting_bytes: int) -> bool:
        """Whether another group may begin, in a turn that begins at most so many. If only commits are waited for, `wake` follows."""
        if self._unwritten >= groups or self._is_making_ready:
            return False
        if len(self._began) < groups or waiting_bytes >= WORTH_A_GROUP_BYTES:
            return True
        loop = asyncio.get_running_loop()
        late_at = list(self._began.values())[-groups] + LATE_S
        if late_at <= loop.time() + LOOP_STEP_S:
            return True
        if self._timer is None:
            self._timer = loop.call_at(late_at, self._look_again)
        return False

    def _look_again(self) -> None:
        self._timer = None
        self._wake()

    def makes_ready(self) -> None:
        """Note that a group is being made ready, which takes time; no other begins before `ready`."""
        self._is_making_ready = True
        self._quiet.clear()

    def ready(self) -> None:
        """Note that it has begun, or that nothing came of it."""
        self._is_making_ready = False
        if self.is_quiet:
            self._quiet.set()

    def began(self, group: object) -> None:
        """Note that a group is in flight, and not on disk here."""
        self._began[group] = asyncio.get_running_loop().time()
        self._unwritten += 1
        self._quiet.clear()

    def written(self) -> None:
        """Note that a group is on disk here."""
        self._unwritten -= 1

    def ended(self, group: object) -> None:
        """Note that a group is in flight no more."""
        self._began.pop(group, None)
        if self.is_quiet:
            self._quiet.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Begin no group in here, and enter when none is in flight."""
        async with self._holding:
            self._holders += 1
            try:
                await self._quiet.wait()
                yield
            finally:
                self._holders -= 1
                self._wake()
