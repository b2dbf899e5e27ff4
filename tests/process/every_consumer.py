"""A process with a consumer of every kind, each a client of its own, and what they got, line by line: for faults that all must bear.

`python -m tests.process.every_consumer DIRECTORY LISTENER START ROUTING GATEWAY ADDRESS...` runs until it is killed; started again it goes
on from what is in its files, `DIRECTORY/KIND.jsonl`. Work begins at the id START. Kinds that end in `-gateway` know the gateway alone.
While there is a file `DIRECTORY/hold` those that read entries stand still in the middle of them, and say so.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Literal

import eventlog
from eventlog.errors import EventLogError, StaleMember

CACHE = "watched"
WHERE = "value.n > 10"
STATIC = 300
NEAR_KEYS = [f"k{number}" for number in range(8)]
STALENESS_MS = 1_000
SESSION_MS = 3_000
TAIL_EVENTS = 30  # after so many a reader of state, then events, begins anew
MIDDLE = 5  # batches
AT_ONCE = 4  # tasks of one worker
PAUSE_S = 0.3  # between rounds: the machine has two cores

Line = dict[str, Any]
Routing = Literal["direct", "any"]


class Notes:
    """The file of one consumer. A line that was cut off is none."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.hold = directory / "hold"
        self._file = directory / f"{kind}.jsonl"
        lines = read_lines(self._file)
        self.last: Line = {}
        for line in lines:
            self.last |= line
        self._out = self._file.open("wb", buffering=0)
        self._out.writelines(json.dumps(line).encode() + b"\n" for line in lines)

    def write(self, **line: Any) -> None:
        """Write a line down, whole."""
        self.last = self.last | line
        self._out.write(json.dumps(line).encode() + b"\n")

    async def middle(self) -> None:
        """Stand still while the test wants it."""
        if self.hold.exists():
            self.write(held=True)
            while self.hold.exists():  # noqa: ASYNC110 -- nothing else tells of a file
                await asyncio.sleep(0.02)


def read_lines(file: Path) -> list[Line]:
    """Return the whole lines of a file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


# ---------------------------------------------------------------- kinds


async def filtered(cache: eventlog.Cache, notes: Notes) -> None:
    batches = cache.event_batches(position=notes.last.get("position"), follow=True, where=WHERE)
    async with aclosing(batches):
        async for batch in batches:
            notes.write(ids=batch.ids.tolist(), position=batch.position)


async def state_first(cache: eventlog.Cache, notes: Notes) -> None:
    """Read entries, then some events, and begin anew: each such round is for itself."""
    while True:
        position, number = notes.last.get("position"), notes.last.get("round", 0)
        batches = cache.event_batches(position=position, state_first=position is None, follow=True, max_bytes=600)
        tail = read = 0
        async with aclosing(batches):
            async for batch in batches:
                rows = [[event.key, event.id, event.kind == "STATE"] for event in batch.events()]
                events = sum(not row[2] for row in rows)
                tail, read = tail + events, read + 1
                notes.write(rows=rows, position=batch.position, round=number, upto=batch.last_id if events == len(rows) else 0)
                if read == MIDDLE:
                    await notes.middle()
                if tail >= TAIL_EVENTS:
                    break
        notes.write(position=None, round=number + 1)
        await asyncio.sleep(PAUSE_S)


async def iteration(cache: eventlog.Cache, notes: Notes, *, parallel: int = 1) -> None:
    while True:
        keys: list[str] = []
        async with cache.entries(batch_size=20, batch_bytes=2_000, prefetch=1, parallel=parallel) as rows:
            async for key, _ in rows:
                keys.append(str(key))
                if len(keys) == 20 * MIDDLE:
                    await notes.middle()
        notes.write(static=sum(key.startswith("s") for key in keys), twice=len(keys) - len(set(keys)))
        await asyncio.sleep(PAUSE_S)


async def tasks(cache: eventlog.Cache, notes: Notes) -> None:
    while True:
        found = await cache.for_each("count", where="key LIKE 's%'", batch_size=30)
        notes.write(static=found.entries, totals=found.totals["entries"])
        await asyncio.sleep(PAUSE_S)


async def group(cache: eventlog.Cache, notes: Notes) -> None:
    async with cache.consumer("g", auto_commit=False, session_timeout_ms=SESSION_MS) as consumer:
        async for event in consumer:
            notes.write(line=["read", time.monotonic(), event.segment, event.offset, event.id])
            if random.randrange(10) == 0:
                try:
                    await consumer.commit(event)
                except StaleMember:
                    continue
                notes.write(line=["commit", time.monotonic(), {event.segment: event.offset + 1}])


async def work(cache: eventlog.Cache, notes: Notes, *, start: str) -> None:
    options: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "prefetch": AT_ONCE,
        "max_deliveries": 1_000,
        "from_id": start,
        "where": WHERE,
    }
    async with cache.consumer("w", mode="work", **options) as consumer:

        async def settle_all() -> None:
            async for task in consumer:
                notes.write(line=["task", time.monotonic(), task.id, task.key])
                try:
                    if random.randrange(10) == 0:
                        await task.retry(after_ms=10)
                    else:
                        notes.write(line=["end", time.monotonic(), task.id])
                        await task.ack()
                        notes.write(line=["ack", time.monotonic(), task.id])
                except StaleMember:
                    continue

        async with asyncio.TaskGroup() as running:
            for _ in range(AT_ONCE):
                running.create_task(settle_all())


async def query(cache: eventlog.Cache, notes: Notes) -> None:
    async with cache.continuous_query(WHERE, position=notes.last.get("position")) as changes:
        async for change in changes:
            notes.write(row=[change.id, change.change, change.key, change.initial], position=change.position)


async def listener(cache: eventlog.Cache, notes: Notes, *, id: str) -> None:
    """In this process from what came last, in the next one from what the cluster knows to be acknowledged."""
    notes.write(begin=True)
    last_id: int | None = None
    while True:
        async for event in cache.events(last_id, listener=id, follow=True):
            notes.write(id=event.id)
            last_id = event.id


async def near(cache: eventlog.Cache, notes: Notes) -> None:
    missing = object()
    async with cache.near(max_entries=100, max_staleness_ms=STALENESS_MS) as held:

        async def follow(key: str) -> None:
            while True:
                rows: list[list[Any]] = []
                while len(rows) < 10:
                    began = time.monotonic()
                    found = held.peek(key, missing)
                    is_hit = found is not missing
                    entry = found if is_hit else await held.get(key)
                    rows.append([key, None if entry is None else entry.value["number"], began, time.monotonic(), is_hit])
                    await asyncio.sleep(0.03)
                notes.write(reads=rows, resets=held.statistics.resets)

        async with asyncio.TaskGroup() as running:
            for key in NEAR_KEYS:
                running.create_task(follow(key))


KINDS: dict[str, Callable[..., Awaitable[None]]] = {
    "filtered": filtered,
    "filtered-gateway": filtered,
    "state": state_first,
    "state-gateway": state_first,
    "iteration": partial(iteration, parallel=3),
    "iteration-gateway": iteration,
    "tasks": tasks,
    "group-1": group,
    "group-2": group,
    "work-1": work,
    "work-2": work,
    "query": query,
    "listener": listener,
    "near": near,
}


async def run(kind: str, directory: Path, addresses: list[str], *, routing: Routing, **options: str) -> None:
    """Run one consumer; a new client goes on where one has failed."""
    notes = Notes(directory, kind)
    while True:
        try:
            async with eventlog.connect(*addresses, timeout_ms=60_000, read_ahead_bytes=20_000, routing=routing) as client:
                await KINDS[kind](client.cache(CACHE), notes, **options)
        except* EventLogError as errors:
            notes.write(error=[repr(error) for error in errors.exceptions])
            print(f"{time.monotonic()} {kind}: {errors!r} {errors.exceptions!r}", flush=True)
            await asyncio.sleep(0.2)


async def main(directory: Path, id: str, start: str, routing: Routing, gateway: str, *addresses: str) -> None:
    options: dict[str, dict[str, str]] = {"listener": {"id": id}, "work-1": {"start": start}, "work-2": {"start": start}}
    async with asyncio.TaskGroup() as running:
        for kind in KINDS:
            where, how = ([gateway], "any") if kind.endswith("-gateway") else (list(addresses), routing)
            running.create_task(run(kind, directory, where, routing=how, **options.get(kind, {})))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))  # type: ignore[arg-type]  # words of a test
