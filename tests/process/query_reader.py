"""A process that writes down the changes of a continuous query, each with its position, until it is killed.

    python -m tests.process.query_reader FILE ON_TRIMMED ADDRESS...

It goes on from the last line of the file, or begins with what matches where there is none.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import eventlog

CACHE = "queried"
WHERE = "value.n > 10"
WITHIN_S = 60


class QueryReader:
    """The process, running inside `with`. `kill` and `start` it as often as you like."""

    def __init__(self, directory: Path, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self._file = directory / "changes.jsonl"
        self._log = directory / "query.log"
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        if kind is not None:
            print(f"--- query reader\n{self._log.read_text()[-3000:]}")

    def start(self, *, on_trimmed: str = "error") -> None:
        words = [str(self._file), on_trimmed, *self.addresses]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.process.query_reader", *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def changes(self) -> list[dict[str, Any]]:
        """Return what was written down so far; a line that was being written does not count."""
        return read_lines(self._file)

    def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until the changes are as wanted."""
        deadline = time.monotonic() + WITHIN_S
        while not holds(found := self.changes()):
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"not within {WITHIN_S} s; last {found[-1:]}\n{self._log.read_text()[-3000:]}"
            time.sleep(0.05)  # a poll of the file; nothing else tells
        return found


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


async def write_down(file: Path, on_trimmed: Any, addresses: list[str]) -> None:
    lines = read_lines(file)
    position = lines[-1]["position"] if lines else None
    with file.open("wb", buffering=0) as out:  # without the line that was cut off
        out.writelines(json.dumps(line).encode() + b"\n" for line in lines)
        async with (
            eventlog.connect(*addresses) as client,
            client.cache(CACHE).continuous_query(WHERE, position=position, on_trimmed=on_trimmed) as changes,
        ):
            async for change in changes:
                value = None if change.value is None else change.value["n"]
                line = {"change": change.change, "key": change.key, "n": value, "id": change.id, "initial": change.initial}
                out.write(json.dumps(line | {"position": change.position}).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(write_down(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
