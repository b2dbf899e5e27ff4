"""The metadata store as a process sees it: linearizable, and with delays, outages and commits whose outcome nobody hears.

What is committed lies in the product's own store in memory. Around it stand a network that can lose the question or the answer,
and watches that lag behind.
"""

import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from eventlog.control.metastore import Item, ItemChange, Lease, Listing, MetaStore, RevisionChanges
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.errors import MetadataConflict, MetadataUnavailable
from tests.sim.loop import VirtualLoop
from tests.sim.scheduler import Scheduler, Timer

Result = TypeVar("Result")
Place = int | str
METADATA_HOST: Final = "metadata"
_DEAF_S = 0.1


class Ways(Protocol):
    """As much of a network as is needed here."""

    def is_cut(self, source: Any, target: Any) -> bool:
        """Return whether nothing passes from one place to another."""
        ...


@dataclass(slots=True, kw_only=True)
class StoreFaults:
    """Whether the store answers at all, how slow it is, and the chance in [0, 1] that a commit's fate stays unknown.

    Nobody waits longer than `timeout_us` for an answer. Hosts in `deaf` hear nothing of changes, though all they ask is answered.
    `slow_us` is how much longer a host waits for an answer.
    """

    is_out: bool = False
    delay_us: int = 1_000
    unknown: float = 0.0
    watch_delay_us: int = 5_000
    timeout_us: int = 500_000
    deaf: set[Place] = field(default_factory=set)
    slow_us: dict[Place, int] = field(default_factory=dict)


class SharedStore:
    """The one store of a cluster, and the changes since its beginning."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._store = MemoryMetaStore(now_ms=lambda: scheduler.now_us // 1000)
        self.faults = StoreFaults()
        self.changes: list[RevisionChanges] = []
        self.revision = 0
        self._late: dict[Place, list[Timer]] = {}
        self._watchers: list[tuple[VirtualLoop, Any]] = []
        self.committed: list[Callable[[Mapping[str, bytes], Mapping[str, bytes]], None]] = []  # hear what was put, and what was there
        self.asked: list[Callable[[Any, Mapping[str, bytes]], None]] = []  # hear which host wants to put what

    def get(self, key: str) -> Item | None:
        return _at_once(self._store.get(key))

    def list(self, prefix: str) -> Listing:
        return _at_once(self._store.list(prefix))

    def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str]) -> int:
        before = {key: found.value for key in puts if self.committed and (found := self.get(key)) is not None}
        self.revision = _at_once(self._store.commit(expect, puts=puts, deletes=deletes))
        changes = [ItemChange(key=key, value=value) for key, value in puts.items()] + [ItemChange(key=key, value=None) for key in deletes]
        self.changes.append(RevisionChanges(revision=self.revision, changes=tuple(changes)))
        watchers, self._watchers = self._watchers, []
        for loop, future in watchers:
            loop.call_later(self.faults.watch_delay_us / 1e6, _wake, future)
        for hear in self.committed:
            hear(puts, before)
        return self.revision

    def commit_late(self, host: Place, expect: Mapping[str, int], *, puts: Mapping[str, bytes], delay_us: int) -> None:
        """Carry a commit of `host` out when it has long stopped waiting, if that can be done then."""

        def attempt() -> None:
            with suppress(MetadataConflict):
                self.commit(expect, puts=puts, deletes=())

        self._late.setdefault(host, []).append(self._scheduler.after(delay_us, attempt))

    def lose_late(self, host: Place) -> None:
        """Lose what is under way from a host."""
        for timer in self._late.pop(host, ()):
            timer.cancel()

    def changed(self, loop: VirtualLoop) -> Any:
        """Return a future that is done some time after the next commit."""
        future = loop.create_future()
        self._watchers.append((loop, future))
        return future


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Run what never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise RuntimeError("the store in memory waited for something")


class HostStore:
    """A `MetaStore`: one process's way to the shared one."""

    def __init__(self, shared: SharedStore, network: Ways, loop: VirtualLoop, *, host: Place, chance: random.Random) -> None:
        self._shared = shared
        self._network = network
        self._loop = loop
        self._host = host
        self._random = chance

    async def get(self, key: str) -> Item | None:
        await self._ask()
        found = self._shared.get(key)
        await self._answer(outcome="none")
        return found

    async def list(self, prefix: str) -> Listing:
        await self._ask()
        found = self._shared.list(prefix)
        await self._answer(outcome="none")
        return found

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        assert not lease, "nothing that is simulated takes a lease"
        faults = self._shared.faults
        for hear in self._shared.asked:
            hear(self._host, puts)
        await self._ask(outcome="unknown")
        if faults.unknown and self._random.random() < faults.unknown:
            fate = self._random.choice(("done", "late", "lost"))
            if fate == "done":
                self._shared.commit(expect, puts=puts, deletes=deletes)
            elif fate == "late" and not deletes:
                self._shared.commit_late(self._host, expect, puts=puts, delay_us=self._random.randrange(2_000_000))
            await self._sleep(self._shared.faults.timeout_us / 1e6)
            raise _unavailable("unknown")
        revision = self._shared.commit(expect, puts=puts, deletes=deletes)
        await self._answer(outcome="unknown")
        return revision

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        next_revision = from_revision
        while True:
            changed = self._shared.changed(self._loop)
            while next_revision <= self._shared.revision and self._hears():
                entry = self._shared.changes[next_revision - 1]
                next_revision += 1
                seen = tuple(change for change in entry.changes if change.key.startswith(prefix))
                if seen:
                    yield RevisionChanges(revision=entry.revision, changes=seen)
            if next_revision <= self._shared.revision:
                await self._sleep(_DEAF_S)
            else:
                await changed

    async def lease(self, ttl_s: int) -> Lease:
        raise NotImplementedError("nothing that is simulated takes a lease")

    async def close(self) -> None:
        """Nothing is held."""

    def _hears(self) -> bool:
        if self._shared.faults.is_out or self._host in self._shared.faults.deaf:
            return False
        return not (self._network.is_cut(self._host, METADATA_HOST) or self._network.is_cut(METADATA_HOST, self._host))

    async def _ask(self, *, outcome: str = "none") -> None:
        delay_us = self._shared.faults.delay_us
        await self._sleep(delay_us * (1 + self._random.random()) / 2e6)
        if self._shared.faults.is_out or self._network.is_cut(self._host, METADATA_HOST):
            await self._sleep(self._shared.faults.timeout_us / 1e6)
            raise _unavailable(outcome)

    async def _answer(self, *, outcome: str) -> None:
        delay_us, slow_us = self._shared.faults.delay_us, self._shared.faults.slow_us.get(self._host, 0)
        await self._sleep(delay_us * (1 + self._random.random()) / 2e6 + slow_us / 1e6)
        if self._shared.faults.is_out or self._network.is_cut(METADATA_HOST, self._host):
            await self._sleep(self._shared.faults.timeout_us / 1e6)
            raise _unavailable(outcome)

    async def _sleep(self, seconds: float) -> None:
        future = self._loop.create_future()
        self._loop.call_later(seconds, _wake, future)
        await future


def _unavailable(outcome: str) -> MetadataUnavailable:
    return MetadataUnavailable(outcome="unknown" if outcome == "unknown" else "none", why="no answer in time")


def as_port(store: HostStore) -> MetaStore:
    """Return the store as what drivers take; this is where the type checker compares the two."""
    return store
