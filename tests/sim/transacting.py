"""A client of a run that publishes batches of a transaction, and what must be true of them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from eventlog.errors import EventLogError
from eventlog.limits import STAGE_KEEP_MS_MAX
from tests.sim.clients import THINK_S, Log, Program

PUBLISH_MS = (20, 3_000)  # some give up before it is done, and come again


@dataclass(slots=True)
class Batch:
    """One batch of the transaction: pairs of attempts that were named together, and whether anybody was told that it is done."""

    named: list[tuple[int, ...]] = field(default_factory=list)
    is_done: bool = False


class Transacting:
    """Publishes batches of one transaction, each made in two parts by tasks and drivers that may do it again, or twice at once.

    The value of a row says in which batch and attempt it was made. Of a batch that is done each row is there once, all rows of a part of
    one attempt, and both parts of attempts that were named together; what no publication named is nowhere.
    """

    PREFIX = "x"
    NAME = "transaction"
    ROWS = 8
    PARTS = 2

    def __init__(self, program: Program) -> None:
        self._program = program
        self._batches: list[Batch] = []
        self._attempts = 0

    async def run(self) -> None:
        program = self._program
        while not program.is_over:
            self._batches.append(Batch())
            number = len(self._batches)
            drivers = 2 if program.chance.random() < 0.3 else 1
            async with asyncio.TaskGroup() as group:
                for _ in range(drivers):
                    group.create_task(self._drive(number))
            program.reached["batches"] += 1
            await self._read_back(number)
            if program.chance.random() < 0.3:
                await self._drive(program.chance.randint(1, number))
            await asyncio.sleep(program.chance.random() * THINK_S)

    async def _drive(self, number: int) -> None:
        """Make a batch and publish it until that is told, with what was made first or with what is made anew."""
        program, batch = self._program, self._batches[number - 1]
        parts: list[tuple[int, bytes]] = []
        while True:
            was_done = batch.is_done
            try:
                parts = parts or [await self._part(number, part) for part in range(self.PARTS)]
                batch.named.append(tuple(attempt for attempt, _ in parts))
                program.publishing.set()
                patience_ms = program.chance.randint(*PUBLISH_MS)
                is_repeated = await program.cache.publish(self.NAME, number, [staged for _, staged in parts], timeout_ms=patience_ms)
            except EventLogError as error:
                await program.after("publish", error)
                if error.code in ("STAGE_LOST", "INVALID_ARGUMENT"):
                    program.violations.append(f"batch {number} cannot be published: {error}")
                    return
                if program.chance.random() < 0.5:
                    parts = []
                continue
            batch.is_done = True
            if was_done and not is_repeated:
                program.violations.append(f"batch {number} was done, and was published as a new one")
            return

    async def _part(self, number: int, part: int) -> tuple[int, bytes]:
        """Return an attempt at a part and what publishes it; sometimes another one is made before, and given up."""
        program = self._program
        while True:
            self._attempts += 1
            attempt, stage = self._attempts, program.cache.stage(keep_ms=STAGE_KEEP_MS_MAX)
            await stage.put_many((self._key(row), f"{number}.{row}.{attempt}".encode()) for row in range(part, self.ROWS, self.PARTS))
            if program.chance.random() < 0.8:
                return attempt, stage.staged()

    def _key(self, row: int) -> str:
        return f"{self.PREFIX}{row}"

    async def _read_back(self, number: int) -> None:
        program, row = self._program, self._program.chance.randrange(self.ROWS)
        try:
            entry = await program.cache.get(self._key(row))
        except EventLogError as error:
            await program.after("get", error)
            return
        found = b"" if entry is None else entry.value_bytes
        if not found.startswith(b"%d." % number):
            program.violations.append(f"row {row} was read as {found!r} after batch {number} was published")

    async def settle(self, log: Log) -> None:
        """It has ended."""

    def judge(self, log: Log) -> Iterator[str]:
        found: dict[int, dict[int, list[int]]] = {}
        last: dict[str, int] = {}
        for event in log.events:
            if event.key.startswith(self.PREFIX):
                number, row, attempt = map(int, event.value_bytes.split(b"."))
                found.setdefault(number, {}).setdefault(row, []).append(attempt)
                if number < last.get(event.key, 0):
                    yield f"row {row} of batch {number} stands behind one of batch {last[event.key]}"
                last[event.key] = number
        for number, batch in enumerate(self._batches, start=1):
            rows = found.get(number, {})
            if twice := {row: attempts for row, attempts in rows.items() if len(attempts) > 1}:
                yield f"batch {number} has rows twice: {twice}"
            if batch.is_done and len(rows) < self.ROWS:
                yield f"batch {number} was published, and has only the rows {sorted(rows)}"
            made = [
                {attempt for row, attempts in rows.items() if row % self.PARTS == part for attempt in attempts}
                for part in range(self.PARTS)
            ]
            if rows and not any(all(of <= {named} for of, named in zip(made, pair, strict=True)) for pair in batch.named):
                yield f"batch {number} was made of the attempts {made}, and named were {batch.named}"
