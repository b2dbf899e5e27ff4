"""What clients ask of mirrors by the cache `__signals`, as one node has heard of it: read as any cache is, and kept for its shards.

A signal is answered in the log: by whoever leads its segment it is said to be taken, or refused and why. Shards ask for the next one that
names their cache, and note in their progress how far they are with it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from eventlog.batch.columns import EventColumns, columns_of_joined
from eventlog.control.caches import SIGNALS
from eventlog.errors import CacheNotFound, EventLogError, InvalidArgument
from eventlog.events import Kind
from eventlog.ids import time_of
from eventlog.integrations.kafka.source import Inside, taken_apart
from eventlog.limits import MIB
from eventlog.mirror.signals import caches_of
from eventlog.node.state.cache_changes import CacheChanges
from eventlog.state.caches import Caches
from eventlog.wire.eventlog_pb2 import Message, Poll, Watch

log = logging.getLogger("eventlog.mirror")
LOOK_S: Final = 0.5
_ANSWER_BYTES: Final = 64 << 10
_SIGNALS_MAX: Final = 1_000  # that are remembered; a shard that is further behind than that misses the oldest
_ANSWERED_MS: Final = 10_000  # what came so long before this process was answered by whoever led its segment then
_CHANGES: Final = (Kind.CREATED, Kind.MODIFIED)
_OPTIONS: Final[Mapping[str, Any]] = {
    "format": "json",
    "before": False,
    "route_by_prefix": True,
    "retain_bytes": 16 * MIB,
    "retain_time_ms": 7 * 86_400_000,
}


class RouteLeads(Protocol):
    """Who leads what; `consumers.inner.Inner` is one."""

    def leads(self, route: bytes) -> bool: ...


class SignalsGround(Protocol):
    """What this module needs of the node."""

    caches: Caches
    cache_changes: CacheChanges

    @property
    def inner(self) -> RouteLeads: ...


class Signals:
    """The signals that this node has heard of. `mirrored` has the caches that there are mirrors of.

    After each `look_s` it looks whether there is a mirror by now, and asks again where its stream has ended.
    """

    def __init__(
        self, node: SignalsGround, inside: Inside, *, mirrored: Callable[[], Collection[str]], now_ms: int, look_s: float = LOOK_S
    ) -> None:
        self._node = node
        self._inside = inside
        self._mirrored = mirrored
        self._look_s = look_s
        self._answered_from_ms = now_ms - _ANSWERED_MS
        self._heard: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=_SIGNALS_MAX)
        self._last = 0
        self._news = asyncio.Event()

    async def next(self, cache: str, after: int) -> int:
        """Return the id of the first signal behind another that asks for a cache, as soon as there is one."""
        while True:
            news = self._news
            found = next((id_ for id_, names in self._heard if id_ > after and cache in names), 0)
            if found:
                return found
            await news.wait()

    async def follow(self) -> None:
        """Hear of signals until cancelled. The cache is made once there is a mirror."""
        while True:
            with suppress(EventLogError):  # a node that stops, or no primary; what is heard then is heard later
                if cache_id := await self._cache_id():
                    await self._hear(cache_id)
            await asyncio.sleep(self._look_s)

    async def _cache_id(self) -> int:
        try:
            return self._node.caches.named(SIGNALS).cache_id
        except CacheNotFound:
            return (await self._node.cache_changes.create_internal(SIGNALS, _OPTIONS)).cache_id if self._mirrored() else 0

    async def _hear(self, cache_id: int) -> None:
        poll = Poll(cache_id=cache_id, after=self._last, earliest=True, max_bytes=_ANSWER_BYTES)
        async with self._inside.open() as connection:
            stream = connection.stream(Message(watch=Watch(poll=poll, follow=True)), credit_bytes=_ANSWER_BYTES)
            try:
                async for item in stream:
                    answer = taken_apart(item.message.stream_item.poll_answer, item.body)
                    if answer.events:  # without any it says how far it is, or who stands still
                        self._take_all(columns_of_joined(answer.parts))
                    self._last = max(self._last, answer.upto)
            finally:
                stream.stop()

    def _take_all(self, events: EventColumns) -> None:
        rows = zip(events.ids.tolist(), events.kinds.tolist(), events.keys.to_list(), events.values.to_list(), strict=True)
        for id_, kind, key, value in sorted(rows):
            if kind in _CHANGES and id_ > self._last:
                self._take(id_, key, value)

    def _take(self, id_: int, key: bytes, value: bytes) -> None:
        is_ours = self._node.inner.leads(key) and time_of(id_) >= self._answered_from_ms
        try:
            names = caches_of(value)
        except InvalidArgument as error:
            if is_ours:
                log.warning("signal_refused id=%d why=%s", id_, error.why)
            return
        self._heard.append((id_, names))  # a mirror of them may be so new that this node does not know of it yet
        self._news.set()
        self._news = asyncio.Event()
        mirrored = self._mirrored()
        for name in names if is_ours else ():
            if name in mirrored:
                log.info("signal_taken id=%d cache=%s", id_, name)
            else:
                log.warning("signal_refused id=%d why=there is no mirror of cache %r", id_, name[:200])
