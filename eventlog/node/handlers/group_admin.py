"""Requests of operators about consumer groups. Their coordinator answers, or, for all of them, any node."""

import asyncio
from typing import Protocol

from eventlog.consume.membership.positions import Place
from eventlog.errors import GroupNotFound, InvalidArgument
from eventlog.ids import ID_MAX, id_before
from eventlog.node.cluster.primaries import time_to_ask
from eventlog.node.consumers import coordinator_admin as admin
from eventlog.node.consumers.coordinator import Coordinators, Running
from eventlog.node.consumers.coordinator_admin import GroupAdmin
from eventlog.node.consumers.shifting import Shifting
from eventlog.node.reading.answers import Reads
from eventlog.node.state.caches import Caches
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Done, Message


class GroupAdminHandlersGround(Protocol):
    """What this module needs of the node."""

    caches: Caches
    shifting: Shifting
    segments: int
    reads: Reads
    coordinators: Coordinators
    group_admin: GroupAdmin


async def list_groups(node: GroupAdminHandlersGround, exchange: Exchange) -> None:
    """Name all groups."""
    rows = await node.group_admin.list_groups()
    exchange.answer(Message(list_groups_answer=pb.ListGroupsAnswer(groups=len(rows))), admin.packed(rows))


async def describe_group(node: GroupAdminHandlersGround, exchange: Exchange) -> None:
    """Say who is in a group, and how far it is in each segment of each of its caches."""
    request = exchange.message.describe_group
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    found = await node.coordinators.find_all(request.group)
    for running in found:
        await running.tick()
    rows = [await node.group_admin.describe(running, lag=request.lag) for running in found]
    exchange.answer(Message(describe_group_answer=pb.DescribeGroupAnswer(caches=len(rows))), admin.packed(rows))


async def _chosen(node: GroupAdminHandlersGround, group: str, cache_id: int) -> list[Running]:
    found = [running for running in await node.coordinators.find_all(group) if cache_id in (0, running.id[1])]
    if not found:
        raise GroupNotFound(group=group)
    return found


async def reset_group(node: GroupAdminHandlersGround, exchange: Exchange) -> None:
    """Have a group go on elsewhere, or say what that would change."""
    request = exchange.message.reset_group
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    chosen = await _chosen(node, request.group, request.cache_id)
    segments = sorted(set(request.segments)) or list(range(node.segments))
    if segments[-1] >= node.segments:
        raise InvalidArgument(why=f"segment {segments[-1]} of {node.segments}")
    end = await _end(node)
    rows = []
    for running in chosen:
        await admin.check_empty(running)
    for running in chosen:
        ids = {segment: running.place(segment).id for segment in segments}
        if request.WhichOneof("to") == "shift_by":
            cache = node.caches.find(running.id[1])
            shifts = await node.shifting.shifted(cache, ids, request.shift_by, upto=end, timeout_ms=time_to_ask(exchange))
            places = {segment: Place(id=shift.id) for segment, shift in shifts.items()}
            more = {segment: {"events": shift.events} for segment, shift in shifts.items()}
        else:
            places, more = dict.fromkeys(segments, Place(id=_target(request, end))), {}
        moved = await admin.reset(running, places, dry_run=request.dry_run)
        rows += [{"cache": node.group_admin.cache_name(running.id[1]), **row, **more.get(row["segment"], {})} for row in moved]
    exchange.answer(Message(reset_group_answer=pb.ResetGroupAnswer(places=len(rows))), admin.packed(rows))


def _target(request: "pb.ResetGroup", end: int) -> int:
    to = request.WhichOneof("to")
    if to is None:
        raise InvalidArgument(why="say where the group is to go on: earliest, latest, an id, a time, or by how many events")
    if to == "earliest":
        return 0
    wanted = {"latest": ID_MAX, "id": request.id}.get(to)
    return min(id_before(request.time_ms) if wanted is None else wanted, end)  # what is yet to come is not passed over


async def _end(node: GroupAdminHandlersGround) -> int:
    """Return the id up to which everything is there."""
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    node.reads.end(lambda id_: None if end.done() else end.set_result(id_))
    return await end


async def delete_group(node: GroupAdminHandlersGround, exchange: Exchange) -> None:
    """Remove a group."""
    request = exchange.message.delete_group
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    chosen = await _chosen(node, request.group, request.cache_id)
    for running in chosen:
        await admin.check_empty(running)
    for running in chosen:
        await node.group_admin.delete(running)
    exchange.answer(Message(done=Done()))
