"""One shard of a mirror in one term: opens a producer, learns how far it is, and copies transaction by transaction until cancelled.

The order at the start is what makes it exactly once: the producer is opened first, which fences the predecessor and ends what it left open;
a record of the shard's own is written behind all that was committed until then; then everything up to there is read. To ask for the end of
the topic instead would not do: a broker that led it before says an old one. What fails is decided in `mirror.shards`.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from typing import Any, Final, Protocol

from eventlog.arrays import Ints
from eventlog.errors import EventLogError
from eventlog.integrations.kafka.copying import Copying, CopyingGround, ShardTerm, Stopped, check_partitions
from eventlog.integrations.kafka.incremental import Incremental
from eventlog.integrations.kafka.settling import LeftOpen
from eventlog.integrations.kafka.source import Source
from eventlog.kafka.letters import Parted, Room
from eventlog.kafka.shape import Shape
from eventlog.limits import BATCH_BYTES_CAP, MIRROR_BATCH_BYTES_MAX
from eventlog.mirror import progress, signals
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Kafka, Trouble
from eventlog.mirror.progress import StaleTerm
from eventlog.mirror.shards import (
    MADE_ANEW,
    NO_LEADER,
    NOT_ALLOWED,
    Reaction,
    Report,
    ShardState,
    give_way,
    outcome_of,
    outcome_of_error,
    partitions_of,
    segments_of,
    transactional_id,
)
from eventlog.read.position import SegmentPositions

log = logging.getLogger("eventlog.mirror")
_GIVE_WAY_S: Final = (5.0, 8.0)  # before a shard that was fenced looks whether it is still its own
_PAUSE_S, _PAUSE_S_MAX = 1.0, 30.0
_PATIENCE_S: Final = 5.0  # what takes longer, the brokers are asked about
_LOOKS, _LOOK_AGAIN_S = 6, 1.0


class ShardGround(CopyingGround, Protocol):
    """What a shard needs of the node around it."""

    @property
    def segments(self) -> int: ...

    def source(self, mirror: Mirror) -> AbstractAsyncContextManager[Source]:
        """The events of a mirror, read until the end of the block."""
        ...

    async def has_begun(self, mirror: Mirror, shard: int) -> bool:
        """Return whether it was noted that a shard has written since the mirror's beginning."""
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
        cluster, term = ground.cluster, self.report.term
        async with AsyncExitStack() as stack:
            async with self._patient(kafka):
                writer = await stack.enter_async_context(kafka.writer(transactional_id(ground.cluster, mirror, self.report.shard)))
                left = await LeftOpen.found(kafka, writer, mirror, shard=self.report.shard, of=own)
                await left.settle_progress(cluster=cluster, term=term)
                ends = await kafka.ends(mirror.topic, partitions_of(mirror, own)[mirror.topic])
                begin = progress.begin_of(mirror, self.report.shard, cluster=cluster, term=term, ends=ends)
                end = await writer.write({}, progress_topic=mirror.progress_topic, progress=begin)
                records = progress.of_shard(await kafka.records(mirror.progress_topic, upto=end), mirror, self.report.shard, of=own)
            snapshot = progress.snapshot_of(records, mirror, self.report.shard, cluster=cluster, term=term)
            at = progress.places(records, mirror, of=own, cluster=cluster, term=term)
            async with ground.source(mirror) as source:
                has_begun = await self._check_progress(records, own, source, is_new=not any(ends.values()))
                async with self._patient(kafka):
                    await left.settle_events(at, has_entries=mirror.has_snapshot and not snapshot.is_done)
                is_whole = all(progress.are_told(records, mirror, own))
                first = signals.beginning(cluster=cluster, cache_id=mirror.cache_id, segments=ground.segments, of=own)
                asked = progress.signal_of(records, mirror, self.report.shard, cluster=cluster, term=term)
                incremental = Incremental(source, asked, begin=first)
                here = ShardTerm(mirror=mirror, shard=self.report.shard, term=term, ground=ground)
                copying = Copying(
                    here, (kafka, writer), source, incremental, telling=self, shape=shape, room=room, has_begun=has_begun, is_whole=is_whole
                )
                with closing(copying):
                    done = await copying.snapshot(snapshot, own) if mirror.has_snapshot else None
                    behind = done.at if done is not None and isinstance(done.at, SegmentPositions) else None
                    return await copying.run(progress.places(records, mirror, of=own, begin=behind, cluster=cluster, term=term))

    async def _check_progress(self, records: dict[bytes, bytes], own: Ints, source: Source, *, is_new: bool) -> bool:
        """Return whether the shard has written events or entries since the mirror's beginning. `is_new`: nothing is in its partitions.

        Raises:
            Stopped: it has, and topics do not show it any more.
        """
        mirror, shard = self._mirror, self.report.shard
        has_begun = await self._ground.has_begun(mirror, shard)
        if has_begun and is_new:
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
        for left in reversed(range(_LOOKS)):
            try:
                found = await kafka.partitions(list(wanted))
            except Trouble as trouble:
                if trouble.code != NO_LEADER or not left:
                    raise
            if len(found) == len(wanted):
                break
            # A broker that has just begun may not know of a topic yet, and a leader that was killed have no successor.
            await asyncio.sleep(_LOOK_AGAIN_S)
        for topic, partitions in wanted.items():
            if topic not in found:
                why = f"topic {topic} was deleted: eventlog mirror remove {mirror.name}, and add it again"
                raise Stopped(Reaction(next="stop", state="halted", why=why))
            check_partitions(topic, found[topic], partitions)

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

    async def commit(self, kafka: Kafka, writing: Coroutine[Any, Any, int]) -> None:
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

    def holds(self, oldest_id: int) -> None:
        """Note the oldest event that was read and is not in Kafka, 0 for none."""
        self.report.oldest_id = oldest_id

    def stands(self, upto: int, position: bytes) -> None:
        """Note up to where everything is in Kafka."""
        self.report.upto, self.report.position = max(self.report.upto, upto), position
