"""Copies of segments for nodes that the log alone does not bring up: read at the primary, installed at the other node.

An install begins by dropping what was there and leaves a mark until its end: a node that starts and finds the mark drops it again.

A copy is the log, the state and the counters in pieces, all of them as of one id, the pin. Its receiver may be forced to lead before
the log behind the pin has reached it. So the state is read from a snapshot of the step in which the pin was set, and holds nothing that
the log of the copy does not say. Every piece carries a checksum; pieces are made in threads beside the loop.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Protocol

import msgspec
import numpy as np

from eventlog.arrays import NONE
from eventlog.checksum import crc32c
from eventlog.errors import BadMessage, EventLogError
from eventlog.limits import MIB
from eventlog.node.background import aside
from eventlog.node.copying.mending import Mending
from eventlog.node.copying.replicate import Receipt, Replicas
from eventlog.node.copying.replicate_in import IncomingAppends
from eventlog.node.copying.takeover import TakeOver
from eventlog.node.reading.answers import Reads
from eventlog.node.state.checkpoint import Checkpoints
from eventlog.node.state.following import Followed
from eventlog.node.writing.storage import Append, StorageThread
from eventlog.replication import commands as asked
from eventlog.replication.bodies import Carried
from eventlog.segment import keys
from eventlog.segment.cutting import caches_in
from eventlog.segment.keys import cache_range, encode_end, encode_epoch, encode_trim, log_range, partial_range, producer_key
from eventlog.segment.port import Pair, Snapshot, Store, StoreEnds
from eventlog.segment.walking import check_sum
from eventlog.state.caches import Caches

log = logging.getLogger("eventlog.node")
COUNTERS, LOG, STATE = 1, 2, 3  # kinds of pieces
_PAIR = Struct("<HI")
_CRC_BYTES = 4
_STATE_ROWS = 2_000
_PRODUCERS_BYTES = 4 * MIB


class CacheCounters(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a cache in the segment: at the pin, but for what is trimmed, as of the end of the copy."""

    cache_id: int
    next_offset: int
    trimmed_id: int
    trimmed_offset: int
    live: int
    may_expire: bool
    producers: list[tuple[int, bytes]]


class Counters(msgspec.Struct, array_like=True, frozen=True):
    """All caches of the segment."""

    caches: list[CacheCounters]


class SegmentCopy:
    """Reads one segment piece by piece; `read` returns None after the last. `state` holds the segment as of `pin`."""

    def __init__(self, store: Store, segment: int, *, state: Snapshot, pin: int) -> None:
        self._store = store
        self._state = state
        self._segment = segment
        self._pin = pin
        self._caches: list[int] | None = None
        self._log_from = 0
        self._state_from = keys.segment_range(segment)[0]

    def read(self, *, bytes_max: int) -> tuple[int, bytes] | None:
        """Return the next piece, (kind, content) of about `bytes_max`; the same again after a call that failed.

        Raises:
            CorruptData: a value's checksum is wrong, or a file cannot be read.
            ClientClosed: the state that it reads from was closed.
        """
        if self._caches is None:
            self._caches = list(caches_in(self._store, self._segment))
        while self._caches:
            span = keys.log_range(self._segment, self._caches[0], after=self._log_from, upto=self._pin)
            if pairs := self._store.read_log(*span, bytes_max=bytes_max):
                for _, value in pairs:
                    check_sum(self._segment, self._caches[0], value)
                self._log_from = keys.parse_log_key(pairs[-1][0])[2]
                return LOG, pack(pairs)
            self._caches.pop(0)
            self._log_from = 0
        return self._read_state(bytes_max)

    def _read_state(self, bytes_max: int) -> tuple[int, bytes] | None:
        lower, upper = self._state_from, keys.segment_range(self._segment)[1]
        found: list[Pair] = []
        nbytes = 0
        while nbytes < bytes_max:
            rows = self._state.read(lower, upper, rows_max=_STATE_ROWS, bytes_max=bytes_max)
            if not rows.keys:
                break
            lower = rows.keys[-1] + b"\0"
            pairs = zip(rows.keys, rows.values, strict=True)
            kept = [row for row in pairs if keys.parse_state_key(row[0])[2] != keys.TAG_PRODUCER]  # they go with the counters
            nbytes += sum(len(key) + len(value) for key, value in kept)
            found += kept
        self._state_from = lower
        return (STATE, pack(found)) if found else None

    def producers(self, cache_id: int) -> list[tuple[int, bytes]]:
        """Return the producers of a cache that wrote to the segment, as they are stored. Raises as `read`."""
        lower, upper = keys.tag_range(self._segment, cache_id, keys.TAG_PRODUCER)
        found: list[tuple[int, bytes]] = []
        is_end = False
        while not is_end:
            rows = self._state.read(lower, upper, rows_max=_STATE_ROWS, bytes_max=_PRODUCERS_BYTES)
            is_end = rows.is_end
            found += [(int.from_bytes(keys.parse_state_key(key)[3]), data) for key, data in zip(rows.keys, rows.values, strict=True)]
            lower = rows.keys[-1] + b"\0" if rows.keys else upper
        return found


@dataclass(slots=True, kw_only=True, eq=False)
class _Open:
    """A copy being read here. Of it the log from the pin on is still to follow."""

    copy: SegmentCopy
    counters: list[CacheCounters]
    moment: "_Moment"


@dataclass(slots=True, kw_only=True, eq=False)
class _Moment:
    """The state as of one step, for the copies that began together: each snapshot keeps files that nobody else needs."""

    snapshot: Snapshot
    users: int = 0

    def leave(self) -> None:
        """Let go of the snapshot with the last copy."""
        self.users -= 1
        if self.users <= 0:
            self.snapshot.close()


class CopiesGround(Protocol):
    """What this module needs of the node."""

    incoming: IncomingAppends
    takeover: TakeOver
    store: Store
    caches: Caches
    storage: StorageThread
    followed: Followed
    checkpoints: Checkpoints
    mending: Mending
    reads: Reads

    def own(self, task: "asyncio.Task[Any]") -> None: ...

    async def learn_caches(self) -> None: ...

    def fatal(self, error: EventLogError) -> None: ...


class Copies:
    """Both ends of copies."""

    def __init__(self, node: CopiesGround, replicas: Replicas) -> None:
        self._replicas = replicas
        self._node = node
        self._opening: dict[int, asked.OpenSnapshot] = {}  # by transfer, as in `_open`
        self._is_opening = False
        self._open: dict[int, _Open] = {}
        self._counters: dict[int, Counters] = {}
        self._damaged: dict[int, tuple[int, int]] = {}  # by segment, (epoch, transfer) of a copy of which a piece is missing
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.installed = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return what is carried out here."""
        return {
            asked.OpenSnapshot: self._begin,
            asked.ReadSnapshot: lambda command: self._run(self._read(command)),
            asked.CloseSnapshot: self._close,
            asked.BeginInstall: partial(self._install, self._drop),
            asked.InstallPart: self._take_part,
            asked.EndInstall: partial(self._install, self._finish),
        }

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._node.own(asyncio.create_task(work, name="copy"))

    # ------------------------------------------------------------ reading

    def _begin(self, command: asked.OpenSnapshot) -> None:
        self._opening[command.transfer] = command
        if not self._is_opening:
            self._is_opening = True
            self._run(self._begin_all())

    async def _begin_all(self) -> None:
        """Pin segments at what the state holds, all that are asked for meanwhile together, until nobody asks any more."""
        node = self._node
        try:
            while self._opening:
                pinned, snapshot = await node.checkpoints.taken(self._pin)
                moment = _Moment(snapshot=snapshot, users=1)
                for command, pin, counters in pinned:
                    if self._opening.pop(command.transfer, None) is None:
                        continue  # closed meanwhile
                    moment.users += 1
                    copy = SegmentCopy(node.store, command.segment, state=snapshot, pin=pin)
                    self._open[command.transfer] = _Open(copy=copy, counters=counters, moment=moment)
                    log.info("copy_begun segment=%d node=%d pin=%d", command.segment, command.to.node, pin)
                    self._replicas.carry_out(self._replicas.core.snapshot_opened(command, pin=pin, now_ms=self._replicas.now_ms))
                moment.leave()
        finally:
            self._is_opening = False

    def _pin(self) -> list[tuple[asked.OpenSnapshot, int, list[CacheCounters]]]:
        """Return where each segment stands that is to be copied, and what its counters say there."""
        applied = self._node.followed.applied
        return [(command, int(applied[command.segment]), self._counters_of(command.segment)) for command in self._opening.values()]

    def _counters_of(self, segment: int) -> list[CacheCounters]:
        return [
            CacheCounters(
                cache_id=cache.cache_id,
                next_offset=int(cache.next_offsets[segment]),
                trimmed_id=0,
                trimmed_offset=-1,
                live=int(cache.live[segment]),
                may_expire=cache.may_expire,
                producers=[],
            )
            for cache in self._node.caches
        ]

    async def _read(self, command: asked.ReadSnapshot) -> None:
        try:
            piece = await self.next_piece(command)
        except EventLogError as error:
            if command.transfer not in self._open:
                return
            log.warning("copy_failed segment=%d error=%s", command.segment, error)
            await asyncio.sleep(self._node.mending.again_ms / 1000)
            self._run(self._read(command))
            return
        if piece is None:
            return
        kind, content = piece
        await self._replicas.throttle.take(command.segment, len(content), to=command.to.node)
        core = self._replicas.core
        commands = core.snapshot_read(command, count=1, nbytes=len(content), is_last=kind == COUNTERS, now_ms=self._replicas.now_ms)
        self._replicas.carry_out(commands, Carried(caches=[kind], data=[content]))

    async def next_piece(self, command: asked.ReadSnapshot) -> tuple[int, bytes] | None:
        """Return the next piece, (kind, content), of a copy that is read here, counters last; None when it is closed. Raises as `read`."""
        opened = self._open.get(command.transfer)
        if opened is None:
            return None
        piece = await self._node.mending.read(partial(opened.copy.read, bytes_max=command.bytes_max))
        return piece if piece is not None else (COUNTERS, await self._counted(command.segment, opened))

    async def _counted(self, segment: int, opened: _Open) -> bytes:
        """Return the last piece: what was trimmed meanwhile is missing in the log that was sent."""
        named = {found.cache_id for found in opened.counters}
        producers = await aside(lambda: {cache_id: opened.copy.producers(cache_id) for cache_id in named})
        known = [(found, cache) for found in opened.counters if (cache := self._node.caches.get(found.cache_id)) is not None]
        caches = [
            msgspec.structs.replace(
                found,
                trimmed_id=int(cache.trimmed_ids[segment]),
                trimmed_offset=int(cache.trimmed_offsets[segment]),
                producers=producers[found.cache_id],
            )
            for found, cache in known
        ]
        return seal(msgspec.msgpack.encode(Counters(caches=caches)))

    def _close(self, command: asked.CloseSnapshot) -> None:
        self._opening.pop(command.transfer, None)
        opened = self._open.pop(command.transfer, None)
        if opened is not None:
            opened.moment.leave()

    # ------------------------------------------------------------ installing

    def _take_part(self, command: asked.InstallPart, receipt: Receipt) -> None:
        self._install(partial(self._store_part, receipt.given), command, receipt)

    def _install(self, act: Callable[[Any], Coroutine[Any, Any, None]], command: Any, receipt: Receipt | None) -> None:
        self._run(self._in_turn(command, act, receipt and receipt.begin()))

    @asynccontextmanager
    async def turns(self, segments: Iterable[int]) -> AsyncIterator[None]:
        """Wait for the steps of segments that are under way; none begins in here."""
        async with AsyncExitStack() as held:
            for segment in sorted(segments):
                await held.enter_async_context(self._turns[segment])
            yield

    async def _in_turn(self, command: Any, act: Callable[[Any], Coroutine[Any, Any, None]], receipt: Receipt | None) -> None:
        """Do the steps of one segment one after the other; a step that cannot be done ends the process, as a write would.

        Nothing of a copy counts behind a piece that is damaged: its primary has sent more of it meanwhile, perhaps its end. Nobody
        acknowledges that, so the primary begins another copy.
        """
        name = command.epoch, command.transfer
        async with self._turns[command.segment]:
            try:
                if self._damaged.get(command.segment) != name:
                    await act(command)
                    self._replicas.carry_out(self._replicas.core.installed(command))
            except BadMessage as error:
                log.warning("copy_damaged segment=%d error=%s", command.segment, error)
                self._damaged[command.segment] = name
            except EventLogError as error:
                self._node.fatal(error)
                return
        self._node.incoming.done(receipt)

    async def _drop(self, command: asked.BeginInstall) -> None:
        self._counters.pop(command.segment, None)
        await self._node.takeover.empty([command.segment])

    async def _store_part(self, pieces: list[tuple[int, bytes]], command: asked.InstallPart) -> None:
        node, segment = self._node, command.segment
        for kind, piece in pieces:
            if kind == COUNTERS:
                self._counters[segment] = msgspec.msgpack.decode(unseal(piece), type=Counters)
                continue
            pairs = unpack(piece, segment=segment)
            if kind == LOG:
                nothing = np.zeros(0, np.uint32)
                await node.storage.append(Append(log=pairs, meta=[], segments=NONE, ends=NONE, epochs=nothing, nbytes=len(piece)))
            else:
                puts: list[tuple[bytes, bytes | None]] = list(pairs)
                await node.storage.run(partial(node.store.apply, puts), is_vital=True)

    async def _finish(self, command: asked.EndInstall) -> None:
        """Make the copy a replica: its state is durable before the mark of the install goes."""
        node, segment = self._node, command.segment
        counters = self._counters.pop(segment, None)
        if counters is None:
            raise BadMessage(why=f"a copy of segment {segment} without counters")
        await node.learn_caches()
        puts: list[tuple[bytes, bytes | None]] = []
        for found in counters.caches:
            cache = node.caches.get(found.cache_id)
            if cache is not None:
                cache.next_offsets[segment], cache.live[segment] = found.next_offset, found.live
                cache.trimmed_ids[segment], cache.trimmed_offsets[segment] = found.trimmed_id, found.trimmed_offset
                cache.removed_ids[segment] = found.trimmed_id
                cache.may_expire = cache.may_expire or found.may_expire
                cache.producers.load((segment, number, data) for number, data in found.producers)
                puts += [(producer_key(segment, cache.cache_id, number), data) for number, data in found.producers]
        node.followed.restart(segment, command.pin)
        await node.storage.run(partial(node.store.apply, puts), is_vital=True)
        await node.checkpoints.write()
        await aside(node.store.flush_state)
        await node.storage.run(partial(self._write_end, command, counters), is_vital=True, is_barrier=True)
        trimmed = max((found.trimmed_id for found in counters.caches), default=0)
        self._replicas.core.trimmed(np.array([segment]), np.array([trimmed]))
        node.reads.learned(np.array([segment]), np.array([command.pin]), groups=(), skipped=command.pin)
        self.installed += 1
        log.info("copy_installed segment=%d pin=%d", segment, command.pin)

    def _write_end(self, command: asked.EndInstall, counters: Counters) -> None:
        """In the storage thread: what says that the segment is whole, in one write."""
        node, segment = self._node, command.segment
        ends: StoreEnds = node.storage.ends
        rows: list[Pair] = [encode_epoch(segment, start.epoch, start.first, previous=start.previous) for start in command.history]
        rows.append(encode_end(segment, command.pin, command.end_epoch))
        ranges = []
        for found in counters.caches:
            if found.trimmed_id:
                rows.append(encode_trim(found.cache_id, segment, found.trimmed_id, found.trimmed_offset))
                lower, _ = cache_range(segment, found.cache_id)
                ranges.append((lower, log_range(segment, found.cache_id, after=0, upto=found.trimmed_id)[1]))
        node.store.trim(ranges, rows, meta_ranges=[partial_range(segment)])
        ends.ids[segment], ends.epochs[segment] = command.pin, command.end_epoch
        node.store.sync(ends)


def seal(content: bytes) -> bytes:
    """Return a piece with its checksum."""
    return int(crc32c(content)).to_bytes(_CRC_BYTES, "little") + content


def unseal(piece: bytes) -> bytes:
    """Return what is in a piece.

    Raises:
        BadMessage: it is damaged.
    """
    content = piece[_CRC_BYTES:]
    if crc32c(content) != int.from_bytes(piece[:_CRC_BYTES], "little"):
        raise BadMessage(why="a piece of a copy whose checksum is wrong")
    return content


def pack(pairs: Iterable[Pair]) -> bytes:
    """Return pairs as one piece."""
    return seal(b"".join([part for key, value in pairs for part in (_PAIR.pack(len(key), len(value)), key, value)]))


def unpack(piece: bytes, *, segment: int) -> list[Pair]:
    """Return the pairs of a piece; all of them belong to `segment`.

    Raises:
        BadMessage: it is damaged, or of another segment.
    """
    content, prefix = unseal(piece), keys.segment_range(segment)[0]
    at, pairs = 0, []
    while at < len(content):
        key_size, value_size = _PAIR.unpack_from(content, at)
        at += _PAIR.size
        key, value = content[at : at + key_size], content[at + key_size : at + key_size + value_size]
        at += key_size + value_size
        if not key.startswith(prefix) or len(value) != value_size:
            raise BadMessage(why=f"a piece of a copy of segment {segment} holds what is not of it")
        pairs.append((key, value))
    return pairs
