"""Members, segments and what else steers the cluster, as they were read, and as they are after a commit or a change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eventlog.control.metastore import Listing, RevisionChanges
from eventlog.control.records import (
    CLUSTER_KEY,
    CONTROLLER_KEY,
    LOST_PREFIX,
    NODE_PREFIX,
    REBALANCE_KEY,
    SEGMENT_PREFIX,
    SETTINGS_KEY,
    ClusterKey,
    ClusterSettings,
    CommitPlan,
    ControllerRecord,
    Kind,
    LostRange,
    LostRanges,
    NodeRecord,
    RebalanceRecord,
    SegmentRecord,
    Versioned,
    decode,
    node_key,
    segment_key,
)
from eventlog.errors import CorruptData
from eventlog.topology import Topology

PREFIXES = (NODE_PREFIX, SEGMENT_PREFIX, LOST_PREFIX, SETTINGS_KEY, CONTROLLER_KEY, REBALANCE_KEY, CLUSTER_KEY)


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """Records by number. It may be out of date: what is planned from it is committed against the revisions in it.

    `settings`, `controller`, `rebalance` and `key` are None where their key is not there. `revision` is that of the last change seen.
    """

    nodes: Mapping[int, Versioned[NodeRecord]]
    segments: Mapping[int, Versioned[SegmentRecord]]
    lost: Mapping[int, Versioned[LostRanges]] = field(default_factory=dict)
    settings: Versioned[ClusterSettings] | None = None
    controller: Versioned[ControllerRecord] | None = None
    rebalance: Versioned[RebalanceRecord] | None = None
    key: Versioned[ClusterKey] | None = None
    revision: int = 0

    # ------------------------------------------------------------ what follows from it

    @property
    def removed_names(self) -> frozenset[str]:
        """Return the names of removed members that no member has now."""
        return frozenset(node.record.name for node in self.nodes.values()) - {node.name for node in self.members.values()}

    @cached_property
    def members(self) -> Mapping[int, NodeRecord]:
        """Return the members, by number: all that were not removed."""
        return {number: found.record for number, found in sorted(self.nodes.items()) if found.record.is_member}

    @property
    def highest_ceiling(self) -> int:
        """Return the highest ceiling of a lease, below which all ids were issued."""
        return max((found.record.ceiling for found in self.nodes.values()), default=0)

    @cached_property
    def replicas(self) -> int:
        """Return the effective replicas: as many as were set, or as there are members to hold them, dead ones included.

        A drained member does not count, or draining one of three would wait for ever.
        """
        wanted = self.settings.record.replicas if self.settings else ClusterSettings().replicas
        return max(1, min(wanted, sum(node.holds_data for node in self.members.values())))

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Return the cluster keys that are valid, the newest first."""
        if self.key is None:
            return ()
        return (self.key.record.key,) if self.key.record.previous is None else (self.key.record.key, self.key.record.previous)

    def lost_ranges(self, segment: int) -> tuple[LostRange, ...]:
        """Return what forced takeovers of a segment gave up."""
        found = self.lost.get(segment)
        return found.record.ranges if found else ()

    def named(self, name: str) -> NodeRecord | None:
        """Return the member of this name, or else whose number it is: a name may look like another's number."""
        members = self.members.values()
        by_name = next((node for node in members if node.name == name), None)
        return by_name or next((node for node in members if str(node.number) == name), None)

    def topology(self, segments: int) -> Topology:
        """Return the routing. Its epoch is the sum of the segments' epochs: it grows whenever a primary is appointed."""
        known = [self.segments.get(segment) for segment in range(segments)]
        return Topology(
            epoch=sum(found.record.epoch for found in known if found),
            primaries=tuple(found.record.primary if found else 0 for found in known),
            addresses={number: node.address for number, node in self.members.items()},
        )

    # ------------------------------------------------------------ what changes it

    def after(self, plan: CommitPlan, revision: int) -> "ClusterView":
        """Return the view after `plan` was committed at `revision`."""
        changes = [*plan.puts.items(), *((key, None) for key in plan.deletes)]
        return self._changed([(key, value) for key, value in changes if key.startswith(PREFIXES)], revision)

    def applied(self, changes: RevisionChanges) -> "ClusterView":
        """Return the view after the changes of one revision; it is itself if they are older, or nothing of the cluster's."""
        seen = [(change.key, change.value) for change in changes.changes if change.key.startswith(PREFIXES)]
        return self._changed(seen, changes.revision) if seen else self

    def _changed(self, changes: Iterable[tuple[str, bytes | None]], revision: int) -> "ClusterView":
        tables: dict[str, Any] = {}
        single: dict[str, Any] = {}
        for key, value in changes:
            name, kind, number = _slot(key)
            if number is None:
                if _revision(getattr(self, name)) < revision:
                    single[name] = None if value is None else Versioned(decode(value, kind, where=key), revision)
                continue
            table = tables.setdefault(name, dict(getattr(self, name)))
            if _revision(table.get(number)) >= revision:
                continue  # a listing was newer than the watch
            if value is None:
                table.pop(number, None)
            else:
                table[number] = Versioned(decode(value, kind, where=key), revision)
        return replace(self, **tables, **single, revision=max(self.revision, revision))


def read_view(listings: Mapping[str, Listing]) -> ClusterView:
    """Return the view in the listings of all `PREFIXES`; it is as old as the oldest of them, and watching goes on from there.

    Raises:
        CorruptData: a record is damaged.
    """
    lost = _read(listings[LOST_PREFIX], LOST_PREFIX, LostRanges)
    return ClusterView(
        nodes=read_nodes(listings[NODE_PREFIX]),
        segments=read_segments(listings[SEGMENT_PREFIX]),
        lost={ranges.record.segment: ranges for ranges in lost.values()},
        settings=_read(listings[SETTINGS_KEY], SETTINGS_KEY, ClusterSettings).get(SETTINGS_KEY),
        controller=_read(listings[CONTROLLER_KEY], CONTROLLER_KEY, ControllerRecord).get(CONTROLLER_KEY),
        rebalance=_read(listings[REBALANCE_KEY], REBALANCE_KEY, RebalanceRecord).get(REBALANCE_KEY),
        key=_read(listings[CLUSTER_KEY], CLUSTER_KEY, ClusterKey).get(CLUSTER_KEY),
        revision=min(listing.revision for listing in listings.values()),
    )


def read_nodes(listing: Listing) -> dict[int, Versioned[NodeRecord]]:
    """Return the node records of a listing by number.

    Raises:
        CorruptData: one of them is damaged, or lies under another number's key.
    """
    found = _read(listing, NODE_PREFIX, NodeRecord)
    for key, node in found.items():
        _check_key(key, node_key(node.record.number))
    return {node.record.number: node for node in found.values()}


def read_segments(listing: Listing) -> dict[int, Versioned[SegmentRecord]]:
    """Return the segment records of a listing by segment.

    Raises:
        CorruptData: one of them is damaged, or lies under another segment's key.
    """
    found = _read(listing, SEGMENT_PREFIX, SegmentRecord)
    for key, segment in found.items():
        _check_key(key, segment_key(segment.record.segment))
    return {segment.record.segment: segment for segment in found.values()}


_SINGLE: Mapping[str, tuple[str, Any]] = {
    SETTINGS_KEY: ("settings", ClusterSettings),
    CONTROLLER_KEY: ("controller", ControllerRecord),
    REBALANCE_KEY: ("rebalance", RebalanceRecord),
    CLUSTER_KEY: ("key", ClusterKey),
}
_TABLES: tuple[tuple[str, str, Any], ...] = (
    (NODE_PREFIX, "nodes", NodeRecord),
    (SEGMENT_PREFIX, "segments", SegmentRecord),
    (LOST_PREFIX, "lost", LostRanges),
)


def _slot(key: str) -> tuple[str, Any, int | None]:
    """Return which field of the view a key belongs to, the kind of its record, and its number, None where there is one only."""
    if key in _SINGLE:
        return *_SINGLE[key], None
    for prefix, name, kind in _TABLES:
        if key.startswith(prefix):
            number = key.removeprefix(prefix)
            if not number.isdecimal():
                raise CorruptData(where=f"metadata {key}", why="a number was expected in its key")
            return name, kind, int(number)
    raise CorruptData(where=f"metadata {key}", why="nobody knows what it is")


def _revision(found: Versioned[Any] | None) -> int:
    return found.revision if found else 0


def _read(listing: Listing, prefix: str, kind: type[Kind]) -> dict[str, Versioned[Kind]]:
    return {
        item.key: Versioned(decode(item.value, kind, where=item.key), item.revision)
        for item in listing.items
        if item.key.startswith(prefix)
    }


def _check_key(found: str, right: str) -> None:
    if found != right:
        raise CorruptData(where=f"metadata {found}", why=f"it holds what belongs under {right}")
