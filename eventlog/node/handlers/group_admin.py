"""Requests of operators about consumer groups. Their coordinator answers, or, for all of them, any node."""

import asyncio
from typing import TYPE_CHECKING

from eventlog.consume.membership.positions import Place
from eventlog.errors import GroupNotFound, InvalidArgument
from eventlog.ids import ID_MAX, id_before
from eventlog.node.consumers import coordinator_admin as admin
from eventlog.node.consumers.coordinator import Running
from eventlog.node.handlers.groups import is_elsewhere
from eventlog.transport.exchange import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Done, Message

if TYPE_CHECKING:
    from eventlog.node.node import Node


async def list_groups(node: "Node", exchange: Exchange) -> None:
    """Name all groups."""
    rows = await admin.list_groups(node)
    exchange.answer(Message(list_groups_answer=pb.ListGroupsAnswer(groups=len(rows))), admin.packed(rows))


async def describe_group(node: "Node", exchange: Exchange) -> None:
    """Say who is in a group, and how far it is in each segment of each of its caches."""
    request = exchange.message.describe_group
    if is_elsewhere(node, exchange, request.group):
        return
    found = await node.coordinators.find_all(request.group)
    for running in found:
        await running.tick()
    rows = [await admin.describe(node, running, lag=request.lag) for running in found]
    exchange.answer(Message(describe_group_answer=pb.DescribeGroupAnswer(caches=len(rows))), admin.packed(rows))


async def _chosen(node: "Node", group: str, cache_id: int) -> list[Running]:
    found = [running for running in await node.coordinators.find_all(group) if cache_id in (0, running.id[1])]
    if not found:
        raise GroupNotFound(group=group)
    return found


async def reset_group(node: "Node", exchange: Exchange) -> None:
    """Have a group go on elsewhere, or say what that would change."""
    request = exchange.message.reset_group
    if is_elsewhere(node, exchange, request.group):
        return
    chosen = await _chosen(node, request.group, request.cache_id)
    segments = sorted(set(request.segments)) or list(range(node.segments))
    if segments[-1] >= node.segments:
        raise InvalidArgument(why=f"segment {segments[-1]} of {node.segments}")
    place = Place(id=await _target(node, request))
    rows = []
    for running in chosen:
        await admin.check_empty(running)
    for running in chosen:
        moved = await admin.reset(running, dict.fromkeys(segments, place), dry_run=request.dry_run)
        rows += [{"cache": admin.cache_name(node, running.id[1]), **row} for row in moved]
    exchange.answer(Message(reset_group_answer=pb.ResetGroupAnswer(places=len(rows))), admin.packed(rows))


async def _target(node: "Node", request: "pb.ResetGroup") -> int:
    to = request.WhichOneof("to")
    if to is None:
        raise InvalidArgument(why="say where the group is to go on: earliest, latest, an id or a time")
    if to == "earliest":
        return 0
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    node.reads.end(lambda id_: None if end.done() else end.set_result(id_))
    wanted = {"latest": ID_MAX, "id": request.id}.get(to)
    return min(id_before(request.time_ms) if wanted is None else wanted, await end)  # what is yet to come is not passed over


async def delete_group(node: "Node", exchange: Exchange) -> None:
    """Remove a group."""
    request = exchange.message.delete_group
    if is_elsewhere(node, exchange, request.group):
        return
    chosen = await _chosen(node, request.group, request.cache_id)
    for running in chosen:
        await admin.check_empty(running)
    for running in chosen:
        await admin.delete(node, running)
    exchange.answer(Message(done=Done()))
