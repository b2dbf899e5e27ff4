"""Requests of members of work groups: events to work on, and what became of them. The group's coordinator answers."""

from functools import cache
from typing import Annotated, Protocol

import msgspec
import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.consume.work.queue import Task
from eventlog.consume.work.record import TASK_ROW
from eventlog.errors import BadMessage, InvalidArgument, TooLarge
from eventlog.ids import ID_MAX
from eventlog.limits import TASK_DELAY_MS_MAX, WORK_WINDOW_MAX
from eventlog.node.consumers.coordinator import Coordinators
from eventlog.node.consumers.work import Work
from eventlog.node.consumers.work_reading import Row
from eventlog.node.consumers.work_requests import GIVEN_BACK, VERDICTS, Settled, Wanted
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Done, Message

TAKE_WAIT_MS_MAX = 5_000


class WorkHandlersGround(Protocol):
    """What this module needs of the node."""

    segments: int
    coordinators: Coordinators


async def take_tasks(node: WorkHandlersGround, exchange: Exchange) -> None:
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
    """Return how many events of a group its members can have: whoever speaks of more is not listened to, as that takes the node's time."""
    return segments * WORK_WINDOW_MAX


async def _work(node: WorkHandlersGround, group: str, cache_id: int) -> Work:
    running = await node.coordinators.find(group, cache_id)
    if running.work is None:
        raise InvalidArgument(why=f"group {group!r} has mode {running.state.mode}: its members read segments")
    return running.work


def _table(found: list[tuple[Task, Row]]) -> bytes:
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


async def settle_tasks(node: WorkHandlersGround, exchange: Exchange) -> None:
    """Keep what became of events."""
    request = exchange.message.settle_tasks
    if node.coordinators.is_elsewhere(exchange, request.group):
        return
    rows = _settled(exchange.body, request.tasks, at_most=_handed_out_max(node.segments))
    work = await _work(node, request.group, request.cache_id)
    await work.settle(request.member, rows)
    exchange.answer(Message(done=Done()))


@cache
def _decoder(rows_max: int) -> "msgspec.msgpack.Decoder[list[tuple[int, int, int, int, str]]]":
    return msgspec.msgpack.Decoder(Annotated[list[tuple[int, int, int, int, str]], msgspec.Meta(max_length=rows_max)])


def _settled(body: memoryview, count: int, *, at_most: int) -> list[Settled]:
    try:
        rows = _decoder(at_most).decode(body)
    except msgspec.MsgspecError as error:
        raise BadMessage(why=f"settled tasks: {error}") from error
    if len(rows) != count:
        raise BadMessage(why=f"{len(rows)} settled tasks instead of {count}")
    return [_checked(Settled(segment=row[0], id=row[1], verdict=row[2], after_ms=row[3], reason=row[4])) for row in rows]


def _checked(row: Settled) -> Settled:
    """Refuse numbers that could not be kept; what they say about the group's events is looked at later."""
    if row.verdict not in VERDICTS:
        raise InvalidArgument(why=f"verdict {row.verdict} is not known")
    if not 0 <= row.id <= ID_MAX or not -1 <= row.after_ms <= TASK_DELAY_MS_MAX:
        raise InvalidArgument(why=f"id {row.id} is not in [0, {ID_MAX}], or {row.after_ms} ms not in [-1, {TASK_DELAY_MS_MAX}]")
    return row
