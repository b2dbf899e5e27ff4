"""A node small enough to hold in the head: one dictionary of caches, one list of events, idempotent as the protocol says.

It speaks through the real transport. Tests make it refuse, stall, forget and die.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import RUN, TABLE
from eventlog.batch.marks import ABSENT, REFUSED
from eventlog.batch.views import decode_block
from eventlog.errors import (
    CacheExists,
    CacheNotFound,
    EventLogError,
    EventsTrimmed,
    KeyExists,
    ProducerUnknown,
    SequenceGap,
    VersionMismatch,
)
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import ID_STEP
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.read import token
from eventlog.read.position import Position
from eventlog.transport.connection import Exchange
from eventlog.transport.server import Server
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

SEGMENTS = 8
FIRST_ID = 1 << 32


@dataclass
class Happened:
    id: int
    cache: int
    segment: int
    offset: int
    kind: int
    key: bytes
    value: bytes
    headers: bytes
    before: bytes


@dataclass
class FakeNode:
    """`refusal` decides about each request before it is handled; `hold` keeps answers back; `answer_events` cuts answers."""

    segments: int = SEGMENTS
    cluster: str = "c1"
    answer_events: int = 100
    refusal: Callable[[Exchange], EventLogError | None] = lambda _: None
    caches: dict[str, pb.CacheDescription] = field(default_factory=dict)
    log: list[Happened] = field(default_factory=list)
    state: dict[tuple[int, bytes], tuple[int, bytes]] = field(default_factory=dict)
    results: dict[tuple[int, int, int], dict[int, tuple[list[int], list[int]]]] = field(default_factory=dict)
    last: dict[tuple[int, int, int], int] = field(default_factory=dict)
    trimmed_id: int = 0
    next_id: int = FIRST_ID
    producers: int = 0
    frames: int = 0
    hold: list[Callable[[], None]] | None = None
    news: list[asyncio.Event] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def dispatch(self, exchange: Exchange) -> None:
        refused = self.refusal(exchange)
        if refused is not None:
            exchange.fail(refused)
            return
        handler = getattr(self, f"on_{exchange.kind}")
        if asyncio.iscoroutinefunction(handler):
            task = asyncio.get_running_loop().create_task(handler(exchange))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            return
        handler(exchange)

    # ------------------------------------------------------------ connection and caches

    def on_hello(self, exchange: Exchange) -> None:
        hello, message = exchange.message.hello, Message()
        if hello.producer and not hello.producer_id:
            self.producers += 1
        message.hello_answer.cluster, message.hello_answer.segments = self.cluster, self.segments
        message.hello_answer.producer_id = hello.producer_id or (self.producers if hello.producer else 0)
        exchange.answer(message)

    def on_ping(self, exchange: Exchange) -> None:
        exchange.answer(Message(done=pb.Done()))

    def on_get_topology(self, exchange: Exchange) -> None:
        """One node of which nothing is known but that it answers."""
        message = Message()
        message.topology_answer.SetInParent()
        exchange.answer(message)

    def on_create_cache(self, exchange: Exchange) -> None:
        request, message = exchange.message.create_cache, Message()
        if request.name in self.caches and not request.use_existing:
            exchange.fail(CacheExists(cache=request.name))
            return
        if request.name not in self.caches:
            found = pb.CacheDescription(name=request.name, id=len(self.caches) + 1, options=request.options)
            self.caches[request.name] = found
        message.cache_answer.cache.CopyFrom(self.caches[request.name])
        exchange.answer(message)

    def on_describe_cache(self, exchange: Exchange) -> None:
        found, message = self.caches.get(exchange.message.describe_cache.name), Message()
        if found is None:
            exchange.fail(CacheNotFound(cache=exchange.message.describe_cache.name))
            return
        message.cache_answer.cache.CopyFrom(found)
        exchange.answer(message)

    # ------------------------------------------------------------ writing

    def on_write(self, exchange: Exchange) -> None:
        self.frames += 1
        request, body = exchange.message.write, exchange.body
        table = np.frombuffer(body[: request.blocks * TABLE.itemsize], TABLE)
        at = len(table) * TABLE.itemsize
        ids: list[int] = []
        kinds: list[int] = []
        message = Message()
        answer = message.write_answer
        for index, row in enumerate(table):
            block = decode_block(body[at : at + int(row["length"])])
            at += int(row["length"])
            place = (request.producer_id, request.cache_id, int(row["segment"]))
            known = self.results.setdefault(place, {})
            sequence, last = int(row["sequence"]), self.last.get(place, -1)
            error: EventLogError | None = None
            if request.producer_id and sequence in known:
                own_ids, own_kinds = known[sequence]
                ids, kinds = ids + own_ids, kinds + own_kinds
                continue
            if request.producer_id and sequence != last + 1:
                gap = SequenceGap(producer=place[0], segment=place[2], found=sequence, last=last)
                error = gap if last >= 0 else ProducerUnknown(producer=place[0], segment=place[2])
                own_ids, own_kinds = [0] * block.count, [REFUSED] * block.count
            else:
                conditions = [condition for condition in request.conditions if condition.block == index]
                error = self.conflict(request.cache_id, conditions)
                if error is None:
                    own_ids, own_kinds = self.apply(request, place[2], block, answer)
                else:
                    own_ids, own_kinds = [0] * block.count, [REFUSED] * block.count
                self.last[place] = sequence
                known[sequence] = (own_ids, own_kinds)
                known.pop(sequence - PRODUCER_RESULTS_KEPT, None)
            if error is not None:
                refusal = answer.refusals.add(block=index)
                refusal.error.code, refusal.error.outcome = error.code, error.outcome
                refusal.error.facts = json.dumps(error.facts()).encode()
            ids, kinds = ids + own_ids, kinds + own_kinds
        answer.events = len(ids)
        if len(ids) == 1:
            answer.id, answer.kind = ids[0], kinds[0]
            self.reply(lambda: exchange.answer(message))
        else:
            self.reply(lambda: exchange.answer(message, np.array(ids, "<i8").tobytes(), bytes(kinds)))

    def reply(self, answer: Callable[[], None]) -> None:
        for news in self.news:
            news.set()
        if self.hold is None:
            answer()
        else:
            self.hold.append(answer)

    def release(self) -> None:
        held, self.hold = self.hold or [], None
        for answer in held:
            answer()

    def conflict(self, cache: int, conditions: list[pb.Condition]) -> EventLogError | None:
        for condition in conditions:
            found = self.state.get((cache, condition.key), (0, b""))[0]
            kind = condition.WhichOneof("expected")
            key = condition.key.decode()
            if kind == "absent" and found:
                return KeyExists(key=key, version=found)
            if (kind == "version" and found != condition.version) or (kind == "present" and not found):
                return VersionMismatch(key=key, expected=condition.version, found=found)
        return None

    def apply(self, request: pb.Write, segment: int, block: object, answer: pb.WriteAnswer) -> tuple[list[int], list[int]]:
        ids, kinds = [], []
        headers = block.headers.to_list() if block.headers else [b""] * block.count
        for key, value, kind, header in zip(block.keys.to_list(), block.values.to_list(), block.kinds.tolist(), headers, strict=True):
            found = self.state.get((request.cache_id, key))
            if request.previous and found:
                answer.has_previous, answer.previous = True, found[1]
            if kind == 2 and not found:
                ids.append(0)
                kinds.append(ABSENT)
                continue
            became = 2 if kind == 2 else 1 if found else 0
            offset = sum(event.cache == request.cache_id and event.segment == segment for event in self.log)
            self.log.append(
                Happened(self.next_id, request.cache_id, segment, offset, became, key, value, header, found[1] if found else b"")
            )
            if kind == 2:
                del self.state[request.cache_id, key]
            else:
                self.state[request.cache_id, key] = (self.next_id, value)
            ids.append(self.next_id)
            kinds.append(became)
            self.next_id += ID_STEP
        return ids, kinds

    # ------------------------------------------------------------ entries

    def on_get(self, exchange: Exchange) -> None:
        request, message = exchange.message.get, Message()
        message.get_answer.SetInParent()
        found = self.state.get((request.cache_id, request.key))
        if found is not None:
            message.get_answer.found, message.get_answer.version, message.get_answer.value = True, *found
        exchange.answer(message)

    def on_size(self, exchange: Exchange) -> None:
        message = Message()
        message.size_answer.size = sum(cache == exchange.message.size.cache_id for cache, _ in self.state)
        exchange.answer(message)

    def on_clear(self, exchange: Exchange) -> None:
        message, limit = Message(), 3
        own = [place for place in self.state if place[0] == exchange.message.clear.cache_id]
        for place in own[:limit]:
            del self.state[place]
        message.clear_answer.removed, message.clear_answer.more = min(len(own), limit), len(own) > limit
        exchange.answer(message)

    async def on_get_many(self, exchange: Exchange) -> None:
        request, body = exchange.message.get_many, exchange.body
        offsets = np.frombuffer(body[: 4 * (request.count + 1)], "<i4").tolist()
        data = bytes(body[4 * (request.count + 1) :])
        keys = [data[low:high] for low, high in pairwise(offsets)]
        await self.send_rows(exchange, [(key, *self.state.get((request.cache_id, key), (0, b""))) for key in keys])

    async def on_keys(self, exchange: Exchange) -> None:
        request = exchange.message.keys
        chosen = list(request.segments) or list(range(self.segments))
        after = (chosen[0], request.after) if request.HasField("after") else (-1, b"")
        own = sorted(
            (self.segment(key), key, *found)
            for (cache, key), found in self.state.items()
            if cache == request.cache_id and key.startswith(request.prefix) and self.segment(key) in chosen
        )
        await self.send_rows(exchange, [row[1:] for row in own if row[:2] > after][: request.limit or None])

    def segment(self, key: bytes) -> int:
        return segment_of(hash_key(key), self.segments)

    async def send_rows(self, exchange: Exchange, rows: list[tuple[bytes, int, bytes]]) -> None:
        try:
            for low in range(0, len(rows), 7):
                part = rows[low : low + 7]
                columns = Columns(kinds=np.full(len(part), 4, np.uint8), keys=[row[0] for row in part], values=[row[2] for row in part])
                block, _ = build_blocks(columns, np.array([len(part)]))
                message = Message()
                message.stream_item.entries.count = len(part)
                await exchange.credit()
                exchange.stream_send(message, np.array([row[1] for row in part], "<i8").tobytes(), bytes(block))
        except EventLogError:
            pass
        exchange.stream_end()

    # ------------------------------------------------------------ events

    @property
    def low_watermark(self) -> int:
        return self.next_id - ID_STEP

    def on_log_ends(self, exchange: Exchange) -> None:
        message = Message()
        own = [event.id for event in self.log if event.cache == exchange.message.log_ends.cache_id and event.id > self.trimmed_id]
        message.log_ends_answer.first_id, message.log_ends_answer.last_id = own[0] if own else 0, self.low_watermark
        message.log_ends_answer.events = len(own)
        exchange.answer(message)

    def read(self, poll: pb.Poll) -> tuple[pb.PollAnswer, list[bytes]]:
        after = poll.after
        if poll.position:
            position = token.decode(poll.position)
            assert isinstance(position.at, int)
            after = position.at
        if after < self.trimmed_id:
            if after > 0 and not poll.earliest:
                raise EventsTrimmed(first_id=self.trimmed_id + ID_STEP, lost=1)
            after = self.trimmed_id
        limit = min(poll.until_id or self.low_watermark, self.low_watermark)
        own = [event for event in self.log if event.cache == poll.cache_id and after < event.id <= limit]
        own = [event for event in own if not poll.segments or event.segment in poll.segments]
        taken = own[: min(self.answer_events, poll.max_events or self.answer_events)]
        if poll.notify:
            taken = []
        last = taken[-1].id if len(taken) < len(own) and taken else max(limit, after)
        answer = pb.PollAnswer(last_id=last, end=len(taken) == len(own), events=len(taken), low_watermark=self.low_watermark)
        answer.position = token.encode(Position(cluster=self.cluster, cache_id=poll.cache_id, segments=self.segments, at=last))
        return answer, self.body(answer, taken)

    def body(self, answer: pb.PollAnswer, events: list[Happened]) -> list[bytes]:
        if not events:
            return []
        ordered = sorted(events, key=lambda event: (event.segment, event.id))
        runs: list[list[int]] = []
        for event in ordered:
            if runs and runs[-1][0] == event.segment and runs[-1][2] + runs[-1][1] * ID_STEP == event.id:
                runs[-1][1] += 1
            else:
                runs.append([event.segment, 1, event.id, event.offset])
        table = np.zeros(len(runs), RUN)
        for column, name in enumerate(("segment", "count", "base", "first_offset")):
            table[name] = [run[column] for run in runs]
        columns = Columns(
            kinds=np.array([event.kind for event in ordered], np.uint8),
            keys=[event.key for event in ordered],
            values=[event.value for event in ordered],
            before=[event.before for event in ordered] if any(event.before for event in ordered) else None,
            headers=[event.headers for event in ordered] if any(event.headers for event in ordered) else None,
        )
        block, _ = build_blocks(columns, np.array([len(ordered)]))
        parts = [table.tobytes(), bytes(block)]
        answer.parts.add(form=pb.Part.JOINED, length=sum(map(len, parts)), runs=len(runs), events=len(ordered))
        return parts

    async def on_poll(self, exchange: Exchange) -> None:
        poll, message = exchange.message.poll, Message()
        try:
            answer, body = self.read(poll)
            if answer.last_id <= poll.after and poll.wait_ms:
                await self.wait_for_news(exchange, poll.wait_ms / 1000)
                answer, body = self.read(poll)
        except EventLogError as error:
            exchange.fail(error)
            return
        message.poll_answer.CopyFrom(answer)
        exchange.answer(message, *body)

    async def wait_for_news(self, exchange: Exchange, seconds: float) -> None:
        news = asyncio.Event()
        self.news.append(news)
        exchange.on_end = news.set
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            pass
        finally:
            self.news.remove(news)

    async def on_watch(self, exchange: Exchange) -> None:
        watch = exchange.message.watch
        poll = pb.Poll()
        poll.CopyFrom(watch.poll)
        try:
            while True:
                message = Message()
                answer, body = self.read(poll)
                message.stream_item.poll_answer.CopyFrom(answer)
                await exchange.credit()
                exchange.stream_send(message, *body)
                poll.after = answer.last_id
                if answer.end and not watch.follow:
                    break
                if answer.end:
                    await self.wait_for_news(exchange, 60)
        except EventsTrimmed as error:
            exchange.fail(error)
            return
        except EventLogError:
            pass
        exchange.stream_end()


@asynccontextmanager
async def running(node: FakeNode, *, port: int = 0, dispatch: Callable[[Exchange], None] | None = None) -> AsyncIterator[str]:
    """Serve a node; its address. `dispatch` takes the requests that come to this address."""
    server = Server(dispatch or (lambda exchange: node.dispatch(exchange)))  # noqa: PLW0108 -- tests exchange node.dispatch
    await server.start("127.0.0.1", port)
    try:
        host, port = server.addresses[0]
        yield f"{host}:{port}"
    finally:
        for task in list(node.tasks):
            task.cancel()
        await server.stop(grace_ms=0)
