"""Mirrors and their shards as requests are answered, and what requests say of where one begins."""

from eventlog.errors import InvalidArgument
from eventlog.mirror.book import Mirror
from eventlog.mirror.shards import Report
from eventlog.wire import eventlog_pb2 as pb


def shown(mirror: Mirror, report: Report, *, node: str, lag: int, now_ms: int, now_s: float) -> pb.MirrorShard:
    """Return how a shard stands, with `lag` events that are not in Kafka yet; `now_ms` is since 1970, `now_s` of the report's clock."""
    return pb.MirrorShard(
        mirror=mirror.name,
        shard=report.shard,
        node=node,
        term=report.term,
        state=report.state,
        since_ms=report.since_ms,
        why=report.why,
        position=report.position,
        position_id=report.upto,
        lag_events=lag,
        lag_ms=report.lag_ms(now_ms) if lag else 0,
        events_per_second=report.rate(now_s),
        events=report.events,
        transactions=report.transactions,
        aborts=report.aborts,
        dead_letters=report.dead_letters,
    )


def is_behind(mirror: Mirror, shard: pb.MirrorShard) -> bool:
    """Return whether something is not in Kafka yet: events, or as far as is known entries of a snapshot."""
    return bool(shard.lag_events) or (mirror.has_snapshot and shard.state != "running")


def told(mirror: Mirror) -> pb.Mirror:
    """Return a mirror as it is answered."""
    found = pb.Mirror(
        name=mirror.name,
        cache=mirror.cache,
        cache_id=mirror.cache_id,
        kafka=mirror.kafka,
        topic=mirror.topic,
        prefix=mirror.prefix,
        progress_topic=mirror.progress_topic,
        partitions=mirror.partitions,
        shards=mirror.shards,
        format=mirror.format,
        encoding=mirror.encoding,
        key_field=mirror.key_field,
        no_tombstones=not mirror.has_tombstones,
        interval_ms=mirror.interval_ms,
        from_id=mirror.from_id,
        snapshot=mirror.has_snapshot,
        state=mirror.state,
        topic_settings=mirror.topic_settings,
        schema=mirror.schema,
        schema_type=mirror.schema_type,
        on_too_large=mirror.on_too_large,
        registry=mirror.registry,
    )
    if mirror.filter:
        found.filter.ParseFromString(mirror.filter)
    return found


def begin_at(request: "pb.AddMirror | pb.ResetMirror", *, last_id: int, first_id: int) -> int:
    """Return behind which id a mirror begins.

    Raises:
        InvalidArgument: nothing says where, or it lies ahead of everything.
    """
    kind = request.WhichOneof("from") if isinstance(request, pb.AddMirror) else request.WhichOneof("to")
    if kind == "earliest":
        return first_id - 1 if first_id else last_id
    if kind in {"latest", "snapshot"}:
        return last_id
    if kind != "id":
        raise InvalidArgument(why="say where to begin: earliest, latest, snapshot or an id")
    if request.id > last_id:
        raise InvalidArgument(why=f"id {request.id} lies ahead of the last one, {last_id}")
    return request.id
