"""The calls of a cache that write one event: what is given is checked and encoded here, how it is sent is the caller's.

A write that waits for listeners does so here, when it is committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from eventlog.client.formats import headers_bytes, lifespan
from eventlog.client.handle import CacheHandle, Core
from eventlog.client.values import CacheInfo, Removed, Stored, checked_id
from eventlog.errors import EventLogError, InvalidArgument, ListenerTimeout
from eventlog.limits import LISTENER_WAIT_MS_DEFAULT, LISTENERS_AWAITED_MAX, POLL_WAIT_MS_MAX
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

OnWaitTimeout = Literal["error", "proceed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expecting:
    """Which listeners a write waits for, for how long, and whether it goes on without them then."""

    listeners: tuple[str, ...]
    wait_ms: int
    proceeds: bool


Written = TypeVar("Written", bound=Stored | Removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold for a key: `version` is the id of its entry, 0 for no entry, None for any entry."""

    key: bytes
    version: int | None


class CacheSingles(CacheHandle):
    """Puts and removals of one. They are durable when they return.

    One may wait for listeners as well: until those have acknowledged the event, by polling for what comes behind it.
    """

    def __init__(self, core: Core, name: str, info: CacheInfo | None = None) -> None:
        super().__init__(core, name, info)
        self._listeners_seen: set[str] = set()

    async def put(
        self,
        key: str | bytes,
        value: Any,
        *,
        headers: Mapping[str, bytes] | None = None,
        lifespan_ms: int | None = None,
        if_version: int | None = None,
        if_absent: bool = False,
        previous: bool = False,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> Stored:
        """Store `value` under `key` and return what became of it, once it is durable.

        Cancelling leaves open whether it is written. With `wait_listeners`, and those that the cache waits for, it returns when they have
        acknowledged the event too, by polling for what comes behind it, but within `wait_ms` (1 s): then with `on_wait_timeout="error"`
        LISTENER_TIMEOUT is raised, though the event is written, and with `"proceed"` the call returns.

        Raises:
            ListenerNotFound: there is no such listener; nothing was written.
            ListenerTimeout: the event is written, and a listener has not acknowledged it, or was removed (`gone`) before it had.
            KeyExists: `if_absent`, and there is an entry.
            VersionMismatch: `if_version`, and the entry has another version, or there is none.
            BadValue, InvalidArgument, TooLarge: nothing was sent.
            TimedOut: `outcome` tells whether it may have been written.
        """
        if if_absent and if_version is not None:
            raise InvalidArgument(why="if_absent and if_version exclude each other")
        form = self._form or (await self._found())[1]
        stored_key = form.key(key)
        condition = None
        if if_absent or if_version is not None:
            condition = Condition(key=stored_key, version=0 if if_version is None else _version(if_version))
        return await self._write_one(
            stored_key,
            form.value(key, value),
            becomes=Stored,
            condition=condition,
            headers=headers_bytes(headers),
            lifespan_ms=lifespan(lifespan_ms),
            wants_previous=previous,
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout),
        )

    async def replace(
        self,
        key: str | bytes,
        value: Any,
        *,
        if_version: int | None = None,
        headers: Mapping[str, bytes] | None = None,
        lifespan_ms: int | None = None,
        previous: bool = False,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> Stored:
        """As `put`, but only if there is an entry, with `if_version` that one.

        Raises:
            VersionMismatch: there is none, or another.
        """
        form = self._form or (await self._found())[1]
        stored_key = form.key(key)
        return await self._write_one(
            stored_key,
            form.value(key, value),
            becomes=Stored,
            condition=Condition(key=stored_key, version=None if if_version is None else _version(if_version)),
            headers=headers_bytes(headers),
            lifespan_ms=lifespan(lifespan_ms),
            wants_previous=previous,
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout),
        )

    async def remove(
        self,
        key: str | bytes,
        *,
        headers: Mapping[str, bytes] | None = None,
        if_version: int | None = None,
        previous: bool = False,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> Removed:
        """Remove the entry of `key`. Where there is none, nothing happens and the result's `id` is None.

        Raises:
            VersionMismatch: `if_version`, and the entry has another version, or there is none.
        """
        form = self._form or (await self._found())[1]
        stored_key = form.key(key)
        return await self._write_one(
            stored_key,
            b"",
            becomes=Removed,
            condition=None if if_version is None else Condition(key=stored_key, version=_version(if_version)),
            headers=headers_bytes(headers),
            wants_previous=previous,
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout),
        )

    async def _write_one(
        self,
        key: bytes,
        value: bytes,
        *,
        becomes: type[Written],
        condition: Condition | None,
        headers: bytes,
        wants_previous: bool,
        timeout_ms: int | None,
        lifespan_ms: int = 0,
        expecting: Expecting | None = None,
    ) -> Written:
        """Send one event, a removal where it `becomes` Removed, and return what became of it."""
        raise NotImplementedError

    # ------------------------------------------------------------ waiting for listeners

    async def _expecting(self, listeners: Sequence[str] | str, wait_ms: int | None, on_wait_timeout: str | None) -> Expecting | None:
        """Return what a call waits for, beside the cache's own listeners; None for nothing.

        Raises:
            ListenerNotFound: a listener that the call names is not there; nothing was written.
            InvalidArgument: or it is one of another cache, or an ephemeral one, or they are too many; nothing was written.
        """
        info = self._info or await self.info()
        if not listeners and not info.wait_listeners:
            return None
        if isinstance(listeners, str):  # as create_cache takes them, too
            listeners = [listener for listener in listeners.split(",") if listener]
        if on_wait_timeout not in {None, "error", "proceed"}:
            raise InvalidArgument(why=f"on_wait_timeout is {on_wait_timeout!r}: use error or proceed")
        if wait_ms is not None and not 0 < wait_ms <= POLL_WAIT_MS_MAX:
            raise InvalidArgument(why=f"wait_ms is {wait_ms}, not in [1, {POLL_WAIT_MS_MAX}]")
        names = tuple(dict.fromkeys((*listeners, *info.wait_listeners)))
        if len(names) > LISTENERS_AWAITED_MAX:
            raise InvalidArgument(why=f"a write waits for at most {LISTENERS_AWAITED_MAX} listeners, not for {len(names)}")
        for listener in listeners:
            if listener not in self._listeners_seen:
                from eventlog.client.listeners import ListenerAdmin, check_awaited  # noqa: PLC0415 -- needs arrays, which one put does not

                check_awaited(await ListenerAdmin(self._core.requests).describe(listener), cache=info.name)
                self._listeners_seen.add(listener)
        if not names:
            return None
        return Expecting(
            listeners=names,
            wait_ms=wait_ms or info.wait_ms or LISTENER_WAIT_MS_DEFAULT,
            proceeds=info.wait_proceeds if on_wait_timeout is None and not listeners else on_wait_timeout == "proceed",
        )

    async def _acknowledged(self, expecting: Expecting, keys: Sequence[bytes], ids: Sequence[int | None]) -> bool:
        """Return whether the listeners have acknowledged the events of some keys in time.

        Raises:
            ListenerTimeout: they have not, were removed, or nobody could say, and the call does not proceed then. The events are written.
        """
        info, _ = await self._found()
        last_ids: dict[int, int] = {}
        for key, id_ in zip(keys, ids, strict=True):
            if id_:
                segment = self._core.routes.segment(key, by_prefix=info.route_by_prefix)
                last_ids[segment] = max(last_ids.get(segment, 0), id_)
        if not last_ids:
            return True
        request = pb.AwaitListeners(
            listeners=expecting.listeners,
            cache_id=info.id,
            segments=last_ids.keys(),
            ids=last_ids.values(),
            wait_ms=expecting.wait_ms,
        )
        unheard: EventLogError | None = None
        try:
            reply = await self._core.requests.ask(Message(await_listeners=request), wait_ms=expecting.wait_ms)
            answer = reply.message.await_listeners_answer
        except EventLogError as error:  # it speaks of the asking: that nothing was done is not true of the write
            answer, unheard = pb.AwaitListenersAnswer(missing=expecting.listeners), error
        missing = list(answer.missing)
        if missing and not expecting.proceeds:
            self._listeners_seen.difference_update(missing)
            written = [id_ for id_ in ids if id_]
            gone = list(answer.gone)
            raise ListenerTimeout(outcome="committed", missing=missing, gone=gone, ids=written, timeout_ms=expecting.wait_ms) from unheard
        return not missing


def _version(number: int) -> int:
    if checked_id(number) == 0:
        raise InvalidArgument(why="if_version is 0, and no entry has that version; to write only where there is none, put with if_absent")
    return number


def condition_of(condition: Condition) -> pb.Condition:
    """Return the condition of a write of one block as the wire has it."""
    found = pb.Condition(block=0, key=condition.key)
    if condition.version is None:
        found.present = True
    elif condition.version:
        found.version = condition.version
    else:
        found.absent = True
    return found
