"""One process's storage thread: what waits is written in one turn and shares one sync, as in the node."""

import random
from collections.abc import Callable

from tests.sim.cores.disk import Disk
from tests.sim.scheduler import Process


class Storage:
    """Jobs in order. `done` of each is called when everything up to it is on disk."""

    def __init__(self, process: Process, disk: Disk, *, sync_us: int, chance: random.Random) -> None:
        self._process = process
        self._disk = disk
        self._sync_us = sync_us
        self._random = chance
        self._waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._is_busy = False

    def put(self, write: Callable[[], None], done: Callable[[], None]) -> None:
        """Queue a job: `write` changes the disk."""
        self._waiting.append((write, done))
        if not self._is_busy:
            self._is_busy = True
            self._process.after(0, self._turn)

    def _turn(self) -> None:
        jobs, self._waiting = self._waiting, []
        for write, _ in jobs:
            write()
        writes = self._disk.writes

        def end() -> None:
            self._disk.sync(writes)
            if self._waiting:
                self._process.after(0, self._turn)
            else:
                self._is_busy = False
            for _, done in jobs:
                done()

        self._process.after(int(self._sync_us * (0.5 + self._random.random())) + self._disk.stalled_us(self._process.scheduler.now_us), end)
