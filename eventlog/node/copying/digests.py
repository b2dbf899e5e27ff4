"""Checksums of copies of a segment, log and state, and their comparison between nodes.

Replicas' logs are equal byte for byte, so the CRC32C of what is stored says whether two copies are. Compared is what all of them
have: above what any of them has trimmed, up to the lowest of their high watermarks. Markers of epochs are left out: they carry
nothing, and each replica drops old ones by itself.

The controller compares copies of segments that are about to change owners (`CopyVerifier`), and does not let the old owner go without.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import crc32c

from eventlog.batch.layout import read_head
from eventlog.control.records import ReplicaRecord, SegmentRecord
from eventlog.control.view import ClusterView
from eventlog.errors import ConnectionLost, EventLogError, Unavailable
from eventlog.ids import last_of_run
from eventlog.node.background import aside, attempt
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.state_digests import StateDigests, trimmed_meanwhile
from eventlog.replication import Replication
from eventlog.segment.keys import log_range
from eventlog.segment.port import Store
from eventlog.state.caches import Caches
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_READ_BYTES = 4 << 20
_TIMEOUT_MS = 600_000  # reads whole copies
_AT_ONCE_MAX = 4
_PATIENCE_S = 5.0  # a comparison that retention disturbed is begun anew for so long
_PAUSE_S = 0.5
log = logging.getLogger("eventlog.node")
_PAUSE_MS = 100
_IDLE_MS = 500  # while nothing moves
_AGAIN_MS = 5_000  # after a comparison that failed


class DigestsGround(Protocol):
    """What this module needs of the node."""

    name: str
    number: int
    store: Store
    core: Replication
    caches: Caches
    segments: int
    peers: Peers
    state_digests: StateDigests


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The copies of one segment, by node number. `why` names what kept a copy from being read, or what is different; empty: equal."""

    segment: int
    digests: Mapping[int, pb.SegmentDigest]
    why: str = ""


class Digests:
    """Checksums of copies, here and at other members."""

    def __init__(self, node: DigestsGround) -> None:
        self._node = node

    async def own(self, asked: pb.DigestSegments) -> pb.DigestSegmentsAnswer:
        """Return digests of this node's copies; segments that it does not hold are left out."""
        answer = pb.DigestSegmentsAnswer()
        asked_after = {bound.cache: bound.id for bound in asked.after}
        for segment in dict.fromkeys(asked.segments):
            if segment >= self._node.segments or not self._node.core.holds[segment]:
                continue
            watermark = int(self._node.core.watermark[segment])
            found = answer.digests.add(segment=segment, node=self._node.name, high_watermark=watermark)
            bounds = {cache.cache_id: int(cache.trimmed_ids[segment]) for cache in self._node.caches}
            found.trimmed.extend(pb.CacheBound(cache=cache, id=trimmed) for cache, trimmed in sorted(bounds.items()))
            if asked.bounds_only:
                found.state_pin = await self._node.state_digests.pin_of(segment)
                continue
            after = {cache: asked_after.get(cache, trimmed) for cache, trimmed in bounds.items()}
            upto = min(asked.upto or watermark, watermark)
            read = partial(read_digest, self._node.store, segment, after=after, upto=upto, trimmed=self._trimmed_in(segment))
            found.events, found.last_id, found.digest = await aside(read)
            if asked.state_pin:
                state = await self._node.state_digests.own(segment, asked)
                found.entries, found.state_digest = state.entries, state.digest
        return answer

    def _trimmed_in(self, segment: int) -> Callable[[int], int]:
        trims = {cache.cache_id: cache.trimmed_ids for cache in self._node.caches}
        return lambda cache: int(trims[cache][segment])

    async def ask(self, number: int, asked: pb.DigestSegments) -> pb.DigestSegmentsAnswer:
        """Return digests of another member's copies, or of the own ones.

        Raises:
            EventLogError: it does not answer, or cannot read them.
        """
        if number == self._node.number:
            return await self.own(asked)
        reply = await self._node.peers.send(number, Message(digest_segments=asked), timeout_ms=_TIMEOUT_MS)
        return reply.message.digest_segments_answer

    async def compare(self, segment: int, numbers: Collection[int]) -> Comparison:
        """Return the digests of the segment's copies at these members, and whether they are equal."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            try:
                return await self._compare(segment, numbers)
            except EventLogError as error:
                if not isinstance(error, Unavailable) or isinstance(error, ConnectionLost) or loop.time() >= deadline:
                    return Comparison(segment=segment, digests={}, why=str(error))
            await asyncio.sleep(_PAUSE_S)

    async def _compare(self, segment: int, numbers: Collection[int]) -> Comparison:
        everyone = dict.fromkeys(numbers, pb.DigestSegments(segments=[segment], bounds_only=True))
        bounds = await self._ask_each(everyone)
        upto = min(found.high_watermark for found in bounds.values())
        trimmed: dict[int, int] = {}
        for found in bounds.values():
            for bound in found.trimmed:
                trimmed[bound.cache] = max(trimmed.get(bound.cache, 0), bound.id)
        after = [pb.CacheBound(cache=cache, id=beyond) for cache, beyond in sorted(trimmed.items())]
        pins = [found.state_pin for found in bounds.values()]
        if not all(pins):
            raise Unavailable(why=f"the state of segment {segment} is not whole everywhere yet")
        common = pb.DigestSegments(segments=[segment], upto=upto, after=after, state_from=min(pins) - 1, state_upto=max(pins) - 1)
        digests = await self._ask_each({number: _pinned(common, found.state_pin) for number, found in bounds.items()})
        logs = {(found.events, found.last_id, found.digest) for found in digests.values()}
        states = {(found.entries, found.state_digest) for found in digests.values()}
        why = ""
        if len(logs) > 1:
            why = f"the copies differ up to id {upto}"
        elif len(states) > 1:
            why = f"the states differ as of id {common.state_from}"
        return Comparison(segment=segment, digests=digests, why=why)

    async def _ask_each(self, asked: Mapping[int, pb.DigestSegments]) -> dict[int, pb.SegmentDigest]:
        answers = await asyncio.gather(*(self.ask(number, request) for number, request in asked.items()))
        found = {}
        for (number, request), answer in zip(asked.items(), answers, strict=True):
            if not answer.digests:
                raise EventLogError(why=f"node {number} does not hold segment {request.segments[0]}")
            found[number] = answer.digests[0]
        return found

    async def compare_all(self, wanted: Iterable[tuple[int, Collection[int]]]) -> list[Comparison]:
        """Compare many segments, few at once."""
        turns = asyncio.Semaphore(_AT_ONCE_MAX)

        async def one(segment: int, numbers: Collection[int]) -> Comparison:
            async with turns:
                return await self.compare(segment, numbers)

        return list(await asyncio.gather(*(one(segment, numbers) for segment, numbers in wanted)))


def read_digest(
    store: Store, segment: int, *, after: Mapping[int, int], upto: int, trimmed: Callable[[int], int] = lambda _: 0
) -> tuple[int, int, int]:
    """Return how many events a copy has in `(after, upto]` of each cache, the last of their ids, and the digest.

    `trimmed` returns up to which id retention has removed the events of a cache by now.

    Raises:
        Unavailable: it removed some that were still to be read.
    """
    events = last_id = digest = 0
    for cache, beyond in sorted(after.items()):
        seen = beyond
        lower, upper = log_range(segment, cache, after=beyond, upto=upto)
        while True:
            pairs = store.read_log(lower, upper, bytes_max=_READ_BYTES)
            if trimmed(cache) > seen:
                raise trimmed_meanwhile(segment)
            if not pairs:
                break
            for key, data in pairs:
                head = read_head(data, where=f"segment {segment}, cache {cache}")
                events += head.count
                seen = int(last_of_run(head.base, max(head.count, 1)))
                last_id = max(last_id, seen) if head.count else last_id
                digest = crc32c.crc32c(data, crc32c.crc32c(key, digest))
            lower = pairs[-1][0] + b"\0"
    return events, last_id, digest


def _pinned(common: pb.DigestSegments, pin: int) -> pb.DigestSegments:
    request = pb.DigestSegments(state_pin=pin)
    request.MergeFrom(common)
    return request


class VerifyGround(Protocol):
    """What this module needs of the node."""

    controller: ControllerLoop
    failures: Counter[str]
    digests: Digests

    @property
    def view(self) -> ClusterView: ...


class CopyVerifier:
    """Compares, on the node that is controller, what has caught up and waits to be switched to; wakes the controller with the result."""

    def __init__(self, node: VerifyGround) -> None:
        self._node = node
        self._equal: set[tuple[int, ReplicaRecord]] = set()
        self._failed: dict[int, float] = {}  # segment -> when to try again
        self._differences: dict[int, str] = {}  # what is wrong with copies that are held back

    def verified(self, view: ClusterView) -> frozenset[tuple[int, ReplicaRecord]]:
        """Return the copies of moving segments that were found equal to their primary's."""
        self._equal = {pair for pair in self._equal if (found := view.segments.get(pair[0])) is not None and found.record.target}
        return frozenset(self._equal)

    @property
    def differences(self) -> Mapping[int, str]:
        """Return moving segments whose copies are not equal, and in what."""
        return {segment: why for segment, why in self._differences.items() if self._node.view.segments[segment].record.target}

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            is_moving = False
            if self._node.controller.is_controller:
                await attempt(self.turn, name="verifier", failures=self._node.failures)
                is_moving = any(found.record.target for found in self._node.view.segments.values())
            else:
                self._differences.clear()  # another node looks, and what is found here may not be so by now
                self._equal.clear()
            await asyncio.sleep((_PAUSE_MS if is_moving else _IDLE_MS) / 1000)

    async def turn(self) -> None:
        """Compare what waits for it now."""
        now = asyncio.get_running_loop().time()
        records = {number: found.record for number, found in self._node.view.segments.items() if found.record.target}
        waiting = {number: self._unequal(record) for number, record in records.items() if self._failed.get(number, now) <= now}
        waiting = {number: copies for number, copies in waiting.items() if copies}
        if not waiting:
            return
        wanted = [(number, (records[number].primary, *(copy.node for copy in copies))) for number, copies in waiting.items()]
        for found in await self._node.digests.compare_all(wanted):
            if found.why:
                log.warning("copies_not_equal segment=%d why=%s", found.segment, found.why)
                self._differences[found.segment] = found.why
                self._failed[found.segment] = now + _AGAIN_MS / 1000
                continue
            self._differences.pop(found.segment, None)
            self._failed.pop(found.segment, None)
            self._equal |= {(found.segment, copy) for copy in waiting[found.segment]}
        self._node.controller.wake()

    def _unequal(self, record: SegmentRecord) -> list[ReplicaRecord]:
        """Return the copies that a move waits for, once all of them are in sync."""
        in_sync = {replica.node: replica for replica in record.in_sync}
        if not record.target or not in_sync.keys() >= set(record.target) or set(record.owners) <= set(record.target):
            return []
        copies = [in_sync[owner] for owner in record.target if owner != record.primary]
        return [copy for copy in copies if (record.segment, copy) not in self._equal]
