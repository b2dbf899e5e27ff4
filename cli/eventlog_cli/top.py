"""`eventlog top`: the cluster at work, drawn anew every other second."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from eventlog.errors import GroupNotFound, Unavailable
from eventlog_cli.conventions import common_options, open_operator_client
from eventlog_cli.output import rounds, show, show_error, table
from eventlog_cli.parameters import POSITIVE, SPAN, format_seconds, format_size

if TYPE_CHECKING:
    from eventlog.blocking import Client
    from eventlog.client.cluster import NodeInfo
    from eventlog.client.groups import GroupDescription
    from eventlog.client.reports import SegmentInfo, Status

READERS_MAX = 20
"""Groups that are asked for how far they are; each asks every primary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLag:
    """A group or durable listener, and how much it has yet to read. A lag of None is not known just now."""

    kind: str
    name: str
    cache: str
    lag_events: int | None
    lag_ms: int | None
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the cluster said at one moment, `seconds` by the monotonic clock."""

    seconds: float
    status: "Status"
    nodes: "Sequence[NodeInfo]"
    segments: "Sequence[SegmentInfo]"
    readers: Sequence[ReaderLag]


@click.command("top")
@click.option("--interval", "interval_ms", type=SPAN, default="2s", show_default=True, help="Ask at this interval.")
@click.option("--count", type=POSITIVE, metavar="N", help="End after N pages.")
@common_options
def command(*, interval_ms: int, count: int | None) -> None:
    """Show nodes, rates, lag, and what is held up by which node, until Ctrl-C.

    Rates are of events kept since the page before; what retention removed meanwhile is not in them. Where no node answers for the last
    of N pages the exit code is that of the error.
    """
    before: Observed | None = None
    failed: Unavailable | None = None
    with open_operator_client() as client:
        for _ in rounds(interval_ms, count):
            try:
                sample = _sample(client)
            except Unavailable as error:
                show_error(error)
                failed = error
                continue
            show(as_row(sample, before), page(sample, before))
            before, failed = sample, None
    if failed is not None:
        click.get_current_context().exit(failed.exit_code)


def _sample(client: "Client") -> Observed:
    seconds = time.monotonic()
    status, nodes, segments = client.status(), client.admin.nodes(), client.segments()
    return Observed(seconds=seconds, status=status, nodes=nodes, segments=segments, readers=_readers(client))


def _readers(client: "Client") -> list[ReaderLag]:
    found = []
    for name in list(dict.fromkeys(group.group for group in client.groups.list()))[:READERS_MAX]:
        with suppress(GroupNotFound):  # deleted just now
            found += [_group(one) for one in client.groups.describe(name)]
    for listener in client.listeners.list():
        if listener.durable:
            remark = f"{listener.held_percent} % of what it may hold back" if listener.hold_bytes or listener.hold_ms else ""
            found.append(
                ReaderLag(
                    kind="listener",
                    name=listener.id,
                    cache=listener.cache,
                    lag_events=listener.lag_events,
                    lag_ms=listener.lag_ms,
                    remark=remark,
                )
            )
    return sorted(found, key=lambda reader: -(reader.lag_events or 0))


def _group(one: "GroupDescription") -> ReaderLag:
    known = [row.lag_events for row in one.segments if row.lag_events is not None]
    return ReaderLag(
        kind="group",
        name=one.group,
        cache=one.cache,
        lag_events=sum(known) if len(known) == len(one.segments) else None,
        lag_ms=max((row.lag_ms or 0 for row in one.segments), default=0),
        remark=f"{len(one.members)} members" if one.members else "nobody reads",
    )


def rates(sample: Observed, before: Observed | None) -> dict[str, float]:
    """Return events a second by the node that leads their segments; {} for the first sample."""
    if before is None or sample.seconds <= before.seconds:
        return {}
    had = {segment.segment: segment.events for segment in before.segments}
    new: Counter[str] = Counter()
    for segment in sample.segments:
        new[segment.primary] += max(segment.events - had.get(segment.segment, segment.events), 0)
    return {name: count / (sample.seconds - before.seconds) for name, count in new.items()}


def page(sample: Observed, before: Observed | None) -> list[str]:
    """Return the lines of one page."""
    status, per_second = sample.status, rates(sample, before)
    kept, size = sum(segment.events for segment in sample.segments), sum(segment.bytes for segment in sample.segments)
    written = f", {sum(per_second.values()):,.0f} written a second" if before else ""
    held = f", held by {status.held_by}" if status.held_by else ""
    lines = [
        f"{status.cluster}  {status.health}  {status.nodes_live} of {status.nodes} nodes live, rebalance {status.rebalance}",
        f"{kept:,} events, {format_size(size)}{written}",
        f"low watermark {status.low_watermark_age_ms} ms old{held}",
        "",
        table(("node", "address", "state", "primaries", "segments", "written/s"), [_node(node, per_second) for node in sample.nodes]),
    ]
    if sample.readers:
        rows = [
            (
                reader.kind,
                reader.name,
                reader.cache,
                reader.lag_events,
                None if reader.lag_ms is None else format_seconds(reader.lag_ms / 1_000),
                reader.remark,
            )
            for reader in sample.readers
        ]
        lines += ["", table(("reader", "name", "cache", "lag", "oldest", "remark"), rows)]
    return [*lines, "", *(f"next: {advice}" for advice in status.advice or ("nothing to do",))]


def _node(node: "NodeInfo", per_second: dict[str, float]) -> tuple[object, ...]:
    written = f"{per_second.get(node.name, 0):,.0f}" if per_second else None
    return node.name, node.address, node.state, node.primaries, node.segments, written


def as_row(sample: Observed, before: Observed | None) -> dict[str, Any]:
    """Return a page as one JSON object."""
    per_second = rates(sample, before)
    return {
        "cluster": sample.status.cluster,
        "health": sample.status.health,
        "events": sum(segment.events for segment in sample.segments),
        "bytes": sum(segment.bytes for segment in sample.segments),
        "written_per_second": round(sum(per_second.values()), 1) if before else None,
        "low_watermark_age_ms": sample.status.low_watermark_age_ms,
        "held_by": sample.status.held_by or None,
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "state": node.state,
                "primaries": node.primaries,
                "segments": node.segments,
                "written_per_second": round(per_second[node.name], 1) if node.name in per_second else None,
            }
            for node in sample.nodes
        ],
        "readers": [
            {
                "kind": reader.kind,
                "name": reader.name,
                "cache": reader.cache,
                "lag": reader.lag_events,
                "lag_seconds": None if reader.lag_ms is None else reader.lag_ms / 1_000,
                "remark": reader.remark,
            }
            for reader in sample.readers
        ],
        "advice": list(sample.status.advice),
    }
