"""Writers that go on whatever happens to the nodes, and remember what they were told."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import orjson

from eventlog import blocking
from eventlog.errors import ClientClosed, EventLogError, Unavailable
from eventlog_cli.demo.checks import Write

KEYS_PER_WRITER = 25
_LOOK_EVERY_SECONDS = 0.01
TIMEOUT_MS = 20_000  # longer than a restart: the client sends again what was not answered, under the same numbers


class Writers:
    """Several writers, each a thread with its own connection, putting one value after the other into a few keys of its own."""

    def __init__(self, addresses: list[str], cache: str, *, count: int) -> None:
        self._stop = threading.Event()
        self._writers = [_Writer(number, addresses, cache, self._stop) for number in range(1, count + 1)]

    @property
    def acknowledged(self) -> int:
        """Return how many writes were acknowledged so far."""
        return sum(writer.acknowledged for writer in self._writers)

    @property
    def longest_seconds(self) -> float:
        """Return how long the slowest write since the last call of `forget_longest` took."""
        return max(writer.longest_seconds for writer in self._writers)

    def forget_longest(self) -> None:
        """Look for the slowest write anew."""
        for writer in self._writers:
            writer.longest_seconds = 0.0

    def start(self) -> None:
        """Begin to write."""
        for writer in self._writers:
            writer.start()

    def wait_for_each(self, more: int, *, check: Callable[[], None], seconds_max: float) -> None:
        """Wait until every writer has `more` further acknowledgements; `check` raises when there is no point in waiting.

        Raises:
            Unavailable: the last of them had none for `seconds_max`; how long all take is the machine's business.
        """
        begins = [(writer, writer.acknowledged) for writer in self._writers]
        wait_for(lambda: min(writer.acknowledged - begin for writer, begin in begins), more, check=check, seconds_max=seconds_max)

    def abandon(self) -> None:
        """End writing without waiting for answers: the node may be gone for good."""
        self._stop.set()
        for writer in self._writers:
            writer.cut_off()
            writer.join()

    def stop(self) -> list[Write]:
        """End writing and return everything that was tried, each writer's in its order."""
        self._stop.set()
        for writer in self._writers:
            writer.join()
        return [write for writer in self._writers for write in writer.writes]


def wait_for(reached: Callable[[], int], goal: int, *, check: Callable[[], None], seconds_max: float) -> None:
    """Wait until `reached` returns `goal` or more; `check` raises when there is no point in waiting.

    Raises:
        Unavailable: it stood still for `seconds_max`.
    """
    last, deadline = reached(), time.monotonic() + seconds_max
    while (now := reached()) < goal:
        check()
        if now > last:
            last, deadline = now, time.monotonic() + seconds_max
        elif time.monotonic() > deadline:
            raise Unavailable(why=f"a writer had no write acknowledged for {seconds_max:.0f} s")
        time.sleep(_LOOK_EVERY_SECONDS)


class _Writer(threading.Thread):
    def __init__(self, number: int, addresses: list[str], cache: str, stop: threading.Event) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.writes: list[Write] = []
        self.acknowledged = 0
        self.longest_seconds = 0.0
        self._number = number
        self._addresses = addresses
        self._cache = cache
        self._stop_asked = stop
        self._client: blocking.Client | None = None

    def cut_off(self) -> None:
        """End a call that waits for an answer."""
        if self._client is not None:
            self._client.close()

    def run(self) -> None:
        # a closed client is how `cut_off` ends this
        with suppress(ClientClosed), blocking.connect(*self._addresses, timeout_ms=TIMEOUT_MS) as self._client:
            cache = self._client.cache(self._cache)
            turn = 0
            while not self._stop_asked.is_set():
                turn += 1
                self._write(cache, turn)

    def _write(self, cache: blocking.Cache, turn: int) -> None:
        key = f"writer-{self._number}/{turn % KEYS_PER_WRITER}"
        value = {"writer": self._number, "turn": turn}
        event_id = None
        began = time.monotonic()
        try:
            event_id = cache.put(key, value).id
            self.acknowledged += 1
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        except EventLogError as error:
            if error.outcome == "none":
                return  # it says that nothing was written, so there is nothing to look for
        self.writes.append(Write(writer=self._number, key=key.encode(), value=orjson.dumps(value), id=event_id))
