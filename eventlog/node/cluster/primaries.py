"""Questions to all primaries: asked of the leader of each segment, and asked again until every segment is covered once.

A node answers for segments that it serves, and says for which and in which epochs. A majority of each in-sync set confirms that it
leads them, after the question came: a primary that was deposed without knowing it covers nothing, and neither does one that was
appointed and has not adopted the log. What is missing goes to its leader a moment later. After the deadline there is no answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.control.view import ClusterView
from eventlog.errors import BadMessage, EventLogError, NotPrimary, PrimariesMissing, Stopping, TimedOut
from eventlog.limits import REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.replicate import Replicas
from eventlog.node.state.freshness import Freshness
from eventlog.replication import Replication
from eventlog.routing.retry import CURABLE
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_AGAIN_S = 0.02
_AGAIN_AFTER = (*CURABLE, TimedOut)
_HOW_FAR_MS = 1_000  # for primaries to say how far they are
_PAUSES = 2  # as long as it took to ask them, where several ask: at most a third of the time goes into it ...
_PAUSE_S_MAX = 0.1  # ... unless they do not answer
_LEFT_TO_SAY_SO = 10  # a tenth of the request's time: its client is told what is missing before it gives up


class PrimariesGround(Protocol):
    """What this module needs of the node."""

    number: int
    core: Replication
    segments: int
    replicas: Replicas
    peers: Peers
    freshness: Freshness
    is_stopping: bool

    @property
    def view(self) -> ClusterView: ...

    def leader_of(self, segment: int) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """Segments that this node leads, and the epochs in which it does, confirmed since the question about them came."""

    segments: list[int]
    epochs: list[int]


Answer = Callable[[Led], Awaitable[Message]]


class Cover:
    """Which segments of a question are covered. `least` are the epochs that the asker knows: what was told in an older one is over.

    The question is about all `segments`, or about those that are `wanted`.
    """

    def __init__(self, segments: int, *, wanted: Sequence[int] = ()) -> None:
        self.least: Ints = np.zeros(segments, np.int64)
        self._is_covered = np.zeros(segments, bool)
        if wanted:
            self._is_covered[:] = True
            self._is_covered[list(wanted)] = False

    @property
    def missing(self) -> list[int]:
        """Return the segments that nobody has answered for."""
        found: list[int] = np.flatnonzero(~self._is_covered).tolist()
        return found

    def take(self, asked: Sequence[int], told: pb.Cover) -> bool:
        """Return whether an answer counts. It is about all of its segments together, so it counts as a whole or not at all."""
        segments = list(told.segments)
        if not segments or len(told.epochs) != len(segments) or not set(segments) <= set(asked):
            return False
        if len(set(segments)) < len(segments) or self._is_covered[segments].any() or (np.array(told.epochs) < self.least[segments]).any():
            return False
        self._is_covered[segments] = True
        return True


class Primaries:
    """Asks all primaries, and answers those that ask."""

    def __init__(self, node: PrimariesGround) -> None:
        self._node = node

    async def ask(
        self, message: Message, answer: Answer, *, segments: Sequence[int] = (), timeout_ms: int = 0, answer_ms: int = 0
    ) -> list[Message]:
        """Return answers that together cover every segment once, or each of `segments`. `answer` makes the one of this node.

        What is not covered is asked again for `timeout_ms`, 0: the default of a request; a node may take `answer_ms` for its answer,
        0: as long as is left.

        Raises:
            PrimariesMissing: some segments were not covered in time.
            EventLogError: a node refused the question, for another reason than that it does not lead.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT
        deadline = loop.time() + timeout_ms / 1000
        cover, answers, why = Cover(self._node.segments, wanted=segments), [], "they have no primary"
        while True:
            for segment, found in self._node.view.segments.items():
                cover.least[segment] = max(cover.least[segment], found.record.epoch)
            left_ms = answer_ms or max(int((deadline - loop.time()) * 1000), 1)
            asked = self._by_leader(cover.missing)
            told = await asyncio.gather(
                *(self._ask(number, _about(message, cover, own), answer, timeout_ms=left_ms) for number, own in asked.items())
            )
            for own, one in zip(asked.values(), told, strict=True):
                if isinstance(one, Message):
                    answers += [one] if cover.take(own, one.cover) else []
                elif isinstance(one, _AGAIN_AFTER):
                    why = why if isinstance(one, NotPrimary) else str(one)
                else:
                    raise one
            if not (missing := cover.missing):
                return answers
            if self._node.is_stopping:
                raise Stopping
            if loop.time() + _AGAIN_S >= deadline:
                raise PrimariesMissing(segments=missing, timeout_ms=timeout_ms, why=why)
            await asyncio.sleep(_AGAIN_S)

    async def ask_as_of_one_moment(
        self, message: Message, answer: Answer, *, changes: Callable[[Message], int], timeout_ms: int
    ) -> list[Message]:
        """Return answers as `ask` does that are all of one moment. `changes` counts the changes that an answerer has seen.

        Primaries answer one after the other. Where all of them answer twice, in the same epochs and without a change in between, what they
        say is so at the moment between the last first answer and the first second one.

        Raises:
            TimedOut: something changed all the time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        before: list[tuple[int, ...]] = []
        while True:
            answers = await self.ask(message, answer, timeout_ms=max(int((deadline - loop.time()) * 1000), 1))
            moment = sorted((*one.cover.segments, *one.cover.epochs, changes(one)) for one in answers)
            if len(answers) == 1 or moment == before:
                return answers
            if loop.time() >= deadline:
                raise TimedOut(what="a question about what changes all the time", timeout_ms=timeout_ms)
            before = moment

    def _by_leader(self, segments: Sequence[int]) -> dict[int, list[int]]:
        """Return the leaders of segments; segments without one are left out."""
        found: dict[int, list[int]] = {}
        for segment in segments:
            number = self._node.leader_of(segment)
            if number:
                found.setdefault(number, []).append(segment)
        return found

    async def _ask(self, number: int, message: Message, answer: Answer, *, timeout_ms: int) -> Message | EventLogError:
        """Return what a node answers, or why it does not: the others are heard all the same."""
        try:
            if number == self._node.number:
                return await self._covered(message.cover, answer)
            return (await self._node.peers.connection(number).request(message, timeout_ms=timeout_ms)).message
        except EventLogError as error:
            return error

    async def answer(self, exchange: Exchange, answer: Answer) -> None:
        """Answer another node for those of the segments asked about that are led here.

        Raises:
            NotPrimary: none is, or one is no longer when the answer is there.
            BadMessage: the question does not say which segments it is about.
        """
        cover = exchange.message.cover
        segments = list(cover.segments)
        if not segments or len(cover.epochs) != len(segments) or len(set(segments)) < len(segments) or max(segments) >= self._node.segments:
            raise BadMessage(why=f"{exchange.kind} of another node names no segments, or some that are none")
        exchange.answer(await self._covered(cover, answer))

    async def _covered(self, cover: pb.Cover, answer: Answer) -> Message:
        led = await self._led(cover)
        if not led.segments:
            raise NotPrimary(segment=cover.segments[0])
        message = await answer(led)
        for segment, epoch in zip(led.segments, led.epochs, strict=True):
            if not self._leads(segment, epoch):
                raise NotPrimary(segment=segment)  # what was read may be of a copy that is no more
        message.cover.CopyFrom(pb.Cover(segments=led.segments, epochs=led.epochs))
        return message

    async def _led(self, cover: pb.Cover) -> Led:
        """Return those of the segments asked about that this node serves, and is confirmed to lead."""
        epochs, serving = self._node.core.epochs, self._node.replicas.serving
        wanted = zip(cover.segments, cover.epochs, strict=True)
        served = {segment: int(epochs[segment]) for segment, least in wanted if serving[segment] and epochs[segment] >= least}
        proven = await self._node.freshness.proven(served)
        led = [segment for segment in proven if self._leads(segment, served[segment])]
        return Led(segments=led, epochs=[served[segment] for segment in led])

    def _leads(self, segment: int, epoch: int) -> bool:
        return bool(self._node.replicas.serving[segment]) and int(self._node.core.epochs[segment]) == epoch


class HowFarGround(Protocol):
    """What the question how far everything goes needs of the node."""

    core: Replication
    primaries: Primaries

    def own(self, task: "asyncio.Task[Any]") -> None: ...


class HowFar:
    """How far everything goes that was committed anywhere: asked once for all that want to know it at the same time."""

    def __init__(self, node: HowFarGround) -> None:
        self._node = node
        self._asking: list[Callable[[int | EventLogError], None]] = []
        self._is_asking = False

    def end(self, done: Callable[[int | EventLogError], None]) -> None:
        """Pass to `done` an id at or above everything acknowledged anywhere before this call, or why that cannot be known."""
        self._asking.append(done)
        if not self._is_asking:
            self._is_asking = True
            self._node.own(asyncio.get_running_loop().create_task(self._ask_for_all(), name="how_far"))

    async def ask(self, segments: Sequence[int] = ()) -> int:
        """Return an id at or above everything of `segments` (none: all) acknowledged anywhere before. Raises PrimariesMissing."""
        told = await self._node.primaries.ask(Message(close_up=pb.CloseUp()), self._how_far, segments=segments, timeout_ms=_HOW_FAR_MS)
        return max(one.close_up_answer.last_id for one in told)

    async def _ask_for_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._asking:
                asking, self._asking = self._asking, []
                began = loop.time()
                try:
                    end: int | EventLogError = await self.ask()
                except EventLogError as error:
                    end = error
                for done in asking:
                    done(end)
                if len(asking) > 1:
                    await asyncio.sleep(min(_PAUSES * (loop.time() - began), _PAUSE_S_MAX))
        finally:
            self._is_asking = False

    async def answer(self, exchange: Exchange) -> None:
        """Tell another node how far those of the segments asked about go that are led here."""
        await self._node.primaries.answer(exchange, self._how_far)

    async def _how_far(self, led: Led) -> Message:
        """Return the last id that is committed in segments that are led here."""
        return Message(close_up_answer=pb.CloseUpAnswer(last_id=int(self._node.core.watermark[led.segments].max())))


def time_to_ask(exchange: Exchange) -> int:
    """Return for how long a client's question may be asked of others, so that the client still hears what came of it."""
    timeout_ms = exchange.message.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT
    return timeout_ms - timeout_ms // _LEFT_TO_SAY_SO


def _about(message: Message, cover: Cover, segments: list[int]) -> Message:
    asked = Message()
    asked.CopyFrom(message)
    for name in ("opaque", "version", "timeout_ms"):
        asked.ClearField(name)
    asked.forwarded = True
    asked.cover.CopyFrom(pb.Cover(segments=segments, epochs=cover.least[segments].tolist()))
    return asked
