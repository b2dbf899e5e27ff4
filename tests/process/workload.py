"""Writers and readers of a cluster in a process of their own, and everything that they saw.

`python -m tests.process.workload FILE ADDRESS...` runs until SIGTERM, lets what is in flight come to its end, and writes its history
to FILE. `--name` begins each value, so several may run at once. Times are those of the machine's monotonic clock, which all processes
share.
"""

import asyncio
import json
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import eventlog
from eventlog.errors import EventLogError, PartlyWritten
from tests.process.stalls import Stalls

CACHE = "history"
KEYS = 60
BATCH = 20
PAUSE_S = 0.002  # between a writer's writes: the machine has two cores. The first makes none, so that something is always in flight


@dataclass(slots=True)
class Operation:
    """One write: what was put, when, and what became of it. `ids` of acknowledged ones; outcome: ok, unknown, none."""

    values: list[str]
    began: float
    ended: float = 0.0
    outcome: str = "unknown"
    ids: list[int] = field(default_factory=list)
    error: str = ""


@dataclass(slots=True)
class Reading:
    """What a reader was shown, in its order, as [id, value]; `restarts` is how often it had to connect again."""

    events: list[tuple[int, str]] = field(default_factory=list)
    restarts: int = 0


class Workload:
    """Everything that runs, and what it saw."""

    def __init__(self, addresses: list[str], *, writers: int, readers: int, routing: str, name: str) -> None:
        self.addresses = addresses
        self.operations: list[Operation] = []
        self.readings = [Reading() for _ in range(readers)]
        self.writers = writers
        self.routing = routing
        self.name = name
        self.acknowledged = 0
        self.stop = asyncio.Event()

    async def run(self) -> None:
        async with eventlog.connect(*self.addresses, routing=self.routing) as client:
            await client.create_cache(CACHE, format="json", if_exists="use")
        writers = [asyncio.create_task(self._write(number)) for number in range(self.writers)]
        readers = [asyncio.create_task(self._read(reading, number)) for number, reading in enumerate(self.readings)]
        await self.stop.wait()
        await asyncio.gather(*writers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    async def _write(self, number: int) -> None:
        """Every third writer puts batches. One client for all of it: failures are for the client to hide."""
        count = 0
        async with eventlog.connect(*self.addresses, routing=self.routing) as client:
            cache = client.cache(CACHE)
            while not self.stop.is_set():
                size = BATCH if number % 3 == 2 else 1
                values = [f"{self.name}{number}-{count + at}" for at in range(size)]
                count += size
                operation = Operation(values, time.monotonic())
                self.operations.append(operation)
                try:
                    pairs = [(f"key-{random.randrange(KEYS)}", value) for value in values]
                    if size == 1:
                        operation.ids = [(await cache.put(*pairs[0])).id]
                    else:
                        operation.ids = [int(id_) for id_ in (await cache.put_many(pairs)).ids]
                    operation.outcome = "ok"
                    self.acknowledged += 1
                except PartlyWritten as error:
                    self._divide(operation, error)
                except EventLogError as error:
                    operation.outcome, operation.error = error.outcome, f"{error.code}: {error}"
                operation.ended = time.monotonic()
                await asyncio.sleep(PAUSE_S if number else 0)

    def _divide(self, operation: Operation, error: PartlyWritten) -> None:
        """Make of a batch that was written in part one operation a fate; the ids of what was written are not known."""
        values, text = operation.values, f"{error.code}: {error}"
        for outcome, rows in (("ok", error.ok), ("none", error.none), ("unknown", error.unknown)):
            part = replace(operation, values=[values[row] for row in rows], outcome=outcome, error=text, ended=time.monotonic())
            self.operations.append(part)
        self.operations.remove(operation)

    async def _read(self, reading: Reading, number: int) -> None:
        addresses = self.addresses[number % len(self.addresses) :] + self.addresses[: number % len(self.addresses)]
        while True:
            try:
                async with eventlog.connect(*addresses, routing=self.routing) as client:
                    last = reading.events[-1][0] if reading.events else 0
                    async for event in client.cache(CACHE).events(from_id=last, follow=True):
                        reading.events.append((event.id, event.value))
            except EventLogError:
                reading.restarts += 1
                await asyncio.sleep(0.05)


def main(file: Path, addresses: list[str], *, writers: int = 6, readers: int = 2, routing: str = "direct", name: str = "w") -> None:
    """Run until SIGTERM, then write the history."""

    async def run() -> None:
        work = Workload(addresses, writers=writers, readers=readers, routing=routing, name=name)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.stop.set)
        task = asyncio.create_task(work.run())
        with Stalls() as stalls:
            while not task.done():
                await asyncio.sleep(0.02)
                _write(file.with_suffix(".now"), {"acknowledged": work.acknowledged})
            await task
        lists = {"operations": [asdict(one) for one in work.operations], "readings": [asdict(one) for one in work.readings]}
        _write(file, lists | {"stalls": stalls.found})

    asyncio.run(run())


def _write(file: Path, content: object) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(file)


if __name__ == "__main__":
    options = dict(word[2:].split("=", 1) for word in sys.argv[2:] if word.startswith("--"))
    main(
        Path(sys.argv[1]),
        [word for word in sys.argv[2:] if not word.startswith("--")],
        writers=int(options.get("writers", "6")),
        readers=int(options.get("readers", "2")),
        routing=options.get("routing", "direct"),
        name=options.get("name", "w"),
    )
