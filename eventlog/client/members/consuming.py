"""The calls of a cache that make consumers of groups."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, get_args, overload

from eventlog.client.core import ClientCore
from eventlog.client.members.consumer import Consumer
from eventlog.client.members.member import OUTAGE_MS_DEFAULT, MemberOptions, OnOutage
from eventlog.client.members.work import PREFETCH_DEFAULT, WorkConsumer
from eventlog.client.reading.filtering import Parameters, Select, filter_of
from eventlog.client.reading.reads import CacheReads
from eventlog.client.reading.wanted import ON_TRIMMED, OnTrimmed, Reading, checked_bytes, one_of, start_of
from eventlog.client.values import checked_span, checked_text, checked_whole
from eventlog.errors import InvalidArgument
from eventlog.groups.record import AssignorName, Mode, checked_name
from eventlog.limits import ACK_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_DEFAULT, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN

_ASSIGNORS: tuple[AssignorName, ...] = get_args(AssignorName)


class WorkOptions(TypedDict, total=False):
    """Options of `consumer` with `mode="work"`, for type checkers: those of `new_worker`."""

    max_deliveries: int | None
    dead_letters: str
    prefetch: int
    from_id: int | str | None
    from_time: int | datetime | None
    session_timeout_ms: int
    ack_timeout_ms: int | None
    on_trimmed: OnTrimmed
    where: str | None
    parameters: Parameters | None
    filter: str | None
    params: Mapping[str, Any] | None
    outage_ms: int
    on_outage: OnOutage | None


class ConsumerOptions(TypedDict, total=False):
    """Options of `consumer`, for type checkers: those of `new_consumer`."""

    instance_id: str | None
    assignor: AssignorName
    auto_commit: bool | None
    from_id: int | str | None
    from_time: int | datetime | None
    session_timeout_ms: int
    on_trimmed: OnTrimmed
    accept_diverged: bool
    max_bytes: int
    where: str | None
    parameters: Parameters | None
    select: Select | None
    filter: str | None
    params: Mapping[str, Any] | None
    outage_ms: int
    on_outage: OnOutage | None


class CacheConsumers(CacheReads):
    """A group's consumers share the segments of a cache; the cluster keeps how far the group is."""

    _core: ClientCore

    @overload
    def consumer(
        self, group: str, *, mode: Literal["read"] = "read", **options: Unpack[ConsumerOptions]
    ) -> AbstractAsyncContextManager[Consumer]: ...

    @overload
    def consumer(
        self, group: str, *, mode: Literal["work"], **options: Unpack[WorkOptions]
    ) -> AbstractAsyncContextManager[WorkConsumer]: ...

    def consumer(self, group: str, *, mode: Mode = "read", **options: Any) -> AbstractAsyncContextManager[Any]:
        """Join `group` for the time of an `async with`. Options are those of `new_consumer`, with `mode="work"` of `new_worker`."""
        if mode not in ("read", "work"):
            raise InvalidArgument(why=f"mode is {mode!r}: use read or work")
        return self._joined(group, mode, options)

    @asynccontextmanager
    async def _joined(self, group: str, mode: Mode, options: Mapping[str, Any]) -> AsyncIterator[Consumer | WorkConsumer]:
        made = await (self.new_consumer(group, **options) if mode == "read" else self.new_worker(group, **options))
        async with made as consumer:
            yield consumer

    async def new_worker(
        self,
        group: str,
        *,
        max_deliveries: int | None = None,
        dead_letters: str = "",
        prefetch: int = PREFETCH_DEFAULT,
        from_id: int | str | None = None,
        from_time: int | datetime | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS_DEFAULT,
        ack_timeout_ms: int | None = None,
        on_trimmed: OnTrimmed = "error",
        where: str | None = None,
        parameters: Parameters | None = None,
        filter: str | None = None,
        params: Mapping[str, Any] | None = None,
        outage_ms: int = OUTAGE_MS_DEFAULT,
        on_outage: OnOutage | None = None,
    ) -> WorkConsumer:
        """Return a member of the work group `group` that joins when it is entered: it is handed events one by one.

        A key is with one member at a time, in its order; there may be more members than segments. The first member decides for the
        group: what was handed out `max_deliveries` times (5) without an acknowledgement goes into the cache `dead_letters` (default: this
        one's name with `.dead`); what is not settled within `ack_timeout_ms` of being handed out goes to another member, although the
        first one lives (None: never); `where` to `params`, as in `events`, say which events there are to do: the others count as done.
        A later member leaves these out or says the same. `prefetch`: how many a member has at hand at most. `outage_ms` and `on_outage`:
        as in `new_consumer`; an acknowledgement waits as long.

        Raises:
            InvalidArgument: the group shares events of another filter, or has another of these.
            BadName: on joining a new group, of the cache of its dead letters, which cannot be made.
        """
        deliveries = 0 if max_deliveries is None else checked_whole("max_deliveries", max_deliveries, low=1)
        ack_ms = 0 if ack_timeout_ms is None else checked_whole("ack_timeout_ms", ack_timeout_ms, low=1, high=ACK_TIMEOUT_MS_MAX)
        prefetch = checked_whole("prefetch", prefetch, low=1)
        options = MemberOptions(
            group=checked_name(group),
            mode="work",
            session_timeout_ms=_session(session_timeout_ms),
            start_id=await self._start_id(from_id, from_time),
            deliveries_max=deliveries,
            dead_letters=checked_text("dead_letters", dead_letters),
            filter=filter_of(where=where, parameters=parameters, filter=filter, params=params),
            ack_timeout_ms=ack_ms,
            outage_ms=checked_span("outage_ms", outage_ms),
            on_outage=on_outage,
        )
        earliest = _no_resync(on_trimmed) == "earliest"
        return WorkConsumer(self._core, await self._source(Reading()), options, prefetch=prefetch, earliest=earliest)

    async def _start_id(self, from_id: int | str | None, from_time: int | datetime | None) -> int:
        start, place = start_of(from_id=from_id, from_time=from_time, position=None)
        if place is not None:
            raise InvalidArgument(why="a group begins at an id, a time, earliest or latest")
        return (await self.log_ends()).last_id if start == "latest" else start

    async def new_consumer(
        self,
        group: str,
        *,
        instance_id: str | None = None,
        assignor: AssignorName = "uniform",
        auto_commit: bool | None = None,
        from_id: int | str | None = None,
        from_time: int | datetime | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS_DEFAULT,
        on_trimmed: OnTrimmed = "error",
        accept_diverged: bool = False,
        max_bytes: int = 0,
        where: str | None = None,
        parameters: Parameters | None = None,
        select: Select | None = None,
        filter: str | None = None,
        params: Mapping[str, Any] | None = None,
        outage_ms: int = OUTAGE_MS_DEFAULT,
        on_outage: OnOutage | None = None,
    ) -> Consumer:
        """Return a member of `group` that joins when it is entered.

        The first member of all makes the group, and has it begin at `from_id` or `from_time`, else at the first event kept.
        `instance_id` makes a static member, which keeps its segments through a restart within `session_timeout_ms`. `assignor`, of
        the first member: `uniform`, `range`, or `owner`, which gives members the segments led by the node they are connected to.
        `auto_commit`: see `Consumer`. `where` to `params` as in `events`: what does not match is passed over, and its places committed.
        While the cluster does not answer, reading and `commit` go on trying for `outage_ms` (5 min), then raise. `on_outage` is called with
        the error once that takes longer than a request may, and with None when it is over; a log line says the same.

        Raises:
            EventsTrimmed: where the group goes on, retention has removed events; with `on_trimmed="earliest"` it goes on behind them.
        """
        options = MemberOptions(
            group=checked_name(group),
            instance_id="" if instance_id is None else checked_text("instance_id", instance_id),
            assignor=one_of(_ASSIGNORS, assignor, option="assignor"),
            session_timeout_ms=_session(session_timeout_ms),
            start_id=await self._start_id(from_id, from_time),
            outage_ms=checked_span("outage_ms", outage_ms),
            on_outage=on_outage,
        )
        reading = Reading(
            on_trimmed=_no_resync(on_trimmed),
            accept_diverged=bool(accept_diverged),
            max_bytes=checked_bytes(max_bytes),
            filter=filter_of(where=where, parameters=parameters, select=select, filter=filter, params=params),
        )
        source = await self._source(reading)
        reading.poll(source.cache_id)  # refused here, not where nobody hears of it, if a request cannot hold it
        return Consumer(self._core, source, options, reading=reading, auto_commit=auto_commit)


def _session(timeout_ms: object) -> int:
    return checked_whole("session_timeout_ms", timeout_ms, low=SESSION_TIMEOUT_MS_MIN, high=SESSION_TIMEOUT_MS_MAX)


def _no_resync(on_trimmed: str) -> OnTrimmed:
    if on_trimmed == "resync":
        raise InvalidArgument(why="a group does not read state: on_trimmed is error or earliest")
    return one_of(ON_TRIMMED, on_trimmed, option="on_trimmed")
