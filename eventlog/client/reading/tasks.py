"""Running an installed task over the entries of a cache, at the nodes that lead them. No entry comes here, only how far they are."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.patience import Patience
from eventlog.client.options import ClientOptions
from eventlog.client.reading.iterating import cursor_of, deal
from eventlog.errors import EventLogError, TimedOut
from eventlog.query.iterate.bitset import encode_segments
from eventlog.query.iterate.progress import IterationProgress
from eventlog.wire.eventlog_pb2 import Filter, ForEach, IterationBatch, Message, StateCursor

_CREDIT_BYTES = 1  # so that the next batch is worked on when this one is known here: a crash repeats one batch of a stream at most


@dataclass(slots=True, kw_only=True)
class ForEachResult:
    """What a task has done: how many entries it was given, in how many batches, and what it had to say of them, added up."""

    entries: int = 0
    batches: int = 0
    totals: dict[str, int | float] = field(default_factory=dict)

    def add(self, answer: IterationBatch) -> None:
        """Add what a batch came to."""
        self.entries += answer.entries
        self.batches += 1
        for name, number in json.loads(answer.result or b"{}").items():
            self.totals[name] = self.totals.get(name, 0) + number


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What to run, and on what."""

    cache_id: int
    task: str
    parameters: bytes
    filter: Filter | None
    batch_entries: int
    batch_bytes: int


class TaskRunner:
    """Runs one task; `result` grows as batches are done."""

    def __init__(self, nodes: Nodes, options: ClientOptions, wanted: TaskOptions) -> None:
        self._nodes = nodes
        self._options = options
        self._wanted = wanted
        self.result = ForEachResult()

    async def run(self, segments: Sequence[int], *, parallel: int | None) -> None:
        """Run it over segments, at all their primaries at the same time unless `parallel` says how many streams there may be."""
        routes = self._nodes.routes
        assert routes is not None, "a cache that was looked up was found by a node"
        owners = list(routes.by_primary(list(segments)).values())
        groups = deal(owners, parallel or len(owners))
        tasks = [asyncio.create_task(self._group(group)) for group in groups]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _group(self, segments: Sequence[int]) -> None:
        progress, patience = IterationProgress(segments), Patience(self._nodes, self._options)
        while not progress.is_finished:
            try:
                await self._stream(progress, patience)
            except EventLogError as error:
                await patience.wait_after(error)

    async def _stream(self, progress: IterationProgress, patience: Patience[Any]) -> None:
        """Run it over what is left of the segments of one primary."""
        routes = self._nodes.routes
        assert routes is not None, "it was known before"
        left, _ = progress.next
        owner = routes.primary(left[0])
        own = [segment for segment in left if routes.primary(segment) == owner]
        connection = await patience.connection(owner)
        stream = connection.stream(self._request(progress, own, of=routes.segments), credit_bytes=_CREDIT_BYTES)
        try:
            async for item in stream:
                answer = item.message.stream_item.iteration_batch
                progress.took(map(cursor_of, answer.cursors))
                patience.has_progress()
                self.result.add(answer)
                if answer.end:
                    return
        finally:
            stream.stop()
        raise TimedOut(what="for_each", timeout_ms=self._options.timeout_ms)  # ended by the node before its end

    def _request(self, progress: IterationProgress, segments: list[int], *, of: int) -> Message:
        wanted = self._wanted
        cursors = [progress.open[segment] for segment in segments if segment in progress.open]
        request = ForEach(
            cache_id=wanted.cache_id,
            task=wanted.task,
            parameters=wanted.parameters,
            segments=encode_segments(segments, of=of),
            batch_entries=wanted.batch_entries,
            batch_bytes=wanted.batch_bytes,
            cursors=[StateCursor(segment=own.segment, key=own.key, pin=own.pin) for own in cursors],
        )
        if wanted.filter is not None:
            request.filter.CopyFrom(wanted.filter)
        return Message(for_each=request)
