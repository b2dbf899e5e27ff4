"""Tasks: work done on entries where they are, by code that is installed on the nodes. What is sent is a name and parameters.

A task is an entry point of the group `eventlog.tasks`, a factory: it gets the parameters and returns an object with

    async def run(self, batch: TaskBatch) -> Mapping[str, int | float] | None

which is called with some entries at a time, of segments that this node leads. What it returns is added up, name by name, for whatever
asked. `count` and `remove` are there without being installed.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eventlog.batch.build import Columns, Table, build_blocks
from eventlog.batch.entries import read_state_part
from eventlog.batch.layout import TABLE
from eventlog.errors import EventLogError, InvalidArgument, TaskFailed, TaskNotFound, Unavailable, VersionMismatch, foreign
from eventlog.events import Kind
from eventlog.node.state.iterations import installed
from eventlog.node.state.state_reads import StateFound
from eventlog.node.writing.forward_write import FramePart, OwnWrites
from eventlog.state.caches import CacheState
from eventlog.write.share import KeyCondition

GROUP = "eventlog.tasks"
_WRITE_MS = 10_000
_AGAIN_S = 0.02
_REMOVED_AT_ONCE = 1_000  # each a condition of its own

log = logging.getLogger("eventlog.node")
Result = Mapping[str, int | float]


class EntryTask(Protocol):
    """What a factory returns."""

    async def run(self, batch: "TaskBatch") -> Result | None:
        """Work on some entries; an error that escapes ends the call, and what was done stays."""
        ...


Factory = Callable[[Mapping[str, Any]], EntryTask]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskBatch:
    """Some entries of one cache, item i of each list is entry i, as of a moment shortly ago. `node` is the number of the node."""

    node: int
    writes: OwnWrites
    cache: CacheState
    keys: Sequence[bytes]
    values: Sequence[bytes]
    versions: Sequence[int]
    segments: Sequence[int]

    def __len__(self) -> int:
        return len(self.keys)

    async def remove(self, rows: Sequence[int]) -> int:
        """Remove entries that nobody has changed since; return how many.

        They are written where they are led, also where that is another node by now.

        Raises:
            Unavailable: a segment had no primary for ten seconds.
        """
        return sum([await self._remove_some(rows[low : low + _REMOVED_AT_ONCE]) for low in range(0, len(rows), _REMOVED_AT_ONCE)])

    async def _remove_some(self, rows: Sequence[int]) -> int:
        """Remove entries as `remove` does, as many as do not hold up the loop."""
        left, removed = list(rows), 0
        deadline = asyncio.get_running_loop().time() + _WRITE_MS / 1000
        while left:
            refusals = await self._remove(left)
            removed += len(left) - len(refusals)
            again = [row for row, error in refusals.items() if isinstance(error, Unavailable)]
            for row, error in refusals.items():
                if not isinstance(error, Unavailable | VersionMismatch):
                    raise error
                if row in again and asyncio.get_running_loop().time() > deadline:
                    raise error
            left = again
            if left:
                await asyncio.sleep(_AGAIN_S)
        return removed

    async def _remove(self, rows: Sequence[int]) -> dict[int, EventLogError]:
        """Try once; return why rows were not removed."""
        count = len(rows)
        columns = Columns(kinds=np.full(count, Kind.REMOVED, np.uint8), keys=[self.keys[row] for row in rows], values=[b""] * count)
        blocks, lengths = build_blocks(columns, np.ones(count, np.int64))
        table = np.zeros(count, TABLE)
        table["segment"], table["count"], table["length"] = [self.segments[row] for row in rows], 1, lengths
        conditions = [KeyCondition(block=block, key=self.keys[row], version=self.versions[row]) for block, row in enumerate(rows)]
        try:
            result = await self.writes.write_blocks(
                self.cache, FramePart(table=Table.of(table), data=memoryview(blocks)), conditions=conditions
            )
        except EventLogError as error:
            return dict.fromkeys(rows, error)
        return {rows[block]: error for block, error in result.refusals.items()}


def batch_of(node: int, writes: OwnWrites, cache: CacheState, found: StateFound) -> TaskBatch:
    """Return the entries of an answer as a task gets them."""
    body, at = memoryview(b"".join(found.body)), 0
    keys: list[bytes] = []
    values: list[bytes] = []
    versions: list[int] = []
    segments: list[int] = []
    for part in found.parts:
        read = read_state_part(body[at : at + part.length], entries=part.events, runs=part.runs)
        at += part.length
        keys += read.block.keys.to_list()
        values += read.block.values.to_list()
        versions += read.versions.tolist()
        segments += np.repeat(read.segments, read.counts).tolist()
    return TaskBatch(node=node, writes=writes, cache=cache, keys=keys, values=values, versions=versions, segments=segments)


def make_task(name: str, parameters: Mapping[str, Any]) -> EntryTask:
    """Return a task.

    Raises:
        TaskNotFound: none of this name is installed.
        InvalidArgument: the factory refuses the parameters.
    """
    point = installed(GROUP).get(name)
    if name not in BUILT_IN and point is None:
        raise TaskNotFound(task=name, installed=", ".join(sorted({*BUILT_IN, *installed(GROUP)})))
    try:
        factory: Factory = BUILT_IN[name] if point is None or name in BUILT_IN else point.load()
        return factory(parameters)
    except EventLogError:
        raise
    except BaseException as error:  # the edge to an operator's code
        raise InvalidArgument(why=f"task {name!r} with these parameters: {foreign(error)}") from error


async def run_task(task: EntryTask, name: str, batch: TaskBatch) -> bytes:
    """Run a task over some entries; return its result as JSON.

    Raises:
        TaskFailed: it raised something of its own, or returned what cannot be added up.
    """
    try:
        result: dict[str, object] = dict(await task.run(batch) or {})
        if alien := [number for number in result.values() if not isinstance(number, int | float)]:
            raise TypeError(f"it returned {alien[0]!r:.60}, which is no number")
        return json.dumps(result).encode() if result else b""
    except Unavailable:
        raise
    except BaseException as error:
        current = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling():
            raise  # the node ends; else it is something of the task's own that was cancelled
        log.exception("task_failed task=%s cache=%s", name, batch.cache.name)
        raise TaskFailed(task=name, segment=batch.segments[0], why=foreign(error)) from error


# ---------------------------------------------------------------- what is there


class Count:
    """`count`: how many entries, and how many bytes their keys and values have."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        if parameters:
            raise ValueError(f"count takes none, and got {', '.join(parameters)}")

    async def run(self, batch: TaskBatch) -> Result:
        """Count."""
        return {"entries": len(batch), "key_bytes": sum(map(len, batch.keys)), "value_bytes": sum(map(len, batch.values))}


class RemoveTask:
    """`remove`: removes entries, those that changed since they were read excepted. With `dry_run` it only counts them."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        unknown = parameters.keys() - {"dry_run"}
        if unknown:
            raise ValueError(f"remove takes dry_run, and got {', '.join(sorted(unknown))}")
        self._is_dry = bool(parameters.get("dry_run", False))

    async def run(self, batch: TaskBatch) -> Result:
        """Remove."""
        return {"removed": len(batch) if self._is_dry else await batch.remove(range(len(batch)))}


BUILT_IN: Mapping[str, Factory] = {"count": Count, "remove": RemoveTask}
