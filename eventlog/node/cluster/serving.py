"""Which segments can be written and read now, as their primaries say: the same answer at every node, however old its records are."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eventlog.arrays import Mask
from eventlog.control.view import ClusterView
from eventlog.errors import EventLogError
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.node.disk import DiskWatch
from eventlog.replication import Replication
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_TIMEOUT_MS = 500  # of a member that is reached and silent


class ServingGround(Protocol):
    """What this module needs of the node."""

    core: Replication
    segments: int
    number: int
    replicas: Replicas
    peers: Peers
    disk: DiskWatch

    @property
    def view(self) -> ClusterView: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """By segment: whether a primary serves it, takes its writes, answers its reads.

    `full` are the members whose disk has no room for writes, with the bytes that each has left.
    """

    led: Mask
    writable: Mask
    readable: Mask
    full: Mapping[int, int]


class Availability:
    """What can be written and read, as this node and its peers say of what they lead."""

    def __init__(self, node: ServingGround) -> None:
        self._node = node

    def own(self) -> pb.Serving:
        """Return what this node says of the segments that it leads."""
        replicas, records = self._node.replicas, self._node.view.segments
        led = np.flatnonzero(replicas.serving).tolist()
        alone = [segment for segment in led if segment in records and len(records[segment].record.in_sync) == 1]
        is_heard = replicas.core.others_answering(now_ms=replicas.now_ms)
        is_heard[alone] = True  # nobody else can lead them
        return pb.Serving(
            led=led,
            epochs=self._node.core.epochs[led].tolist(),
            unwritable=[segment for segment in led if self._node.disk.is_full or not replicas.shortage.writable[segment]],
            unreadable=[segment for segment in led if not is_heard[segment]],
            disk_is_full=self._node.disk.is_full,
            disk_free_bytes=self._node.disk.free_bytes,
        )

    async def ask(self) -> Serving:
        """Return what all members that are reached say of the segments that they lead. Of two that lead one the higher epoch counts.

        Not by `Primaries`, which refuses where a segment is not covered: that is what is asked here.
        """
        numbers = sorted(self._node.peers.incarnations)
        told = [self.own(), *await asyncio.gather(*(self._ask(number) for number in numbers))]
        full = {number: one.disk_free_bytes for number, one in zip((self._node.number, *numbers), told, strict=True) if one.disk_is_full}
        epochs = np.zeros(self._node.segments, np.int64)
        led, writable, readable = (np.zeros(self._node.segments, bool) for _ in range(3))
        for one in told:
            for segment, epoch in zip(one.led, one.epochs, strict=False):
                if segment < self._node.segments and epoch > epochs[segment]:
                    epochs[segment] = epoch
                    led[segment] = True
                    writable[segment], readable[segment] = segment not in one.unwritable, segment not in one.unreadable
        return Serving(led=led, writable=writable, readable=readable, full=full)

    async def _ask(self, number: int) -> pb.Serving:
        try:
            reply = await self._node.peers.send(number, Message(status=pb.Status(local=True)), timeout_ms=_TIMEOUT_MS)
        except EventLogError:
            return pb.Serving()
        answer = reply.message.status_answer
        return answer.serving if answer.HasField("serving") else self._by_records(number)

    def _by_records(self, number: int) -> pb.Serving:
        """Return what is to be believed of a member of an earlier version, which does not say it."""
        records = [found.record for found in self._node.view.segments.values() if found.record.primary == number]
        return pb.Serving(led=[record.segment for record in records], epochs=[record.epoch for record in records])
