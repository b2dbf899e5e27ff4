"""Requests that change entries: write and clear."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eventlog.batch.build import Columns, Table, WriteFrame, build_write, read_table
from eventlog.batch.marks import ABSENT
from eventlog.errors import BadMessage, EventLogError, NoState
from eventlog.events import Kind
from eventlog.limits import BATCH_EVENTS_MAX, CLEAR_PER_GROUP_MAX, GROUP_BYTES_MAX
from eventlog.node.cluster.primaries import Led, Primaries, time_to_ask
from eventlog.node.copying.replicate import Replicas
from eventlog.node.state.entries import EntryThread
from eventlog.node.writing.forward_write import FramePart, PartedWrites, WholeWrite
from eventlog.node.writing.value_gate import ValueGate
from eventlog.node.writing.writer import NodeWriter
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import ClearAnswer, Message, WriteAnswer
from eventlog.wire.eventlog_pb2 import Condition as ConditionMessage
from eventlog.wire.kinds import error_message
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.share import KeyCondition

Done = Callable[[WriteResult | EventLogError], None]  # named here, once: `write` would make it anew for every request


class WriteHandlersGround(Protocol):
    """What this module needs of the node."""

    replicas: Replicas
    segments: int
    primaries: Primaries
    caches: Caches
    entries: EntryThread
    writer: NodeWriter
    value_gate: ValueGate
    parted_writes: PartedWrites

    def check_writable(self) -> None: ...

    async def write(self, cache: CacheState, frame: WriteFrame) -> WriteResult: ...


def write(node: WriteHandlersGround, exchange: Exchange) -> None:
    """Queue a frame of blocks for the next group; the answer goes out when the group has committed. Other primaries get their blocks."""
    request = exchange.message.write
    try:
        table, blocks = read_table(exchange.body, request.blocks)
    except ValueError as error:
        raise BadMessage(why=f"write: {error}") from error
    if table.events > BATCH_EVENTS_MAX:
        raise BadMessage(why=f"write: more than {BATCH_EVENTS_MAX} events in one batch")
    conditions = tuple(_condition(condition, len(table)) for condition in request.conditions) if request.conditions else ()
    answer = partial(_answer, exchange)
    if _writes_all(node, table):
        _submit(node, exchange, (table, blocks), conditions=conditions, done=answer)
    else:

        def local(part: FramePart, done: Done) -> None:
            own = conditions if part.blocks is None else _of_part(conditions, part.blocks)
            _submit(node, exchange, (part.table, part.data), conditions=own, done=done)

        whole = WholeWrite(
            request=request,
            part=FramePart(table=table, data=blocks),
            local=local,
            timeout_ms=exchange.message.timeout_ms,
            forwarded=exchange.message.forwarded,
        )
        node.parted_writes.submit(whole, answer)


def _submit(
    node: WriteHandlersGround, exchange: Exchange, frame: tuple[Table, memoryview], *, conditions: tuple[KeyCondition, ...], done: Done
) -> None:
    request = exchange.message.write
    node.check_writable()
    cache = node.caches.find(request.cache_id)
    (node.value_gate if cache.is_gated else node.writer).submit(
        Pending(
            cache=cache,
            table=frame[0],
            blocks=frame[1],
            producer=request.producer_id,
            conditions=conditions,
            previous=request.previous,
            internal=False,
            done=done,
            send=exchange.connection.flush,
        )
    )


def _writes_all(node: WriteHandlersGround, table: Table) -> bool:
    """Whether all of a frame can be written here; a segment that there is not is refused here, too."""
    writable = node.replicas.shortage.writable
    if table.only >= 0:
        return table.only >= len(writable) or bool(writable.item(table.only))
    segments = table.segments
    return bool(segments[-1] >= len(writable) or np.count_nonzero(writable[segments]) == len(segments))


def _of_part(conditions: tuple[KeyCondition, ...], blocks: npt.NDArray[np.int64]) -> tuple[KeyCondition, ...]:
    """Return the conditions of some blocks, by index among those."""
    places = {block: place for place, block in enumerate(blocks.tolist())}
    return tuple(replace(condition, block=places[condition.block]) for condition in conditions if condition.block in places)


def _condition(condition: ConditionMessage, blocks: int) -> KeyCondition:
    if condition.block >= blocks:
        raise BadMessage(why=f"condition on block {condition.block} of {blocks}")
    expected = condition.WhichOneof("expected")
    if expected is None:
        raise BadMessage(why="a condition says nothing")
    version = {"version": condition.version, "absent": 0, "present": None}[expected]
    if expected == "version" and version == 0:
        raise BadMessage(why="a version is not 0; ask for absent")
    return KeyCondition(block=condition.block, key=condition.key, version=version)


def _answer(exchange: Exchange, result: WriteResult | EventLogError) -> None:
    if isinstance(result, EventLogError):
        exchange.fail(result)
    elif result.refusals or result.previous is not None:
        _answer_in_words(exchange, result)
    elif len(result.ids) == 1:
        _ONE_ANSWER.id, _ONE_ANSWER.kind = result.ids.item(0), result.kinds.item(0)
        exchange.answer(_ONE.SerializeToString())
    else:
        exchange.answer(_all_written(len(result.ids)), result.ids.tobytes(), result.kinds.tobytes())


_ONE = Message(write_answer=WriteAnswer(events=1))  # to be filled in: that takes half as long as to make one
_ONE_ANSWER = _ONE.write_answer


@lru_cache(maxsize=256)
def _all_written(events: int) -> bytes:
    """Return the answer to a frame of which nothing was refused: its clients send frames of few sizes."""
    return Message(write_answer=WriteAnswer(events=events)).SerializeToString()


def _answer_in_words(exchange: Exchange, result: WriteResult) -> None:
    message = Message()
    answer = message.write_answer
    answer.events = len(result.ids)
    if result.previous is not None:
        answer.has_previous, answer.previous = True, result.previous
    for block, error in result.refusals.items():
        refusal = answer.refusals.add()
        refusal.block = block
        refusal.error.CopyFrom(error_message(error).error)
    if len(result.ids) == 1:
        answer.id, answer.kind = result.ids.item(0), result.kinds.item(0)
        exchange.answer(message)
    else:
        exchange.answer(message, result.ids.tobytes(), result.kinds.tobytes())


async def clear(node: WriteHandlersGround, exchange: Exchange) -> None:
    """Remove entries of a cache, one REMOVED event each, and say whether there are more; the caller asks again while there are.

    Each primary removes up to `limit` of its own, and a group's bytes. When nobody has more, all that was there before is gone.
    """
    request = exchange.message.clear
    cache = node.caches.find(request.cache_id)
    if not cache.options.state:
        raise NoState(cache=cache.name)
    node.check_writable()
    answer = partial(_clear_here, node, cache, min(request.limit or CLEAR_PER_GROUP_MAX, CLEAR_PER_GROUP_MAX))
    if exchange.message.forwarded:
        await node.primaries.answer(exchange, answer)
        return
    found = [one.clear_answer for one in await node.primaries.ask(exchange.message, answer, timeout_ms=time_to_ask(exchange))]
    whole = ClearAnswer(removed=sum(one.removed for one in found), more=any(one.more for one in found))
    exchange.answer(Message(clear_answer=whole))


async def _clear_here(node: WriteHandlersGround, cache: CacheState, limit: int, led: Led) -> Message:
    """Remove entries of segments that are led here; every one of those that are named as done is."""
    # what is removed may be kept as before-images: of a group that is too large nobody could read in small pieces
    keys, more = await node.entries.some_keys(cache, segments=led.segments, limit=limit, nbytes=GROUP_BYTES_MAX)
    if not keys:
        return Message(clear_answer=ClearAnswer(more=more))
    frame = build_write(
        Columns(kinds=np.full(len(keys), Kind.REMOVED, np.uint8), keys=keys, values=[b""] * len(keys)),
        segments=node.segments,
        by_prefix=cache.options.route_by_prefix,
    )
    result = await node.write(cache, frame)
    for refusal in result.refusals.values():
        raise refusal
    return Message(clear_answer=ClearAnswer(removed=int(np.count_nonzero(result.kinds != ABSENT)), more=more))
