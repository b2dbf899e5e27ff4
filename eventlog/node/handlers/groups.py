"""Requests about consumer groups. Whichever node they reach, the group's coordinator answers them."""

from dataclasses import replace
from functools import partial
from typing import Protocol, get_args

from eventlog.consume.membership.coordinator import Beat
from eventlog.consume.membership.positions import Commit
from eventlog.consume.membership.rows import decode_places, decode_set
from eventlog.consume.membership.values import AssignorName, GroupState, Member, Mode, checked_name, checked_timeout, new_group
from eventlog.control.caches import check_name
from eventlog.errors import InvalidArgument, NoEvents, TooLarge
from eventlog.ids import ID_MAX
from eventlog.limits import DELIVERIES_MAX_DEFAULT, GROUP_METADATA_BYTES_MAX, SESSION_TIMEOUT_MS_DEFAULT
from eventlog.node.consumers import coordinator_via
from eventlog.node.consumers.coordinator import Coordinators, via_of
from eventlog.node.consumers.coordinator_lag import GroupLag
from eventlog.node.consumers.coordinator_via import MemberConnections
from eventlog.node.consumers.dead_letters import name_of
from eventlog.node.consumers.shifting import Shifting
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import spec_of
from eventlog.node.state.caches import Caches, CacheState
from eventlog.predicate.spec import FilterSpec
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Done, Message

_DONE = Message(done=Done())
TEXT_BYTES_MAX = 200


class GroupsHandlersGround(Protocol):
    """What this module needs of the node."""

    shifting: Shifting
    caches: Caches
    segments: int
    reads: Reads
    coordinators: Coordinators
    group_lag: GroupLag
    member_connections: MemberConnections


async def group_beat(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """A member lives: it joins, says what it reads, and is told what it is to read."""
    request = exchange.message.group_beat
    checked_name(request.group)
    member = _member(request)  # before anything is kept of it
    if not exchange.message.forwarded:
        node.member_connections.speaks(exchange)
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    cache = node.caches.find(request.cache_id)
    if not cache.options.events:
        raise NoEvents(cache=cache.name)
    owned = decode_set(request.owned, node.segments)
    made = _new_group(node, request)
    if made.filter:
        await node.reads.filters.compile(cache, _spec(request), owner=exchange.connection)
    create = partial(_checked_new, made, cache) if request.epoch == 0 else None
    running = await node.coordinators.find(request.group, request.cache_id, create=create)
    if running.state.mode != (request.mode or "read"):
        raise InvalidArgument(why=f"group {request.group!r} has mode {running.state.mode}; choose another name for this one")
    if made.mode == "work":
        _check_same(made, running.state, cache, group=request.group)
    beat = Beat(
        member=replace(member, node=request.via_node),
        epoch=request.epoch,
        owned=owned,
        via=via_of(request),
        assignor=made.assignor,
    )
    await running.beat(exchange, beat, wait_ms=request.wait_ms)


def _member(request: "pb.GroupBeat") -> Member:
    for name, text in (("member", request.member), ("instance", request.instance), ("client", request.client)):
        if len(text.encode()) > TEXT_BYTES_MAX or not text.isprintable():
            raise InvalidArgument(why=f"{name} {text!r} is more than {TEXT_BYTES_MAX} bytes, or not printable")
    if not request.member:
        raise InvalidArgument(why="a member has an id")
    return Member(
        id=request.member,
        instance=request.instance,
        client=request.client,
        node=request.via_node,
        timeout_ms=checked_timeout(request.session_timeout_ms or SESSION_TIMEOUT_MS_DEFAULT),
    )


def _new_group(node: GroupsHandlersGround, request: "pb.GroupBeat") -> GroupState:
    modes: tuple[Mode, ...] = get_args(Mode)
    assignors: tuple[AssignorName, ...] = get_args(AssignorName)
    mode = next((mode for mode in modes if mode == (request.mode or "read")), None)
    assignor = next((name for name in assignors if name == (request.assignor or "uniform")), None)
    if mode is None or assignor is None:
        raise InvalidArgument(why=f"mode is one of {', '.join(modes)}, and assignor of {', '.join(assignors)}")
    if request.start_id > ID_MAX:
        raise InvalidArgument(why=f"start_id is {request.start_id}, not in [0, {ID_MAX}]")
    made = new_group(node.segments, mode=mode, assignor=assignor, start_id=request.start_id)
    if mode == "read":
        return made
    return replace(
        made,
        deliveries_max=request.deliveries_max,
        dead_letters=request.dead_letters,
        filter=b"" if spec_of(request.filter) is None else request.filter.SerializeToString(deterministic=True),
        ack_timeout_ms=request.ack_timeout_ms,
    )


def _checked_new(made: GroupState, cache: CacheState) -> GroupState:
    """Refuse a work group whose dead letters would have nowhere to go."""
    if made.mode == "work":
        name = name_of(made.dead_letters, cache)
        check_name(name)
        if name == cache.name:
            raise InvalidArgument(why=f"dead letters of {name!r} cannot go there: the group would be handed them again")
    return made


def _check_same(said: GroupState, group_is: GroupState, cache: CacheState, *, group: str) -> None:
    """Refuse a member that wants of a work group what its first member did not; what it leaves out, it takes as it is."""
    if said.filter and said.filter != group_is.filter:
        raise InvalidArgument(why=f"group {group!r} shares events of another filter; leave it out, or choose another name")
    for name, wanted, found in (
        ("max_deliveries", said.deliveries_max, group_is.deliveries_max or DELIVERIES_MAX_DEFAULT),
        ("ack_timeout_ms", said.ack_timeout_ms, group_is.ack_timeout_ms or None),
        ("dead_letters", said.dead_letters, name_of(group_is.dead_letters, cache)),
    ):
        if wanted and wanted != found:
            raise InvalidArgument(why=f"group {group!r} has {name} {found}, not {wanted}; leave it out, or choose another name")


def _spec(request: "pb.GroupBeat") -> FilterSpec:
    spec = spec_of(request.filter)
    if spec is None or spec.select or spec.continuous:
        raise InvalidArgument(why="a work group shares whole events: where and filter choose them")
    return spec


async def leave_group(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """A member says good-bye."""
    request = exchange.message.leave_group
    coordinator_via.left(exchange)
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    running = await node.coordinators.find(request.group, request.cache_id)
    await running.leave(request.member)
    exchange.answer(_DONE)


async def commit_group(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """A member has done what stands before some places."""
    request = exchange.message.commit_group
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    size = len(request.metadata.encode())
    if size > GROUP_METADATA_BYTES_MAX:
        raise TooLarge(what="the metadata of a commit", size=size, limit=GROUP_METADATA_BYTES_MAX)
    places = decode_places(exchange.body, rows=request.places, count=node.segments)
    running = await node.coordinators.find(request.group, request.cache_id)
    await running.commit(Commit(member=request.member, epoch=request.epoch, places=places, metadata=request.metadata))
    exchange.answer(_DONE)


def member_closed(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """A member's own connection to another node has closed."""
    node.coordinators.closed(exchange.message.member_closed)
    exchange.answer(_DONE)


async def group_lag(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Count for a coordinator what lies behind places of segments that are led here."""
    await node.group_lag.answer(exchange)


async def shift_places(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Move places by events, for another node's coordinator, where their segments are led here."""
    await node.shifting.answer(exchange)
