"""The SQLite store shared by processes: nothing acknowledged is lost by kill -9, and watches hear of other processes."""

import asyncio
import subprocess
import sys
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path

from eventlog.control.metastores.sqlite import open_sqlite

ROOT = Path(__file__).parents[2]


@contextmanager
def child(path: Path, name: str):
    """Run a child until the block ends, then kill -9 it."""
    command = [sys.executable, "-m", "tests.process.metastore_child", str(path), name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: subprocess.Popen) -> list[tuple[int, int]]:
    """Return what is left on the pipe of a killed child; a torn last line was not acknowledged."""
    lines = process.stdout.read().splitlines(keepends=True)
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines if line.endswith("\n")]


async def read(path: Path):
    store = await open_sqlite(path, create=False)
    try:
        return {item.key: item for item in (await store.list("")).items}
    finally:
        await store.close()


def test_kill_9_in_the_middle_of_commits_loses_nothing_acknowledged_and_tears_none(tmp_path):
    path = tmp_path / "meta.db"
    names = ("one", "two")
    known: dict[str, dict[int, int]] = {name: {} for name in names}
    for round_number in range(5):
        with ExitStack() as running:
            children = {name: running.enter_context(child(path, name)) for name in names}
            for process in children.values():  # both are at work
                for _ in range(10 + 7 * round_number):
                    number, revision = process.stdout.readline().split()
                    known[next(name for name, each in children.items() if each is process)][int(number)] = int(revision)
            for process in children.values():
                process.kill()
            for name, process in children.items():
                known[name] |= dict(acknowledged(process))
        items = asyncio.run(read(path))
        for name in names:
            found = {int(key.rsplit("/", 1)[1]): item for key, item in items.items() if key.startswith(f"a/{name}/")}
            assert set(known[name]) <= set(found), "an acknowledged commit is gone"
            assert all(found[number].revision == revision for number, revision in known[name].items())
            assert len(found) <= len(known[name]) + round_number + 1, "at most one a kill was not acknowledged"
            assert {key.replace("b/", "a/", 1) for key in items if key.startswith(f"b/{name}/")} == {item.key for item in found.values()}
        assert int(items["total"].value) == sum(key.startswith("a/") for key in items), "each commit happened once"


def test_a_watch_hears_the_commits_of_another_process_once_and_in_order(tmp_path):
    path = tmp_path / "meta.db"

    async def story():
        store = await open_sqlite(path, create=True)
        try:
            heard: list[int] = []
            async with asyncio.timeout(60), aclosing(store.watch("a/one/", 1)) as watch:
                with child(path, "one"):
                    while len(heard) < 50:
                        changes = await anext(watch)
                        heard += [int(change.value) for change in changes.changes]
            assert heard == list(range(50))
        finally:
            await store.close()

    asyncio.run(story())
