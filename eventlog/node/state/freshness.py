"""Whether this node is still the primary that it believes it is: asked of the other replicas before entries are read here.

`primary` reads want one in-sync replica that knew of no higher epoch within the last second; `linear` reads want a majority of the
in-sync set to say so after the read began. A new primary serves only when every member of its in-sync set, which is part of the old
one and no smaller than its majority, has taken the new epoch: so a majority that has not is a proof. Who is alone in its in-sync set
needs none, because nobody else can be appointed.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from eventlog.errors import EventLogError, NotPrimary
from eventlog.node.cluster.peers import peer_of
from eventlog.transport.exchange import Exchange
from eventlog.wire.eventlog_pb2 import ConfirmEpochs, Message

if TYPE_CHECKING:
    from eventlog.node.node import Node

FRESH_S = 1.0
ASK_MS_MAX = 1_000


class Freshness:
    """When each segment was last confirmed to be led by this node, in the loop's time. A question to a replica is about all segments."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._confirmed_at = np.full(node.segments, -np.inf)
        self._asking: dict[int, asyncio.Task[None]] = {}

    def is_fresh(self, segment: int) -> bool:
        """Whether a `primary` read may be answered at once."""
        return bool(self._confirmed_at.item(segment) >= asyncio.get_running_loop().time() - FRESH_S)

    async def refresh(self, segment: int) -> None:
        """Return when a `primary` read may be answered.

        Raises:
            NotPrimary: no other member of the in-sync set confirms it.
        """
        waiting = {self._ask_all(number) for number in self._others(segment)}
        if not waiting:
            self._confirmed_at[segment] = asyncio.get_running_loop().time()
            return
        while waiting and not self.is_fresh(segment):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self.is_fresh(segment):
            raise NotPrimary(segment=segment)

    def _others(self, segment: int) -> list[int]:
        """Return the other members of a segment's in-sync set."""
        found = self._node.view.segments.get(segment)
        if found is None or found.record.primary != self._node.number:
            raise NotPrimary(segment=segment)
        return [replica.node for replica in found.record.in_sync if replica.node != self._node.number]

    def _ask_all(self, number: int) -> "asyncio.Task[None]":
        task = self._asking.get(number)
        if task is None or task.done():
            task = self._asking[number] = asyncio.get_running_loop().create_task(self._ask_about_all(number), name="confirm_epochs")
            self._node.own(task)
        return task

    async def _ask_about_all(self, number: int) -> None:
        node, began = self._node, asyncio.get_running_loop().time()
        records = node.view.segments
        own = [
            segment
            for segment in np.flatnonzero(node.replicas.serving).tolist()
            if segment in records and any(replica.node == number for replica in records[segment].record.in_sync)
        ]
        fenced = await self._ask(number, own)
        if fenced is not None:
            confirmed = [segment for segment in own if segment not in fenced]
            self._confirmed_at[confirmed] = began

    async def _ask(self, number: int, segments: list[int]) -> frozenset[int] | None:
        """Return of which segments a replica knows a higher epoch, None if it does not answer."""
        epochs = self._node.core.epochs[segments].tolist()
        message = Message(confirm_epochs=ConfirmEpochs(segments=segments, epochs=epochs))
        try:
            reply = await self._node.peers.send(number, message, timeout_ms=ASK_MS_MAX)
        except EventLogError:
            return None
        return frozenset(reply.message.confirm_epochs_answer.fenced)

    async def prove(self, segments: Iterable[int]) -> None:
        """Return when `linear` reads of some segments, begun before, may be answered. Raises NotPrimary."""
        own = sorted(set(segments))
        others = {segment: self._others(segment) for segment in own}
        asked = sorted({number for numbers in others.values() for number in numbers})
        answers = dict(zip(asked, await asyncio.gather(*(self._ask(number, own) for number in asked)), strict=True))
        for segment, numbers in others.items():
            confirming = [number for number in numbers if (fenced := answers[number]) is not None and segment not in fenced]
            if 2 * (len(confirming) + 1) <= len(numbers) + 1 or not self._node.replicas.serving[segment]:
                raise NotPrimary(segment=segment)


def confirm_epochs(node: "Node", exchange: Exchange) -> None:
    """Answer of which segments a higher epoch is known here."""
    peer_of(exchange)
    request, message = exchange.message.confirm_epochs, Message()
    answer = message.confirm_epochs_answer
    answer.SetInParent()
    records = node.view.segments
    for segment, epoch in zip(request.segments, request.epochs, strict=False):
        known = records[segment].record.epoch if segment in records else 0
        if segment >= node.segments or max(int(node.core.epochs[segment]), known) > epoch:
            answer.fenced.append(segment)
    exchange.answer(message)
