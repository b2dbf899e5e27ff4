"""A writer that goes on through faults."""

import threading
import time
from typing import Self

from eventlog import blocking
from eventlog.errors import EventLogError
from tests.process.clusters import ClusterProcesses


class Writing:
    """Writes on and on in a thread, inside `with`; what was refused while a primary was missing is written again under another number."""

    def __init__(self, cluster: ClusterProcesses, cache: str, *, rows: int, pause_s: float = 0.0) -> None:
        self._addresses = cluster.addresses
        self._cache = cache
        self._rows = rows
        self._pause_s = pause_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.batches = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with blocking.connect(*self._addresses) as client:
            cache = client.cache(self._cache)
            while not self._end.wait(self._pause_s):
                try:
                    cache.put_many([(f"k{row}", [self.batches, row]) for row in range(self._rows)])
                except EventLogError:
                    continue
                self.batches += 1

    def until(self, batches: int) -> None:
        """Wait until so many more are written."""
        wanted, deadline = self.batches + batches, time.monotonic() + 60
        while self.batches < wanted:
            assert time.monotonic() < deadline, "nothing is written any more"
            time.sleep(0.02)  # a look at the thread; nothing else tells
