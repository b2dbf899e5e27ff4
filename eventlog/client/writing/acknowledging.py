"""Writes that wait for listeners: done when those have acknowledged the events, by polling for what comes behind them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eventlog.client.handle import CacheHandle
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


class CacheAcknowledging(CacheHandle):
    """What writes need to wait for listeners. The write itself is committed before, and stays."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._listeners_seen: set[str] = set()

    async def _expecting(self, listeners: Sequence[str] | str, wait_ms: int | None, on_wait_timeout: str | None) -> Expecting | None:
        """Return what a call waits for, beside the cache's own listeners; None for nothing.

        Raises:
            ListenerNotFound: a listener that the call names is not there; nothing was written.
            InvalidArgument: or it is one of another cache, or an ephemeral one, or they are too many; nothing was written.
        """
        info, _ = await self._found()
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
