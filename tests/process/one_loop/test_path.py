"""The two roads of `eventlog.path`, walked: which files and functions one put and one poll pass at a node and its client.

The figures may only fall: what a reader of the code has to know for one request is what they count.
"""

import asyncio
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import pytest

import eventlog
from eventlog import path
from eventlog.node.config import NodeConfig
from eventlog.node.handlers import TABLE
from eventlog.node.node import dispatcher
from eventlog.node.start import open_node
from eventlog.transport.server import Server, ServerOptions, bind

WARM_UP = 5
ROUNDS = 40
PACKAGE = str(Path(eventlog.__file__).parent) + "/"
FILES_MAX = {"put": 48, "poll": 29}
FUNCTIONS_MAX = {"put": 186, "poll": 119}


class Walk:
    """Notes which functions of the package are called while it is entered, in every thread."""

    def __init__(self) -> None:
        self.called: set[CodeType] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as its documentation has it

    def _seen(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.called.add(frame.f_code)


def by_file(called: set[CodeType]) -> dict[str, set[str]]:
    """Return functions by their file; comprehensions belong to the function around them."""
    found: dict[str, set[str]] = {}
    for code in called:
        if not code.co_name.startswith("<") and not code.co_filename.endswith("_pb2.py"):
            found.setdefault(code.co_filename.removeprefix(PACKAGE), set()).add(code.co_qualname)
    return found


def walked(directory: Path, act: Callable[[Any, int], Awaitable[object]]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return what every one of many rounds of `act` passes, with a cache of one node, and what any does: some things run by the clock."""

    async def run() -> tuple[set[CodeType], set[CodeType]]:
        bound = bind("127.0.0.1", 0)
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        config = NodeConfig(data=directory / "data", listen=address, segments=8, storage="memory", disk_reserve_bytes=0)
        walk = Walk()
        threading.setprofile(walk._seen)  # of threads that begin from now on
        started = await open_node(config, on_fatal=lambda _: None)
        server = Server(dispatcher(started.node, TABLE), ServerOptions())
        await server.start_at(bound)
        try:
            async with eventlog.connect(address) as client:
                cache = await client.create_cache("c", format="bytes")
                for round_ in range(WARM_UP):
                    await act(cache, round_)
                rounds = []
                for round_ in range(WARM_UP, WARM_UP + ROUNDS):
                    walk.called.clear()
                    with walk:
                        await act(cache, round_)
                    rounds.append(set(walk.called))
        finally:
            await server.stop(grace_ms=0)
            await started.close(clean=True)
        return set.intersection(*rounds), set.union(*rounds)

    always, ever = asyncio.run(run())
    return by_file(always), by_file(ever)


async def put(cache: Any, round_: int) -> None:
    await cache.put(f"k{round_}", b"v")


async def poll(cache: Any, round_: int) -> None:
    await cache.put(f"k{round_}", b"v")
    await cache.poll(after=0, max_events=10)


def shown(passed: dict[str, set[str]]) -> str:
    return "\n".join(f"{name}: {', '.join(sorted(functions))}" for name, functions in sorted(passed.items()))


@pytest.mark.parametrize(("name", "act"), [("put", put), ("poll", poll)])
def test_a_road_passes_no_more_than_it_did(name: str, act: Callable[[Any, int], Awaitable[object]], tmp_path: Path) -> None:
    passed, _ = walked(tmp_path, act)
    if name == "poll":
        _, of_put = walked(tmp_path / "again", put)  # what a put passes now and then is not the poll's, either
        passed = {file: rest for file, functions in passed.items() if (rest := functions - of_put.get(file, set()))}
    functions = sum(map(len, passed.values()))
    assert len(passed) <= FILES_MAX[name], shown(passed)
    assert functions <= FUNCTIONS_MAX[name], shown(passed)


def test_every_place_that_the_page_names_is_there() -> None:
    named = re.findall(r"[\w/]+\.py\b", path.__doc__ or "")
    assert len(named) > 10
    top = Path(PACKAGE)
    assert [name for name in named if not (top / name).is_file() and not list(top.rglob(name))] == []
