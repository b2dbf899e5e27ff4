"""Whether this node is still the primary that it believes it is: asked of the other replicas before entries are read here.

`primary` reads want one in-sync replica that knew of no higher epoch within the last second; `linear` reads want a majority of the
in-sync set to say so after the read began. A new primary serves only when every member of its in-sync set, which is part of the old
one and no smaller than its majority, has taken the new epoch: so a majority that has not is a proof. Where the record, as this node saw
it last, shows nobody else in sync, the metadata store itself is asked: the record may have grown since, and its growth been missed.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from eventlog.control.cluster import ClusterRecords
from eventlog.control.view import ClusterView
from eventlog.errors import EventLogError, NotPrimary
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.replication import Replication
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import ConfirmEpochs, Message

FRESH_S = 1.0
ASK_MS_MAX = 1_000


class FreshnessGround(Protocol):
    """What this module needs of the node."""

    number: int
    core: Replication
    segments: int
    replicas: Replicas
    peers: Peers
    records: ClusterRecords

    @property
    def view(self) -> ClusterView: ...

    def own(self, task: "asyncio.Task[Any]") -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    """What the metadata store is asked next. Callers until it is asked share the answer: `task` returns the segments confirmed."""

    segments: set[int] = field(default_factory=set)
    task: "asyncio.Task[frozenset[int]]"


class Freshness:
    """When each segment was last confirmed to be led by this node, in the loop's time. A question to a replica is about all segments."""

    def __init__(self, node: FreshnessGround) -> None:
        self._node = node
        self._confirmed_at = np.full(node.segments, -np.inf)
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._next: _Question | None = None
        self._asking_store = asyncio.Lock()

    def is_fresh(self, segment: int) -> bool:
        """Whether a `primary` read may be answered at once."""
        return bool(self._confirmed_at.item(segment) >= asyncio.get_running_loop().time() - FRESH_S)

    async def refresh(self, segment: int) -> None:
        """Return when a `primary` read may be answered.

        Raises:
            NotPrimary: no other member of the in-sync set confirms it, or, where there is none, the metadata store does not.
        """
        others = self._others(segment)
        if not others:
            await self._ask_store(self._served_alone())
        waiting = {self._ask_all(number) for number in others}
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

    def _served_alone(self) -> list[int]:
        """Return the segments that are served here with nobody else in sync."""
        records, own = self._node.view.segments, self._node.number
        return [
            segment
            for segment in np.flatnonzero(self._node.replicas.serving).tolist()
            if segment in records and all(replica.node == own for replica in records[segment].record.in_sync)
        ]

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

    async def _ask_store(self, segments: list[int]) -> frozenset[int]:
        """Return those of some segments that the metadata store, asked from now on, says this node leads; none if it does not answer."""
        question = self._next
        if not segments:
            return frozenset()
        if question is None:
            task = asyncio.get_running_loop().create_task(self._ask_next(), name="confirm_terms")
            question = self._next = _Question(task=task)
            self._node.own(task)
        question.segments.update(segments)
        await asyncio.wait((question.task,))  # shared: a caller that gives up does not take it from the others
        return frozenset() if question.task.cancelled() else question.task.result()

    async def _ask_next(self) -> frozenset[int]:
        node = self._node
        async with self._asking_store:
            question, self._next = self._next, None
            assert question is not None, "it is asked once"
            began = asyncio.get_running_loop().time()
            terms = {segment: int(node.core.epochs[segment]) for segment in question.segments}
            try:
                async with asyncio.timeout(ASK_MS_MAX / 1000):
                    led = await node.records.led_now(terms)
            except (EventLogError, TimeoutError):
                return frozenset()
            self._confirmed_at[list(led)] = began
            return led

    async def prove(self, segments: Iterable[int]) -> None:
        """Return when `linear` reads of some segments, begun before, may be answered. Raises NotPrimary."""
        wanted = set(segments)
        for segment in sorted(wanted.difference(await self.proven(wanted))):
            raise NotPrimary(segment=segment)

    async def proven(self, segments: Iterable[int]) -> list[int]:
        """Return those of some segments that this node leads, as a majority of the in-sync set, or the metadata store, says, asked now."""
        others = self._others_of(sorted(set(segments)))
        own = list(others)
        asked = sorted({number for numbers in others.values() for number in numbers})
        alone = [segment for segment, numbers in others.items() if not numbers]
        asking = asyncio.gather(*(self._ask(number, own) for number in asked))
        led, told = await asyncio.gather(self._ask_store(alone), asking)
        answers = dict(zip(asked, told, strict=True))
        found = []
        for segment, numbers in others.items():
            confirming = [number for number in numbers if (fenced := answers[number]) is not None and segment not in fenced]
            is_led = 2 * (len(confirming) + 1) > len(numbers) + 1 if numbers else segment in led
            if is_led and self._node.replicas.serving[segment]:
                found.append(segment)
        return found

    def _others_of(self, segments: Iterable[int]) -> dict[int, list[int]]:
        """Return the other members of the in-sync set of each segment that is this node's to lead."""
        found = {}
        for segment in segments:
            with suppress(NotPrimary):
                found[segment] = self._others(segment)
        return found


def confirm_epochs(node: FreshnessGround, exchange: Exchange) -> None:
    """Answer of which segments a higher epoch is known here."""
    request, message = exchange.message.confirm_epochs, Message()
    answer = message.confirm_epochs_answer
    answer.SetInParent()
    records = node.view.segments
    for segment, epoch in zip(request.segments, request.epochs, strict=False):
        known = records[segment].record.epoch if segment in records else 0
        if segment >= node.segments or max(int(node.core.epochs[segment]), known) > epoch:
            answer.fenced.append(segment)
    exchange.answer(message)
