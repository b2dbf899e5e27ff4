"""Work that runs as long as a node leads a segment: begun in a term, ended with it, begun again when it fails."""

import asyncio
from collections import Counter
from typing import Any

import numpy as np

from eventlog.errors import Overloaded
from eventlog.node.led import Services, ServicesOptions
from tests.loops import run, until

QUICK = ServicesOptions(look_s=0.01, pause_s=0.01, pause_s_max=0.02, close_s=0.3)


class Ground:
    """What `Services` needs of a node: which segments are served, in which epochs, and who confirms it."""

    def __init__(self, segments: int = 4) -> None:
        self.core: Any = self
        self.replicas: Any = self
        self.freshness: Any = self
        self.epochs = np.ones(segments, np.int64)
        self.serving = np.ones(segments, bool)
        self.failures: Counter[str] = Counter()
        self.deposed: set[int] = set()

    async def proven(self, segments: list[int]) -> list[int]:
        return [segment for segment in segments if segment not in self.deposed]


class Work:
    """A service that notes what runs, and fails where it is told to."""

    name = "work"

    def __init__(self, **jobs: int) -> None:
        self.wanted = dict(jobs)
        self.running: set[tuple[str, int]] = set()
        self.begun: list[tuple[str, int]] = []
        self.fails = 0
        self.closing = 0.0
        self.deaf = 0  # how many times it does not hear that it is to end

    def jobs(self) -> dict[str, int]:
        return self.wanted

    async def run(self, job: str, term: int) -> None:
        self.begun.append((job, term))
        if self.fails:
            self.fails -= 1
            raise Overloaded(what="a test", limit=1)
        self.running.add((job, term))
        try:
            await self._wait()
        finally:
            await asyncio.sleep(self.closing)
            self.running.discard((job, term))

    async def _wait(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise
                self.deaf -= 1


def story(act: Any, work: Work) -> None:
    async def told() -> None:
        ground = Ground()
        services = Services(ground, [work], QUICK)
        looking = asyncio.create_task(services.run())
        try:
            await act(ground, services)
        finally:
            looking.cancel()
            await services.stop()
        assert work.running == set(), "everything is closed when it was stopped"

    run(told())


def test_what_is_led_runs_in_its_term_and_ends_with_it() -> None:
    work = Work(a=0, b=1)

    async def act(ground: Ground, services: Services) -> None:
        ground.serving[1] = False
        await until(lambda: work.running == {("a", 1)})
        ground.serving[1] = True
        await until(lambda: work.running == {("a", 1), ("b", 1)})
        assert services.figures() == {"work": 2}
        ground.epochs[0] = 5
        await until(lambda: work.running == {("a", 5), ("b", 1)})
        ground.serving[0] = False
        await until(lambda: work.running == {("b", 1)})
        work.wanted = {"c": 2}
        await until(lambda: work.running == {("c", 1)})

    story(act, work)


def test_a_node_that_others_have_deposed_begins_nothing() -> None:
    work = Work(a=0)

    async def act(ground: Ground, _services: Services) -> None:
        ground.deposed.add(0)
        await until(lambda: ground.failures["work"] >= 3)
        assert work.begun == []
        ground.deposed.clear()
        await until(lambda: work.running == {("a", 1)})

    story(act, work)


def test_what_fails_is_begun_again_and_counted() -> None:
    work = Work(a=0)
    work.fails = 3

    async def act(ground: Ground, services: Services) -> None:
        await until(lambda: work.running == {("a", 1)})
        assert work.begun == [("a", 1)] * 4
        assert ground.failures["work"] == 3
        assert services.begun["work"] == 4

    story(act, work)


def test_a_stop_waits_until_everything_is_closed() -> None:
    work = Work(a=0, b=1, c=2)
    work.closing = 0.2

    async def act(_ground: Ground, services: Services) -> None:
        await until(lambda: len(work.running) == 3)
        await services.stop()
        assert work.running == set()

    story(act, work)


def test_what_swallows_its_end_is_told_again_and_left_to_itself_in_the_end() -> None:
    work = Work(a=0)
    work.deaf = 2

    async def act(_ground: Ground, services: Services) -> None:
        await until(lambda: work.running == {("a", 1)})
        await services.stop()
        assert work.deaf == 0
        assert work.running == set()
        assert work.begun == [("a", 1)], "what is over is not begun again"

    story(act, work)


def test_a_term_that_ended_is_closed_before_the_next_begins() -> None:
    work = Work(a=0)
    work.closing = 0.1
    seen: list[set[tuple[str, int]]] = []

    async def act(ground: Ground, _services: Services) -> None:
        await until(lambda: work.running == {("a", 1)})
        ground.epochs[0] = 2
        await until(lambda: seen.append(set(work.running)) or ("a", 2) in work.running)
        assert all(len(running) <= 1 for running in seen), "never two terms of one piece of work at once at a node"

    story(act, work)
