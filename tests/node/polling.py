"""A node for readers alone: a memory store, a log that tests write by hand, exchanges without a wire."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.batch.views import decode_block, decode_value
from eventlog.control.records import CacheOptions
from eventlog.errors import ClientClosed, EventLogError
from eventlog.events import Kind
from eventlog.ids import ID_STEP, TIME_SHIFT
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.closing import CLOSING_TIMES, Closing, ClosingTimes
from eventlog.node.reading.column_files import ColumnFiles
from eventlog.node.reading.pulls import READ_PACE, ReadPace
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.workers import ThreadWorker
from eventlog.read.answer import CacheValues, CommittedGroup
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.read.watermark import LowWatermark, Promise, Promises
from eventlog.segment.keys import encode_step, log_keys, log_range
from eventlog.segment.memory import open_store
from eventlog.state.caches import Caches, CacheState, new_cache
from eventlog.wire.eventlog_pb2 import Message, Part, Poll, PollAnswer, Watch
from eventlog.wire.frames import SharedFrame
from tests.loops import WITHIN_S

START_MS = 1_000_000  # since 2020
NODE_NUMBER = 7


@dataclass(frozen=True, kw_only=True)
class Row:
    """One event as a test sees it."""

    id: int
    segment: int
    offset: int
    key: bytes
    value: bytes
    epoch: int = 1


class HandClock:
    """A clock that tests move; promises made by it are counted."""

    def __init__(self, node: Any) -> None:
        self._node = node

    @property
    def last(self) -> int:
        return self._node.last_id

    def close_up(self, upto: int | None = None, *, vouched: object = None) -> int:
        del vouched
        node = self._node
        node.closings += 1
        node.last_id = max(node.last_id, (node.now_ms << TIME_SHIFT) - 1, upto or 0)
        return node.last_id


class FakeHowFar:
    """Takes for what primaries say what reading knows: where nobody is cut off or deposed it is the same."""

    def __init__(self, reads: Reads) -> None:
        self.end = reads.end
        self._reads = reads

    async def ask(self, segments: Sequence[int] = ()) -> int:
        return await self._reads.end_known(np.array(segments) if segments else None)


@dataclass
class FakeNode:
    """What `ReadContext` asks for, and `write` as the one way in."""

    segments: int = 4
    tail_bytes: int = 1 << 20
    step_events: int = 20
    step_bytes: int = 1 << 20
    history_bytes: int = 1 << 20
    cluster: str = "test"
    number: int = 1
    leads: tuple[int, ...] | None = None  # segments; None: all
    files: ColumnFiles | None = None
    pace: ReadPace = READ_PACE
    closing_times: ClosingTimes = CLOSING_TIMES
    rows: dict[int, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = open_store("", segments=self.segments)
        self.caches = Caches()
        self.tail = Tail(bytes_max=self.tail_bytes)
        self.steps = StepIndex(step_events=self.step_events, step_bytes=self.step_bytes)
        self.low = LowWatermark(self.segments)
        self.promises = Promises(self.segments)
        led = np.arange(self.segments) if self.leads is None else np.array(self.leads, np.int64)
        self.promises.lead(led, epochs=np.ones(len(led), np.int64), last_ids=np.zeros(len(led), np.int64))
        self.now_ms = START_MS
        self.last_id = START_MS << TIME_SHIFT
        self.closings = 0
        self.tail.start(self.last_id)
        self.closing = Closing(
            clock=HandClock(self),
            promises=self.promises,
            low=self.low,
            believed=lambda *told: list(told[-1]),
            on_heard=lambda _, promises: self.heard(promises),
            times=self.closing_times,
        )
        self.heard: Callable[[Sequence[Promise]], None] = lambda _: self.reads.watermark_rose()
        self.reads = Reads(
            self, thread=ReaderThread(ThreadWorker("reader")), history_bytes_max=self.history_bytes, files=self.files, pace=self.pace
        )
        self.tasks: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------ ReadContext

    def now_2020(self) -> int:
        return self.now_ms

    def leader_of(self, segment: int) -> int:
        return NODE_NUMBER

    @property
    def how_far(self) -> FakeHowFar:
        return FakeHowFar(self.reads)

    def own(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # ------------------------------------------------------------ writing

    def cache(self, cache_id: int = 1, name: str = "orders", **options: Any) -> CacheState:
        cache = new_cache(cache_id=cache_id, name=name, options=CacheOptions(**options), from_id=0, segments=self.segments)
        self.caches.add(cache)
        self.rows[cache_id] = []
        return cache

    def stamp(self, *parts: tuple[CacheState, dict[int, list[bytes]]]) -> CommittedGroup:
        """Stamp and store a group without committing it; a part is a cache and the values of each segment."""
        first = (self.last_id >> 10) + 1 << 10 | self.number
        at, caches, segments = first, [], set()
        for cache, contents in parts:
            bases, counts, data = [], [], []
            for segment, items in sorted(contents.items()):
                bases.append(at)
                counts.append(len(items))
                data.append(self._value(cache, segment, at, items))
                at += max(len(items), 1) * ID_STEP
            of = sorted(contents)
            segments |= set(of)
            caches.append(CacheValues(cache_id=cache.cache_id, segments=of, bases=bases, counts=counts, data=data))
        group = CommittedGroup(first_id=first, last_id=at - ID_STEP, caches=tuple(caches))
        self.last_id = group.last_id
        self.promises.begin(np.array(sorted(segments)), first_id=first, last_id=group.last_id)
        for values in caches:
            log = zip(log_keys(values.segments, values.cache_id, values.bases), values.data, strict=True)
            last = values.bases[-1] + (max(values.counts[-1], 1) - 1) * ID_STEP
            steps = self.steps.add(values.cache_id, last, sum(values.counts), sum(map(len, values.data)))
            self.store.append(list(log), [encode_step(*row) for row in steps])
        return group

    def commit(self, group: CommittedGroup) -> None:
        for values in group.caches:
            cache = self.caches.find(values.cache_id)
            lasts = [base + (max(count, 1) - 1) * ID_STEP for base, count in zip(values.bases, values.counts, strict=True)]
            self.promises.commit(np.array(values.segments), np.array(lasts), upto=group.last_id)
            cache.next_offsets[values.segments] += np.array(values.counts)
            for segment, data in zip(values.segments, values.data, strict=True):
                self.rows[values.cache_id] += rows_of_value(segment, values.cache_id, data)
        self.reads.appended(group)

    def write(self, *parts: tuple[CacheState, dict[int, list[bytes]]]) -> None:
        self.commit(self.stamp(*parts))

    def _value(self, cache: CacheState, segment: int, base: int, items: list[bytes]) -> bytes:
        sections = []
        for low in range(0, len(items), 3):  # several clients' blocks in one value
            own = items[low : low + 3]
            columns = Columns(kinds=np.full(len(own), Kind.CREATED, np.uint8), keys=[b"k%d" % segment] * len(own), values=own)
            sections.append(bytes(build_blocks(columns, np.array([len(own)]))[0]))
        head = ValueHead(
            flags=0, sections=len(sections), epoch=1, count=len(items), bitmap=0, kinds=1,
            producers=0, base=base, first_offset=int(cache.next_offsets[segment]),
        )  # fmt: skip
        return encode_value(head, segment=segment, cache=cache.cache_id, sections=sections)

    def trim(self, cache: CacheState, cut: int) -> None:
        """Remove whole values at or below the id `cut`, as retention does."""
        kept = []
        for segment in range(self.segments):
            pairs = self.store.read_log(*log_range(segment, cache.cache_id, after=0, upto=cut), bytes_max=1 << 60)
            gone = [rows_of_value(segment, cache.cache_id, data) for _, data in pairs]
            gone = [rows for rows in gone if rows and rows[-1].id <= cut]
            if not gone:
                continue
            last = gone[-1][-1]
            cache.trimmed_ids[segment], cache.trimmed_offsets[segment] = last.id, last.offset
            self.store.trim([log_range(segment, cache.cache_id, after=0, upto=last.id)], [])
        self.steps.trim(cache.cache_id, cut)
        kept = [row for row in self.rows[cache.cache_id] if row.offset > cache.trimmed_offsets[row.segment]]
        self.rows[cache.cache_id] = kept
        self.reads.trimmed(cache)


def rows_of_value(segment: int, cache_id: int, data: bytes) -> list[Row]:
    value = decode_value(segment, cache_id, data)
    keys, contents = [], []
    for block in value.blocks:
        keys += block.keys.to_list()
        contents += block.values.to_list()
    return [
        Row(id=id_, segment=segment, offset=value.head.first_offset + index, key=key, value=content, epoch=value.head.epoch)
        for index, (id_, key, content) in enumerate(zip(value.ids.tolist(), keys, contents, strict=True))
    ]


def rows_of_answer(answer: PollAnswer, body: bytes, cache_id: int = 1) -> list[Row]:
    """Return the events of an answer in the order of its parts."""
    found, at = [], 0
    for part in answer.parts:
        data = body[at : at + part.length]
        at += part.length
        if part.form == Part.STORED:
            found += rows_of_value(part.segment, cache_id, data)
            continue
        runs = np.frombuffer(data[: 32 * part.runs], RUN_FIELDS)
        block = decode_block(data[32 * part.runs :])
        assert block.count == part.events == int(runs["count"].sum())
        keys, contents = iter(block.keys.to_list()), iter(block.values.to_list())
        for segment, _, count, base, offset, epoch, _ in runs.tolist():
            found += [
                Row(id=base + i * ID_STEP, segment=segment, offset=offset + i, key=next(keys), value=next(contents), epoch=epoch)
                for i in range(count)
            ]
    assert at == len(body)
    assert len(found) == answer.events
    return found


RUN_FIELDS = np.dtype(
    [("segment", "<u2"), ("r", "<u2"), ("count", "<u4"), ("base", "<i8"), ("offset", "<i8"), ("epoch", "<u4"), ("r2", "<u4")]
)


class FakeExchange:
    """What a handler sees of a request. Streams have credits in items; `answers` is what was sent."""

    def __init__(self, message: Message, *, credits: int = 0, connection: object = "connection") -> None:
        self.message = message
        self.connection = connection
        self.has_room = True
        self.is_over = False
        self.on_end: Any = None
        self.answers: list[tuple[PollAnswer, bytes]] = []
        self.raw: list[tuple[bytes, tuple[bytes, ...]]] = []
        self.error: EventLogError | None = None
        self.ended = False
        self.credits = credits
        self.has_left = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def kind(self) -> str:
        return str(self.message.WhichOneof("kind"))

    # ------------------------------------------------------------ as handlers use it

    def answer(self, message: Message | bytes | SharedFrame, *buffers: bytes) -> None:
        assert not self.is_over, "answered twice"
        self.is_over = True
        self._keep(message, buffers)

    def fail(self, error: EventLogError) -> None:
        assert not self.is_over, "answered twice"
        self.is_over = True
        self.error = error
        self._changed.set()

    async def room(self) -> None:
        await self._room.wait()

    async def credit(self) -> None:
        while not self.credits:
            if self.has_left:
                raise ClientClosed(what="stream")
            self._changed.clear()
            await self._changed.wait()
        if self.has_left:
            raise ClientClosed(what="stream")
        self.credits -= 1

    def stream_send(self, message: Message | bytes | SharedFrame, *buffers: bytes) -> None:
        assert not self.is_over
        self._keep(message, buffers)

    def stream_end(self) -> None:
        assert not self.is_over, "ended twice"
        self.is_over = self.ended = True
        self._changed.set()

    def _keep(self, message: Message | bytes | SharedFrame, buffers: tuple[bytes, ...]) -> None:
        if isinstance(message, SharedFrame):
            message, buffers = message.message, tuple(map(bytes, message.body))
        whole = message if isinstance(message, Message) else Message.FromString(message)
        answer = whole.stream_item.poll_answer if whole.HasField("stream_item") else whole.poll_answer
        self.whole = whole
        self.raw.append((message, buffers))
        self.answers.append((answer, b"".join(buffers)))
        self._changed.set()

    # ------------------------------------------------------------ as tests drive it

    def give(self, credits: int) -> None:
        self.credits += credits
        self._changed.set()

    def give_room(self) -> None:
        self.has_room = True
        self._room.set()

    def leave(self) -> None:
        self.has_left = True
        self._changed.set()
        if self.on_end is not None:
            on_end, self.on_end = self.on_end, None
            on_end()

    async def until(self, count: int = 1) -> tuple[PollAnswer, bytes]:
        """Wait for so many answers, or the end; return the last."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.answers) < count and not self.is_over:
                self._changed.clear()
                await self._changed.wait()
        if self.error is not None:
            raise self.error
        return self.answers[-1] if self.answers else (PollAnswer(), b"")


def poll_exchange(**fields: Any) -> FakeExchange:
    return FakeExchange(Message(poll=Poll(cache_id=fields.pop("cache_id", 1), **fields)))


def watch_exchange(*, follow: bool = False, pace_ms: int = 0, credits: int = 1000, **fields: Any) -> FakeExchange:
    poll = Poll(cache_id=fields.pop("cache_id", 1), **fields)
    return FakeExchange(Message(watch=Watch(poll=poll, follow=follow, pace_ms=pace_ms)), credits=credits)
