"""Polls that ask the same and wait: one pull for all of them, and one answer, given to each in small slices.

Followers that keep up ask the same again as soon as they are answered. A thousand of them are one pull that waits, one look at what is
new and one encoded answer; what is left for each is to be noted when it asks, and its frame when there is news.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from eventlog.errors import EventLogError
from eventlog.node.reading.pulls import READ_PACE, Delivered, Pull, ReadPace, nobody
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Poll
from eventlog.wire.frames import SharedFrame


@dataclass(slots=True, eq=False)
class _Crowd:
    """The exchanges that ask the same poll, serialized in `key`, and wait with one pull. `joins_until` is a time of the loop."""

    key: bytes
    pull: Pull
    joins_until: float
    members: dict[Exchange, None]


@dataclass(slots=True, eq=False)
class _Due:
    """An answer, and the exchanges still to be given it; `given` have it."""

    key: bytes
    pull: Pull
    content: tuple[bytes | SharedFrame, ...]
    members: deque[Exchange]
    given: int = 0


class CrowdsGround(Protocol):
    """What answers pulls."""

    def begin(self, poll: Poll) -> Pull:
        """Return the pull of a poll."""
        ...

    def pull(self, pull: Pull) -> None:
        """Have a pull answered."""
        ...

    def cancel(self, pull: Pull) -> None:
        """Forget a pull."""
        ...

    def has_news(self, pull: Pull) -> bool:
        """Return whether there is more than a pull has had."""
        ...


class Crowds:
    """The polls that wait together."""

    def __init__(self, reads: CrowdsGround, *, pace: ReadPace = READ_PACE) -> None:
        self._reads = reads
        self._pace = pace
        self._open: dict[bytes, _Crowd] = {}
        self._due: deque[_Due] = deque()
        self._is_turn_due = False
        self.waiting = 0  # polls that wait with another one's pull
        self.peak = 0
        self.due = 0  # answers to be given yet
        self.given = 0  # answers since start, beside one for each pull

    def join(self, exchange: Exchange) -> bool:
        """Let a poll wait with those that ask the same; return whether there are any."""
        key = exchange.message.poll.SerializeToString()
        crowd = self._open.get(key)
        if crowd is None:
            return False
        if asyncio.get_running_loop().time() >= crowd.joins_until:
            del self._open[key]
            return False
        crowd.members[exchange] = None
        exchange.on_end = partial(self._leave, crowd, exchange)
        self._wait(1)
        return True

    def open(self, exchange: Exchange, pull: Pull) -> bool:
        """Have a pull answered for a poll that others may join; return whether it is of that kind."""
        poll = exchange.message.poll
        if not pull.wait_ms or pull.wait_ms < self._pace.long_ms or poll.latest or poll.notify:
            return False
        self._start(poll.SerializeToString(), pull, [exchange])
        return True

    def _start(self, key: bytes, pull: Pull, members: Iterable[Exchange]) -> None:
        crowd = _Crowd(key, pull, asyncio.get_running_loop().time() + self._pace.join_ms / 1000, dict.fromkeys(members))
        for exchange in crowd.members:
            exchange.on_end = partial(self._leave, crowd, exchange)
            pull.owner = exchange.connection
        self._wait(len(crowd.members) - 1)
        pull.wait_ms = (pull.wait_ms or 0) + self._pace.join_ms
        pull.done = partial(self._done, crowd)
        self._open[key] = crowd
        self._reads.pull(pull)

    def _wait(self, count: int) -> None:
        self.waiting += count
        self.peak = max(self.peak, self.waiting)

    def _leave(self, crowd: _Crowd, exchange: Exchange) -> None:
        del crowd.members[exchange]
        if crowd.members:
            self.waiting -= 1
        else:
            self._close(crowd)
            self._reads.cancel(crowd.pull)

    def _close(self, crowd: _Crowd) -> None:
        if self._open.get(crowd.key) is crowd:
            del self._open[crowd.key]

    def _done(self, crowd: _Crowd, found: Delivered | EventLogError) -> None:
        self._close(crowd)
        members = deque(crowd.members)
        crowd.members, crowd.pull.done = {}, nobody  # no cycle for the collector to find: it would hold all of them
        self.waiting -= len(members) - 1
        for exchange in members:
            exchange.on_end = None
        if isinstance(found, EventLogError):
            for exchange in members:
                refuse(exchange, found)
            return
        content = found.content if len(members) == 1 or found.shared is not None else (SharedFrame(found.message, found.body),)
        self._due.append(_Due(crowd.key, crowd.pull, content, members))
        self.due += len(members)
        if not self._is_turn_due:
            self._turn()

    def _turn(self) -> None:
        """Give some of what is due, the rest in the next turns of the loop."""
        self._is_turn_due = True  # whatever comes due meanwhile is for this turn
        try:
            self._give_some()
        finally:  # readers of all caches wait until nothing is due
            self._is_turn_due = bool(self._due)
            if self._due:
                asyncio.get_running_loop().call_soon(self._turn)

    def _give_some(self) -> None:
        left = self._pace.slice_answers
        while self._due and left > 0:
            due = self._due[0]
            if due.given >= self._pace.renew_answers and self._reads.has_news(due.pull):
                self._due.popleft()
                self._renew(due)
                continue
            for _ in range(min(left, len(due.members))):
                exchange = due.members.popleft()
                self.due -= 1
                self.given += 1 if due.given else 0  # the first is the pull's own
                due.given += 1
                left -= 1
                give(exchange, *due.content)
            if not due.members:
                self._due.popleft()

    def _renew(self, due: _Due) -> None:
        """Ask again for those that are left."""
        members = [exchange for exchange in due.members if not exchange.is_over]
        self.due -= len(due.members)
        if not members:
            return
        try:
            pull = self._reads.begin(Poll.FromString(due.key))
        except EventLogError as error:
            for exchange in members:
                refuse(exchange, error)
            return
        self._start(due.key, pull, members)


def give(exchange: Exchange, *content: bytes | SharedFrame) -> None:
    """Answer a request, unless nobody waits for it any more."""
    exchange.on_end = None  # no cycle for the collector to find
    if exchange.is_over:
        return
    try:
        exchange.answer(*content)
    except EventLogError as error:  # too large for a frame
        exchange.fail(error)


def refuse(exchange: Exchange, error: EventLogError) -> None:
    """Answer a request with an error, unless nobody waits for it any more."""
    exchange.on_end = None
    if not exchange.is_over:
        exchange.fail(error)
