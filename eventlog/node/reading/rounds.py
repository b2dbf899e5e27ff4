"""When waiting readers are looked at: in rounds after news, in turns while they lag, and until their time is up (`Deadlines`).

The first news after a quiet time begin a round at once. After it the node pauses, so that many readers get many events with one
answer: twice as long as it worked, and so long that answers take no more than `SHARE` of the loop. What makes an answer expensive is not
the look: it is the request that brought it and the next one, both ways through the kernel. So it is measured what the loop used from
one round to the next, and shared out among the answers. A few readers cost next to no pause.

A round goes in slices, and the loop does other things in between: a write waits for a slice, not for a thousand readers. A reader looked
at late in a round gets what was committed since it began; so a look whose answer many wait for is followed by no other until all of them
have it. Readers of caches without news are not touched.

Of readers that lag a few are looked at in each turn of the loop, the others wait in the order of their coming: a thousand that read on as
fast as they are answered would otherwise all be looked at between two steps of a write.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from eventlog.node.reading.pulls import READ_PACE, Pull, ReadPace

SHARE = 0.5
ANSWER_S_MAX = 0.0001  # a loop that is busy with writes keeps readers no longer than this for each
MEASURED_ANSWERS_MIN = 50
_AGAIN_S = 0.005
_AGAIN_S_MAX = 0.08  # what is held up by a node that is away may be so for long


class RoundPace:
    """How far apart rounds are. `answers` returns how many were given, or are about to be, since start."""

    def __init__(self, answers: Callable[[], int], *, pace: ReadPace = READ_PACE) -> None:
        self._answers = answers
        self._pace = pace
        self._answer_s = pace.answer_s
        self._began_at = 0.0
        self._began_cpu_s = 0.0
        self._began_answers = 0
        self._period_s = 0.0

    def begin(self, now: float) -> None:
        """Note that a round begins; the one before shows what answers cost, if there was no idle time in between."""
        cpu_s, answers = self._pace.cpu_s(), self._answers()
        count = answers - self._began_answers
        if count >= MEASURED_ANSWERS_MIN and now - self._began_at < 2 * self._period_s:
            found = min((cpu_s - self._began_cpu_s) / count, ANSWER_S_MAX)
            self._answer_s += (found - self._answer_s) / 4
        self._began_at, self._began_cpu_s, self._began_answers = now, cpu_s, answers

    def count(self, looks: int) -> int:
        """Return how many were served in this round, of so many looks."""
        return max(looks, self._answers() - self._began_answers)

    def next_at(self, now: float, *, looks: int, spent_s: float) -> float:
        """Return when the next round may begin after one of so many looks, which took `spent_s` of the processor."""
        self._period_s = max(now - self._began_at + self._pace.pause_factor * spent_s, self.count(looks) * self._answer_s / SHARE)
        return self._began_at + self._period_s


class Answers(Protocol):
    """Answers since start: so many were given, and so many are made and still to be given."""

    @property
    def given(self) -> int: ...

    @property
    def due(self) -> int: ...


class Rounds:
    """Pulls that wait, by cache. `look` is called with each that may have something, and puts it back with `add` if not.

    `begin` is called before a round's first look, `renew` when there are news while it goes on. The next look waits
    for answers that are still to be given.
    """

    def __init__(
        self,
        look: Callable[[Pull], None],
        *,
        begin: Callable[[], None],
        renew: Callable[[], None],
        answers: Answers,
        pace: ReadPace = READ_PACE,
    ) -> None:
        self._pace = pace
        self._look = look
        self._begin = begin
        self._renew = renew
        self._answers = answers
        self._waiting: dict[int, dict[Pull, None]] = {}
        self._dirty: set[int] = set()
        self._work: deque[Pull] = deque()
        self._timer: asyncio.Handle | None = None
        self._quiet_until = 0.0
        self._again: dict[int, asyncio.TimerHandle] = {}  # caches that are looked at again without news
        self._again_s: dict[int, float] = {}  # after so long the next time
        self._apart = RoundPace(lambda: answers.given + answers.due, pace=pace)
        self._spent_s = 0.0
        self._looks = 0
        self._renewed = 0  # how many were served when the followers were last given what is new
        self._is_news = False  # since the slice before
        self._count = 0
        self.peak = 0
        self.rounds = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pull: Pull) -> None:
        """Let a pull wait for its cache."""
        waiting = self._waiting.setdefault(pull.cache.cache_id, {})
        if pull not in waiting:
            waiting[pull] = None
            self._count += 1
            self.peak = max(self.peak, self._count)

    def remove(self, pull: Pull) -> bool:
        """Let a pull wait no longer; return whether it did."""
        waiting = self._waiting.get(pull.cache.cache_id)
        if waiting is None or pull not in waiting:
            return False
        del waiting[pull]
        self._count -= 1
        if not waiting:
            del self._waiting[pull.cache.cache_id]
        return True

    @property
    def looks_due(self) -> int:
        """Return how many are still to be looked at: what is left of the round that goes on, and what had news since it began."""
        return len(self._work) + sum(len(self._waiting.get(cache_id, ())) for cache_id in self._dirty)

    def waiting(self, cache_id: int | None = None) -> list[Pull]:
        """Return those that wait, for one cache or all."""
        if cache_id is not None:
            return list(self._waiting.get(cache_id, ()))
        return [pull for pulls in self._waiting.values() for pull in pulls]

    def mark(self, cache_id: int) -> None:
        """Note that a cache has news; a round follows if anybody waits for it."""
        if cache_id in self._waiting:
            self._dirty.add(cache_id)
            self._is_news = True
            self._again_s.pop(cache_id, None)
            self._schedule()

    def mark_again(self, cache_id: int) -> None:
        """Note that a cache has news that readers may not see yet; a round looks again a little later, and ever later without news."""
        if cache_id in self._waiting and cache_id not in self._dirty and cache_id not in self._again:
            pause_s = self._again_s.get(cache_id, _AGAIN_S)
            self._again_s[cache_id] = min(2 * pause_s, _AGAIN_S_MAX)
            self._again[cache_id] = asyncio.get_running_loop().call_later(pause_s, self._look_again, cache_id)

    def _look_again(self, cache_id: int) -> None:
        del self._again[cache_id]
        if cache_id in self._waiting:
            self._dirty.add(cache_id)
            self._schedule()

    def stop(self) -> None:
        """Forget everything."""
        for timer in (self._timer, *self._again.values()):
            if timer is not None:
                timer.cancel()
        self._again.clear()
        self._waiting.clear()
        self._dirty.clear()
        self._work.clear()
        self._count = 0

    def _schedule(self) -> None:
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if self._quiet_until > loop.time():
            self._timer = loop.call_at(self._quiet_until, self._round)
        else:
            self._timer = loop.call_soon(self._round)

    def _round(self) -> None:
        self.rounds += 1
        self._apart.begin(asyncio.get_running_loop().time())
        self._spent_s, self._looks, self._renewed, self._is_news = 0.0, 0, 0, False
        dirty, self._dirty = self._dirty, set()
        for cache_id in dirty:
            self._work.extend(self._waiting.get(cache_id, ()))
        self._begin()
        self._slice()

    def _slice(self) -> None:
        started = self._pace.cpu_s()
        work = self._work
        looks = 0
        while work and looks < self._pace.slice_looks and not self._answers.due and self._pace.cpu_s() - started < self._pace.slice_s:
            self._renew_late()
            pull = work.popleft()
            if self.remove(pull):
                looks += 1
                self._looks += 1
                self._look(pull)
        loop = asyncio.get_running_loop()
        self._spent_s += self._pace.cpu_s() - started
        if work:
            self._timer = loop.call_soon(self._slice)
            return
        self._timer = None
        self._quiet_until = self._apart.next_at(loop.time(), looks=self._looks, spent_s=self._spent_s)
        if self._dirty:
            self._schedule()

    def _renew_late(self) -> None:
        """Let the readers that are left have what came in the meantime, once enough were served."""
        if self._is_news and (served := self._apart.count(self._looks)) >= self._renewed + self._pace.renew_served:
            self._is_news, self._renewed = False, served
            self._renew()


class Turns:
    """Calls `look` once for each pull that is taken, at once where this turn of the loop has room for it."""

    def __init__(self, look: Callable[[Pull], None], *, pace: ReadPace = READ_PACE) -> None:
        self._look = look
        self._pace = pace
        self._waiting: dict[Pull, None] = {}
        self._began = 0.0
        self._looks = 0
        self._next: asyncio.Handle | None = None
        self.peak = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, pull: Pull) -> None:
        """Look at a pull now or in one of the next turns."""
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._turn)
            self._began, self._looks = self._pace.wall_s(), 0
        if self._waiting or not self._has_room():
            self._waiting[pull] = None
            self.peak = max(self.peak, len(self._waiting))
        else:
            self._looks += 1
            self._look(pull)

    def remove(self, pull: Pull) -> None:
        """Forget a pull."""
        self._waiting.pop(pull, None)

    def stop(self) -> list[Pull]:
        """Look at no pull any more; return those that waited."""
        if self._next is not None:
            self._next.cancel()
        waiting, self._waiting = list(self._waiting), {}
        return waiting

    def _has_room(self) -> bool:
        return self._looks == 0 or (self._looks < self._pace.turn_looks and self._pace.wall_s() - self._began < self._pace.turn_s)

    def _turn(self) -> None:
        self._next = None
        if not self._waiting:
            return
        self._next = asyncio.get_running_loop().call_soon(self._turn)
        self._began, self._looks = self._pace.wall_s(), 0
        while self._waiting and self._has_room():
            pull = next(iter(self._waiting))
            del self._waiting[pull]
            self._looks += 1
            self._look(pull)


class Deadlines:
    """Calls `expire` once for each pull whose time is up and that was not cleared before."""

    def __init__(self, expire: Callable[[Pull], None], *, pace: ReadPace = READ_PACE) -> None:
        self._expire = expire
        self._pace = pace
        self._ticks: dict[int, dict[Pull, None]] = {}

    def set(self, pull: Pull, wait_ms: int) -> None:
        """Let a pull that has no deadline wait so long."""
        loop = asyncio.get_running_loop()
        if wait_ms < self._pace.long_ms:
            pull.deadline = loop.call_later(wait_ms / 1000, self._one, pull)
            return
        tick_ms = self._pace.tick_ms
        tick = int(loop.time() * 1000 + wait_ms) // tick_ms + 1
        pulls = self._ticks.get(tick)
        if pulls is None:
            pulls = self._ticks[tick] = {}
            loop.call_at(tick * tick_ms / 1000, self._tick, tick)
        pulls[pull] = None
        pull.deadline = tick

    def clear(self, pull: Pull) -> None:
        """Let a pull wait without end, or not at all."""
        deadline, pull.deadline = pull.deadline, None
        if deadline is None:
            return
        if isinstance(deadline, int):
            self._ticks[deadline].pop(pull, None)
        else:
            deadline.cancel()

    def _one(self, pull: Pull) -> None:
        pull.deadline = None
        self._expire(pull)

    def _tick(self, tick: int) -> None:
        pulls = self._ticks[tick]
        while pulls:
            pull, _ = pulls.popitem()
            self._one(pull)
        del self._ticks[tick]
