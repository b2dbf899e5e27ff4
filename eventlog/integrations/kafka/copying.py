"""What a shard does in one term: it copies transaction by transaction, and reads ahead meanwhile.

What it learns is told as it comes (`Telling`); what fails ends it, and is decided in `mirror.shards`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec

from eventlog.arrays import Ints
from eventlog.batch.columns import EventColumns, columns_of_joined
from eventlog.batch.join import Joined
from eventlog.errors import EventLogError, ListenerNotFound
from eventlog.integrations.kafka.incremental import Incremental
from eventlog.integrations.kafka.source import SegmentsAnswer, Source, lifted
from eventlog.kafka.envelope import laid_out, rows_without_before
from eventlog.kafka.letters import Parted, Room, parted, too_large
from eventlog.kafka.shape import Shape
from eventlog.limits import MIRROR_SHARDS_MAX, MIRROR_TRANSACTION_BYTES_MAX, MIRROR_TRANSACTION_EVENTS_MAX
from eventlog.mirror import progress
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Kafka, TransactionWriter
from eventlog.mirror.progress import SnapshotProgress
from eventlog.mirror.shards import Reaction, ShardState, partitions_of
from eventlog.read import token
from eventlog.read.position import Position, SegmentPositions
from eventlog.read.state import Overlap
from eventlog.wire.flow import ProcessBudget

_ACKNOWLEDGED_S: Final = 1.0
_SAVED_S: Final = 1.0
_SETTLED_S: Final = 5.0  # so often a shard that writes asks what Kafka left open
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


def check_partitions(topic: str, found: int, wanted: int) -> None:
    """Raise Stopped where a topic has not the partitions that it had when the mirror was added."""
    if found != wanted:
        why = f"topic {topic} has {found} partitions, and not the {wanted} that it had: remove the mirror, and add another"
        raise Stopped(Reaction(next="stop", state="halted", why=why))


class SignalSource(Protocol):
    """Signals as they come."""

    async def next(self, cache: str, after: int) -> int:
        """Return the id of the first signal behind another that asks for a cache, as soon as there is one."""
        ...


class CopyingGround(Protocol):
    """What a shard needs of the node around it while it copies."""

    @property
    def cluster(self) -> str: ...

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

    async def note_begun(self, mirror: Mirror, shard: int) -> None:
        """Note that there are events or entries of a shard in Kafka."""
        ...


class Telling(Protocol):
    """What a shard shows of its copying."""

    @property
    def is_owed(self) -> bool:
        """Whether Kafka has not taken a transaction, and none since."""
        ...

    def owes_nothing(self) -> None:
        """Note that Kafka has everything, or takes it again."""
        ...

    def runs(self, state: ShardState = "running", *, still: frozenset[int] = frozenset()) -> None:
        """Note that events can be copied, or entries are; of segments that stand `still` there are none at the moment."""
        ...

    async def commit(self, kafka: Kafka, writing: Coroutine[Any, Any, int]) -> None:
        """Wait for a transaction. Raises Trouble."""
        ...

    def written(self, events: int, made: Parted) -> None:
        """Count a transaction."""
        ...

    def stands(self, upto: int, position: bytes) -> None:
        """Note up to where everything is in Kafka."""
        ...

    def holds(self, oldest_id: int) -> None:
        """Note the oldest event that was read and is not in Kafka, 0 for none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTerm:
    """A shard of a mirror, in a term, at a node. The term is the epoch of the shard's home."""

    mirror: Mirror
    shard: int
    term: int
    ground: CopyingGround


@dataclass(slots=True, kw_only=True)
class _Taken:
    """Answers that are to go into one transaction."""

    answers: list[SegmentsAnswer] = field(default_factory=list)
    events: int = 0
    nbytes: int = 0
    oldest_id: int = 0

    def add(self, answer: SegmentsAnswer) -> None:
        self.answers.append(answer)
        self.oldest_id = min(filter(None, (self.oldest_id, answer.oldest_id)), default=0)
        self.events += answer.events
        self.nbytes += answer.nbytes

    @property
    def parts(self) -> list[Joined]:
        return [part for answer in self.answers for part in answer.parts]

    @property
    def is_full(self) -> bool:
        return self.events >= MIRROR_TRANSACTION_EVENTS_MAX or self.nbytes >= MIRROR_TRANSACTION_BYTES_MAX


class Copying:
    """Reads ahead while a transaction is written, at most one transaction more."""

    def __init__(
        self,
        of: ShardTerm,
        kafka: tuple[Kafka, TransactionWriter],
        source: Source,
        incremental: Incremental,
        *,
        telling: Telling,
        shape: Shape,
        room: Room,
        has_begun: bool,
        is_whole: bool,
    ) -> None:
        self._of = of
        self._telling = telling
        self._kafka, self._writer = kafka
        self._source = source
        self._incremental = incremental
        self._shape = shape
        self._asked_shape = replace(shape, snapshot="incremental")
        self._room = room
        self._has_begun = has_begun
        self._is_whole = is_whole  # the progress has a record of each segment
        self._writing, self._next = _Taken(), _Taken()
        self._held_bytes = 0  # of the node's budget
        self._has_some = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_full = asyncio.Event()
        self._acknowledged_at = self._began_at = 0.0
        self._acknowledged: SegmentPositions | None = None
        self._idle_s: float | None = _IDLE_S  # None: there is nothing to move on before something comes
        self._overlap: Overlap | None = None
        self._is_settled = True
        self._settled_at = asyncio.get_running_loop().time()
        self._saved = 0, 0.0  # up to which id the progress says that nothing matched, and when that was written

    async def snapshot(self, found: SnapshotProgress, of: Ints) -> Position | None:
        """Copy the entries that are not in Kafka yet, and return where the events behind them begin.

        Where what was read had to be read anew, as of later, events that it had already are left out of those.
        """
        position, is_done = found.position, found.is_done
        while not is_done:
            self._telling.runs("snapshot")
            taken = _Taken()
            while not (taken.is_full or is_done or (taken.answers and not self._has_budget(taken.answers[-1]))):
                taken.add(answer := await self._source.entries(position, of))
                self._hold(answer)
                position = answer.position
                is_done = position is None or not position.unread
            await self._save_entries(taken, position, is_done=is_done)
            await self._settle_now_and_then(of)
        if position is not None and position.steps:
            self._overlap = Overlap(position.steps)
        return position

    async def _save_entries(self, taken: _Taken, position: Position | None, *, is_done: bool) -> None:
        of = self._of
        made = Parted([], [])
        if taken.events:
            made = await self._apart(taken.events, partial(self._batches, columns_of_joined(taken.parts), self._shape))
        record = SnapshotProgress(
            cluster=of.ground.cluster,
            generation=of.mirror.generation,
            term=of.term,
            token="" if position is None else token.to_text(position),
            is_done=is_done,
        )
        await self._commit(made, {progress.snapshot_key(of.mirror, of.shard): msgspec.json.encode(record)})
        self._telling.written(taken.events, made)
        await self._begun(made)
        self._let_go(taken.nbytes)

    async def run(self, at: SegmentPositions) -> Reaction:
        """Copy what follows a place until the writer is worn. Raises whatever ends it before."""
        reading = asyncio.create_task(self._read(at), name="mirror reading")
        self._committed = at
        try:
            self._telling.runs()
            self._telling.stands(int(at.ids.min()), self._source.token(at))
            if self._telling.is_owed:
                at = await self._idle(at)  # what became of the last transaction nobody knew: it may have been taken
            while not self._writer.is_worn:
                is_asked = self._incremental.is_open and self._is_past_overlap(at)
                if await self._wait(reading, self._incremental.pause_s() if is_asked else self._idle_s, at=at):
                    await self._keep_interval()
                    at = await self._write(at)
                    self._idle_s = _IDLE_S
                elif not is_asked:
                    at = await self._idle(at)
                    is_let_go = self._acknowledged is at and self._is_settled and not self._of.mirror.filter
                    self._idle_s = None if is_let_go else min(2 * (self._idle_s or _IDLE_S), _IDLE_S_MAX)
                if is_asked and not self._incremental.pause_s():
                    await self._tell_entries(at)
                await self._settle_now_and_then(at.of)
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
            async with asyncio.timeout_at(self._began_at + self._of.mirror.interval_ms / 1000):
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
        self._held_bytes += part.nbytes
        self._of.ground.budget.take(part.nbytes)
        events = 0 if part.events is None else len(part.events)
        made = Parted([], []) if part.events is None else await self._apart(events, partial(self._batches, part.events, self._asked_shape))
        records = {} if self._is_whole else self._records(at, range(len(at.of)))
        records[progress.signal_key(self._of.mirror, self._of.shard)] = msgspec.json.encode(part.progress)
        await self._commit(made, records)
        self._is_whole = True
        self._incremental.progress = part.progress
        self._telling.written(events, made)
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
                self._telling.runs(still=answer.still)
                self._keep(answer)

    def _has_budget(self, answer: SegmentsAnswer) -> bool:
        """Whether another one fits what all mirrors of the node may hold. Whoever has none for the next transaction takes one anyway."""
        return self._of.ground.budget.has_room(answer.nbytes)

    def _hold(self, answer: SegmentsAnswer) -> None:
        self._held_bytes += answer.nbytes
        self._of.ground.budget.take(answer.nbytes)

    def _let_go(self, nbytes: int) -> None:
        self._held_bytes -= nbytes
        self._of.ground.budget.give(nbytes)

    def close(self) -> None:
        """Give back what is held."""
        self._let_go(self._held_bytes)

    def _keep(self, answer: SegmentsAnswer) -> None:
        self._next.add(answer)
        self._telling.holds(self._writing.oldest_id or self._next.oldest_id)
        self._hold(answer)
        self._has_some.set()
        if self._next.is_full:
            self._is_full.set()

    async def _wait(self, reading: "asyncio.Task[None]", within_s: float | None, *, at: SegmentPositions) -> bool:
        """Return whether there is something to write before a while is over, or a signal comes. Raises what ended the reading."""
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._has_some.wait())]
        if within_s is None:
            waiting.append(asyncio.create_task(self._hold_up(at)))
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

    async def _hold_up(self, at: SegmentPositions) -> None:
        """Return a while after an event has come behind a place, if only to other shards: what this one acknowledged holds that back."""
        with suppress(EventLogError):  # what ends the reading as well
            await self._source.comes(int(at.ids.max()))
        await asyncio.sleep(_IDLE_S_MAX)

    async def _open_next(self) -> None:
        """Begin with the next signal, as soon as there is one."""
        self._incremental.open(await self._of.ground.signals.next(self._of.mirror.cache, self._incremental.progress.signal))

    async def _write(self, at: SegmentPositions) -> SegmentPositions:
        """Write a transaction with what was read by now; return the place behind it."""
        self._writing, self._next = (taken := self._next), _Taken()
        self._has_some.clear()
        self._is_full.clear()
        self._has_room.set()
        if taken.events:
            made, behind, rows = await self._apart(taken.events, partial(self._laid_out, taken, at))
            await self._commit(made, self._records(behind, rows if self._is_whole else range(len(behind.of))))
            self._is_whole = True
            self._telling.written(taken.events, made)
            await self._begun(made)
            at = behind
        self._let_go(taken.nbytes)
        self._writing = _Taken()
        self._telling.holds(self._next.oldest_id)
        return await self._stand(at, taken.answers)

    async def _begun(self, made: Parted) -> None:
        if made.batches and not self._has_begun:
            await self._of.ground.note_begun(self._of.mirror, self._of.shard)
            self._has_begun = True

    def _records(self, at: SegmentPositions, rows: Iterable[int]) -> dict[bytes, bytes]:
        return progress.records_of(self._of.mirror, at, rows, cluster=self._of.ground.cluster, term=self._of.term)

    async def _commit(self, made: Parted, records: dict[bytes, bytes]) -> None:
        self._is_settled, mirror = False, self._of.mirror
        batches = {mirror.topic: made.batches, mirror.letters_topic: made.letters}
        await self._telling.commit(self._kafka, self._writer.write(batches, progress_topic=mirror.progress_topic, progress=records))
        for topic, partitions in mirror.topics().items():
            check_partitions(topic, self._writer.partitions(topic) or partitions, partitions)

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
        mirror = self._of.mirror
        if shape.form == "debezium" and len(rows := rows_without_before(events, shape)):
            first, name = events.ids.item(rows.item(0)), mirror.name
            why = (
                f"event {first} does not say what it replaced: to go on behind it pause the mirror, "
                f"eventlog mirror reset {name} --to {first}, and resume it; or add one with --format upsert"
            )
            raise Stopped(Reaction(next="stop", state="halted", why=why))
        now_ms = self._of.ground.wall_ms()
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
        self._telling.owes_nothing()
        self._telling.holds(0)
        await self._settle(at.of)
        return await self._stand(at, [found])

    async def _settle_now_and_then(self, of: Ints) -> None:
        if asyncio.get_running_loop().time() - self._settled_at >= _SETTLED_S:
            await self._settle(of)

    async def _settle(self, of: Ints) -> None:
        """Commit what Kafka left open of the last transactions, which are committed: nobody sees it yet (`integrations.kafka.settling`).

        Those behind them need not have anything in the same partitions, and answers may come for ever that have nothing to write.
        """
        self._settled_at = asyncio.get_running_loop().time()
        if self._is_settled:
            return
        if left := await self._writer.left_open(partitions_of(self._of.mirror, of)):
            await self._writer.settle(left, is_commit=True)
        self._is_settled = not left  # else it is looked once more: a partition may have had no leader again

    async def _stand(self, at: SegmentPositions, answers: Sequence[SegmentsAnswer]) -> SegmentPositions:
        is_filtered = bool(self._of.mirror.filter)
        for answer in {None if answer.of is None else answer.of.tobytes(): answer for answer in answers}.values():  # the last of each kind
            at = lifted(at, answer.upto, of=answer.of, is_filtered=is_filtered)
        upto, now = int(at.ids.min()), asyncio.get_running_loop().time()
        if is_filtered and upto > self._saved[0] and now - self._saved[1] >= _SAVED_S:
            # else a successor would look for what retention may have taken since
            await self._commit(Parted([], []), self._records(at, range(len(at.of))))
            self._saved = upto, now
        self._telling.stands(upto, self._source.token(at))
        self._committed = at
        if now - self._acknowledged_at >= _ACKNOWLEDGED_S:
            self._acknowledged_at = now
            with suppress(ListenerNotFound):  # nothing is held for it any more, and it goes on
                await self._source.acknowledge(at)
            self._acknowledged = at
        return at
