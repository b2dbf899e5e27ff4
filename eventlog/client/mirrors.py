"""Mirrors: caches that the cluster writes into topics of Kafka, each event once for readers of committed records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventlog.client.connections.requests import Requests
from eventlog.client.reading.filtering import Parameters, filter_of
from eventlog.client.reading.wanted import token_text
from eventlog.client.values import Shown, checked_flag, checked_id, checked_text, checked_whole
from eventlog.errors import InvalidArgument
from eventlog.ids import id_fields
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

Start = int | str  # an id, or `earliest`, `latest` or `snapshot`: the entries that there are, and what follows
_WAIT_MS_MAX = (1 << 31) - 1
_WHOLE = {"partitions": (1 << 31) - 1, "interval_ms": (1 << 31) - 1, "hold_bytes": (1 << 63) - 1}
VERIFY_MS = 600_000
ADD_MS = 120_000  # events may have to be looked at that were written before the cache's last alteration


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorInfo:
    """A mirror. Partition = segment % `partitions`, shard = partition % `shards`; everything behind `from_id` is written.

    With `snapshot` the entries come first, and then what happened after they were read.

    `kafka` is a connection of the nodes' files, or a broker; `registry` has the schemas of Avro: one of the nodes' files, a URL, or empty
    for the cluster's. `state` is running or paused.
    """

    name: str
    cache: str
    kafka: str
    topic: str
    progress_topic: str
    partitions: int
    shards: int
    format: str
    encoding: str
    key_field: str
    tombstones: bool
    where: str | None
    select: tuple[str, ...]
    interval_ms: int
    from_id: int
    snapshot: bool
    state: str
    topic_settings: Mapping[str, str]
    on_too_large: str
    registry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedMirror:
    """A mirror that was added, or would be: why its format is what it is, and the node that runs each of its shards now, 0 for none."""

    mirror: MirrorInfo
    why_format: str
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """How one shard stands. `state` is starting, running, paused, waiting, halted, diverged, trimmed or ended, since `since_ms` (1970).

    `why` says what it waits for, or what somebody has to do. Everything up to `position_id` is in Kafka. `events`, `transactions`,
    `aborts` and `dead_letters` count from when the shard began at its node.
    """

    mirror: str
    shard: int
    node: str
    term: int
    state: str
    since_ms: int
    why: str
    position: str
    position_id: int
    lag_events: int
    lag_ms: int
    events_per_second: float
    events: int
    transactions: int
    aborts: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """How the shards of a mirror stand; `is_behind`: what was asked to be waited for did not come in time."""

    shards: Sequence[ShardInfo] = field(default_factory=list)
    is_behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorDifference:
    """An event that the log or the topic has another number of times."""

    segment: int
    offset: int
    id: int
    in_log: int
    in_topic: int

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"segment": self.segment, "offset": self.offset, **id_fields(id=self.id), "in_log": self.in_log, "in_topic": self.in_topic}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorVerification:
    """What a comparison of topic and log found. `foreign` records are not a mirror's; of many differences the first are there."""

    events: int
    records: int
    foreign: int
    differences: Sequence[MirrorDifference]

    @property
    def is_alike(self) -> bool:
        """Whether each event is in the topic once, and nothing else is."""
        return not (self.differences or self.foreign or self.events != self.records)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "events": self.events,
            "records": self.records,
            "differences": len(self.differences) + self.foreign,
            "first_difference": self.differences[0].plain() if self.differences else None,
            "foreign": self.foreign,
        }


class MirrorAdmin(Shown):
    """The mirrors of a cluster."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def _described(self) -> str:
        return f": {self._requests}"

    async def add(
        self,
        cache: str,
        *,
        kafka: str,
        name: str | None = None,
        topic: str | None = None,
        prefix: str | None = None,
        partitions: int | None = None,
        format: str | None = None,
        encoding: str | None = None,
        key_field: str | None = None,
        schema: str | None = None,
        schema_type: str | None = None,
        schema_subject: str | None = None,
        registry: str | None = None,
        tombstones: bool = True,
        from_id: Start = "earliest",
        where: str | None = None,
        parameters: Parameters | None = None,
        select: Sequence[str] | None = None,
        interval_ms: int | None = None,
        hold: int | None = None,
        on_too_large: str | None = None,
        topic_settings: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> AddedMirror:
        """Have the cluster write a cache's events into a topic from behind `from_id` on; with `dry_run` only say what would be.

        `kafka` names a connection of the nodes' files, `[kafka.NAME]`, or brokers `host:port`. Topics that are not there are made.
        Retention keeps up to `hold` bytes (1 GiB) of what is not in Kafka yet. `schema` is the type of a JSON cache's values, an Avro
        schema, or a JSON Schema where `schema_type` is `json`; `schema_subject` has the registry's latest of a subject taken for it.
        `registry` has the ids of Avro's schemas: a registry of the nodes' files, `[registry.NAME]`, a URL, or the cluster's (`internal`).
        With `on_too_large` `dead-letter` an event whose record is too large, or whose value does not fit, is told in the topic
        `{topic}.dlq`; with `halt` its shard stands still.

        Raises:
            CacheNotFound: there is no such cache.
            InvalidArgument: what is asked for does not fit the cache, its events, or a topic that is there.
            MirrorExists: one has this name or topic.
            NoConnection, OutboundRefused: the node that was asked may not reach Kafka, or the registry.
            SchemaRefused: the registry does not have the subject, or does not take what a subject of the topic would get.
            KafkaFailed, RegistryFailed: Kafka, or the registry, is away or is none.
        """
        mirror = pb.Mirror(cache=checked_text("cache", cache), no_tombstones=not checked_flag("tombstones", tombstones))
        given: dict[str, Any] = {
            "kafka": checked_text("kafka", kafka),
            "name": name,
            "topic": topic,
            "prefix": prefix,
            "partitions": partitions,
            "format": format,
            "encoding": encoding,
            "key_field": key_field,
            "schema": schema,
            "schema_type": schema_type,
            "schema_subject": schema_subject,
            "registry": registry,
            "interval_ms": interval_ms,
            "hold_bytes": _checked_hold(hold),
            "on_too_large": on_too_large,
        }
        _set(mirror, given)
        mirror.topic_settings.update(_checked_settings(topic_settings or {}))
        if (chosen := filter_of(where=where, parameters=parameters, select=select)) is not None:
            mirror.filter.CopyFrom(chosen)
        request = pb.AddMirror(mirror=mirror, dry_run=checked_flag("dry_run", dry_run))
        _begin(request, from_id)
        answer = (await self._requests.ask(Message(add_mirror=request), repeatable=False, timeout_ms=ADD_MS)).message.add_mirror_answer
        return AddedMirror(mirror=mirror_info(answer.mirror), why_format=answer.why_format, nodes=list(answer.nodes))

    async def list(self) -> list[MirrorInfo]:
        """Return all mirrors."""
        reply = await self._requests.ask(Message(list_mirrors=pb.ListMirrors()))
        return [mirror_info(one) for one in reply.message.list_mirrors_answer.mirrors]

    async def describe(self, mirror: str) -> MirrorInfo:
        """Return one mirror. Raises MirrorNotFound."""
        reply = await self._requests.ask(Message(list_mirrors=pb.ListMirrors(name=_named(mirror))))
        return mirror_info(reply.message.list_mirrors_answer.mirrors[0])

    async def status(self, mirror: str, *, wait_ms: int = 0) -> MirrorStatus:
        """Return how the shards of a mirror stand; with `wait_ms`, once everything is in Kafka that was committed before the call.

        Raises:
            MirrorNotFound: there is none.
            PrimariesMissing: a shard's home has no primary that could say.
        """
        checked_whole("wait_ms", wait_ms, high=_WAIT_MS_MAX)
        asked = Message(mirror_status=pb.MirrorStatus(name=_named(mirror), wait_ms=wait_ms))
        answer = (await self._requests.ask(asked, wait_ms=wait_ms)).message.mirror_status_answer
        return MirrorStatus(shards=[_shard(one) for one in answer.shards], is_behind=answer.behind)

    async def verify(self, mirror: str, *, from_id: int = 0, until_id: int = 0, timeout_ms: int = VERIFY_MS) -> MirrorVerification:
        """Compare a mirror's topic with the log: which events are in both, by segment, offset, id and kind.

        It is about what was written by now of what the log keeps, behind `from_id` and up to `until_id`, 0 for any. Both are read as a
        whole, by the node that is asked.

        Raises:
            MirrorNotFound: there is none.
            KafkaFailed: Kafka is away.
        """
        asked = Message(verify_mirror=pb.VerifyMirror(name=_named(mirror), from_id=checked_id(from_id), until_id=checked_id(until_id)))
        answer = (await self._requests.ask(asked, timeout_ms=timeout_ms)).message.verify_mirror_answer
        return MirrorVerification(
            events=answer.events,
            records=answer.records,
            foreign=answer.foreign,
            differences=[
                MirrorDifference(segment=one.segment, offset=one.offset, id=one.id, in_log=one.in_log, in_topic=one.in_topic)
                for one in answer.differences
            ],
        )

    async def pause(self, mirror: str) -> MirrorInfo:
        """Have a mirror stand still. Raises MirrorNotFound."""
        return await self._change(pb.ChangeMirror(name=_named(mirror), pause=pb.Done()))

    async def resume(self, mirror: str, *, accept_diverged: bool = False) -> MirrorInfo:
        """Have a mirror go on, one that is halted too. Raises MirrorNotFound.

        With `accept_diverged` it goes on from places that a forced primary gave up: what it wrote of those events stays in the topic.
        """
        return await self._change(
            pb.ChangeMirror(name=_named(mirror), resume=pb.ResumeMirror(accept_diverged=checked_flag("accept_diverged", accept_diverged)))
        )

    async def reset(self, mirror: str, *, to: Start, dry_run: bool = False) -> MirrorInfo:
        """Have a paused mirror begin anew behind `to`; what it wrote already is not taken back.

        Raises:
            MirrorNotFound: there is none.
            MirrorRuns: it is not paused.
        """
        request = pb.ResetMirror(dry_run=checked_flag("dry_run", dry_run))
        _begin(request, to)
        return await self._change(pb.ChangeMirror(name=_named(mirror), reset=request))

    async def alter(
        self, mirror: str, *, interval_ms: int | None = None, hold: int | None = None, on_too_large: str | None = None
    ) -> MirrorInfo:
        """Have a mirror go on in another way, where it is; what is not given stays. What its records are cannot be altered.

        Raises:
            MirrorNotFound: there is none.
            InvalidArgument: a value cannot be.
            KafkaFailed: the topic of dead letters cannot be made.
        """
        request = pb.AlterMirror()
        _set(request, {"interval_ms": interval_ms, "hold_bytes": _checked_hold(hold), "on_too_large": on_too_large})
        return await self._change(pb.ChangeMirror(name=_named(mirror), alter=request))

    async def remove(self, mirror: str, *, delete_topics: bool = False) -> None:
        """Remove a mirror, and with `delete_topics` its topic. Raises MirrorNotFound."""
        change = pb.ChangeMirror(name=_named(mirror), remove=pb.RemoveMirror(delete_topics=checked_flag("delete_topics", delete_topics)))
        await self._requests.ask(Message(change_mirror=change), repeatable=False)

    async def _change(self, change: pb.ChangeMirror) -> MirrorInfo:
        reply = await self._requests.ask(Message(change_mirror=change), repeatable=False)
        return mirror_info(reply.message.list_mirrors_answer.mirrors[0])


def _named(mirror: str) -> str:
    """Return the name of a mirror. Raises InvalidArgument: it is none."""
    if not checked_text("mirror", mirror):
        raise InvalidArgument(why="name a mirror")
    return mirror


def _set(message: Any, given: Mapping[str, Any]) -> None:
    """Set what is given, which is what is not None: whole numbers, and text that is not empty."""
    for name, value in given.items():
        if value is None:
            continue
        if name in _WHOLE:
            setattr(message, name, checked_whole(name, value, low=1, high=_WHOLE[name]))
        elif checked_text(name, value):
            setattr(message, name, value)
        else:
            raise InvalidArgument(why=f"{name} is empty: leave it out, or give one")


def _begin(request: "pb.AddMirror | pb.ResetMirror", start: Start) -> None:
    if start == "earliest":
        request.earliest = True
    elif start == "latest":
        request.latest = True
    elif start == "snapshot":
        request.snapshot = True
    elif isinstance(start, int):
        request.id = checked_id(start)
    else:
        raise InvalidArgument(why=f"a mirror begins behind an id, at earliest, latest or snapshot, not at {start!r}")


def mirror_info(mirror: pb.Mirror) -> MirrorInfo:
    """Return a mirror as callers see it."""
    return MirrorInfo(
        name=mirror.name,
        cache=mirror.cache,
        kafka=mirror.kafka,
        topic=mirror.topic,
        progress_topic=mirror.progress_topic,
        partitions=mirror.partitions,
        shards=mirror.shards,
        format=mirror.format,
        encoding=mirror.encoding,
        key_field=mirror.key_field,
        tombstones=not mirror.no_tombstones,
        where=mirror.filter.where or None,
        select=tuple(mirror.filter.select),
        interval_ms=mirror.interval_ms,
        from_id=mirror.from_id,
        snapshot=mirror.snapshot,
        state=mirror.state,
        topic_settings=dict(mirror.topic_settings),
        on_too_large=mirror.on_too_large,
        registry=mirror.registry,
    )


def _checked_hold(hold: int | None) -> int | None:
    if hold is not None and not checked_whole("hold", hold, high=_WHOLE["hold_bytes"]):
        raise InvalidArgument(why="hold is 0: what retention took before it was in Kafka would never be there; give a size")
    return hold


def _checked_settings(given: Mapping[str, str]) -> dict[str, str]:
    return {checked_text("topic_settings", name): checked_text(name, text) for name, text in given.items()}


def _shard(one: pb.MirrorShard) -> ShardInfo:
    return ShardInfo(
        mirror=one.mirror,
        shard=one.shard,
        node=one.node,
        term=one.term,
        state=one.state,
        since_ms=one.since_ms,
        why=one.why,
        position=token_text(one.position) if one.position else "",
        position_id=one.position_id,
        lag_events=one.lag_events,
        lag_ms=one.lag_ms,
        events_per_second=one.events_per_second,
        events=one.events,
        transactions=one.transactions,
        aborts=one.aborts,
        dead_letters=one.dead_letters,
    )
