"""A process that reads some keys through a near cache until it is told to end, and what its reads must be like.

python -m tests.process.near_reader FILE STALENESS_MS KEY,KEY,... ADDRESS...
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import eventlog
from eventlog.errors import EventLogError

CACHE = "near"
PAUSE_S = 0.002
WITHIN_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """An acknowledged put of a number, which rises from put to put of a key. Times are those of the machine's monotonic clock."""

    key: str
    number: int
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A number that was read, None for no entry; `is_hit`: from memory."""

    key: str
    number: int | None
    began: float
    ended: float
    is_hit: bool


def too_old(writes: Iterable[Write], reads: Iterable[Read], *, staleness_s: float) -> list[str]:
    """Return the reads that missed a write acknowledged more than `staleness_s` before they began."""
    by_key: dict[str, list[Write]] = {}
    for write in sorted(writes, key=lambda write: write.ended):
        by_key.setdefault(write.key, []).append(write)
    found = []
    for read in reads:
        known = max((write.number for write in by_key.get(read.key, ()) if write.ended < read.began - staleness_s), default=-1)
        if known > (-1 if read.number is None else read.number):
            found.append(f"{read}: {known} was acknowledged more than {staleness_s} s before")
    return found


class NearReader:
    """The process, running inside `with`."""

    def __init__(self, directory: Path, addresses: Sequence[str], *, keys: Sequence[str], staleness_ms: int) -> None:
        self._file = directory / "near.json"
        self._log = directory / "near.log"
        words = [str(self._file), str(staleness_ms), ",".join(keys), *addresses]
        self._command = [sys.executable, "-m", "tests.process.near_reader", *words]
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if kind is not None:
            print(f"--- near reader\n{self._log.read_text()[-3000:]}")

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def now(self) -> dict[str, Any]:
        """Return the statistics as of some moments ago."""
        file = self._file.with_suffix(".now")
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"hits": 0, "misses": 0, "resets": 0, "reads": 0}
        return found

    def until(self, holds: Any) -> dict[str, Any]:
        """Wait until the statistics are as wanted."""
        deadline = time.monotonic() + WITHIN_S
        while not holds(found := self.now()):
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"still {found}\n{self._log.read_text()[-3000:]}"
            time.sleep(0.05)  # a poll of the process; nothing else tells
        return found

    def serves(self) -> dict[str, Any]:
        """Wait until further reads have been served from memory."""
        before = self.now()["hits"]
        return self.until(lambda found: found["hits"] > before + 50)

    def end(self) -> list[Read]:
        """End the process and return what it read."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(WITHIN_S) == 0, self._log.read_text()[-3000:]
        return [Read(**row) for row in json.loads(self._file.read_text())]


async def read_all(file: Path, staleness_ms: int, keys: list[str], addresses: list[str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    rows: list[dict[str, Any]] = []
    missing = object()
    told_at = 0.0
    async with eventlog.connect(*addresses) as client, client.cache(CACHE).near(max_entries=100, max_staleness_ms=staleness_ms) as near:

        async def follow(key: str) -> None:
            while not stop.is_set():
                hits = near.statistics.hits
                began = time.monotonic()
                entry = near.peek(key, missing)
                is_hit = entry is not missing
                try:
                    entry = entry if is_hit else await near.get(key)
                except EventLogError as error:
                    print(f"{key}: {error!r}", flush=True)
                    continue
                assert is_hit == (near.statistics.hits > hits) or not is_hit
                number = None if entry is None else entry.value
                rows.append({"key": key, "number": number, "began": began, "ended": time.monotonic(), "is_hit": is_hit})
                await asyncio.sleep(PAUSE_S)

        async def tell() -> None:
            nonlocal told_at
            while not stop.is_set():
                found = near.statistics
                now = {"hits": found.hits, "misses": found.misses, "resets": found.resets, "reads": len(rows)}
                part = file.with_suffix(".part")
                part.write_text(json.dumps(now))
                part.rename(file.with_suffix(".now"))
                await asyncio.sleep(0.05)

        await asyncio.gather(tell(), *(follow(key) for key in keys))
    await asyncio.to_thread(file.write_text, json.dumps(rows))


if __name__ == "__main__":
    asyncio.run(read_all(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]))
