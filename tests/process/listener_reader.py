"""A reader of a listener in a process of its own, and everything that it got, line by line as it happens.

`python -m tests.process.listener_reader FILE LISTENER ADDRESS...` runs until it is killed. Lines are JSON: `["begin"]` whenever it
begins where the listener has acknowledged, `["read", id, value]` for each event.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import eventlog
from eventlog.errors import EventLogError
from tests.process.group_member import CACHE, GroupMember


class ListenerReader(GroupMember):
    """One such process, running inside `with`; killed and started again, it writes on into the same file."""

    def __init__(self, directory: Path, name: str, listener: str, addresses: Sequence[str], *, wrapper: tuple[str, ...] = ()) -> None:
        super().__init__(directory, name, addresses)
        self._command = [*wrapper, sys.executable, "-m", "tests.process.listener_reader", str(self.file), listener, *addresses]


def gaps_and_repeats(lines: Sequence[Sequence[Any]], written: set[str]) -> list[str]:
    """Return what must not be: a value that was written and never came, or an event that came twice between two beginnings."""
    came = {line[2] for line in lines if line[0] == "read"}
    found = [f"{value} never came" for value in sorted(written - came)]
    last_id = 0
    for line in lines:
        if line[0] == "begin":
            last_id = 0
        elif line[1] <= last_id:
            found.append(f"{line[1]} came behind {last_id}")
        else:
            last_id = line[1]
    return found


async def main(file: Path, listener: str, addresses: list[str]) -> None:
    last_id: int | None = None
    with file.open("a", buffering=1) as out:
        out.write(json.dumps(["begin"]) + "\n")
        while True:
            try:
                async with eventlog.connect(*addresses, timeout_ms=60_000) as client:
                    async for event in client.cache(CACHE).events(last_id, listener=listener, follow=True):
                        out.write(json.dumps(["read", event.id, event.value]) + "\n")
                        last_id = event.id
            except EventLogError as error:
                print(f"{time.monotonic()}: {error!r} {error}", flush=True)
                await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
