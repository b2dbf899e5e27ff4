"""A member of a consumer group in a process of its own, and everything that it saw, line by line as it happens.

`python -m tests.process.group_member FILE GROUP ADDRESS...` runs until it is killed, or SIGTERM. Lines are JSON:
`["read", time, segment, offset, value]` and `["commit", time, {segment: offset after the last one}]`; times are of the machine's
monotonic clock.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import eventlog
from eventlog.errors import EventLogError, StaleMember

CACHE = "history"
SESSION_MS = 3_000
COMMIT_EVERY = 10


class GroupMember:
    """One such process, running inside `with`; it may be killed, stopped and started again as the same or another member."""

    def __init__(self, directory: Path, name: str, addresses: Sequence[str], *, group: str = "g") -> None:
        self.file = directory / f"member-{name}.jsonl"
        self._log = directory / f"member-{name}.log"
        self._command = [sys.executable, "-m", "tests.process.group_member", str(self.file), group, *addresses]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        if kind is not None:
            print(f"--- {self.file.name}\n{self._log.read_text()[-2000:]}")

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Have it leave its group."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self._log.read_text()[-2000:]

    def lines(self) -> list[list[Any]]:
        """Return what it saw so far; a last line that was cut off is none."""
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text().splitlines(keepends=True) if line.endswith("\n")]


async def read(cache: Any, group: str, say: Any) -> None:
    async with cache.consumer(group, auto_commit=False, session_timeout_ms=SESSION_MS) as consumer:
        async for event in consumer:
            say("read", event.segment, event.offset, event.value)
            if random.randrange(COMMIT_EVERY) == 0:
                try:
                    await consumer.commit(event)
                except StaleMember:
                    continue
                say("commit", {event.segment: event.offset + 1})


async def main(file: Path, group: str, addresses: list[str]) -> None:
    with file.open("a", buffering=1) as out:

        def say(what: str, *rest: Any) -> None:
            out.write(json.dumps([what, time.monotonic(), *rest]) + "\n")

        async def run() -> None:
            while True:
                try:
                    async with eventlog.connect(*addresses, timeout_ms=60_000) as client:
                        await read(client.cache(CACHE), group, say)
                except EventLogError as error:
                    print(f"{time.monotonic()}: {error!r} {error}", flush=True)
                    await asyncio.sleep(0.2)

        task = asyncio.create_task(run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait([task])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
