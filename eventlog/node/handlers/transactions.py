"""Requests about batches that appear once: stage, publish, and the part that each segment's primary has in it."""

from collections.abc import Sequence
from typing import Protocol

from eventlog.batch.build import Table, read_table
from eventlog.errors import BadMessage, InvalidArgument, NoState, NotPrimary
from eventlog.ids import FlakeClock
from eventlog.limits import BATCH_EVENTS_MAX, REQUEST_TIMEOUT_MS_DEFAULT, STAGE_KEEP_MS_DEFAULT, STAGE_KEEP_MS_MAX
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.consumers.inner import Inner
from eventlog.node.consumers.transactions import ATTEMPT_BYTES, Transactions, check_attempts, read_attempts
from eventlog.node.writing.value_gate import ValueGate
from eventlog.node.writing.writer import NodeWriter
from eventlog.routing.window import SEQUENCE_MAX
from eventlog.state.caches import Caches, CacheState
from eventlog.state.producers import TRANSACTIONS_FROM
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Done, Message
from eventlog.write.groups import Pending
from eventlog.write.transactions import BATCH_MAX, checked_name, kept_until

_DONE = Message(done=Done())


class TransactionsHandlersGround(Protocol):
    """What this module needs of the node."""

    segments: int
    clock: FlakeClock
    caches: Caches
    inner: Inner
    writer: NodeWriter
    value_gate: ValueGate
    forwarding: Forwarding
    transactions: Transactions

    def check_writable(self) -> None: ...


async def stage(node: TransactionsHandlersGround, exchange: Exchange) -> None:
    """Lay a frame of blocks ready, once it is seen that nothing in it would be refused later."""
    request = exchange.message.stage
    try:
        table, blocks = read_table(exchange.body, request.blocks)
    except ValueError as error:
        raise BadMessage(why=f"stage: {error}") from error
    if table.events > BATCH_EVENTS_MAX:
        raise BadMessage(why=f"stage: more than {BATCH_EVENTS_MAX} events in one batch")
    if max(table.segment_list()) >= node.segments:
        raise BadMessage(why=f"stage: a block of segment {max(table.segment_list())} of {node.segments}")
    if len(request.attempt) != ATTEMPT_BYTES:
        raise BadMessage(why=f"stage: an attempt has {ATTEMPT_BYTES} bytes")
    if request.keep_ms > STAGE_KEEP_MS_MAX:
        raise InvalidArgument(why=f"what is laid ready is kept for at most {STAGE_KEEP_MS_MAX} ms")
    node.check_writable()
    cache = node.caches.find(request.cache_id)
    pending = _as_written(cache, table, blocks)
    node.writer.check(pending)
    if cache.options.validate:
        await node.value_gate.check(pending)
    keep_ms = request.keep_ms or STAGE_KEEP_MS_DEFAULT
    until_ms = kept_until(node.clock.physical_ms(), keep_ms)
    chunks = await node.transactions.stage(
        table,
        blocks,
        attempt=request.attempt,
        frame=request.frame,
        keep_ms=keep_ms,
        timeout_ms=exchange.message.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT,
    )
    exchange.answer(Message(stage_answer=pb.StageAnswer(chunks=chunks, until_ms=until_ms)))


def _as_written(cache: CacheState, table: Table, blocks: memoryview) -> Pending:
    return Pending(
        cache=cache, table=table, blocks=blocks, producer=0, conditions=(), previous=False, internal=False, done=lambda _result: None
    )


async def publish(node: TransactionsHandlersGround, exchange: Exchange) -> None:
    """Have a batch written once."""
    request = exchange.message.publish
    name = checked_name(request.transaction)
    if request.batch > BATCH_MAX:
        raise InvalidArgument(why=f"batch {request.batch}: batches are numbered up to {BATCH_MAX}")
    cache = node.caches.find(request.cache_id)
    if request.insert and not cache.options.state:
        raise NoState(cache=cache.name)
    read_attempts(bytes(exchange.body), segments=node.segments)
    route = node.transactions.route(cache.cache_id, name)
    if not node.inner.leads(route):
        node.forwarding.pass_on(exchange, node.inner.segment(route))
        return
    timeout_ms = exchange.message.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT
    repeated = await node.transactions.publish(
        cache, name, request.batch, bytes(exchange.body), insert=request.insert, timeout_ms=timeout_ms
    )
    exchange.answer(Message(publish_answer=pb.PublishAnswer(repeated=repeated)))


async def publish_segment(node: TransactionsHandlersGround, exchange: Exchange) -> None:
    """Write what attempts have laid ready in a segment that is led here."""
    request = exchange.message.publish_segment
    _check_of_segment(node, "publish_segment", request.segment, request.attempts)
    if request.producer < TRANSACTIONS_FROM:
        raise BadMessage(why=f"publish_segment: {request.producer} is no transaction's producer")
    if request.first + sum(attempt.blocks[0] for attempt in request.attempts) > SEQUENCE_MAX:
        raise BadMessage(why=f"publish_segment: numbers of blocks end at {SEQUENCE_MAX}")
    if not node.forwarding.leads(request.segment):
        raise NotPrimary(segment=request.segment)
    await node.transactions.publish_segment(request, timeout_ms=exchange.message.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT)
    exchange.answer(_DONE)


async def check_staged(node: TransactionsHandlersGround, exchange: Exchange) -> None:
    """Say whether what attempts have laid ready in a segment that is led here has new keys alone."""
    request = exchange.message.check_staged
    _check_of_segment(node, "check_staged", request.segment, request.attempts)
    if not node.forwarding.leads(request.segment):
        raise NotPrimary(segment=request.segment)
    await node.transactions.check_segment(request)
    exchange.answer(_DONE)


def _check_of_segment(node: TransactionsHandlersGround, what: str, segment: int, attempts: "Sequence[pb.StagedAttempt]") -> None:
    """Raise BadMessage where attempts are not those of one segment."""
    if segment >= node.segments:
        raise BadMessage(why=f"{what}: segment {segment} of {node.segments}")
    check_attempts(attempts, segments=node.segments)
    if not attempts or any(list(attempt.segments) != [segment] for attempt in attempts):
        raise BadMessage(why=f"{what}: something else than blocks of segment {segment}")
