"""The mirrors of a cluster as one node has them: the book of all, the shards that run here, and the requests about them.

The book is one entry of the cluster's own cache `__mirrors`, changed on the condition that nobody changed it since. Every node reads it
again twice a second, so that each knows within a second what it has to run, and what no more.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from eventlog.control.caches import INTERNAL_PREFIX
from eventlog.control.view import ClusterView
from eventlog.errors import (
    BadMessage,
    CacheDropped,
    CacheNotFound,
    EventLogError,
    InvalidArgument,
    KafkaFailed,
    ListenerNotFound,
    NotPrimary,
    OperationRefused,
    VersionMismatch,
)
from eventlog.ids import TIME_SHIFT, FlakeClock
from eventlog.integrations.kafka.mirror_answers import begin_at, is_behind, shown, told
from eventlog.integrations.kafka.registries import INTERNAL, HttpRegistry, MirrorRegistry, OwnRegistry, compatible, registered, shape_of
from eventlog.integrations.kafka.shard import Shard
from eventlog.integrations.kafka.signals import Signals
from eventlog.integrations.kafka.source import Inside, Source
from eventlog.integrations.kafka.verifying import Verifying
from eventlog.kafka.letters import PARTITIONS
from eventlog.kafka.shape import Shape
from eventlog.limits import GIB, MIRROR_INTERVAL_MS_DEFAULT, MIRRORS_HELD_BYTES_MAX, REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.mirror import book as books
from eventlog.mirror.book import Book, Mirror
from eventlog.mirror.broker import Kafka, Trouble
from eventlog.mirror.progress import StaleTerm
from eventlog.mirror.shards import BAD_SETTING, STANDING, Report, homes, segments_of
from eventlog.node.cluster.primaries import Led, Primaries, time_to_ask
from eventlog.node.consumers.inner import DEADLINE_MS_DEFAULT, Inner
from eventlog.node.consumers.listener_lag import ListenerLag
from eventlog.node.handlers import TABLE, Handler
from eventlog.node.outbound import Outbound
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import spec_of
from eventlog.node.schemas import Schemas
from eventlog.node.state.cache_changes import CacheChanges
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.flow import ProcessBudget

MIRRORS: Final = f"{INTERNAL_PREFIX}mirrors"
ROUTE: Final = b"book"
_KEY: Final = ROUTE + b"\0"
_FOLLOW_S: Final = 0.5
_TRIES_MAX: Final = 64
_PARTITIONS_DEFAULT: Final = 16
_HOLD_BYTES_DEFAULT: Final = 1 * GIB
_GENERATIONS: Final = 1 << 62
_LOOK_S, _LOOK_S_MAX = 0.05, 1.0
_STILL_S_MAX: Final = 5.0
_DIFFERENCES_MAX: Final = 1_000
_HEARD_MS: Final = 60_000  # within which every node writes by a cache's new options
_KEPT_FOR_EVER: Final = {"retention.ms": "-1"}  # events have their own times: by Kafka's default of a week older ones went at once
_COMPACTED: Final = {"cleanup.policy": "compact"}


class MirrorsGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    name: str
    segments: int
    clock: FlakeClock
    caches: Caches
    cache_changes: CacheChanges
    inner: Inner
    schemas: Schemas
    reads: Reads
    primaries: Primaries
    listener_lag: ListenerLag

    @property
    def view(self) -> ClusterView: ...

    def leader_of(self, segment: int) -> int: ...


class Mirrors:
    """A service of the node."""

    name = "mirror"

    def __init__(self, node: MirrorsGround, inside: Inside, *, outbound: Outbound, open_kafka: Callable[[str], Kafka]) -> None:
        self._node = node
        self._inside = inside
        self._outbound = outbound
        self._open_kafka = open_kafka
        self.budget = ProcessBudget(MIRRORS_HELD_BYTES_MAX)
        self._book = Book()
        self._version = 0
        self._jobs_of = self._book, -1
        self._jobs: dict[str, int] = {}
        self._reports: dict[str, Report] = {}
        self.signals = Signals(node, inside, mirrored=lambda: {one.cache for one in self._book.mirrors.values()}, now_ms=self.wall_ms())

    # ------------------------------------------------------------ the book

    async def follow(self) -> None:
        """Keep up with the book until cancelled."""
        while True:
            with suppress(EventLogError):  # it has no primary now, or nobody has made a mirror yet; what is known goes on
                self._node.caches.named(MIRRORS)
                await self._read_anew()
            await asyncio.sleep(_FOLLOW_S)

    async def _read_anew(self) -> tuple[Book, int]:
        found = await self._node.inner.entry(MIRRORS, _KEY, deadline_ms=DEADLINE_MS_DEFAULT)
        if found is not None and found.version > self._version:
            self._keep(books.decode(found.value, where=f"{MIRRORS}, the book"), found.version)
        return self._book, self._version

    def _keep(self, book: Book, version: int) -> None:
        if version > self._version:
            self._book, self._version = book, version

    async def _change(self, change: Callable[[Book], Book]) -> Book:
        """Return the book as it was changed; everybody knows within a second.

        Raises:
            EventLogError: what `change` raises; or nobody could write it.
        """
        for _ in range(_TRIES_MAX):
            book, version = await self._read_anew()
            changed = change(book)
            try:
                versions = await self._node.inner.write(
                    MIRRORS, ROUTE, puts={_KEY: books.encode(changed)}, expect={_KEY: version or None}, deadline_ms=DEADLINE_MS_DEFAULT
                )
            except VersionMismatch:
                continue
            self._keep(changed, versions[_KEY])
            return changed
        raise NotPrimary(segment=self._node.inner.segment(ROUTE))

    # ------------------------------------------------------------ shards

    def jobs(self) -> Mapping[str, int]:
        """Return the shards of mirrors that are not paused, and their homes; one that was changed, or whose cache was, is another job."""
        if (self._book, self._node.caches.changes) != self._jobs_of:
            self._jobs_of = self._book, self._node.caches.changes
            self._jobs = {
                f"{mirror.name}/{shard}/{mirror.revision}/{self._options_of(mirror)}": home
                for mirror in self._book.mirrors.values()
                if mirror.state == "running"
                for shard, home in enumerate(homes(mirror, segments=self._node.segments))
            }
        return self._jobs

    def _options_of(self, mirror: Mirror) -> int:
        """Return from when on the options of a mirror's cache hold, its schema among them."""
        try:
            return self._node.caches.named(mirror.cache).from_id
        except CacheNotFound:
            return 0

    async def run(self, job: str, term: int) -> None:
        """Copy a shard until cancelled."""
        name, shard, *_ = job.rsplit("/", 3)
        mirror = self._book.mirrors.get(name)
        if mirror is None:
            return
        report = Report(shard=int(shard), term=term, revision=mirror.revision)
        self._reports[f"{name}/{shard}"] = report
        try:
            await Shard(self, self._open_kafka, mirror=mirror, report=report).run()
        finally:
            if self._reports.get(f"{name}/{shard}") is report:
                del self._reports[f"{name}/{shard}"]

    @property
    def cluster(self) -> str:
        """The id of the cluster."""
        return self._node.cluster

    @property
    def segments(self) -> int:
        """How many segments the cluster has."""
        return self._node.segments

    def wall_ms(self) -> int:
        """Return the time, in milliseconds since 1970."""
        return self._node.clock.physical_ms()

    def shape(self, mirror: Mirror) -> Shape:
        """Return how a mirror's events are told. Raises CacheNotFound, CacheDropped: its cache is no more."""
        cache = self._node.caches.named(mirror.cache)
        if cache.cache_id != mirror.cache_id:
            raise CacheDropped(cache=mirror.cache)
        return shape_of(mirror, cache, cluster=self._node.cluster)

    def source(self, mirror: Mirror) -> AbstractAsyncContextManager[Source]:
        """The events of a mirror, read until the end of the block."""
        return self._inside.source(mirror, cluster=self._node.cluster, segments=self._node.segments)

    async def has_begun(self, mirror: Mirror, shard: int) -> bool:
        """Return whether it was noted that a shard has written since the mirror's beginning."""
        found = await self._node.inner.entry(MIRRORS, _begun_key(mirror, shard), deadline_ms=DEADLINE_MS_DEFAULT)
        return found is not None and found.value == str(mirror.generation).encode()

    async def note_begun(self, mirror: Mirror, shard: int) -> None:
        """Note that it has; its progress is missing from then on where there is none."""
        noted = {_begun_key(mirror, shard): str(mirror.generation).encode()}
        await self._node.inner.write(MIRRORS, ROUTE, puts=noted, deadline_ms=DEADLINE_MS_DEFAULT)

    async def telling(self, mirror: Mirror) -> Shape:
        """Return how a mirror's events are told, under schemas that its registry knows. Raises what `shape` and `registered` do."""
        return await registered(self.shape(mirror), self._registry(mirror.registry))

    def _registry(self, name: str) -> MirrorRegistry:
        """Return the registry of a name, the cluster's own under none. Raises as `HttpRegistry` does."""
        return HttpRegistry(name, self._outbound) if name else OwnRegistry(self._node.schemas)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        budget = self.budget
        return self._inside.figures() | {"mirror_bytes_held": (budget.used, budget.limit, budget.peak)}

    def counters(self) -> Iterator[tuple[str, str, str, float, str]]:
        """Yield what the shards that run here count, and in which states they are: name, help, kind, value, labels."""
        for key, report in self._reports.items():
            label = f'mirror="{key.rpartition("/")[0]}",shard="{report.shard}"'
            yield "eventlog_mirror_events_total", "Events committed in Kafka since the shard began here.", "counter", report.events, label
            yield "eventlog_mirror_bytes_total", "Bytes of their records.", "counter", report.nbytes, label
            yield "eventlog_mirror_transactions_total", "Transactions of the shard.", "counter", report.transactions, label
            yield "eventlog_mirror_aborts_total", "Transactions that were given up.", "counter", report.aborts, label
            yield "eventlog_mirror_dead_letters_total", "Events told in the dead letters.", "counter", report.dead_letters, label
            age_ms = report.age_ms(self.wall_ms())
            yield "eventlog_mirror_lag_ms", "Age of the oldest event that the shard has read and Kafka has not.", "gauge", age_ms, label
            state = f'{label},state="{report.state}"'
            yield "eventlog_mirror_state", "1 for the state that the shard is in.", "gauge", 1, state

    # ------------------------------------------------------------ requests

    def table(self) -> dict[str, Handler]:
        """Return who answers requests about mirrors, and those that must not take from a mirror what it needs."""

        def row(function: Callable[[Any, Exchange], object], right: Any, *, repeatable: bool = True) -> Handler:
            return Handler(function=function, right=right, repeatable=repeatable, has_body=False, takes_long=True, is_operators=True)

        guards = {
            "remove_listener": self._check_listener,
            "acknowledge_listener": self._check_listener,
            "alter_listener": self._check_listener,
            "alter_cache": self._check_cache,
        }
        guarded = {kind: _guarded(TABLE[kind], check) for kind, check in guards.items()}
        return guarded | {
            "poll": replace(TABLE["poll"], function=self._poll),
            "add_mirror": row(self._add, "admin", repeatable=False),
            "list_mirrors": row(self._list, "read"),
            "mirror_status": row(self._status, "read"),
            "verify_mirror": row(self._verify, "read"),
            "change_mirror": row(self._alter, "admin", repeatable=False),
        }

    async def _check_listener(self, message: Message) -> None:
        if message.forwarded:
            return  # by a node that has checked it, or whose mirror it is
        listener = message.remove_listener.id or message.acknowledge_listener.id or message.alter_listener.id
        _check_free(listener, (await self._read_anew())[0], what="changing")

    def _poll(self, node: object, exchange: Exchange) -> None:
        """Answer a poll. Who read as a mirror's listener would have retention take what the mirror has not written yet."""
        if listener := exchange.message.poll.listener:
            _check_free(listener, self._book, what="reading as")
        TABLE["poll"].function(node, exchange)

    async def _check_cache(self, message: Message) -> None:
        request = message.alter_cache
        if not request.options.HasField("before") or request.options.before:
            return
        for mirror in (await self._read_anew())[0].mirrors.values():
            if mirror.cache == request.name and mirror.format == "debezium":
                why = f"mirror {mirror.name} tells what its events replaced; remove it first, or add one with --format upsert"
                raise OperationRefused(what=f"altering cache {mirror.cache} to --no-before", why=why)

    async def _add(self, _node: object, exchange: Exchange) -> None:
        request = exchange.message.add_mirror
        cache = self._node.caches.named(request.mirror.cache)
        if cache.name.startswith(INTERNAL_PREFIX):
            raise OperationRefused(what=f"mirroring {cache.name}", why="it is the cluster's own")
        if request.mirror.registry == INTERNAL:
            request.mirror.registry = ""
        registry = self._registry(request.mirror.registry)
        if request.mirror.schema_subject:
            request.mirror.schema, request.mirror.schema_type = await registry.latest(request.mirror.schema_subject)
        wanted, why_format = self._wanted(request.mirror, cache, has_snapshot=request.WhichOneof("from") == "snapshot")
        if (spec := spec_of(request.mirror.filter)) is not None:
            await self._node.reads.filters.compile(cache, spec)  # it is refused before a topic is made
        book, _ = await self._read_anew()
        book.added(wanted)
        kafka = self._open_kafka(wanted.kafka)
        try:
            await self._check_topics(kafka, wanted)
            begin = await self._check_beginning(wanted, cache, request)
            if request.dry_run:
                await compatible(self.shape(wanted), registry)
                await kafka.create(wanted.topic, partitions=wanted.partitions, settings=wanted.topic_settings, dry_run=True)
                wanted = msgspec.structs.replace(wanted, from_id=begin)
            else:
                await self.telling(wanted)  # the registry has its schemas before anything is written
                wanted = await self._begin(kafka, wanted, request)
        except Trouble as trouble:
            if trouble.code == BAD_SETTING:
                raise InvalidArgument(why=str(trouble)) from trouble
            raise KafkaFailed(kafka=wanted.kafka, why=str(trouble)) from trouble
        nodes = [self._node.leader_of(home) for home in homes(wanted, segments=self._node.segments)]
        exchange.answer(Message(add_mirror_answer=pb.AddMirrorAnswer(mirror=told(wanted), why_format=why_format, nodes=nodes)))

    def _wanted(self, asked: pb.Mirror, cache: CacheState, *, has_snapshot: bool) -> tuple[Mirror, str]:
        """Return a mirror as it is asked for, with everything chosen that is not named, and why its format.

        Raises:
            InvalidArgument: it cannot be.
        """
        options = cache.options
        has = {"has_before": options.before, "has_state": options.state}
        form, why = books.default_format(**has)
        prefix = asked.prefix or "eventlog"
        partitions = asked.partitions or min(_PARTITIONS_DEFAULT, self._node.segments)
        given: Any = {"format": asked.format or form, "encoding": asked.encoding or "json", "on_too_large": asked.on_too_large or "halt"}
        mirror = Mirror(
            name=asked.name or cache.name,
            cache=cache.name,
            cache_id=cache.cache_id,
            kafka=asked.kafka,
            topic=asked.topic or f"{prefix}.{cache.name}",
            prefix=prefix,
            partitions=partitions,
            shards=asked.shards or books.shards_for(partitions, nodes=len(self._node.view.members)),
            generation=1 + secrets.randbelow(_GENERATIONS),
            from_id=0,
            has_snapshot=has_snapshot,
            key_field=asked.key_field or "_key",
            has_tombstones=not asked.no_tombstones,
            filter=asked.filter.SerializeToString() if asked.HasField("filter") else b"",
            interval_ms=asked.interval_ms or MIRROR_INTERVAL_MS_DEFAULT,
            topic_settings=dict(asked.topic_settings),
            schema=asked.schema,
            schema_type=(asked.schema_type or "avro") if asked.schema else "",
            registry=asked.registry,
            **given,
        )
        checked = books.checked(mirror, segments=self._node.segments, **has)
        self.shape(checked)  # which refuses what nothing can be told by
        return checked, "it was asked for" if asked.format else why

    async def _check_topics(self, kafka: Kafka, mirror: Mirror) -> None:
        wanted = mirror.topics()
        found = await kafka.partitions(list(wanted))
        for topic, partitions in wanted.items():
            if found.get(topic, partitions) != partitions:
                raise InvalidArgument(
                    why=f"topic {topic} is there with {found[topic]} partitions, and has to have {partitions}: give --partitions or --topic"
                )

    async def _check_beginning(self, mirror: Mirror, cache: CacheState, request: pb.AddMirror) -> int:
        """Return behind which id a mirror begins.

        One that lies ahead is refused, and Debezium's envelopes of events behind it that do not say what they replaced. Those are of a
        time when the cache kept no before-images. Behind its last alteration it keeps them, so only what lies before that is read; a node
        may have heard of it somewhat later.
        """
        last_id = await self._node.reads.end_known(whole=False)
        begin = begin_at(request, last_id=last_id, first_id=(await self._log_ends(mirror)).first_id)
        until = min(last_id, cache.from_id + (_HEARD_MS << TIME_SHIFT))
        if mirror.format != "debezium" or until <= begin:
            return begin
        async with self.source(mirror) as source:
            lacking = await source.last_without_before(self.shape(mirror), after=begin, until=until)
        if lacking:
            why = (
                f"events of cache {mirror.cache} say what they replaced only behind id {lacking}: give --from {lacking}, or --format upsert"
            )
            raise InvalidArgument(why=why)
        return begin

    async def _begin(self, kafka: Kafka, mirror: Mirror, request: pb.AddMirror) -> Mirror:
        """Make what a mirror needs, and write it into the book last: from then on it runs."""
        await kafka.create(mirror.topic, partitions=mirror.partitions, settings=_KEPT_FOR_EVER | mirror.topic_settings)
        await kafka.create(mirror.progress_topic, partitions=1, settings=_COMPACTED)
        if mirror.has_letters:
            await kafka.create(mirror.letters_topic, partitions=PARTITIONS, settings=_KEPT_FOR_EVER)
        listener = await self._listener(mirror, hold_bytes=request.mirror.hold_bytes or _HOLD_BYTES_DEFAULT)
        try:
            from_id = begin_at(request, last_id=listener.last_id, first_id=listener.first_id)
            begun = msgspec.structs.replace(mirror, from_id=from_id, signals_from=listener.last_id)
            await self._change(lambda book: book.added(begun))
        except EventLogError:
            if mirror.name not in (await self._read_anew())[0].mirrors:  # else it is that one's, which was added at the same moment
                await self._remove_listener(mirror)
            raise
        return begun

    async def _listener(self, mirror: Mirror, *, hold_bytes: int) -> pb.Listener:
        wanted = pb.RegisterListener(cache_id=mirror.cache_id, durable=True, hold_bytes=hold_bytes, id=mirror.listener)
        if mirror.filter:
            wanted.filter.ParseFromString(mirror.filter)
        async with self._inside.open() as connection:
            reply = await connection.request(Message(register_listener=wanted), timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT)
        return reply.message.listener_answer.listener

    async def _remove_listener(self, mirror: Mirror) -> None:
        async with self._inside.open() as connection:
            try:
                await connection.request(
                    Message(remove_listener=pb.RemoveListener(id=mirror.listener)), timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT
                )
            except ListenerNotFound:
                return

    async def _list(self, _node: object, exchange: Exchange) -> None:
        name = exchange.message.list_mirrors.name
        book, _ = await self._read_anew()
        found = [book.find(name)] if name else list(book.mirrors.values())
        exchange.answer(Message(list_mirrors_answer=pb.ListMirrorsAnswer(mirrors=map(told, found))))

    async def _alter(self, _node: object, exchange: Exchange) -> None:
        request = exchange.message.change_mirror
        book, _ = await self._read_anew()
        mirror, kind = book.find(request.name), request.WhichOneof("change")
        if kind == "pause":
            book = await self._change(lambda found: found.changed(mirror.name, books.paused))
            await self._stands_still(book.find(mirror.name), timeout_ms=time_to_ask(exchange))
        elif kind == "resume":
            resumed = partial(books.resumed, accepts_diverged=request.resume.accept_diverged)
            book = await self._change(lambda found: found.changed(mirror.name, resumed))
        elif kind == "alter":
            book = await self._alter_handling(mirror, request.alter)
        elif kind == "reset":
            to = await self._reset_to(mirror, request.reset)
            has_snapshot = request.reset.WhichOneof("to") == "snapshot"
            given = {"from_id": to, "signals_from": await self._node.reads.end_known(whole=False), "has_snapshot": has_snapshot}
            again = partial(books.reset, generation=1 + secrets.randbelow(_GENERATIONS), **given)
            changed = book.changed(mirror.name, again)
            book = changed if request.reset.dry_run else await self._change(lambda found: found.changed(mirror.name, again))
        elif kind == "remove":
            book = await self._change(lambda found: found.removed(mirror.name))
            await self._remove_listener(mirror)
            noted = [_begun_key(mirror, shard) for shard in range(mirror.shards)]
            await self._node.inner.write(MIRRORS, ROUTE, puts={}, removes=noted, deadline_ms=DEADLINE_MS_DEFAULT)
            if request.remove.delete_topics:
                await self._delete(mirror)
        else:
            raise BadMessage(why="a change of a mirror that there is not")
        left = book.mirrors.get(mirror.name)
        exchange.answer(Message(list_mirrors_answer=pb.ListMirrorsAnswer(mirrors=[told(left)] if left is not None else [])))

    async def _alter_handling(self, mirror: Mirror, request: pb.AlterMirror) -> Book:
        given: Any = {name: getattr(request, name) for name in ("interval_ms", "on_too_large") if request.HasField(name)}
        wanted = books.altered(mirror, **given)
        if wanted.has_letters:
            kafka = self._open_kafka(mirror.kafka)
            try:
                await self._check_topics(kafka, wanted)
                await kafka.create(wanted.letters_topic, partitions=PARTITIONS, settings=_KEPT_FOR_EVER)
            except Trouble as trouble:
                raise KafkaFailed(kafka=mirror.kafka, why=str(trouble)) from trouble
        if request.HasField("hold_bytes"):
            held = pb.AlterListener(id=mirror.listener, hold_bytes=request.hold_bytes)
            async with self._inside.open() as connection:
                await connection.request(Message(alter_listener=held), timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT)
        return await self._change(lambda found: found.changed(mirror.name, partial(books.altered, **given)))

    async def _delete(self, mirror: Mirror) -> None:
        """Delete a removed mirror's topic once no shard writes into it. Its progress stays: the topic is that of all mirrors."""
        await asyncio.sleep(2 * _FOLLOW_S)  # by then every node has read the book, and ends its shards
        for topic in (mirror.topic, mirror.letters_topic):
            try:
                await self._open_kafka(mirror.kafka).delete(topic)
            except Trouble as trouble:
                why = f"{trouble}; mirror {mirror.name} is removed, topic {topic} is left: delete it there"
                raise KafkaFailed(kafka=mirror.kafka, why=why) from trouble

    async def _verify(self, _node: object, exchange: Exchange) -> None:
        request = exchange.message.verify_mirror
        mirror = (await self._read_anew())[0].find(request.name)
        if 0 < request.until_id <= request.from_id:
            raise InvalidArgument(
                why=f"nothing lies behind id {request.from_id} and up to id {request.until_id}: nothing would be compared"
            )
        kafka = self._open_kafka(mirror.kafka)
        verifying = Verifying(self._inside, kafka, mirror, cluster=self._node.cluster, segments=self._node.segments)
        first_kept = (await self._log_ends(mirror)).first_id
        try:
            found = await verifying.run(first_kept=first_kept, from_id=request.from_id, until_id=request.until_id)
        except (Trouble, StaleTerm) as trouble:
            raise KafkaFailed(kafka=mirror.kafka, why=str(trouble)) from trouble
        answer = pb.VerifyMirrorAnswer(events=found.events, records=found.records, foreign=found.foreign, stretches=found.stretches)
        for one in found.found[:_DIFFERENCES_MAX]:
            answer.differences.add(segment=one.segment, offset=one.offset, id=one.id, in_log=one.in_log, in_topic=one.in_topic)
        exchange.answer(Message(verify_mirror_answer=answer))

    async def _log_ends(self, mirror: Mirror) -> pb.LogEndsAnswer:
        async with self._inside.open() as connection:
            asked = Message(log_ends=pb.LogEnds(cache_id=mirror.cache_id))
            return (await connection.request(asked, timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT)).message.log_ends_answer

    async def _reset_to(self, mirror: Mirror, request: pb.ResetMirror) -> int:
        return begin_at(request, last_id=await self._node.reads.end_known(whole=False), first_id=(await self._log_ends(mirror)).first_id)

    # ------------------------------------------------------------ status

    async def _status(self, _node: object, exchange: Exchange) -> None:
        request = exchange.message.mirror_status
        mirror = (await self._read_anew())[0].find(request.name)
        if exchange.message.forwarded:
            await self._node.primaries.answer(exchange, partial(self._status_here, mirror, request.upto))
            return
        upto = await self._node.reads.end_known(whole=False) if request.wait_ms else 0
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + request.wait_ms / 1000, _LOOK_S
        while True:
            shards = await self._shards(mirror, upto=upto, timeout_ms=time_to_ask(exchange))
            behind = [one for one in shards if is_behind(mirror, one)] if upto else []
            if not behind or loop.time() >= deadline or any(one.state in STANDING for one in behind):
                break
            await asyncio.sleep(min(pause_s, max(deadline - loop.time(), _LOOK_S)))
            pause_s = min(2 * pause_s, _LOOK_S_MAX)  # each look counts what every shard has left
        exchange.answer(Message(mirror_status_answer=pb.MirrorStatusAnswer(shards=shards, behind=bool(behind))))

    async def _stands_still(self, mirror: Mirror, *, timeout_ms: int) -> None:
        """Return once no shard of a paused mirror is at work any more, or after a while: a shard that nobody leads now is not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(timeout_ms / 1000, _STILL_S_MAX)
        while loop.time() < deadline:
            with suppress(EventLogError):
                left_ms = max(int((deadline - loop.time()) * 1000), 1)
                if all(one.state == "paused" for one in await self._shards(mirror, upto=0, timeout_ms=left_ms)):
                    return
            await asyncio.sleep(_LOOK_S)

    async def _shards(self, mirror: Mirror, *, upto: int, timeout_ms: int) -> list[pb.MirrorShard]:
        asked = Message(mirror_status=pb.MirrorStatus(name=mirror.name, upto=upto))
        answers = await self._node.primaries.ask(
            asked, partial(self._status_here, mirror, upto), segments=homes(mirror, segments=self._node.segments), timeout_ms=timeout_ms
        )
        return sorted((one for answer in answers for one in answer.mirror_status_answer.shards), key=lambda one: one.shard)

    async def _status_here(self, mirror: Mirror, upto: int, led: Led) -> Message:
        """Say how the shards stand whose homes are led here."""
        terms = dict(zip(led.segments, led.epochs, strict=True))
        own = {shard: terms[home] for shard, home in enumerate(homes(mirror, segments=self._node.segments)) if home in terms}
        running = {shard: report for shard in own if (report := self._reports.get(f"{mirror.name}/{shard}")) is not None}
        if mirror.state != "paused":  # else a shard that goes on ends as soon as its node knows
            running = {shard: report for shard, report in running.items() if report.revision == mirror.revision}
        before = await self._acknowledged(mirror, [shard for shard in own if shard not in running])
        reports = [running.get(shard) or Report(shard=shard, term=term, upto=before[shard]) for shard, term in own.items()]
        cache = self._node.caches.get(mirror.cache_id)
        shards = [await self._shown(mirror, report, cache, upto=upto) for report in reports]
        for one in shards:
            if mirror.state == "paused" and one.shard not in running:
                one.state = "paused"
        return Message(mirror_status_answer=pb.MirrorStatusAnswer(shards=shards))

    async def _acknowledged(self, mirror: Mirror, shards: Sequence[int]) -> dict[int, int]:
        """Return up to which id shards that do not run are known to have written, by what they have let retention have."""
        if not shards:
            return {}
        async with self.source(mirror) as source:
            ids = await source.acknowledged_ids()
        of = {shard: segments_of(shard, mirror, segments=self._node.segments) for shard in shards}
        return {shard: books.came_to(mirror, int(ids[own].min())) for shard, own in of.items()}

    async def _shown(self, mirror: Mirror, report: Report, cache: CacheState | None, *, upto: int) -> pb.MirrorShard:
        lag = 0
        if cache is not None:
            after = report.upto or mirror.from_id
            of = segments_of(report.shard, mirror, segments=self._node.segments).tolist()
            if not upto:  # nobody counts what stands still: `why` names it, and who waits for all of it is told so
                of = [segment for segment in of if segment not in report.still]
            if of:
                counted = await self._node.listener_lag.count_everywhere(
                    cache, [after], upto=upto, segments=of, timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT
                )
                lag = counted[0][0]
        now_s = asyncio.get_running_loop().time()
        return shown(mirror, report, node=self._node.name, lag=lag, now_ms=self.wall_ms(), now_s=now_s)


def _begun_key(mirror: Mirror, shard: int) -> bytes:
    return ROUTE + f"\0begun/{mirror.name}/{shard}".encode()


def _check_free(listener: str, book: Book, *, what: str) -> None:
    for mirror in book.mirrors.values():
        if mirror.listener == listener:
            alter, remove = (f"eventlog mirror {word} {mirror.name}" for word in ("alter", "remove"))
            why = f"mirror {mirror.name} goes by it: {alter} --hold changes what it keeps, and {remove} takes it along"
            raise OperationRefused(what=f"{what} listener {listener}", why=why)


def _guarded(handler: Handler, check: Callable[[Message], Any]) -> Handler:
    async def checked(node: Any, exchange: Exchange) -> None:
        await check(exchange.message)
        done = handler.function(node, exchange)
        if done is not None:
            await done

    return replace(handler, function=checked)
