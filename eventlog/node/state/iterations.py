"""Iterations that clients have begun at this node: what they want, and how far they are.

Nothing here has to last. A client knows its own place, so what is forgotten (idle for a minute, too many, a restart) is told with
`IterationExpired`, and another iteration goes on from there, here or elsewhere.
"""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from eventlog.batch.marks import CONTENT
from eventlog.clock import Entropy, SystemEntropy
from eventlog.control.view import ClusterView
from eventlog.errors import BadMessage, CacheDropped, IterationExpired, NoState
from eventlog.limits import (
    ANSWER_BYTES_DEFAULT,
    ANSWER_BYTES_MAX,
    ITERATION_BATCH_ENTRIES_DEFAULT,
    ITERATION_BATCH_ENTRIES_MAX,
    ITERATION_IDLE_MS_MAX,
    ITERATIONS_MAX,
)
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import spec_of
from eventlog.node.state.state_reads import StateAsk, StateFound, StateReads, cursor_of
from eventlog.predicate.spec import CompiledFilter
from eventlog.query.iterate import BUILT_IN, GROUP, IterationProgress, Scope, checked_cursor, decode_segments, segments_in
from eventlog.replication import Replication
from eventlog.state.caches import Caches, CacheState
from eventlog.topology import Topology
from eventlog.wire.eventlog_pb2 import Filter, ForEach, IterationStart

ID_BYTES = 16
_SWEEP_S = 5.0
AHEAD_MAX = 8  # batches read at once


class IterationsGround(Protocol):
    """What this module needs of the node."""

    number: int
    core: Replication
    caches: Caches
    segments: int
    reads: Reads
    state_reads: StateReads
    forwarding: Forwarding

    @property
    def view(self) -> ClusterView: ...


class Iteration:
    """One iteration. `is_reading`: a request is making a batch of it. What was read ahead for a request goes with it."""

    __slots__ = ("_ahead", "ask", "is_reading", "progress", "used")

    def __init__(self, ask: StateAsk, progress: IterationProgress, *, now: float) -> None:
        self.ask = ask
        self.progress = progress
        self.used = now
        self.is_reading = False
        self._ahead: deque[StateFound] = deque()

    def resize(self, *, entries: int, nbytes: int) -> None:
        """Take other sizes of batches, where they are given."""
        if entries or nbytes:
            entries_max, bytes_max = sizes(entries or self.ask.entries_max, nbytes or self.ask.bytes_max)
            self.ask = replace(self.ask, entries_max=entries_max, bytes_max=bytes_max)

    async def step(self, states: StateReads, owner: object, *, ahead: int = 1) -> StateFound:
        """Return the next batch; something is left. Up to `ahead` batches are read at once, if the next is not there yet."""
        if not self._ahead:
            segments, cursor = self.progress.next
            after, pin = (None, 0) if cursor is None else (cursor.key, cursor.pin)
            ask = replace(self.ask, segments=segments, after=after, pin=pin, owner=owner)
            self._ahead.extend(await states.read_ahead(ask, batches=ahead))
        elif self.ask.cache.dropped:
            raise CacheDropped(cache=self.ask.cache.name)
        found = self._ahead.popleft()
        if found.held is not self.ask.held:
            self.ask = replace(self.ask, held=found.held)
        self.progress.took(found.cursors)
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep others from reading it meanwhile. Raises BadMessage where somebody does."""
        if self.is_reading:
            raise BadMessage(why="this iteration is being read by another request")
        self.is_reading = True
        try:
            yield
        finally:
            self.is_reading = False
            self._ahead.clear()
            self.used = asyncio.get_running_loop().time()


class Iterations:
    """The iterations of a node by id, the one that was used last at the end."""

    def __init__(self, node: IterationsGround, *, entropy: Entropy | None = None) -> None:
        self._node = node
        self._entropy = entropy or SystemEntropy()
        self._found: OrderedDict[bytes, Iteration] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None
        self.peak = 0

    def __len__(self) -> int:
        return len(self._found)

    async def start(self, request: IterationStart, *, owner: object) -> tuple[bytes, Iteration]:
        """Begin an iteration; return its id.

        Raises:
            BadMessage: segments or cursors that cannot be, or the scope's function returned such.
            InvalidArgument: there is no scope of this name.
            NoState, BadPredicate, ...: the cache cannot be read so.
        """
        node = self._node
        cache = self.cache_of(request.cache_id)
        asked = decode_segments(request.segments, of=node.segments)
        name = request.scope
        custom = scope_of(name), json_object(request.scope_parameters, what="scope_parameters")
        segments = segments_in(name, self._topology(), asked=asked, number=node.number, custom=custom)
        entries_max, bytes_max = sizes(request.batch_entries, request.batch_bytes)
        ask = StateAsk(
            cache=cache,
            segments=(),
            prefix=request.prefix,
            filter=await self.compiled(cache, request.filter, owner=owner),
            metadata=request.metadata,
            without=CONTENT.intersection(request.without),
            entries_max=entries_max,
            bytes_max=bytes_max,
            any_copy=await node.state_reads.has_copies(cache, segments),
        )
        iteration = Iteration(ask, self.progress_of(segments, request), now=asyncio.get_running_loop().time())
        id_ = self._entropy.token(ID_BYTES)
        self._found[id_] = iteration
        self._make_room()
        self.peak = max(self.peak, len(self._found))
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return id_, iteration

    def find(self, id_: bytes) -> Iteration:
        """Return an iteration. Raises IterationExpired, CacheDropped."""
        found = self._found.get(id_)
        if found is None:
            raise IterationExpired(iteration=id_[:ID_BYTES].hex())
        if found.ask.cache.dropped:
            self.end(id_)
            raise CacheDropped(cache=found.ask.cache.name)
        self._found.move_to_end(id_)
        return found

    def end(self, id_: bytes) -> None:
        """Forget an iteration, if it is there."""
        self._found.pop(id_, None)

    def stop(self) -> None:
        """Forget all of them."""
        self._found.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"iterations": (len(self._found), ITERATIONS_MAX, self.peak)}

    def cache_of(self, cache_id: int) -> CacheState:
        """Return a cache whose entries can be read. Raises NoState."""
        cache = self._node.caches.find(cache_id)
        if not cache.options.state:
            raise NoState(cache=cache.name)
        return cache

    async def compiled(self, cache: CacheState, filter_: Filter, *, owner: object) -> CompiledFilter | None:
        """Return the filter of a request, None where everything is wanted."""
        spec = spec_of(filter_)
        return None if spec is None else await self._node.reads.filters.compile(cache, spec, owner=owner)

    def progress_of(self, segments: tuple[int, ...], request: IterationStart | ForEach) -> IterationProgress:
        """Return where a request begins. Raises BadMessage."""
        cursors = [checked_cursor(cursor_of(message), of=self._node.segments) for message in request.cursors]
        return IterationProgress(segments, cursors)

    def _topology(self) -> Topology:
        """Return the cluster as functions of scopes see it."""
        return Topology(
            epoch=int(self._node.core.epochs.max()),
            primaries=tuple(self._node.forwarding.leader_of(segment) for segment in range(self._node.segments)),
            addresses={number: member.address for number, member in self._node.view.members.items()},
        )

    def _make_room(self) -> None:
        while len(self._found) > ITERATIONS_MAX:
            self._found.popitem(last=False)

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for id_, found in list(self._found.items()):
            if not found.is_reading and (now - found.used) * 1000 > ITERATION_IDLE_MS_MAX:
                del self._found[id_]
        if self._found:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


def sizes(entries: int, nbytes: int) -> tuple[int, int]:
    """Return the bounds of a batch, 0 standing for the usual ones."""
    entries_max = min(entries or ITERATION_BATCH_ENTRIES_DEFAULT, ITERATION_BATCH_ENTRIES_MAX)
    return entries_max, min(nbytes or ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX)


def scope_of(name: str) -> Scope | None:
    if not name or name in BUILT_IN:
        return None
    point = installed(GROUP).get(name)
    if point is None:
        return None

    def scope(topology: Topology, parameters: Mapping[str, Any]) -> Iterable[int]:
        function: Scope = point.load()  # here, where what an operator's code raises is expected
        return function(topology, parameters)

    return scope


def json_object(data: bytes, *, what: str) -> Mapping[str, Any]:
    """Return what a client sent as a JSON object, empty for nothing. Raises BadMessage."""
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise BadMessage(why=f"{what} are no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadMessage(why=f"{what} are no JSON object")
    return found


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, looked up once a process: reading what each package offers holds the loop."""
    return {point.name: point for point in reversed(tuple(entry_points(group=group)))}  # of two with one name, the first
