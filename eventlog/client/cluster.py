"""What operators ask of a cluster: its members, moving segments between them, comparing copies, forcing a replica to take over."""

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.client.connections.requests import Requests
from eventlog.client.values import Shown, checked_text, checked_whole
from eventlog.limits import KEY_OVERLAP_MS_DEFAULT
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

FORCE_WAIT_MS = 60_000  # every live node is asked for the ends of its logs


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A member. `state` is live, suspect, down or draining; `segments` counts what it holds or is to hold."""

    number: int
    name: str
    address: str
    state: str
    primaries: int
    segments: int
    host_label: str
    rack: str
    weight: int
    gateway: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A segment on its way, or to be moved, to other owners; primaries first. `bytes` are to be copied, 0 if not known.

    `copied` is how many have been sent so far.
    """

    segment: int
    owners: Sequence[str]
    target: Sequence[str]
    bytes: int
    copied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceInfo:
    """The last rebalancing: `state` is idle, running, cancelled or done; `started_ms` since 1970."""

    state: str
    moves_total: int
    moves_done: int
    bytes_total: int
    bytes_done: int
    throttle_bytes: int
    started_ms: int
    moving: Sequence[Move]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDigest:
    """The checksum of one member's copy of a segment; equal copies have equal figures.

    `digest` is of the log, `state_digest` of the `entries`; those that change while they are compared are left out.
    """

    segment: int
    node: str
    events: int
    last_id: int
    digest: int
    entries: int
    state_digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedInfo:
    """A replica that could be, or was, forced to lead; ids in `(last_id, upto]` may be lost. `why_not`: it could not.

    `longer` names a node that could be forced as well and whose log has more.
    """

    segment: int
    node: str
    last_id: int
    upto: int
    chosen: bool
    why_not: str
    longer: str = ""


class ClusterAdmin(Shown):
    """The requests of operators; any node carries them out. What is asked for is committed when a call returns, what follows is not."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def _described(self) -> str:
        return f": {self._requests}"

    async def nodes(self) -> list[NodeInfo]:
        """Return the members, by number."""
        reply = await self._requests.ask(Message(list_nodes=pb.ListNodes()))
        names = NodeInfo.__dataclass_fields__
        return [NodeInfo(**{name: getattr(node, name) for name in names}) for node in reply.message.list_nodes_answer.nodes]

    async def drain(self, node: str, *, cancel: bool = False) -> bool:
        """Begin to empty a node, or stop that; return whether anything changed."""
        return await self._change(pb.ChangeCluster(drain=pb.DrainNode(node=checked_text("node", node), cancel=cancel)))

    async def remove(self, node: str) -> bool:
        """Remove a node that is down or holds nothing, for ever.

        Raises:
            OperationRefused: it alone holds what was committed in some segments, or is up and holds segments.
        """
        return await self._change(pb.ChangeCluster(remove=checked_text("node", node)))

    async def replace(self, old: str, new: str) -> bool:
        """Begin to move everything of one node to another."""
        return await self._change(pb.ChangeCluster(replace=pb.ReplaceNode(old=checked_text("old", old), new=checked_text("new", new))))

    async def set_replicas(self, replicas: int) -> bool:
        """Set how many copies each segment shall have."""
        return await self._change(pb.ChangeCluster(replicas=checked_whole("replicas", replicas)))

    async def rotate_key(self, *, overlap_ms: int = KEY_OVERLAP_MS_DEFAULT) -> bool:
        """Replace the key by which members know each other; the one before goes on to hold for `overlap_ms`.

        Raises:
            OperationRefused: the one before the last has not ended.
        """
        return await self._change(
            pb.ChangeCluster(rotate_key=pb.RotateKey(overlap_ms=checked_whole("overlap_ms", overlap_ms))), repeatable=False
        )

    # ------------------------------------------------------------ rebalancing

    async def plan_rebalance(self) -> list[Move]:
        """Return what a rebalancing begun now would move."""
        reply = await self._requests.ask(Message(plan_rebalance=pb.PlanRebalance()))
        return [_move(move) for move in reply.message.plan_rebalance_answer.moves]

    async def start_rebalance(self, *, throttle_bytes: int = 0) -> bool:
        """Begin to even out load; return False if it is even. `throttle_bytes` a second at most, 0: no limit.

        Raises:
            OperationRefused: one is running.
        """
        request = pb.ChangeCluster(
            start_rebalance=pb.StartRebalance(throttle_bytes=checked_whole("throttle_bytes", throttle_bytes, high=1 << 53))
        )
        return await self._change(request, repeatable=False)

    async def cancel_rebalance(self) -> bool:
        """Stop moving segments: half-made copies go, whole ones stay or go.

        Raises:
            OperationRefused: none is running.
        """
        return await self._change(pb.ChangeCluster(cancel_rebalance=pb.CancelRebalance()))

    async def rebalance_status(self) -> RebalanceInfo:
        """Return how far the last rebalancing is."""
        found = (await self._requests.ask(Message(rebalance_status=pb.RebalanceStatus()))).message.rebalance_status_answer
        return RebalanceInfo(
            state=found.state,
            moves_total=found.moves_total,
            moves_done=found.moves_done,
            bytes_total=found.bytes_total,
            bytes_done=found.bytes_done,
            throttle_bytes=found.throttle_bytes,
            started_ms=found.started_ms,
            moving=[_move(move) for move in found.moving],
        )

    async def compare_copies(self, segments: Sequence[int], *, timeout_ms: int = 0) -> list[CopyDigest]:
        """Return the checksums of all copies of these segments, up to what all of them have; a copy that is not reached is missing.

        The copies are read whole: give it time.
        """
        request = pb.CompareCopies(segments=[checked_whole("segment", segment) for segment in segments])
        reply = await self._requests.ask(Message(compare_copies=request), wait_ms=timeout_ms)
        names = CopyDigest.__dataclass_fields__
        return [CopyDigest(**{name: getattr(found, name) for name in names}) for found in reply.message.digest_segments_answer.digests]

    # ------------------------------------------------------------ the last resort

    async def force_primary(
        self, segments: Sequence[int] | None, *, node: str = "", dry_run: bool = False, accept_data_loss: bool = False
    ) -> list[ForcedInfo]:
        """Let replicas lead that may lack committed events, where nobody else can; return all candidates, or the replicas of `node`.

        `segments` None: all that need it. `node` empty: of each the one with the longest log.

        Raises:
            OperationRefused: a segment does not need it, nobody can be forced, or the loss was not accepted.
        """
        named = [checked_whole("segment", segment) for segment in segments or ()]
        request = pb.ForcePrimary(
            segments=named, all_lost=segments is None, node=checked_text("node", node), dry_run=dry_run, accept_data_loss=accept_data_loss
        )
        reply = await self._requests.ask(Message(force_primary=request), repeatable=dry_run, wait_ms=FORCE_WAIT_MS)
        names = ForcedInfo.__dataclass_fields__
        return [ForcedInfo(**{name: getattr(found, name) for name in names}) for found in reply.message.force_primary_answer.replicas]

    async def _change(self, change: pb.ChangeCluster, *, repeatable: bool = True) -> bool:
        reply = await self._requests.ask(Message(change_cluster=change), repeatable=repeatable)
        return reply.message.change_cluster_answer.commits > 0


def _move(move: pb.SegmentMove) -> Move:
    return Move(segment=move.segment, owners=tuple(move.owners), target=tuple(move.target), bytes=move.bytes, copied=move.copied)
