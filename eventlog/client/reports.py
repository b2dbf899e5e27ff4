"""What a client is told of logs, segments and the cluster, and how messages say it. Plain values: nothing here knows a connection."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from eventlog.events import Event
from eventlog.wire import eventlog_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """A segment whose primary holds ordered readers up, and since when (milliseconds since 1970)."""

    segment: int
    node: int
    since_ms: int

    def __str__(self) -> str:
        who = f"node {self.node}" if self.node else "nobody"
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"segment {self.segment}, which {who} leads, holds readers of all events since {since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a poll found. `position` and `last_id` are where to go on, also past what is not in `events`.

    `is_end`: there was nothing more at that moment. Everything committed up to `low_watermark` could be read.
    `held_percent`: how much a durable listener has used up of what it may hold back, if that is much.
    """

    events: Sequence[Event]
    position: str
    last_id: int
    is_end: bool
    low_watermark: int
    stalled: Sequence[Stalled]
    held_percent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """Where a cache's log begins and ends. `first_id` is None if nothing is kept; `last_id` is the low watermark.

    `events` are kept in the segments that the node has a copy of which was asked: all of them where there are no more nodes than replicas.

    `stalled` are the segments that hold it, where it stands still: there is more above it. `tail_id` is the id behind which the last
    events are, as many as were asked about, 0 where there are no more than these; None where that was not asked.
    `is_behind`: something that was committed before the question may lie above `last_id`, in a segment that nobody leads now.
    """

    first_id: int | None
    last_id: int
    events: int
    stalled: Sequence[Stalled] = ()
    tail_id: int | None = None
    is_behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Events in `(after, upto]`: `upto` is `after` where there is none. `bytes` are an estimate, of values as they are stored.

    `first_id` is of the first of them, None where there is none. `trimmed`: retention has taken events behind `after`. `segments` are those
    that have some. Of a cluster with nodes of an earlier version `first_id` is None and `segments` are empty.
    """

    after: int
    upto: int
    events: int
    bytes: int
    first_id: int | None = None
    trimmed: bool = False
    segments: "tuple[PlannedSegment, ...]" = ()

    def within(self, segments: Collection[int]) -> tuple[int, int]:
        """Return how many events some segments have of it, and about how many bytes."""
        own = [one for one in self.segments if one.segment in segments]
        return sum(one.events for one in own), sum(one.bytes for one in own)


class PlannedSegment(NamedTuple):
    """What a segment has of a plan, and the address of the node that led it as it was counted, empty where that is not known."""

    segment: int
    primary: str
    events: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The cluster as one node sees it. `advice` says what to do next."""

    cluster: str
    health: str
    controller: str
    metastore: str
    nodes: int
    nodes_live: int
    segments: int
    without_primary: int
    under_replicated: int
    low_watermark: int
    low_watermark_age_ms: int
    held_by: str
    rebalance: str
    advice: Sequence[str]
    unwritable: int = 0
    unreadable: int = 0
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What of the cluster works now: shares of the segments, 0 to 1, that can be written and read, and the nodes that are missing."""

    writable: float
    readable: float
    missing: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """One segment of the cluster, or of one cache in it. `under_replicated`: fewer copies are in sync and there than the cluster keeps.

    `unwritable`, `unreadable`: its primary lacks in-sync replicas for that, or it has none.
    """

    segment: int
    primary: str
    owners: Sequence[str]
    in_sync: Sequence[str]
    epoch: int
    first_id: int
    last_id: int
    high_watermark: int
    events: int
    bytes: int
    under_replicated: bool
    unwritable: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRow:
    """What retention removed, or would remove, of one segment of a cache; `first_id` is the first id kept."""

    cache: str
    segment: int
    removed: int
    first_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBack:
    """A durable listener but for which retention would remove more: what it has acknowledged, and how much of its hold is used up.

    At a `held_percent` of 100 and above a run warns it, unless one has before, and the next run removes what is beyond the hold.
    """

    listener: str
    position_id: int
    hold_bytes: int
    hold_ms: int
    held_percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRun:
    """What one run of retention did, or would do. Everything up to `cut_id` was looked at; `kept_back` says which listeners keep more."""

    rows: Sequence[RetentionRow]
    removed: int
    cut_id: int
    kept_back: Sequence[KeptBack] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check of stored data read, and what it found wrong."""

    values: int
    events: int
    entries: int
    problems: Sequence[str]


def log_ends(answer: pb.LogEndsAnswer) -> LogEnds:
    """Return the ends of a log."""
    return LogEnds(
        first_id=answer.first_id or None,
        last_id=answer.last_id,
        events=answer.events,
        stalled=stalled(answer),
        is_behind=answer.is_behind,
    )


def status(answer: pb.StatusAnswer) -> Status:
    """Return a status."""
    return Status(
        cluster=answer.cluster,
        health=answer.health,
        controller=answer.controller,
        metastore=answer.metastore,
        nodes=answer.nodes,
        nodes_live=answer.nodes_live,
        segments=answer.segments,
        without_primary=answer.without_primary,
        under_replicated=answer.under_replicated,
        low_watermark=answer.low_watermark,
        low_watermark_age_ms=answer.low_watermark_age_ms,
        held_by=answer.held_by,
        rebalance=answer.rebalance,
        advice=tuple(answer.advice),
        unwritable=answer.unwritable,
        unreadable=answer.unreadable,
        missing=tuple(answer.missing),
    )


def segment_info(segment: pb.SegmentDescription) -> SegmentInfo:
    """Return a segment."""
    return SegmentInfo(
        segment=segment.segment,
        primary=segment.primary,
        owners=tuple(segment.owners),
        in_sync=tuple(segment.in_sync),
        epoch=segment.epoch,
        first_id=segment.first_id,
        last_id=segment.last_id,
        high_watermark=segment.high_watermark,
        events=segment.events,
        bytes=segment.bytes,
        under_replicated=segment.under_replicated,
        unwritable=segment.unwritable,
        unreadable=segment.unreadable,
    )


def retention_run(answer: pb.RunRetentionAnswer) -> RetentionRun:
    """Return what retention did."""
    rows = tuple(RetentionRow(cache=row.cache, segment=row.segment, removed=row.removed, first_id=row.first_id) for row in answer.rows)
    kept_back = tuple(
        KeptBack(listener=one.listener, position_id=one.id, hold_bytes=one.hold_bytes, hold_ms=one.hold_ms, held_percent=one.percent)
        for one in answer.kept_back
    )
    return RetentionRun(rows=rows, removed=answer.removed, cut_id=answer.cut_id, kept_back=kept_back)


def check_report(answer: pb.CheckDataAnswer) -> CheckReport:
    """Return what a check found."""
    return CheckReport(values=answer.values, events=answer.events, entries=answer.entries, problems=tuple(answer.problems))


def stalled(answer: pb.PollAnswer | pb.LogEndsAnswer) -> tuple[Stalled, ...]:
    """Return which segments hold a reader up."""
    return tuple(Stalled(segment=row.segment, node=row.node, since_ms=row.since_ms) for row in answer.stalled)
