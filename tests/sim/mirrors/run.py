"""One run of a mirror: the product's shards on virtual time, over a log and a Kafka that are only played.

Owners of a shard are killed, stand still and wake, and overlap with their successors; connections break before a thing is done and behind
it, so that nobody knows what became of a commit. A broker that led the progress before says an end of then. Retention takes whatever the
mirror let go of. In the end readers of committed records must see each event of the log once, those of a segment in order, and no progress
that goes back. Partitions have no leader for a while, and a transaction that ends then is left open there.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import Struct
from typing import Final

import msgspec
import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.columns import columns_of_values, join_events
from eventlog.batch.join import Joined, pack
from eventlog.errors import EventLogError, EventsTrimmed
from eventlog.ids import ID_MAX
from eventlog.integrations.kafka.shard import Shard
from eventlog.integrations.kafka.source import LogReading, SegmentsAnswer
from eventlog.kafka.shape import Shape
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Trouble
from eventlog.mirror.progress import SegmentProgress
from eventlog.mirror.shards import STANDING, Report
from eventlog.read.position import Position, SegmentPositions
from eventlog.testing.kafka import FakeBrokers, FakeKafka
from eventlog.wire.flow import ProcessBudget
from tests.sim.loop import virtual_loop
from tests.sim.mirrors.log import CACHE, Log, Stored
from tests.sim.report import Verdict, judge
from tests.sim.scheduler import Process, Scheduler

SEGMENTS: Final = 4
MIRROR: Final = Mirror(
    name="m", cache="c", cache_id=CACHE, kafka="k:1", topic="eventlog.c", prefix="eventlog", partitions=SEGMENTS, shards=2,
    format="upsert", encoding="json", generation=1, from_id=0,
)  # fmt: skip
SHAPE: Final = Shape(
    cache="c", cluster="c-1", prefix="eventlog", topic=MIRROR.topic, version="1", is_json=True, has_text_keys=True, form="upsert"
)
_OFF: Final = Struct(">iq")
_STEPS: Final = 100
_WRITES_MAX: Final = 60  # a backlog of all of them is laid out within the loop, and not in a thread
_BREAKS: Final = 0.03
_LEADERS_LOST: Final = 0.1  # where a transaction is about to end
_HELD_BYTES_MAX: Final = 4  # an answer counts one
_RECORDS_MAX: Final = 30  # of a producer
_SETTLE_S: Final = 150
_IDLE_S: Final = 60
_LOOK_S: Final = 0.3
_STEP_S: Final = (0.0, 1.5)


def run_seed(seed: int) -> Verdict:
    """Run a seed and judge it."""

    def play() -> MirrorRun:
        run = MirrorRun(seed)
        run.run()
        run.violations += map(repr, run.errors)
        return run

    return judge(seed, play)


class MirrorRun:
    """`run` plays it; afterwards `violations` has what must not be, `errors` what broke, and `reached` what was."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # of the shards' own pauses
        self.chance = random.Random(seed)
        self.violations: list[str] = []
        self.errors: list[Exception] = []
        self.reached: Counter[str] = Counter()
        self.log = Log(self.chance, segments=SEGMENTS)
        self.brokers = FakeBrokers()
        self.let_go = np.zeros(SEGMENTS, np.int64)
        self.trimmed = np.zeros(SEGMENTS, np.int64)
        self.begun: set[int] = set()
        self.is_breaking = True
        self.looks = 0  # of shards, at the log's end, or to let go of it
        self.budget = ProcessBudget(_HELD_BYTES_MAX)
        self._scheduler = Scheduler()
        self._loop = virtual_loop(Process(self._scheduler), on_error=self._hear_of)
        self._owners: list[Owner] = []  # of each shard the one that leads its home
        self._former: list[Owner] = []  # who have not heard of it, or stand still

    @property
    def simulated_ms(self) -> int:
        """How long it was."""
        return self._scheduler.now_us // 1000

    @property
    def acknowledged(self) -> int:
        """How many events were mirrored."""
        return self.reached["events mirrored"]

    @property
    def now_s(self) -> float:
        """The time that has passed."""
        return self._loop.time()

    def _hear_of(self, error: Exception) -> None:
        if not isinstance(error, EventLogError):  # what ends a shard's reading is told by the shard
            self.errors.append(error)

    def _pass(self, seconds: float) -> None:
        self._scheduler.run(self._scheduler.now_us + round(seconds * 1e6))
        for owner in (*self._owners, *self._former):
            if owner.report.why.startswith("a fault of the node's"):
                self.errors.append(AssertionError(f"shard {owner.number}: {owner.report.why}"))

    # ------------------------------------------------------------ steps

    def run(self) -> None:
        """Play all steps, let everything settle, and judge."""
        log = logging.getLogger("eventlog.mirror")
        log.disabled = True  # what shards meet here would fill pages
        try:
            self._play()
        finally:
            log.disabled = False

    def _play(self) -> None:
        self._loop.start(self._make_topics())
        self._pass(1)
        self._owners = [Owner(self, shard=shard, term=1) for shard in range(MIRROR.shards)]
        acts: dict[str, tuple[int, Callable[[], None]]] = {
            "write": (60, self._write),
            "shard killed and moved": (4, self._kill),
            "shard begun again": (3, self._begin_again),
            "owner stands still": (5, self._stand_still),
            "owners overlap": (5, self._overlap),
            "owner wakes": (6, self._wake),
            "former owner hears of it": (4, self._hear),
            "retention": (8, self._retain),
            "a former leader of the progress says its end": (5, self._say_old_end),
            "the former leader hears of it": (5, self._say_no_more),
            "nobody leads a partition": (6, self.lose_leader),
            "partitions are led again": (6, self._find_leaders),
        }
        for owner in self._owners:
            self._start(owner)
        for name in self.chance.choices(list(acts), weights=[weight for weight, _ in acts.values()], k=_STEPS):
            self.reached[name] += 1
            acts[name][1]()
            self._pass(self.chance.uniform(*_STEP_S))
        self._settle()

    def _end(self) -> None:
        for owner in self._owners:
            owner.end()
        self._pass(1)

    async def _make_topics(self) -> None:
        kafka = FakeKafka(self.brokers)
        for topic, partitions in MIRROR.topics().items():
            await kafka.create(topic, partitions=partitions, settings={})

    def _start(self, owner: "Owner") -> None:
        owner.task = self._loop.create_task(owner.shard.run())

    def _write(self) -> None:
        if len(self.log.stored) < _WRITES_MAX:
            self.log.write()

    def _succeed(self, shard: int, *, in_term: int) -> None:
        self._owners[shard] = Owner(self, shard=shard, term=in_term)
        self._start(self._owners[shard])

    def _any(self) -> "Owner":
        return self.chance.choice(self._owners)

    def _kill(self) -> None:
        (owner := self._any()).end()
        self._succeed(owner.number, in_term=owner.term + 1)

    def _begin_again(self) -> None:
        (owner := self._any()).end()
        self._succeed(owner.number, in_term=owner.term)

    def _stand_still(self) -> None:
        (owner := self._any()).is_still = True
        self._former.append(owner)
        self._succeed(owner.number, in_term=owner.term + 1)

    def _overlap(self) -> None:
        self._former.append(owner := self._any())
        self._succeed(owner.number, in_term=owner.term + 1)

    def _wake(self) -> None:
        for owner in self._former:
            owner.is_still = False

    def _hear(self) -> None:
        if self._former:
            self._former.pop(0).end()

    def _say_old_end(self) -> None:
        self.brokers.said_ends.setdefault(MIRROR.progress_topic, len(self.brokers.log(MIRROR.progress_topic, 0)))

    def _say_no_more(self) -> None:
        self.brokers.said_ends.clear()

    def lose_leader(self) -> None:
        """Have nobody lead a partition for a while."""
        data = [(MIRROR.topic, number) for number in range(MIRROR.partitions)]
        self.brokers.leaderless.add(self.chance.choice([(MIRROR.progress_topic, 0), *data]))

    def _find_leaders(self) -> None:
        self.brokers.leaderless.clear()

    def _retain(self) -> None:
        self.reached["events trimmed"] += int((self.let_go > self.trimmed).sum())
        self.trimmed = self.let_go.copy()

    def _settle(self) -> None:
        self.is_breaking = False
        self._say_no_more()
        self._find_leaders()
        self._wake()
        self._pass(20)
        while self._former:
            self._hear()
        self._pass(_SETTLE_S)
        if any(place == (MIRROR.progress_topic, 0) for place, _ in self.brokers.undone):
            self.reached["progress that Kafka undid"] += 1  # what follows comes again, or retention has it by now
            self._end()
            return
        before, looks = self.brokers.size, self.looks
        self._pass(_IDLE_S)
        if self.brokers.size != before:
            self.violations.append(f"idle shards wrote {self.brokers.size - before} records")
        if self.looks != looks:
            self.violations.append(f"idle shards looked {self.looks - looks} times at a log into which nothing came")
        for stored in self.log.stored:
            if self.let_go[stored.events[0].segment] < stored.events[-1].id:
                self.violations.append(f"retention cannot have event {stored.events[-1].id}")
        for owner in self._owners:
            if owner.report.state in STANDING:
                self.violations.append(f"shard {owner.number} stands still: {owner.report.state}, {owner.report.why}")
        self._end()
        self._judge()
        if self.budget.used:
            self.violations.append(f"{self.budget.used} bytes are held by nobody")
        self.reached["budget used up"] += self.budget.peak >= _HELD_BYTES_MAX

    # ------------------------------------------------------------ what was seen

    def _judge(self) -> None:
        asyncio._set_running_loop(self._loop)
        try:
            records = [one for partition in range(MIRROR.partitions) for one in self.brokers.committed(MIRROR.topic, partition)]
            told = self.brokers.committed(MIRROR.progress_topic, 0)
        finally:
            asyncio._set_running_loop(None)
        written: list[list[int]] = [[] for _ in range(SEGMENTS)]
        for one in records:
            segment, _ = _OFF.unpack(one.headers["off"])
            written[segment].append(int.from_bytes(one.headers["id"]))
        for segment, ids in enumerate(written):
            self._compare(segment, ids)
        last: dict[bytes, SegmentProgress] = {}
        for one in told:
            assert one.key is not None
            assert one.value is not None
            if b"/begin/" in one.key:
                continue
            found = msgspec.json.decode(one.value, type=SegmentProgress)
            before = last.setdefault(one.key, found)
            if (found.term, found.id) < (before.term, before.id) or found.id < before.id:
                self.violations.append(f"{one.key.decode()} goes back from {before} to {found}")
            last[one.key] = found
        self.reached["events mirrored"] += len(records)

    def _compare(self, segment: int, ids: list[int]) -> None:
        log = [event.id for stored in self.log.stored for event in stored.events if event.segment == segment]
        if ids == log:
            return
        twice = [id_ for id_, count in Counter(ids).items() if count > 1]
        missing = sorted(set(log) - set(ids) - self._undone())
        if not twice and not missing and ids == [id_ for id_ in log if id_ in set(ids)]:
            self.reached["events that Kafka undid"] += 1
            return
        what = f"{twice[0]} is there more than once" if twice else f"{missing[0]} is missing" if missing else "events are out of order"
        self.violations.append(f"segment {segment}: {what}")

    def _undone(self) -> set[int]:
        """Return the events of transactions that Kafka committed and gave up: nobody can know of it before the next one there."""
        logs = {place: self.brokers.log(*place) for place, _ in self.brokers.undone}
        return {
            int.from_bytes(one.headers["id"])
            for place, transaction in self.brokers.undone
            for one in logs[place]
            if one.transaction is transaction and "id" in one.headers
        }


class NoSignals:
    """Nobody asks for entries: this run has none."""

    async def next(self, _cache: str, _after: int) -> int:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError


class Owner:
    """A node as far as it runs one shard in a term: the shard's ground, its way into Kafka, and its reading of the log."""

    cluster = SHAPE.cluster
    segments = SEGMENTS
    signals = NoSignals()

    def __init__(self, run: MirrorRun, *, shard: int, term: int) -> None:
        self._run = run
        self.budget = run.budget
        self.number = shard
        self.term = term
        self.is_still = False
        self.report = Report(shard=shard, term=term)
        self.task: asyncio.Task[None] | None = None
        self.shard = Shard(self, lambda _: FakeKafka(run.brokers, self, records_max=_RECORDS_MAX), mirror=MIRROR, report=self.report)

    def end(self) -> None:
        """Have nothing done by it any more; what it has open in Kafka stays open."""
        if self.task is not None:
            self.task.cancel()

    def wall_ms(self) -> int:
        """Return the time since 1970."""
        return 1_767_225_600_000 + round(self._run.now_s * 1_000)

    async def telling(self, _mirror: Mirror) -> Shape:
        """Return how events are told."""
        return SHAPE

    async def has_begun(self, _mirror: Mirror, shard: int) -> bool:
        """Return whether it was noted."""
        return shard in self._run.begun

    async def note_begun(self, _mirror: Mirror, shard: int) -> None:
        """Note that there are events of the shard in Kafka."""
        await self._take_time()
        self._run.begun.add(shard)

    @asynccontextmanager
    async def source(self, _mirror: Mirror) -> AsyncIterator[LogReading]:
        """The log, as this node reads it."""
        yield PlayedReading(self._run, self)

    async def _take_time(self) -> None:
        await asyncio.sleep(self._run.chance.random() * 0.1)
        await self.goes()

    async def goes(self) -> None:
        """Wait while the node stands still."""
        while self.is_still:  # noqa: ASYNC110 - a machine that stands still hears of nothing
            await asyncio.sleep(_LOOK_S)

    async def at(self, step: str) -> None:
        """Take some time on the way to a broker, or lose the connection. Raises Trouble."""
        await self._take_time()
        if step == "commit" and self._run.is_breaking and self._run.chance.random() < _LEADERS_LOST:
            self._run.lose_leader()
        if self._run.is_breaking and self._run.chance.random() < _BREAKS:
            self._run.reached[f"connection lost: {step}"] += 1
            raise Trouble(None, "the connection was lost")


class PlayedReading:
    """What a shard reads of the log."""

    def __init__(self, run: MirrorRun, owner: Owner) -> None:
        self._run = run
        self._owner = owner

    def token(self, _at: SegmentPositions) -> bytes:
        """Return nothing that anybody looks at."""
        return b""

    def _left(self, of: Ints, ids: Ints) -> list[tuple[int, Stored]]:
        """Return rows and stored values with events behind places. Raises EventsTrimmed: retention has taken one of them."""
        rows = {segment: row for row, segment in enumerate(of.tolist())}
        found = []
        for stored in self._run.log.stored:
            segment = stored.events[0].segment
            for event in stored.events if segment in rows else ():
                if ids[rows[segment]] < event.id <= self._run.trimmed[segment]:
                    raise EventsTrimmed(first_id=int(self._run.trimmed[segment]) + 1, lost=1)
            if segment in rows and stored.events[-1].id > ids[rows[segment]]:
                found.append((rows[segment], stored))
        return found

    def _answer(self, ids: Ints, left: list[tuple[int, Stored]], *, count: int) -> SegmentsAnswer:
        taken = left[:count]
        last = self._run.log.stored[-1].events[-1].id if self._run.log.stored else 0
        upto = taken[-1][1].events[-1].id if len(taken) < len(left) else last
        return SegmentsAnswer(parts=[_joined(stored, after=int(ids[row])) for row, stored in taken], upto=upto, nbytes=1)

    async def answers(self, at: SegmentPositions) -> AsyncGenerator[SegmentsAnswer, None]:
        """Yield what follows, a few stored values at a time."""
        ids = at.ids.copy()
        while True:
            await self._owner.goes()
            if left := self._left(at.of, ids):
                answer = self._answer(ids, left, count=self._run.chance.randint(1, 4))
                ids = np.maximum(ids, answer.upto)
                yield answer
            else:
                await asyncio.sleep(_LOOK_S)

    async def entries(self, _after: Position | None, _of: Ints) -> SegmentsAnswer:
        """Return none: the mirror of this run has no snapshot."""
        raise NotImplementedError

    async def end(self, at: SegmentPositions) -> SegmentsAnswer:
        """Return what follows now."""
        self._run.looks += 1
        return self._answer(at.ids, self._left(at.of, at.ids), count=1)

    async def acknowledged(self) -> int:
        """Return up to where retention may have everything."""
        return int(self._run.let_go.min())

    async def acknowledge(self, at: SegmentPositions) -> None:
        """Let retention have what lies before a place."""
        self._run.looks += 1
        await self._owner.goes()
        self._run.let_go[at.of] = np.maximum(self._run.let_go[at.of], at.ids)


def _joined(stored: Stored, *, after: int) -> Joined:
    return join_events(columns_of_values(pack([stored.events[0].segment], [stored.data]), after=after, until=ID_MAX))
