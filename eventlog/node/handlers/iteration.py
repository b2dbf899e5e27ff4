"""Requests that go through all entries: iterations, tasks run over them, and what members ask each other for both."""

from typing import Protocol

from eventlog.batch.marks import CONTENT
from eventlog.errors import BadMessage, ClientClosed, ConnectionLost, EventLogError, NotPrimary
from eventlog.limits import ITERATION_BATCH_ENTRIES_MAX
from eventlog.node.cluster.forward import Forwarding, forwarded, translated
from eventlog.node.state.iterations import AHEAD_MAX, Iteration, Iterations, json_object, sizes
from eventlog.node.state.state_reads import StateAsk, StateReads, cursor_of, message_of_cursor
from eventlog.node.state.tasks import batch_of, make_task, run_task
from eventlog.node.writing.forward_write import OwnWrites
from eventlog.query.iterate import ID_MAX, IterationProgress, decode_segments, encode_segments
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Done, IterationBatch, IterationStartAnswer, Message, ReadStateAnswer, StreamItem


class IterationHandlersGround(Protocol):
    """What this module needs of the node."""

    number: int
    segments: int
    state_reads: StateReads
    iterations: Iterations
    forwarding: Forwarding
    own_writes: OwnWrites


async def iteration_start(node: IterationHandlersGround, exchange: Exchange) -> None:
    """Begin an iteration, or go on with one from where its cursors say."""
    id_, iteration = await node.iterations.start(exchange.message.iteration_start, owner=exchange.connection)
    segments = encode_segments(iteration.progress.left, of=node.segments)
    exchange.answer(Message(iteration_start_answer=IterationStartAnswer(iteration_id=id_, segments=segments)))


async def iteration_next(node: IterationHandlersGround, exchange: Exchange) -> None:
    """Send batches as credits allow: as many as were asked for, or all that are left."""
    request = exchange.message.iteration_next
    iteration = node.iterations.find(request.iteration_id)
    iteration.resize(entries=request.batch_entries, nbytes=request.batch_bytes)
    left = request.batches or -1
    try:
        with iteration.reading():
            while left:
                await exchange.credit()
                is_end = await _send_batch(node, exchange, iteration, ahead=left if 0 < left < AHEAD_MAX else AHEAD_MAX)
                left = 0 if is_end else left - 1
    except (ClientClosed, ConnectionLost):
        left = -left  # a reader that asked for all has enough of it; one that asks for a few comes again
    if iteration.progress.is_finished or left > 0:
        node.iterations.end(request.iteration_id)
    exchange.stream_end()


async def _send_batch(node: IterationHandlersGround, exchange: Exchange, iteration: Iteration, *, ahead: int) -> bool:
    """Send one batch, one of `ahead` that may be read at once; return whether it was the last one."""
    batch = IterationBatch(end=True)
    body: tuple[bytes | memoryview, ...] = ()
    if not iteration.progress.is_finished:
        found = await iteration.step(node.state_reads, exchange.connection, ahead=ahead)
        cursors = [message_of_cursor(cursor) for cursor in found.cursors]
        batch = IterationBatch(parts=found.parts, entries=found.entries, cursors=cursors, end=iteration.progress.is_finished)
        body = found.body
    exchange.stream_send(Message(stream_item=StreamItem(iteration_batch=batch)), *body)
    return batch.end


def iteration_end(node: IterationHandlersGround, exchange: Exchange) -> None:
    """Forget an iteration."""
    node.iterations.end(exchange.message.iteration_end.iteration_id)
    exchange.answer(Message(done=Done()))


async def for_each(node: IterationHandlersGround, exchange: Exchange) -> None:
    """Run a task over entries where they are led, batch by batch; each is told of once it was worked on. No entry leaves its node."""
    request = exchange.message.for_each
    cache = node.iterations.cache_of(request.cache_id)
    task = make_task(request.task, json_object(request.parameters, what="parameters"))
    progress = node.iterations.progress_of(decode_segments(request.segments, of=node.segments), request)
    entries_max, bytes_max = sizes(request.batch_entries or ITERATION_BATCH_ENTRIES_MAX, request.batch_bytes)
    matches = await node.iterations.compiled(cache, request.filter, owner=exchange.connection)
    ask = StateAsk(cache=cache, segments=(), filter=matches, entries_max=entries_max, bytes_max=bytes_max, is_led=True)
    iteration = Iteration(ask, progress, now=0.0)
    left = request.batches or -1
    try:
        while left and not progress.is_finished:
            await exchange.credit()
            first = progress.next[0][0]
            if node.forwarding.leads(first):
                found = await iteration.step(node.state_reads, exchange.connection)
                result = await run_task(task, request.task, batch_of(node.number, node.own_writes, cache, found)) if found.entries else b""
                cursors = [message_of_cursor(cursor) for cursor in found.cursors]
                batch = IterationBatch(entries=found.entries, cursors=cursors, result=result)
            else:
                batch = await _worked_elsewhere(node, exchange, progress)
            batch.end = progress.is_finished
            exchange.stream_send(Message(stream_item=StreamItem(iteration_batch=batch)))
            left -= 1
    except (ClientClosed, ConnectionLost):
        pass  # nobody is told any more, so nothing more is done
    exchange.stream_end()


async def _worked_elsewhere(node: IterationHandlersGround, exchange: Exchange, progress: IterationProgress) -> IterationBatch:
    """Have the node that leads what comes next work on one batch: the caller cannot reach it, or does not know of it yet.

    Raises:
        NotPrimary: no node leads it, or the one that does cannot be asked.
    """
    first = progress.next[0][0]
    connection = node.forwarding.connection_to(first, forwarded=exchange.message.forwarded)
    leader = node.forwarding.leader_of(first)
    own = [segment for segment in progress.left if node.forwarding.leader_of(segment) == leader]
    message = forwarded(exchange.message)
    request = message.for_each
    request.batches = 1
    request.segments = encode_segments(own, of=node.segments)
    del request.cursors[:]
    request.cursors.extend(message_of_cursor(progress.open[segment]) for segment in own if segment in progress.open)
    batch = None
    try:
        async with connection.stream(message) as stream:
            async for item in stream:
                batch = item.message.stream_item.iteration_batch
    except EventLogError as error:
        raise translated(error, first) if connection.is_closed else error from error
    if batch is None:
        raise NotPrimary(segment=first)
    progress.took(map(cursor_of, batch.cursors))
    return batch


async def read_state(node: IterationHandlersGround, exchange: Exchange) -> None:
    """Give a member entries of segments that are led here."""
    request = exchange.message.read_state
    cache = node.iterations.cache_of(request.cache_id)
    if not request.segments or max(request.segments) >= node.segments or request.pin > ID_MAX:
        raise BadMessage(why=f"no state of segments {list(request.segments[:9])} as of {request.pin}")
    found = await node.state_reads.read(
        StateAsk(
            cache=cache,
            segments=tuple(request.segments),
            after=request.after if request.HasField("after") else None,
            pin=request.pin,
            prefix=request.prefix,
            filter=await node.iterations.compiled(cache, request.filter, owner=exchange.connection),
            entries_max=min(request.max_entries or ITERATION_BATCH_ENTRIES_MAX, ITERATION_BATCH_ENTRIES_MAX),
            bytes_max=request.max_bytes or 1,
            metadata=request.metadata,
            without=CONTENT.intersection(request.without),
            owner=exchange.connection,
        ),
        is_forwarded=True,
    )
    await exchange.room()
    cursors = [message_of_cursor(cursor) for cursor in found.cursors]
    exchange.answer(Message(read_state_answer=ReadStateAnswer(parts=found.parts, entries=found.entries, cursors=cursors)), *found.body)
