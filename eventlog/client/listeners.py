"""Listeners: filters registered once, with the cluster, and polled by their id at any node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eventlog.client.connections.requests import Requests
from eventlog.client.handle import CacheHandle
from eventlog.client.reading.filtering import Parameters, Select, filter_of
from eventlog.client.reading.wanted import read_token, token_text
from eventlog.client.values import Shown, checked_flag, checked_id, checked_text, checked_whole
from eventlog.errors import InvalidArgument
from eventlog.read import token
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_BOUND_MAX = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerInfo:
    """A registered listener. It begins behind `last_id`: where the log ended then, unless another place was asked for.

    `first_id` was the first event kept then. The filter is the one of events after `from_id`. Of a durable one, everything up to
    `position_id` is acknowledged, and `position` is the token of that. `lag_events` are kept behind it, whether they match or not.
    `held_percent` is how much of what it may hold back, or of what the cache keeps anyway, is used up: at 100 it falls out.
    """

    id: str
    cache: str
    last_id: int
    first_id: int
    where: str | None
    select: tuple[str, ...]
    filter: str | None
    continuous: bool
    from_id: int
    durable: bool
    hold_bytes: int | None
    hold_ms: int | None
    expire_ms: int | None
    position_id: int
    position: str
    lag_events: int
    lag_bytes: int
    lag_ms: int
    held_percent: int


class CacheListeners(CacheHandle):
    """The calls of a cache that are about its listeners."""

    async def register(
        self,
        *,
        where: str | None = None,
        parameters: Parameters | None = None,
        select: Select | None = None,
        filter: str | None = None,
        params: Mapping[str, Any] | None = None,
        continuous: bool = False,
        durable: bool = False,
        hold: int | None = None,
        hold_ms: int | None = None,
        expire_ms: int | None = None,
        id: str | None = None,
        from_id: int | Literal["earliest"] | None = None,
    ) -> ListenerInfo:
        """Register what a reader wants, and return its id to poll with, at any node, and where to begin.

        An ephemeral listener goes when nobody has polled for `expire_ms` (10 minutes). A durable one stays until it is removed, with the
        position that was polled last; retention keeps what it has not acknowledged, up to `hold` bytes or to the age `hold_ms`.
        It begins behind what is committed now, or behind `from_id`, or with the first event that is kept (`"earliest"`). Registering
        under an `id` that is there with the same words returns it, where it is by now.

        Raises:
            BadPredicate, BadFilterParameters, FilterNotFound: the filter does not fit the cache, or a node lacks it.
            ListenerExists: the `id` is taken by another one.
            InvalidArgument: an ephemeral one is to hold retention back, or a durable one to expire, or `from_id` is beyond the log's end.
        """
        info, _ = await self._found()
        _check_bounds(hold=hold, hold_ms=hold_ms, expire_ms=expire_ms)
        request = pb.RegisterListener(
            cache_id=info.id,
            filter=filter_of(where=where, parameters=parameters, select=select, filter=filter, params=params, continuous=continuous),
            durable=checked_flag("durable", durable),
            hold_bytes=hold or 0,
            hold_ms=hold_ms or 0,
            expire_ms=expire_ms or 0,
            id="" if id is None else checked_text("id", id),
            earliest=from_id == "earliest",
        )
        if from_id is not None and from_id != "earliest":
            request.after = checked_id(from_id, "from_id")
        reply = await self._core.requests.ask(Message(register_listener=request), repeatable=bool(id))
        return listener_info(reply.message.listener_answer.listener)


class ListenerAdmin(Shown):
    """Listeners of all caches, by their ids."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def _described(self) -> str:
        return f": {self._requests}"

    async def list(self, *, cache_id: int = 0) -> list[ListenerInfo]:
        """Return all listeners, or those of one cache, with how far they lag."""
        reply = await self._requests.ask(Message(list_listeners=pb.ListListeners(cache_id=checked_whole("cache_id", cache_id))))
        return [listener_info(listener) for listener in reply.message.list_listeners_answer.listeners]

    async def describe(self, listener: str) -> ListenerInfo:
        """Return one listener.

        Raises:
            ListenerNotFound: there is none.
        """
        if not checked_text("listener", listener):
            raise InvalidArgument(why="name a listener")
        reply = await self._requests.ask(Message(list_listeners=pb.ListListeners(id=checked_text("listener", listener))))
        return listener_info(reply.message.list_listeners_answer.listeners[0])

    async def alter(
        self,
        listener: str,
        *,
        from_id: int = 0,
        where: str | None = None,
        parameters: Parameters | None = None,
        select: Select | None = None,
        filter: str | None = None,
        params: Mapping[str, Any] | None = None,
        continuous: bool = False,
        hold: int | None = None,
        hold_ms: int | None = None,
        expire_ms: int | None = None,
    ) -> ListenerInfo:
        """Give a listener another filter for events after `from_id`, 0: from now on; or change what it may hold back (0: nothing).

        `where` to `continuous` are one filter, which is replaced as a whole: what is not named of it is gone. Without any of them it stays.

        Raises:
            ListenerNotFound: there is none.
            BadPredicate, BadFilterParameters, FilterNotFound: as for `register`.
        """
        _check_bounds(hold=hold, hold_ms=hold_ms, expire_ms=expire_ms)
        request = pb.AlterListener(id=checked_text("listener", listener), from_id=checked_id(from_id, "from_id"))
        chosen = filter_of(where=where, parameters=parameters, select=select, filter=filter, params=params, continuous=continuous)
        if chosen is not None:
            request.filter.CopyFrom(chosen)
        elif from_id:
            raise InvalidArgument(why="from_id is where another filter begins, and none is named")
        for name, value in (("hold_bytes", hold), ("hold_ms", hold_ms), ("expire_ms", expire_ms)):
            if value is not None:
                setattr(request, name, value)
        reply = await self._requests.ask(Message(alter_listener=request))
        return listener_info(reply.message.listener_answer.listener)

    async def acknowledge(self, listener: str, upto: int | str) -> ListenerInfo:
        """Note that a durable listener has had everything up to an id, or up to an answer's `position`; return it with what it stands at.

        That is written down when this returns: retention is held to it no more, and a reader that names no beginning goes on behind it. A
        position never goes back. How far it lags is not counted; `describe` does.

        Raises:
            ListenerNotFound: there is none.
            InvalidArgument: it is ephemeral, or `upto` is beyond the log's end.
            PositionMismatch: the position is another cluster's or cache's.
        """
        request = pb.AcknowledgeListener(id=checked_text("listener", listener))
        if isinstance(upto, str):
            request.position = token.encode(read_token(upto))
        else:
            request.upto = checked_id(upto, "upto")
        reply = await self._requests.ask(Message(acknowledge_listener=request))
        return listener_info(reply.message.listener_answer.listener)

    async def remove(self, listener: str) -> None:
        """Remove a listener; retention waits for it no longer.

        Raises:
            ListenerNotFound: there is none.
            OperationRefused: writes of its cache wait for it (`alter_cache`, `wait_listeners`).
        """
        await self._requests.ask(Message(remove_listener=pb.RemoveListener(id=checked_text("listener", listener))), repeatable=False)


def _check_bounds(**numbers: int | None) -> None:
    for name, number in numbers.items():
        lowest = 1 if name == "expire_ms" else 0
        if number is not None:
            checked_whole(name, number, low=lowest, high=_BOUND_MAX)


def check_awaited(listener: ListenerInfo, *, cache: str) -> None:
    """Refuse a listener that writes of a cache would wait for in vain.

    Raises:
        InvalidArgument: it is one of another cache, or an ephemeral one, whose position nobody keeps.
    """
    if listener.cache != cache:
        raise InvalidArgument(why=f"listener {listener.id!r} reads cache {listener.cache!r}, so writes of {cache!r} would wait in vain")
    if not listener.durable:
        raise InvalidArgument(why=f"listener {listener.id!r} is ephemeral and acknowledges nothing; writes wait for durable ones")


def listener_info(listener: pb.Listener) -> ListenerInfo:
    """Return a listener as callers see it."""
    name = listener.filter.name
    return ListenerInfo(
        id=listener.id,
        cache=listener.cache,
        last_id=listener.last_id,
        first_id=listener.first_id,
        where=listener.filter.where or None,
        select=tuple(listener.filter.select),
        filter=f"{name}@{listener.filter.version}" if listener.filter.version else name or None,
        continuous=listener.filter.continuous,
        from_id=listener.from_id,
        durable=listener.durable,
        hold_bytes=listener.hold_bytes or None,
        hold_ms=listener.hold_ms or None,
        expire_ms=listener.expire_ms or None,
        position_id=listener.position_id,
        position=token_text(listener.position) if listener.position else "",
        lag_events=listener.lag_events,
        lag_bytes=listener.lag_bytes,
        lag_ms=listener.lag_ms,
        held_percent=listener.held_percent,
    )
