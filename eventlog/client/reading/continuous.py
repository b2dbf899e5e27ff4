"""Continuous queries: which entries match, and from then on how that changes, decided by the nodes."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import msgspec

from eventlog.client.reading.filtering import Parameters, Select
from eventlog.client.reading.reads import CacheReads
from eventlog.client.reading.wanted import OnTrimmed
from eventlog.errors import InvalidArgument
from eventlog.events import Change, Event, Kind


class QueryChange(msgspec.Struct, frozen=True, gc=False):
    """An entry that comes to match (JOINED), changes and matches still (UPDATED), or matches no more (LEFT)."""

    event: Event

    @property
    def change(self) -> str:
        """`JOINED`, `UPDATED` or `LEFT`."""
        return Change(self.event.change_number).name

    @property
    def initial(self) -> bool:
        """Whether it matched when the query began; `id` is then the entry's version."""
        return self.event.kind_number == Kind.STATE

    @property
    def key(self) -> str | bytes:
        """The entry's key."""
        return self.event.key

    @property
    def value(self) -> Any:
        """The entry's value; None for LEFT."""
        return None if self.event.change_number == Change.LEFT else self.event.value

    @property
    def before(self) -> Any:
        """The value before, for UPDATED and LEFT; None for JOINED, or where the fields selected leave it out."""
        return self.event.before if self.event.change_number in _FROM_INSIDE else None

    @property
    def id(self) -> int:
        """The id of the event that did it."""
        return self.event.id

    @property
    def position(self) -> str:
        """Where to go on after this change, anywhere and at any time: a token for `position=`."""
        return self.event.position

    def __repr__(self) -> str:
        return f"QueryChange({self.change} {self.key!r}, id={self.id}{', initial' if self.initial else ''})"


_FROM_INSIDE = frozenset({Change.UPDATED, Change.LEFT})


class CacheQueries(CacheReads):
    """The call of a cache that asks a continuous query."""

    def continuous_query(
        self,
        where: str | None = None,
        *,
        parameters: Parameters | None = None,
        select: Select | None = None,
        position: str | None = None,
        initial: bool = True,
        on_trimmed: OnTrimmed = "error",
    ) -> AbstractAsyncContextManager[AsyncGenerator[QueryChange, None]]:
        """Return the changes of what matches, to be entered with `async with` and iterated; they never end.

        First comes every entry that matches now, as JOINED with `initial` set, unless `initial` is False or a `position` to go on from is
        given: that of the last change taken in. Then follows what happens: removal, expiry and clearing are LEFT. `where` is about `key`,
        `segment` and `value`; the other options are those of `events`. With `on_trimmed="resync"` every matching entry comes anew, as
        initial, where the changes in between are gone.

        Raises:
            BadPredicate: the query does not fit the cache, or the cache keeps no before-images (`before=True`, `--before`), from which
                it is known what matched before.
            EventsTrimmed: retention has passed the position.
        """
        _check_trimmed(on_trimmed)

        @asynccontextmanager
        async def opened() -> AsyncGenerator[AsyncGenerator[QueryChange, None], None]:
            begin = await self.query_begin(position=position, initial=initial)
            lists = self.query_lists(where, begin=begin, parameters=parameters, select=select, on_trimmed=on_trimmed)
            async with aclosing(lists), aclosing(_one_by_one(lists)) as changes:
                yield changes

        return opened()

    async def query_begin(self, *, position: str | None, initial: bool) -> dict[str, Any]:
        """Return where a query is to begin: fixed now, not when somebody first waits for a change."""
        if position is not None:
            return {"position": position}
        if initial:
            return {"state_first": True}
        return {"from_id": (await self.log_ends()).last_id}

    async def query_lists(
        self,
        where: str | None,
        *,
        begin: dict[str, Any],
        parameters: Parameters | None = None,
        select: Select | None = None,
        on_trimmed: OnTrimmed = "error",
    ) -> AsyncGenerator[list[QueryChange], None]:
        """Yield the changes of `continuous_query` in lists, as many at once as the nodes answer."""
        _check_trimmed(on_trimmed)
        batches = self.event_batches(
            follow=True, on_trimmed=on_trimmed, where=where, parameters=parameters, select=select, continuous=True, **begin
        )
        async with aclosing(batches):
            async for batch in batches:
                if len(batch):
                    yield list(map(QueryChange, batch.events()))


def _check_trimmed(on_trimmed: OnTrimmed) -> None:
    if on_trimmed == "earliest":
        raise InvalidArgument(why="a continuous query cannot leave changes out: use error or resync")


async def _one_by_one(lists: AsyncGenerator[list[QueryChange], None]) -> AsyncGenerator[QueryChange, None]:
    async for changes in lists:
        for change in changes:
            yield change
