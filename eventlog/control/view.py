"""Members and segments as they were read, and as they are after a commit of one's own."""

from collections.abc import Mapping
from dataclasses import dataclass

from eventlog.control.metastore import Listing
from eventlog.control.records import (
    NODE_PREFIX,
    SEGMENT_PREFIX,
    CommitPlan,
    Kind,
    NodeRecord,
    SegmentRecord,
    Versioned,
    decode,
    node_key,
    segment_key,
)
from eventlog.errors import CorruptData
from eventlog.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Records by number. It may be out of date: what is planned from it is committed against the revisions in it."""

    nodes: Mapping[int, Versioned[NodeRecord]]
    segments: Mapping[int, Versioned[SegmentRecord]]

    def after(self, plan: CommitPlan, revision: int) -> "ClusterView":
        """Return the view after `plan` was committed at `revision`."""
        nodes, segments = dict(self.nodes), dict(self.segments)
        for key, value in plan.puts.items():
            if key.startswith(NODE_PREFIX):
                node = decode(value, NodeRecord, where=key)
                nodes[node.number] = Versioned(node, revision)
            elif key.startswith(SEGMENT_PREFIX):
                segment = decode(value, SegmentRecord, where=key)
                segments[segment.segment] = Versioned(segment, revision)
        return ClusterView(nodes=nodes, segments=segments)

    def topology(self, segments: int) -> Topology:
        """Return the routing. Its epoch is the sum of the segments' epochs: it grows whenever a primary is appointed."""
        known = [self.segments.get(segment) for segment in range(segments)]
        return Topology(
            epoch=sum(found.record.epoch for found in known if found),
            primaries=tuple(found.record.primary if found else 0 for found in known),
            addresses={number: node.record.address for number, node in self.nodes.items() if not node.record.removed_id},
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


def _read(listing: Listing, prefix: str, kind: type[Kind]) -> dict[str, Versioned[Kind]]:
    return {
        item.key: Versioned(decode(item.value, kind, where=item.key), item.revision)
        for item in listing.items
        if item.key.startswith(prefix)
    }


def _check_key(found: str, right: str) -> None:
    if found != right:
        raise CorruptData(where=f"metadata {found}", why=f"it holds what belongs under {right}")
