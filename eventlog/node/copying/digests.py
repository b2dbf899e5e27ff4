"""Checksums of copies of a segment, log and state, and their comparison between nodes.

Replicas' logs are equal byte for byte, so the CRC32C of what is stored says whether two copies are. Compared is what all of them
have: above what any of them has trimmed, up to the lowest of their high watermarks. Markers of epochs are left out: they carry
nothing, and each replica drops old ones by itself.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import crc32c

from eventlog.batch.layout import read_head
from eventlog.errors import ConnectionLost, EventLogError, Unavailable
from eventlog.ids import last_of_run
from eventlog.node.aside import aside
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.state_digests import StateDigests, trimmed_meanwhile
from eventlog.node.state.caches import Caches
from eventlog.replication import Replication
from eventlog.segment.keys import log_range
from eventlog.segment.port import Store
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_READ_BYTES = 4 << 20
_TIMEOUT_MS = 600_000  # reads whole copies
_AT_ONCE_MAX = 4
_PATIENCE_S = 5.0  # a comparison that retention disturbed is begun anew for so long
_PAUSE_S = 0.5


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
