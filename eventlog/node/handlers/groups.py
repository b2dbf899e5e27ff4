"""Requests about consumer groups, of their members and of operators. Whichever node they reach, the group's coordinator answers them."""

from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Protocol, get_args

import msgspec
import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.control.caches import check_name
from eventlog.errors import BadMessage, GroupNotFound, InvalidArgument, NoEvents, TooLarge
from eventlog.groups.coordinator import Beat
from eventlog.groups.record import (
    AssignorName,
    Commit,
    GroupState,
    Member,
    Mode,
    Place,
    checked_name,
    checked_timeout,
    decode_places,
    decode_set,
    new_group,
)
from eventlog.groups.sharing import GIVEN_BACK, VERDICTS, Settled, Wanted
from eventlog.groups.work import TASK_ROW, QueuedEvent, Row
from eventlog.ids import ID_MAX, id_before
from eventlog.limits import DELIVERIES_MAX_DEFAULT, GROUP_METADATA_BYTES_MAX, SESSION_TIMEOUT_MS_DEFAULT, TASK_DELAY_MS_MAX, WORK_WINDOW_MAX
from eventlog.node.cluster.primaries import time_to_ask
from eventlog.node.consumers import coordinator_admin as admin
from eventlog.node.consumers import coordinator_via
from eventlog.node.consumers.coordinator import Coordinators, Running, via_of
from eventlog.node.consumers.coordinator_admin import CoordinatorAdmin
from eventlog.node.consumers.coordinator_lag import GroupLag
from eventlog.node.consumers.coordinator_via import MemberConnections
from eventlog.node.consumers.dead_letters import name_of
from eventlog.node.consumers.shifting import Shifting
from eventlog.node.consumers.work import Work
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import spec_of
from eventlog.predicate.spec import FilterSpec
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Done, Message

_DONE = Message(done=Done())
TEXT_BYTES_MAX = 200
TAKE_WAIT_MS_MAX = 5_000


class GroupsHandlersGround(Protocol):
    """What this module needs of the node."""

    shifting: Shifting
    caches: Caches
    segments: int
    reads: Reads
    coordinators: Coordinators
    group_lag: GroupLag
    group_admin: CoordinatorAdmin
    member_connections: MemberConnections


async def group_beat(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """A member lives: it joins, says what it reads, and is told what it is to read."""
    request = exchange.message.group_beat
    checked_name(request.group)
    member = _member(request)  # before anything is kept of it
    if not (exchange.message.forwarded or exchange.connection.is_inside):  # over HTTP many members share one connection
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


async def take_tasks(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Hand out events that nobody else works on."""
    request = exchange.message.take_tasks
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    if len(exchange.body) != 8 * request.holding or request.holding > _handed_out_max(node.segments):
        raise BadMessage(why=f"{request.holding} ids in {len(exchange.body)} bytes")
    holding = frozenset(np.frombuffer(exchange.body, "<i8").tolist())
    work = await _work(node, request.group, request.cache_id)
    wait_ms = min(request.wait_ms, TAKE_WAIT_MS_MAX)
    wanted = Wanted(sequence=request.sequence, limit=max(1, request.max_events), holding=holding, earliest=request.earliest)
    found = await work.take(request.member, wanted, wait_ms=wait_ms)
    message = Message(take_tasks_answer=pb.TakeTasksAnswer(tasks=len(found)))
    if not found:
        exchange.answer(message)
        return
    try:
        exchange.answer(message, _table(found), _block([row for _, row in found]))
    except TooLarge:  # nobody has seen them
        await work.settle(request.member, [Settled(segment=row.segment, id=task.id, verdict=GIVEN_BACK) for task, row in found])
        raise


def _handed_out_max(segments: int) -> int:
    """Return how many events of a group its members can have: a request for more is refused, as that takes the node's time."""
    return segments * WORK_WINDOW_MAX


async def _work(node: GroupsHandlersGround, group: str, cache_id: int) -> Work:
    running = await node.coordinators.find(group, cache_id)
    if running.work is None:
        raise InvalidArgument(why=f"group {group!r} has mode {running.state.mode}: its members read segments")
    return running.work


def _table(found: list[tuple[QueuedEvent, Row]]) -> bytes:
    rows = [(task.id, row.place.next_offset - 1, row.segment, min(task.deliveries, 0xFFFF), row.place.epoch, 0) for task, row in found]
    return np.array(rows, TASK_ROW).tobytes()


def _block(rows: list[Row]) -> bytes:
    columns = Columns(
        kinds=np.array([row.kind for row in rows], np.uint8),
        keys=[row.key for row in rows],
        values=[row.value for row in rows],
        before=[row.before or b"" for row in rows] if any(row.before is not None for row in rows) else None,
        headers=[row.headers or b"" for row in rows] if any(row.headers for row in rows) else None,
    )
    block, _ = build_blocks(columns, np.array([len(rows)]))
    return block


async def settle_tasks(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Keep what became of events."""
    request = exchange.message.settle_tasks
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    rows = _settled(exchange.body, request.tasks, at_most=_handed_out_max(node.segments))
    work = await _work(node, request.group, request.cache_id)
    await work.settle(request.member, rows)
    exchange.answer(Message(done=Done()))


SettledRow = tuple[int, int, int, int, str, int]  # as in `Settled`


@cache
def _decoder(rows_max: int) -> "msgspec.msgpack.Decoder[list[SettledRow]]":
    return msgspec.msgpack.Decoder(Annotated[list[SettledRow], msgspec.Meta(max_length=rows_max)])


def _settled(body: memoryview, count: int, *, at_most: int) -> list[Settled]:
    try:
        rows = _decoder(at_most).decode(body)
    except msgspec.MsgspecError as error:
        raise BadMessage(why=f"settled tasks: {error}") from error
    if len(rows) != count:
        raise BadMessage(why=f"{len(rows)} settled tasks instead of {count}")
    return [
        _checked(Settled(segment=segment, id=id_, verdict=verdict, after_ms=after_ms, reason=reason, deliveries=deliveries))
        for segment, id_, verdict, after_ms, reason, deliveries in rows
    ]


def _checked(row: Settled) -> Settled:
    """Refuse numbers that could not be kept; what they say about the group's events is looked at later."""
    if row.verdict not in VERDICTS:
        raise InvalidArgument(why=f"verdict {row.verdict} is not known")
    if not 0 <= row.id <= ID_MAX or not -1 <= row.after_ms <= TASK_DELAY_MS_MAX:
        raise InvalidArgument(why=f"id {row.id} is not in [0, {ID_MAX}], or {row.after_ms} ms not in [-1, {TASK_DELAY_MS_MAX}]")
    return row


async def list_groups(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Name all groups."""
    rows = await node.group_admin.list_groups()
    exchange.answer(Message(list_groups_answer=pb.ListGroupsAnswer(groups=len(rows))), admin.packed(rows))


async def describe_group(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Say who is in a group, and how far it is in each segment of each of its caches."""
    request = exchange.message.describe_group
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    found = await node.coordinators.find_all(request.group)
    for running in found:
        await running.tick()
    rows = [await node.group_admin.describe(running, lag=request.lag) for running in found]
    exchange.answer(Message(describe_group_answer=pb.DescribeGroupAnswer(caches=len(rows))), admin.packed(rows))


async def _chosen(node: GroupsHandlersGround, group: str, cache_id: int) -> list[Running]:
    found = [running for running in await node.coordinators.find_all(group) if cache_id in (0, running.id[1])]
    if not found:
        raise GroupNotFound(group=group)
    return found


async def reset_group(node: GroupsHandlersGround, exchange: Exchange) -> None:
    """Have a group go on elsewhere, or say what that would change."""
    request = exchange.message.reset_group
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    chosen = await _chosen(node, request.group, request.cache_id)
    segments = sorted(set(request.segments)) or list(range(node.segments))
    if segments[-1] >= node.segments:
        raise InvalidArgument(why=f"segment {segments[-1]} of {node.segments}")
    end = await node.reads.end_known(whole=False)
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


async def delete_group(node: GroupsHandlersGround, exchange: Exchange) -> None:
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
