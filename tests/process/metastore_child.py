"""Commits without end, in a process of its own, to be killed: `python -m tests.process.metastore_child PATH NAME`.

Commit number n of NAME puts `a/NAME/n` and `b/NAME/n`, and counts up `total` by compare-and-set. Each line on stdout acknowledges
one: its number and its revision.
"""

import asyncio
import sys
from itertools import count
from pathlib import Path

from eventlog.clock import SystemEntropy
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.control.metastores.sqlite import open_sqlite
from eventlog.errors import MetadataConflict


async def main(path: str, name: str) -> None:
    store = ResolvingStore(await open_sqlite(Path(path), create=True), writer=name, entropy=SystemEntropy())
    done = {item.key for item in (await store.list(f"a/{name}/")).items}
    for number in count(len(done)):
        revision = await commit(store, name, number)
        sys.stdout.write(f"{number} {revision}\n")
        sys.stdout.flush()


async def commit(store: ResolvingStore, name: str, number: int) -> int:
    while True:
        total = await store.get("total")
        value = int(total.value) if total else 0
        puts = {f"a/{name}/{number}": b"%d" % number, f"b/{name}/{number}": b"%d" % number, "total": b"%d" % (value + 1)}
        try:
            return await store.commit({"total": total.revision if total else 0, f"a/{name}/{number}": 0}, puts=puts)
        except MetadataConflict:
            continue


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
