"""One shard of a mirror in one term: opens a producer, learns how far it is, and copies transaction by transaction until cancelled.

The order at the start is what makes it exactly once: the producer is opened first, which fences the predecessor and ends what it left open;
the end of the progress topic is asked for behind that; then everything up to there is read. What fails is decided in `mirror.outcomes`.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec

from eventlog.arrays import Ints
from eventlog.batch.columns import EventColumns, columns_of_joined
from eventlog.batch.join import Joined
from eventlog.errors import EventLogError, ListenerNotFound
from eventlog.integrations.kafka.incremental import Incremental
from eventlog.integrations.kafka.source import LogReading, SegmentsAnswer, lifted
from eventlog.kafka.envelope import laid_out, rows_without_before
from eventlog.kafka.shape import Shape
from eventlog.limits import (
    BATCH_BYTES_CAP,
    MIRROR_BATCH_BYTES_MAX,
    MIRROR_SHARDS_MAX,
    MIRROR_TRANSACTION_BYTES_MAX,
    MIRROR_TRANSACTION_EVENTS_MAX,
)
from eventlog.mirror import progress, signals
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Kafka, TransactionWriter, Trouble
from eventlog.mirror.letters import Parted, Room, parted, too_large
from eventlog.mirror.outcomes import MADE_ANEW, NOT_ALLOWED, Reaction, ShardState, give_way, outcome_of, outcome_of_error
from eventlog.mirror.progress import SnapshotProgress, StaleTerm
from eventlog.mirror.report import Report
from eventlog.mirror.shards import segments_of, transactional_id
from eventlog.read import token
from eventlog.read.position import Position, SegmentPositions
from eventlog.read.state import Overlap
from eventlog.wire.flow import ProcessBudget

log = logging.getLogger("eventlog.mirror")
_GIVE_WAY_S: Final = (5.0, 8.0)  # before a shard that was fenced looks whether it is still its own
_PAUSE_S, _PAUSE_S_MAX = 1.0, 30.0
_PATIENCE_S: Final = 5.0  # what takes longer, the brokers are asked about
_ACKNOWLEDGED_S: Final = 1.0
_LOOKS, _LOOK_AGAIN_S = 6, 1.0
_SAVED_S: Final = 1.0
_IDLE_S, _IDLE_S_MAX = 5.0, 60.0  # after which a shard with nothing to write moves on what it holds back
_INLINE_EVENTS: Final = 200  # fewer are laid out faster than a thread is asked
_HELD_TRANSACTIONS: Final = 2
BUDGET_BYTES: Final = _HELD_TRANSACTIONS * MIRROR_TRANSACTION_BYTES_MAX * MIRROR_SHARDS_MAX
assert BUDGET_BYTES <= 128 << 20, "what one mirror holds of events at one node stays small beside the node"


Made = TypeVar("Made")


class Stopped(Exception):
    """The shard has an outcome that is no error of Kafka's."""

    def __init__(self, outcome: Reaction) -> None:
        super().__init__(outcome.why)
        self.outcome = outcome


class SignalSource(Protocol):
    """Signals as they come."""

    async def next(self, cache: str, after: int) -> int:
        """Return the id of the first signal behind another that asks for a cache, as soon as there is one."""
        ...


class ShardGround(Protocol):
    """What a shard needs of the node around it."""

    @property
    def cluster(self) -> str: ...

    @property
    def segments(self) -> int: ...

    @property
    def budget(self) -> ProcessBudget:
        """What all shards of the node hold of what they have read."""
        ...

    @property
    def signals(self) -> SignalSource:
        """What clients ask of mirrors."""
        ...

    def wall_ms(self) -> int:
        """Return the time, in milliseconds since 1970."""
        ...

    def source(self, mirror: Mirror) -> AbstractAsyncContextManager[LogReading]:
        """The events of a mirror, read until the end of the block."""
        ...

    async def has_begun(self, mirror: Mirror, shard: int) -> bool:
        """Return whether it was noted that a shard has written since the mirror's beginning."""
        ...

    async def note_begun(self, mirror: Mirror, shard: int) -> None:
        """Note that it has."""
        ...

    async def telling(self, mirror: Mirror) -> Shape:
        """Return how a mirror's events are told. Raises CacheNotFound: the cache is not there, or is another one of the name."""
        ...


class Shard:
    """A shard, and what it shows."""

    def __init__(self, ground: ShardGround, open_kafka: Callable[[str], Kafka], *, mirror: Mirror, report: Report) -> None:
        self._ground = ground
        self._open_kafka = open_kafka
        self._mirror = mirror
        self.report = report
        self._wanted: tuple[ShardState, str] = "starting", ""
        self._is_owed = False  # Kafka has not taken a transaction, and none since: this is what the shard shows
        self._set(*self._wanted)

    def _set(self, state: ShardState, why: str) -> None:
        report = self.report
        if (state, why) != (report.state, report.why) or not report.since_ms:
            report.state, report.why, report.since_ms = state, why, self._ground.wall_ms()
            if why:
                log.warning("mirror_%s mirror=%s shard=%d why=%s", state, self._mirror.name, report.shard, why)

    async def run(self) -> None:
        """Copy until cancelled; what needs a person is waited for, and what does not is tried again."""
        pause_s = _PAUSE_S
        while True:
            before = self.report.transactions
            outcome = await self._once()
            self._set(outcome.state, outcome.why)
            if outcome.next == "stop":
                await asyncio.Event().wait()  # until it is resumed or reset, which has it begun anew
            if outcome.next == "yield":
                await asyncio.sleep(random.uniform(*_GIVE_WAY_S))  # noqa: S311 -- not for secrets
                continue
            pause_s = _PAUSE_S if self.report.transactions > before else min(2 * pause_s, _PAUSE_S_MAX)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 -- likewise

    async def _once(self) -> Reaction:
        """Copy until something ends it; return what comes next."""
        mirror = self._mirror
        try:
            return await self._copy()
        except Stopped as stopped:
            return stopped.outcome
        except StaleTerm:
            return give_way("another node runs this shard in a later term")
        except Trouble as trouble:
            return outcome_of(trouble, topic=mirror.topic)
        except EventLogError as error:
            return outcome_of_error(error, mirror=mirror.name)
        except Exception as bug:  # the edge of the shard: whoever asks what it does must hear of it
            log.exception("mirror_failed mirror=%s shard=%d", mirror.name, self.report.shard)
            why = f"a fault of the node's, {type(bug).__name__}: its log says where; the shard tries again"
            return Reaction(next="anew", state="waiting", why=why)

    async def _copy(self) -> Reaction:
        mirror, ground = self._mirror, self._ground
        shape = await ground.telling(mirror)
        kafka = self._open_kafka(mirror.kafka)
        await self._check_topics(kafka)
        room = Room(batch_bytes=MIRROR_BATCH_BYTES_MAX, topic_bytes=await self._record_bytes_max(kafka))
        own = segments_of(self.report.shard, mirror, segments=ground.segments)
        async with AsyncExitStack() as stack:
            async with self._patient(kafka):
                writer = await stack.enter_async_context(kafka.writer(transactional_id(ground.cluster, mirror, self.report.shard)))
                records = progress.of_shard(await kafka.records(mirror.progress_topic), mirror, self.report.shard, of=own)
            cluster, term = ground.cluster, self.report.term
            snapshot = progress.snapshot_of(records, mirror, self.report.shard, cluster=cluster, term=term)
            async with ground.source(mirror) as source:
                has_begun = await self._check_progress(kafka, records, own, source)
                is_whole = all(progress.are_told(records, mirror, own))
                first = signals.beginning(cluster=cluster, cache_id=mirror.cache_id, segments=ground.segments, of=own)
                asked = progress.signal_of(records, mirror, self.report.shard, cluster=cluster, term=term)
                incremental = Incremental(source, asked, begin=first)
                copying = _Copying(
                    self, (kafka, writer), source, incremental, shape=shape, room=room, has_begun=has_begun, is_whole=is_whole
                )
                with closing(copying):
                    done = await copying.snapshot(snapshot, own) if mirror.has_snapshot else None
                    begin = done.at if done is not None and isinstance(done.at, SegmentPositions) else None
                    return await copying.run(progress.places(records, mirror, of=own, begin=begin, cluster=cluster, term=term))

    async def _check_progress(self, kafka: Kafka, records: dict[bytes, bytes], own: Ints, source: LogReading) -> bool:
        """Return whether the shard has written events or entries since the mirror's beginning.

        Raises:
            Stopped: it has, and topics do not show it any more.
        """
        mirror, shard = self._mirror, self.report.shard
        has_begun = await self._ground.has_begun(mirror, shard)
        if has_begun and await kafka.is_new(mirror.topic, sorted(set((own % mirror.partitions).tolist()))):
            raise Stopped(Reaction(next="stop", state="halted", why=MADE_ANEW.format(topic=mirror.topic)))
        if progress.is_lost(records, mirror, shard, of=own, has_begun=has_begun):
            upto = max(await source.acknowledged(), mirror.from_id)
            to = "snapshot" if mirror.has_snapshot and upto == mirror.from_id else upto  # whether all entries are there nobody knows
            why = (
                f"topic {mirror.progress_topic} has lost how far mirror {mirror.name} is, which is at least at id {upto}: pause it, "
                f"eventlog mirror reset {mirror.name} --to {to}, and resume it; what it wrote behind that comes again"
            )
            raise Stopped(Reaction(next="stop", state="halted", why=why))
        return has_begun

    async def _record_bytes_max(self, kafka: Kafka) -> int:
        try:
            return await kafka.record_bytes_max(self._mirror.topic)
        except Trouble as trouble:
            if trouble.code != NOT_ALLOWED or self._mirror.has_letters:
                raise
            return BATCH_BYTES_CAP  # who may write may not ask; what is too large Kafka says itself

    async def _check_topics(self, kafka: Kafka) -> None:
        mirror, wanted = self._mirror, self._mirror.topics()
        found: dict[str, int] = {}
        for _ in range(_LOOKS):
            found = await kafka.partitions(list(wanted))
            if len(found) == len(wanted):
                break
            await asyncio.sleep(_LOOK_AGAIN_S)  # a broker that has just begun may not know of it yet
        for topic, partitions in wanted.items():
            if topic not in found:
                why = f"topic {topic} was deleted: eventlog mirror remove {mirror.name}, and add it again"
                raise Stopped(Reaction(next="stop", state="halted", why=why))
            if found[topic] != partitions:
                why = (
                    f"topic {topic} has {found[topic]} partitions, and not the {partitions} that it had: remove the mirror, and add another"
                )
                raise Stopped(Reaction(next="stop", state="halted", why=why))

    @asynccontextmanager
    async def _patient(self, kafka: Kafka, *, is_owed: bool = False) -> AsyncIterator[None]:
        """Ask the brokers what keeps them, where the block takes long, and show it; clients of Kafka repeat most refusals without a word.

        Raises:
            Trouble: that of the block, or what the brokers said where that one was only that nobody answered.
        """
        heard: list[Trouble] = []

        async def ask() -> None:
            while True:
                await asyncio.sleep(_PATIENCE_S)
                try:
                    await kafka.check_writable(list(self._mirror.topics()))
                except Trouble as trouble:
                    heard.append(trouble)
                    outcome = outcome_of(trouble, topic=self._mirror.topic)
                    if outcome.state == "waiting":
                        self._is_owed |= is_owed
                        self._set(outcome.state, outcome.why)
                except EventLogError:
                    log.debug("mirror_asks_nobody mirror=%s", self._mirror.name, exc_info=True)  # what is done meanwhile will tell
                else:
                    heard.clear()

        asking = asyncio.create_task(ask(), name="mirror asking")
        try:
            yield
        except Trouble as trouble:
            if trouble.code is None and heard:
                raise heard[-1] from trouble
            raise
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    # ------------------------------------------------------------ what the copying tells

    async def commit(self, kafka: Kafka, writing: Coroutine[Any, Any, None]) -> None:
        """Wait for a transaction. What keeps Kafka from taking it is shown until one is taken. Raises Trouble."""
        try:
            async with self._patient(kafka, is_owed=True):
                await writing
        except Trouble as trouble:
            self.report.aborts += 1
            self._is_owed = outcome_of(trouble, topic=self._mirror.topic).state == "waiting"
            raise
        self.owes_nothing()

    @property
    def is_owed(self) -> bool:
        """Whether Kafka has not taken a transaction, and none since."""
        return self._is_owed

    def owes_nothing(self) -> None:
        """Note that Kafka has everything, or takes it again."""
        if self._is_owed:
            self._is_owed = False
            self._set(*self._wanted)

    @property
    def mirror(self) -> Mirror:
        """What is copied."""
        return self._mirror

    @property
    def term(self) -> int:
        """The epoch of the shard's home in which it runs."""
        return self.report.term

    @property
    def budget(self) -> ProcessBudget:
        """What all shards of the node hold of what they have read."""
        return self._ground.budget

    @property
    def cluster(self) -> str:
        """The id of the cluster."""
        return self._ground.cluster

    async def begun(self) -> None:
        """Note that there are events or entries of the shard in Kafka."""
        await self._ground.note_begun(self._mirror, self.report.shard)

    async def signalled(self, after: int) -> int:
        """Return the id of the next signal behind another that asks for the mirror's entries, as soon as there is one."""
        return await self._ground.signals.next(self._mirror.cache, after)

    def wall_ms(self) -> int:
        """Return the time, in milliseconds since 1970."""
        return self._ground.wall_ms()

    def runs(self, state: ShardState = "running", *, still: frozenset[int] = frozenset()) -> None:
        """Note that events can be copied, or entries are; of segments that stand `still` there are none at the moment."""
        self.report.still = still
        named = ", ".join(map(str, sorted(still)))
        self._wanted = state, f"nobody leads segment {named}: what is in others goes on" if named else ""
        if not self._is_owed:
            self._set(*self._wanted)

    def written(self, events: int, made: Parted) -> None:
        """Count a transaction."""
        self.report.wrote(events, sum(batch.nbytes for batch in made.batches), now=asyncio.get_running_loop().time())
        self.report.dead_letters += sum(batch.count for batch in made.letters)

    def stands(self, upto: int, position: bytes) -> None:
        """Note up to where everything is in Kafka."""
        self.report.upto, self.report.position = max(self.report.upto, upto), position


@dataclass(slots=True, kw_only=True)
class _Taken:
    """Answers that are to go into one transaction."""

    answers: list[SegmentsAnswer] = field(default_factory=list)
    events: int = 0
    nbytes: int = 0

    def add(self, answer: SegmentsAnswer) -> None:
        self.answers.append(answer)
        self.events += answer.events
        self.nbytes += answer.nbytes

    @property
    def parts(self) -> list[Joined]:
        return [part for answer in self.answers for part in answer.parts]

    @property
    def is_full(self) -> bool:
        return self.events >= MIRROR_TRANSACTION_EVENTS_MAX or self.nbytes >= MIRROR_TRANSACTION_BYTES_MAX


class _Copying:
    """Reads ahead while a transaction is written, at most one transaction more."""

    def __init__(
        self,
        shard: Shard,
        kafka: tuple[Kafka, TransactionWriter],
        source: LogReading,
        incremental: Incremental,
        *,
        shape: Shape,
        room: Room,
        has_begun: bool,
        is_whole: bool,
    ) -> None:
        self._shard = shard
        self._kafka, self._writer = kafka
        self._source = source
        self._incremental = incremental
        self._shape = shape
        self._asked_shape = replace(shape, snapshot="incremental")
        self._room = room
        self._has_begun = has_begun
        self._is_whole = is_whole  # the progress has a record of each segment
        self._next = _Taken()
        self._held_bytes = 0  # of the node's budget
        self._has_some = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_full = asyncio.Event()
        self._acknowledged_at = self._began_at = 0.0
        self._acknowledged: SegmentPositions | None = None
        self._idle_s: float | None = _IDLE_S  # None: it need not look again before something comes
        self._overlap: Overlap | None = None
        self._saved = 0, 0.0  # up to which id the progress says that nothing matched, and when that was written

    async def snapshot(self, found: SnapshotProgress, of: Ints) -> Position | None:
        """Copy the entries that are not in Kafka yet, and return where the events behind them begin.

        Where what was read had to be read anew, as of later, events that it had already are left out of those.
        """
        position, is_done = found.position, found.is_done
        while not is_done:
            self._shard.runs("snapshot")
            taken = _Taken()
            while not (taken.is_full or is_done or (taken.answers and not self._has_budget(taken.answers[-1]))):
                taken.add(answer := await self._source.entries(position, of))
                self._hold(answer)
                position = answer.position
                is_done = position is None or not position.unread
            await self._save_entries(taken, position, is_done=is_done)
        if position is not None and position.steps:
            self._overlap = Overlap(position.steps)
        return position

    async def _save_entries(self, taken: _Taken, position: Position | None, *, is_done: bool) -> None:
        shard = self._shard
        made = Parted([], [])
        if taken.events:
            made = await self._apart(taken.events, partial(self._batches, columns_of_joined(taken.parts), self._shape))
        record = SnapshotProgress(
            cluster=shard.cluster,
            generation=shard.mirror.generation,
            term=shard.term,
            token="" if position is None else token.to_text(position),
            is_done=is_done,
        )
        await self._commit(made, {progress.snapshot_key(shard.mirror, shard.report.shard): msgspec.json.encode(record)})
        shard.written(taken.events, made)
        await self._begun(made)
        self._let_go(taken.nbytes)

    async def run(self, at: SegmentPositions) -> Reaction:
        """Copy what follows a place until the writer is worn. Raises whatever ends it before."""
        reading = asyncio.create_task(self._read(at), name="mirror reading")
        self._committed = at
        try:
            self._shard.runs()
            self._shard.stands(int(at.ids.min()), self._source.token(at))
            if self._shard.is_owed:
                at = await self._idle(at)  # what became of the last transaction nobody knew: it may have been taken
            while not self._writer.is_worn:
                is_asked = self._incremental.is_open and self._is_past_overlap(at)
                if await self._wait(reading, self._incremental.pause_s() if is_asked else self._idle_s):
                    await self._keep_interval()
                    at = await self._write(at)
                    self._idle_s = _IDLE_S
                elif not is_asked:
                    at = await self._idle(at)
                    is_let_go = self._acknowledged is at and not self._shard.mirror.filter
                    self._idle_s = None if is_let_go else min(2 * (self._idle_s or _IDLE_S), _IDLE_S_MAX)
                if is_asked and not self._incremental.pause_s():
                    await self._tell_entries(at)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            with suppress(EventLogError, TimeoutError):  # so that a mirror that stands still shows how far it is
                async with asyncio.timeout(_ACKNOWLEDGED_S):
                    await self._source.acknowledge(self._committed)
        return Reaction(next="anew", state="starting", why="")

    async def _keep_interval(self) -> None:
        """Return an interval after the last transaction began, or once another one is full: events come at that pace, too."""
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._began_at + self._shard.mirror.interval_ms / 1000):
                await self._is_full.wait()
        self._began_at = loop.time()

    def _is_past_overlap(self, at: SegmentPositions) -> bool:
        """Return whether no event that comes is left out, since the snapshot at the beginning had it."""
        return self._overlap is None or int(at.ids.min()) >= self._overlap.upto

    async def _tell_entries(self, at: SegmentPositions) -> None:
        """Write a part of the entries that a signal asks for, behind everything up to a place."""
        part = await self._incremental.read(at, at.of)
        if part is None:
            return
        shard, mirror = self._shard, self._shard.mirror
        self._held_bytes += part.nbytes
        shard.budget.take(part.nbytes)
        events = 0 if part.events is None else len(part.events)
        made = Parted([], []) if part.events is None else await self._apart(events, partial(self._batches, part.events, self._asked_shape))
        records = {} if self._is_whole else self._records(at, range(len(at.of)))
        records[progress.signal_key(mirror, shard.report.shard)] = msgspec.json.encode(part.progress)
        await self._commit(made, records)
        self._is_whole = True
        self._incremental.progress = part.progress
        shard.written(events, made)
        await self._begun(made)
        self._let_go(part.nbytes)

    async def _read(self, at: SegmentPositions) -> None:
        answers: AsyncGenerator[SegmentsAnswer, None] = self._source.answers(at)
        async with aclosing(answers):
            async for answer in answers:
                while self._next.is_full or (self._next.answers and not self._has_budget(answer)):
                    self._is_full.set()  # what is there is written at once, and there is room for one again
                    self._has_room.clear()
                    await self._has_room.wait()
                self._shard.runs(still=answer.still)
                self._keep(answer)

    def _has_budget(self, answer: SegmentsAnswer) -> bool:
        """Whether another one fits what all mirrors of the node may hold. Whoever has none for the next transaction takes one anyway."""
        return self._shard.budget.has_room(answer.nbytes)

    def _hold(self, answer: SegmentsAnswer) -> None:
        self._held_bytes += answer.nbytes
        self._shard.budget.take(answer.nbytes)

    def _let_go(self, nbytes: int) -> None:
        self._held_bytes -= nbytes
        self._shard.budget.give(nbytes)

    def close(self) -> None:
        """Give back what is held."""
        self._let_go(self._held_bytes)

    def _keep(self, answer: SegmentsAnswer) -> None:
        self._next.add(answer)
        self._hold(answer)
        self._has_some.set()
        if self._next.is_full:
            self._is_full.set()

    async def _wait(self, reading: "asyncio.Task[None]", within_s: float | None) -> bool:
        """Return whether there is something to write before a while is over, or a signal comes. Raises what ended the reading."""
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._has_some.wait())]
        if not self._incremental.is_open:
            waiting.append(asyncio.create_task(self._open_next()))
        try:
            await asyncio.wait([*waiting, reading], timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._has_some.is_set():
            return True
        if reading.done():
            await reading
        return False

    async def _open_next(self) -> None:
        """Begin with the next signal, as soon as there is one."""
        self._incremental.open(await self._shard.signalled(self._incremental.progress.signal))

    async def _write(self, at: SegmentPositions) -> SegmentPositions:
        """Write a transaction with what was read by now; return the place behind it."""
        taken, self._next = self._next, _Taken()
        self._has_some.clear()
        self._is_full.clear()
        self._has_room.set()
        if taken.events:
            made, behind, rows = await self._apart(taken.events, partial(self._laid_out, taken, at))
            await self._commit(made, self._records(behind, rows if self._is_whole else range(len(behind.of))))
            self._is_whole = True
            self._shard.written(taken.events, made)
            await self._begun(made)
            at = behind
        self._let_go(taken.nbytes)
        return await self._stand(at, taken.answers)

    async def _begun(self, made: Parted) -> None:
        if made.batches and not self._has_begun:
            await self._shard.begun()
            self._has_begun = True

    def _records(self, at: SegmentPositions, rows: Iterable[int]) -> dict[bytes, bytes]:
        return progress.records_of(self._shard.mirror, at, rows, cluster=self._shard.cluster, term=self._shard.term)

    async def _commit(self, made: Parted, records: dict[bytes, bytes]) -> None:
        mirror = self._shard.mirror
        batches = {mirror.topic: made.batches, mirror.letters_topic: made.letters}
        await self._shard.commit(self._kafka, self._writer.write(batches, progress_topic=mirror.progress_topic, progress=records))

    @staticmethod
    async def _apart(events: int, work: Callable[[], Made]) -> Made:
        """Return what `work` makes of so many events: in a thread, unless starting it costs more than the work."""
        return work() if events < _INLINE_EVENTS else await asyncio.to_thread(work)

    def _laid_out(self, taken: _Taken, at: SegmentPositions) -> tuple[Parted, SegmentPositions, list[int]]:
        events = columns_of_joined(taken.parts)
        order = events.segments.argsort(kind="stable")
        behind, rows = progress.moved(
            at, segments=events.segments[order], ids=events.ids[order], offsets=events.offsets[order], epochs=events.epochs[order]
        )
        if self._overlap is not None:
            events = events.take(self._overlap.keep(events.segments, events.ids, events.keys.to_list()))
        return self._batches(events, self._shape), behind, rows.tolist()

    def _batches(self, events: EventColumns, shape: Shape) -> Parted:
        mirror = self._shard.mirror
        if shape.form == "debezium" and len(rows := rows_without_before(events, shape)):
            first, name = events.ids.item(rows.item(0)), mirror.name
            why = (
                f"event {first} does not say what it replaced: to go on behind it pause the mirror, "
                f"eventlog mirror reset {name} --to {first}, and resume it; or add one with --format upsert"
            )
            raise Stopped(Reaction(next="stop", state="halted", why=why))
        now_ms = self._shard.wall_ms()
        if mirror.has_letters:
            return parted(events, shape, partitions=mirror.partitions, now_ms=now_ms, room=self._room)
        laid = laid_out(events, shape, partitions=mirror.partitions, now_ms=now_ms, bytes_max=self._room.bytes_max)
        for row, _, reason in too_large(laid, events, topic_bytes=self._room.topic_bytes):
            why = (
                f"event {events.ids.item(row)} is {reason}: raise its max.message.bytes, then eventlog mirror resume {mirror.name}; "
                f"or eventlog mirror alter {mirror.name} --on-too-large dead-letter"
            )
            raise Stopped(Reaction(next="stop", state="halted", why=why))
        return Parted(laid.batches, [])

    async def _idle(self, at: SegmentPositions) -> SegmentPositions:
        """Learn that there was nothing for a while: who holds retention back must not stand where nothing comes any more."""
        found = await self._source.end(at)
        if found.events or self._has_some.is_set():
            return at
        self._shard.owes_nothing()
        return await self._stand(at, [found])

    async def _stand(self, at: SegmentPositions, answers: Sequence[SegmentsAnswer]) -> SegmentPositions:
        is_filtered = bool(self._shard.mirror.filter)
        for answer in {None if answer.of is None else answer.of.tobytes(): answer for answer in answers}.values():  # the last of each kind
            at = lifted(at, answer.upto, of=answer.of, is_filtered=is_filtered)
        upto, now = int(at.ids.min()), asyncio.get_running_loop().time()
        if is_filtered and upto > self._saved[0] and now - self._saved[1] >= _SAVED_S:
            # else a successor would look for what retention may have taken since
            await self._commit(Parted([], []), self._records(at, range(len(at.of))))
            self._saved = upto, now
        self._shard.stands(upto, self._source.token(at))
        self._committed = at
        if now - self._acknowledged_at >= _ACKNOWLEDGED_S:
            self._acknowledged_at = now
            with suppress(ListenerNotFound):  # nothing is held for it any more, and it goes on
                await self._source.acknowledge(at)
            self._acknowledged = at
        return at
