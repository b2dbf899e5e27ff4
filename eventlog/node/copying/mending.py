"""Stored values that turn out damaged are asked of another node with a copy, checked, and written again under the same keys.

What lies in a file that the engine cannot read stays unread here: nothing stored beside it would make that file readable. Others lead and
serve it from then on, where they have all of it, and the next start fills the node again (`entering.py`).

A reader that meets damage in a cache calls `mend`. The copies here are read through once; every run of ids between two sound values in
which something is wrong or missing is fetched. What no other node has stays as it is, and refused; whether one has it by now is asked
again and again, after ever longer pauses.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from eventlog.arrays import NONE
from eventlog.batch.layout import ValueHead
from eventlog.batch.views import decode_value
from eventlog.control.view import ClusterView
from eventlog.errors import CorruptData, EventLogError, MetadataLost, NotPrimary, Stopping, Unavailable, UnsupportedFormat
from eventlog.limits import ANSWER_BYTES_MAX, CLOSE_UP_MS_MAX
from eventlog.node.background import aside
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.metadata import NodeLease
from eventlog.node.cluster.peers import Peers
from eventlog.node.reading.fetch import pairs_of
from eventlog.node.writing.storage import Append, StorageThread
from eventlog.read.history import checked
from eventlog.read.watermark import LowWatermark
from eventlog.replication import Replication
from eventlog.segment.keys import cache_range, parse_log_key
from eventlog.segment.port import Pair, Store
from eventlog.state.caches import Caches, CacheState
from eventlog.wire.eventlog_pb2 import Fetch, Message

Result = TypeVar("Result")

log = logging.getLogger("eventlog.node")
_READ_BYTES = 4 << 20
_FETCHES_MAX = 10_000  # of one damaged run
AGAIN_MS = 2_000  # the node that has it may not have been there, or not have known that it is committed
_AGAIN_MS_MAX = 600_000  # it costs a walk through the cache
_LEAVE_MS_MAX = 5_000  # a new primary takes a second or two
_LEAVE_POLL_MS = 20
_NO_EPOCHS = np.zeros(0, np.uint32)


class MendingGround(Protocol):
    """What this module needs of the node."""

    store: Store
    caches: Caches
    low: LowWatermark
    core: Replication
    storage: StorageThread
    peers: Peers
    is_stopping: bool
    forwarding: Forwarding
    lease: NodeLease

    @property
    def view(self) -> ClusterView: ...

    def own(self, task: "asyncio.Task[Any]") -> None: ...

    def read_elsewhere(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something is wrong with what a log holds of a cache between two ids: those in `(after, upto]`."""

    segment: int
    after: int
    upto: int


class Mending:
    """Mends the logs of a node. `repaired` counts stored values."""

    def __init__(self, node: MendingGround) -> None:
        self._node = node
        self._running: dict[int, asyncio.Task[bool]] = {}
        self._again: set[int] = set()
        self.again_ms = AGAIN_MS
        self._leaving: asyncio.Task[None] | None = None
        self.repaired = 0

    def mend(self, cache: CacheState) -> "asyncio.Future[bool]":
        """Begin, or go on; the result is whether everything that is wrong with the copies here could be repaired."""
        task = self._running.get(cache.cache_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._mend(cache), name="mend")
            self._running[cache.cache_id] = task
            task.add_done_callback(lambda _: self._running.pop(cache.cache_id, None))
            self._node.own(task)
        return task

    async def read(self, work: Callable[[], Result]) -> Result:
        """Return what `work` reads of the log in a thread; where it meets damage, once more after everything was mended."""
        try:
            return await aside(work)
        except CorruptData as error:
            log.warning("log_damaged error=%s", error)
        for cache in list(self._node.caches):
            await self.mend(cache)
        return await aside(work)

    def judged(self, error: Exception) -> Exception:
        """Return what to refuse a request with: one that met a file which cannot be read is tried again where others have everything."""
        node = self._node
        if not (isinstance(error, CorruptData) and node.store.unreadable):
            return error
        self.leave()
        kept = np.flatnonzero(node.low.here).tolist()
        return NotPrimary(segment=(kept or [0])[0]) if all(map(self._is_elsewhere, kept)) else error

    def leave(self) -> "asyncio.Task[None]":
        """Let others lead and serve what is here, as far as they can, because the engine met a damaged file."""
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.get_running_loop().create_task(self._leave_all(), name="leave_unreadable")
            self._node.own(self._leaving)
        return self._leaving

    async def _leave_all(self) -> None:
        node = self._node
        if not node.view.nodes[node.core.own.node].record.unreadable:
            log.error("store_unreadable why=%s", node.store.unreadable)
        if not any(map(self._is_elsewhere, range(node.store.segments))):
            return  # nobody can be asked
        node.read_elsewhere()
        try:
            await node.lease.renew()  # which says so in this node's record
        except (Unavailable, MetadataLost) as error:
            log.warning("still_leading error=%s", error)
            return
        for _ in range(_LEAVE_MS_MAX // _LEAVE_POLL_MS):
            if not any(map(self._is_elsewhere, np.flatnonzero(node.low.here).tolist())):
                break
            await asyncio.sleep(_LEAVE_POLL_MS / 1000)

    def _is_elsewhere(self, segment: int) -> bool:
        """Return whether another node that can be asked has all of a segment."""
        return any(number in self._node.peers.incarnations for number in self._node.forwarding.copies_elsewhere(segment))

    async def _mend(self, cache: CacheState) -> bool:
        node = self._node
        uptos = np.where(node.core.holds, node.core.watermark, 0)  # also of what is not read here yet: its state has to be made from it
        uptos = np.maximum(uptos, np.where(node.low.here, node.low.limits, 0))
        places = [(segment, uptos.item(segment)) for segment in np.flatnonzero(node.low.here | (uptos > 0)).tolist()]
        try:
            found, unreadable = await aside(partial(_find, node, cache, places))
        except Stopping:
            return False
        if unreadable:
            await self.leave()
        is_whole = not node.low.here[unreadable].any()
        for damage in found:
            try:
                await self._repair(cache, damage)
            except EventLogError as error:
                is_whole = False
                log.error("log_damaged cache=%s segment=%d error=%s", cache.name, damage.segment, error)  # noqa: TRY400
        if not is_whole and cache.cache_id not in self._again:
            self._again.add(cache.cache_id)
            node.own(asyncio.get_running_loop().create_task(self._mend_again(cache), name="mend_again"))
        return is_whole

    async def _mend_again(self, cache: CacheState) -> None:
        pause_ms = self.again_ms
        await asyncio.sleep(pause_ms / 1000)
        while not (cache.dropped or self._node.is_stopping or await self.mend(cache)):
            pause_ms = min(2 * pause_ms, _AGAIN_MS_MAX)
            await asyncio.sleep(pause_ms / 1000)
        self._again.discard(cache.cache_id)

    async def _repair(self, cache: CacheState, damage: Damage) -> None:
        number, pairs = await self._fetch(cache, damage)
        checked(pairs, cache_id=cache.cache_id)
        nbytes = sum(len(value) for _, value in pairs)
        await self._node.storage.append(Append(log=pairs, meta=[], segments=NONE, ends=NONE, epochs=_NO_EPOCHS, nbytes=nbytes))
        self.repaired += len(pairs)
        text = "log_repaired cache=%s segment=%d values=%d after=%d upto=%d from=%d"
        log.warning(text, cache.name, damage.segment, len(pairs), damage.after, damage.upto, number)

    async def _fetch(self, cache: CacheState, damage: Damage) -> tuple[int, list[Pair]]:
        """Return the nodes that have the values of a damaged run, and the values.

        Raises:
            CorruptData: no node that can be asked now has them.
        """
        node = self._node
        for number in node.forwarding.copies_elsewhere(damage.segment):
            if number in node.peers.incarnations:
                try:
                    if found := await self._fetch_from(number, cache, damage):
                        return number, found
                except Unavailable as error:
                    log.warning("not_mended_from node=%d segment=%d error=%s", number, damage.segment, error)
        why = f"what belongs between the ids {damage.after} and {damage.upto} is damaged, and no other node has it"
        raise CorruptData(where=f"log of segment {damage.segment}, cache {cache.name}", why=why)

    async def _fetch_from(self, number: int, cache: CacheState, damage: Damage) -> list[Pair]:
        """Return the values that a node has; none where it does not know all of them to be committed."""
        after, found = damage.after, list[Pair]()
        for _ in range(_FETCHES_MAX):
            request = Fetch(cache_id=cache.cache_id, segments=[damage.segment], after=[after], upto=damage.upto, max_bytes=ANSWER_BYTES_MAX)
            request.all = True
            reply = await self._node.peers.send(number, Message(fetch=request), timeout_ms=2 * CLOSE_UP_MS_MAX)
            found += pairs_of(reply, cache_id=cache.cache_id)
            upto = reply.message.fetch_answer.upto
            if upto >= damage.upto:
                return found
            if upto <= after:
                break
            after = upto
        return []


def _find(node: MendingGround, cache: CacheState, places: Sequence[tuple[int, int]]) -> tuple[list[Damage], list[int]]:
    """Return what is damaged, and the segments that cannot be read at all."""
    found, unreadable = list[Damage](), list[int]()
    for segment, upto in places:
        if node.is_stopping:
            raise Stopping
        try:
            found += [] if cache.dropped else find_damage(node.store, cache, segment, upto=upto)
        except CorruptData as error:
            unreadable.append(segment)
            log.error("log_unreadable cache=%s segment=%d error=%s", cache.name, segment, error)  # noqa: TRY400
    return found, unreadable


def find_damage(store: Store, cache: CacheState, segment: int, *, upto: int) -> Iterator[Damage]:
    """Yield what is wrong in the log of a cache, in the order of ids; what should be there above `upto` is not looked for.

    Raises:
        CorruptData: the engine cannot read a file; nothing can be written in its place.
    """
    lower, upper = cache_range(segment, cache.cache_id)
    end = int(cache.next_offsets[segment])
    last_id, next_offset, begun = int(cache.trimmed_ids[segment]), 0, -1
    while pairs := store.read_log(lower, upper, bytes_max=_READ_BYTES):
        first_kept = int(cache.trimmed_offsets[segment]) + 1  # again and again: retention may pass by
        for key, data in pairs:
            head = _sound_head(segment, cache.cache_id, key, data)
            if head is None or not (head.first_offset == next_offset or next_offset < head.first_offset <= first_kept):
                begun = last_id if begun < 0 else begun
            if head is None:
                continue
            if begun >= 0:
                yield Damage(segment=segment, after=begun, upto=head.base - 1)
            last_id, next_offset, begun = head.last_id, head.first_offset + head.count, -1
        lower = pairs[-1][0] + b"\0"
    if begun < 0 and max(next_offset, int(cache.trimmed_offsets[segment]) + 1) < end:
        begun = last_id
    if 0 <= begun < upto:
        yield Damage(segment=segment, after=begun, upto=upto)


def _sound_head(segment: int, cache_id: int, key: bytes, data: bytes) -> ValueHead | None:
    try:
        head = decode_value(segment, cache_id, data).head
    except (CorruptData, UnsupportedFormat):  # a version that nobody has written yet may be a flipped bit
        return None
    return head if head.base == parse_log_key(key)[2] else None
