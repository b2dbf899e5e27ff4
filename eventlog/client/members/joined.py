"""What members of every kind of group do alike: they join, hear that it is over, and leave."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Self

from eventlog.client.core import ClientCore
from eventlog.client.members.member import MemberHooks, MemberOptions, Membership
from eventlog.client.shown import Shown
from eventlog.consume.membership.positions import Place
from eventlog.errors import ClientClosed, EventLogError, InvalidArgument, TimedOut
from eventlog.events import EventSource

log = logging.getLogger("eventlog.client")
CLOSE_MS_MAX = 5_000


class Joined(Shown):
    """A member from entering to leaving. Who derives from it says what is to be done in the time between."""

    def __init__(self, core: ClientCore, source: EventSource, options: MemberOptions) -> None:
        self.group = options.group
        self._core = core
        self._source = source
        self._member = Membership(core, source.cache_id, options, MemberHooks(assigned=self._assigned, lost=self._lost, failed=self._fail))
        self._tasks: list[asyncio.Task[None]] = []
        self._error: EventLogError | None = None
        self._is_closed = False

    def _described(self) -> str:
        return f" of group {self.group!r} over cache {self._source.cache!r}, member {self._member.id}: {self._core}"

    # ------------------------------------------------------------ what each does its own way

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run as long as it is a member."""
        return []

    async def _assigned(self, assigned: frozenset[int], places: Mapping[int, Place]) -> None:
        """Take in which segments it may read from now on, and where those begin that are new."""

    def _lost(self) -> None:
        """Take in that its session is over."""

    async def _settle_last(self) -> None:
        """Say, before leaving, what has become of what it was given."""

    async def _end(self) -> None:
        """Let go of everything; nothing is said any more."""

    # ------------------------------------------------------------ what all do

    async def open(self) -> Self:
        """Join the group; return when the coordinator has answered.

        Raises:
            EventLogError: why it refused.
        """
        if self._tasks or self._is_closed:
            raise InvalidArgument(why="this consumer was opened before; make another")
        self._tasks = [asyncio.create_task(work, name=f"eventlog-consumer {self.group}") for work in (self._member.run(), *self._works())]
        try:
            async with asyncio.timeout(self._core.options.reconnect_ms_max / 1000):
                while not self._member.epoch:
                    self._check()
                    await self._member.changed.wait()
        except TimeoutError:
            await self.close()
            raise TimedOut(what=f"group {self.group} to be joined", timeout_ms=self._core.options.reconnect_ms_max) from None
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Settle what is done, and leave the group: what it had goes to the others at once."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # before it leaves: else it would join anew
        try:
            try:
                if self._error is None and self._member.epoch:
                    await self._settle_last()
            finally:  # what could not be settled goes to others when it has left
                await self._member.leave(timeout_ms=CLOSE_MS_MAX)
        except EventLogError as error:
            log.warning("group_left_late group=%s error=%s", self.group, error)  # its session ends by itself
        finally:
            await self._end()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close()

    @property
    def member_id(self) -> str:
        """What the group knows it by."""
        return self._member.id

    def _fail(self, error: EventLogError) -> None:
        self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClientClosed(what="consumer")
        if not self._tasks and not self._member.epoch:
            raise InvalidArgument(why="this consumer is not open: enter it with `with` or `async with`")
