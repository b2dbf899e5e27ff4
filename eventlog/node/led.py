"""What runs at a node as long as it leads a segment: each piece of work of each service is run by the primary of its home segment.

There is no election beside the segments': a piece is begun when the segment is served and a majority of its in-sync set confirms the
epoch, is told that epoch as its term, and is cancelled when the term ends. A node that was deposed without knowing it may run a piece
beside its successor for a moment: what must not happen twice is fenced by the term. What fails is begun again after a pause that grows.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Protocol

import numpy as np

from eventlog.errors import EventLogError
from eventlog.node.copying.replicate import Replicas
from eventlog.node.state.freshness import Freshness
from eventlog.replication import Replication

log = logging.getLogger("eventlog.node")


class Service(Protocol):
    """Work that is spread over the nodes by the segments that they lead."""

    @property
    def name(self) -> str: ...

    def jobs(self) -> Mapping[str, int]:
        """Return the pieces of work that there are, as this node knows it, and the segment whose primary does each.

        It is another mapping once something of it has changed.
        """
        ...

    async def run(self, job: str, term: int) -> None:
        """Do a piece of work until cancelled. What it has open is closed when it returns; whatever it raises has it begun again."""
        ...


class ServicesGround(Protocol):
    """What this module needs of the node."""

    core: Replication
    replicas: Replicas
    freshness: Freshness
    failures: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesOptions:
    """How often this node looks at what it leads, and how long a piece that failed waits, in seconds."""

    look_s: float = 0.1
    pause_s: float = 0.5
    pause_s_max: float = 10.0
    lasted_s: float = 30.0  # after so long it counts as having worked
    close_s: float = 6.0  # for a piece to be closed, until it is told again
    cancels_max: int = 3


@dataclass(slots=True, kw_only=True, eq=False)
class _Running:
    term: int
    task: "asyncio.Task[None]" = field(init=False)
    is_over: bool = False


class Services:
    """The pieces of work that run at this node."""

    def __init__(self, node: ServicesGround, services: Sequence[Service], options: ServicesOptions = ServicesOptions()) -> None:
        self._node = node
        self._services = {service.name: service for service in services}
        self._options = options
        self._running: dict[tuple[str, str], _Running] = {}
        self.begun: Counter[str] = Counter()
        self._looked_at: tuple[list[int], list[Mapping[str, int]]] = [], []
        self._is_stopped = False

    async def run(self) -> None:
        """Begin and end pieces of work as segments come and go, until cancelled or stopped."""
        while not self._is_stopped:
            await self._look()
            await asyncio.sleep(self._options.look_s)

    async def stop(self) -> None:
        """End everything, and return when all of it is closed: before segments are handed over. Nothing is begun any more."""
        self._is_stopped = True
        await self._end(list(self._running))

    def figures(self) -> dict[str, int]:
        """Return how many pieces of each service run here."""
        running = Counter(service for service, _ in self._running)
        return {name: running[name] for name in self._services}

    async def _look(self) -> None:
        terms = np.where(self._node.replicas.serving, self._node.core.epochs, 0).tolist()
        jobs = [service.jobs() for service in self._services.values()]
        before, self._looked_at = self._looked_at, (terms, jobs)
        if terms == before[0] and all(map(is_, jobs, before[1])):
            return
        wanted = {
            (name, job): term
            for name, some in zip(self._services, jobs, strict=True)
            for job, segment in some.items()
            if (term := terms[segment])
        }
        await self._end([piece for piece, one in self._running.items() if wanted.get(piece) != one.term])
        if self._is_stopped:
            return
        for (name, job), term in wanted.items():
            if (name, job) not in self._running:
                running = self._running[name, job] = _Running(term=term)
                running.task = asyncio.create_task(self._repeated(self._services[name], job, running), name=f"{name} {job}")

    def _term(self, segment: int) -> int:
        """Return the epoch in which this node serves a segment, 0 where it does not."""
        return int(self._node.core.epochs[segment]) if self._node.replicas.serving[segment] else 0

    async def _end(self, pieces: Sequence[tuple[str, str]]) -> None:
        """End pieces of work, and return when they are closed; one that is not in time is left to itself: its term fences it.

        Code of others may swallow a cancellation, so it is said again.
        """
        left = {self._running[piece].task for piece in pieces}
        for piece in pieces:
            self._running.pop(piece).is_over = True
        for _ in range(self._options.cancels_max):
            if not left:
                return
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=self._options.close_s)
        for task in left:
            log.error("service_not_ended name=%s", task.get_name())

    async def _repeated(self, service: Service, job: str, running: _Running) -> None:
        options, loop, term = self._options, asyncio.get_running_loop(), running.term
        pause_s = options.pause_s
        while not running.is_over:
            began = loop.time()
            try:
                if await self._is_confirmed(service.jobs().get(job), term):
                    self.begun[service.name] += 1
                    await service.run(job, term)
            except EventLogError as error:
                log.warning("service_failed name=%s job=%s error=%s", service.name, job, error)
            except Exception:  # the edge of the shell: a bug in one piece of work must not take the others and the node with it
                log.exception("service_failed name=%s job=%s", service.name, job)
            self._node.failures[service.name] += 1
            pause_s = options.pause_s if loop.time() - began > options.lasted_s else min(2 * pause_s, options.pause_s_max)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 -- not for secrets

    async def _is_confirmed(self, segment: int | None, term: int) -> bool:
        """Return whether this node leads a segment in this term, as others say that are asked now."""
        return segment is not None and segment in await self._node.freshness.proven([segment]) and self._term(segment) == term
