"""The client that HTTP is: the calls of every client, over a connection within the process to the node that took the request.

That node forwards what another one leads, so answers, refusals, conditions and formats are a client's. Writes carry no producer: each is
sent once, and where nobody knows what became of it, the caller over HTTP is told so and decides.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.build import Columns, WriteFrame, build_write
from eventlog.batch.one import build_one
from eventlog.client.connections.known import KnownRoutes, topology_of
from eventlog.client.connections.requests import Patience, Requests
from eventlog.client.listeners import CacheListeners
from eventlog.client.members.lanes import MemberLanes
from eventlog.client.members.member import Outage
from eventlog.client.members.progress import MemberProgress
from eventlog.client.options import ClientOptions
from eventlog.client.reading.batches import EventBatch, Order
from eventlog.client.reading.entries import CacheEntries
from eventlog.client.reading.following import Follower, Unpack
from eventlog.client.reading.reads import CacheReads
from eventlog.client.reading.rows import CacheByKey
from eventlog.client.reading.wanted import Reading
from eventlog.client.values import Removed, written
from eventlog.client.writing.singles import CacheSingles, Condition, Expecting, Written, condition_of
from eventlog.errors import BadMessage, ClientClosed, ConnectionLost, EventLogError, OutcomeUnknown
from eventlog.events import EventSource, Kind
from eventlog.http.shared import SharedAnswers
from eventlog.limits import KIB, POLL_WAIT_MS_MAX, PROCESS_BYTES_IN_FLIGHT_MAX
from eventlog.routing.retry import CURABLE
from eventlog.routing.routes import Routes
from eventlog.transport.connection import Connection, Dispatch
from eventlog.transport.greeting import GreetingOptions
from eventlog.transport.inside import connect_inside
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message, PollAnswer
from eventlog.wire.flow import Arena, ProcessBudget
from eventlog.wire.kinds import read_error
from eventlog.wire.session import SessionOptions

NAME: Final = "http"
LANES_MS_MAX: Final = 2 * POLL_WAIT_MS_MAX  # longer than any request of a group's member takes: what it cannot read meanwhile comes later
READ_AHEAD_BYTES: Final = 256 * KIB  # of one stream: with all that there may be, what nobody reads stays small
_OPTIONS: Final = ClientOptions(routing="any", idempotent=False, name=NAME, read_ahead_bytes=READ_AHEAD_BYTES)


class InsideRoads(KnownRoutes):
    """The one road of these clients: to the node around them. It is opened by the first request, and again after it was dropped."""

    def __init__(self, dispatch: Dispatch, session: SessionOptions) -> None:
        super().__init__()
        self.is_closed = False
        self._dispatch = dispatch
        self._connect = GreetingOptions(client=NAME, session=session, bytes_in_flight_max=PROCESS_BYTES_IN_FLIGHT_MAX)
        self._process = ProcessBudget(PROCESS_BYTES_IN_FLIGHT_MAX)
        self._arena = Arena()
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._session = session

    def another(self) -> "InsideRoads":
        """Return a road of its own, counted with this one, through the same memory."""
        found = InsideRoads(self._dispatch, self._session)
        found._process, found._arena = self._process, self._arena
        return found

    def now(self) -> float:
        """Return the time by which deadlines are kept, in seconds."""
        return asyncio.get_running_loop().time()

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def live(self) -> list[Connection]:
        """Return the connection, if it is open."""
        return [] if self._connection is None or self._connection.is_closed else [self._connection]

    async def connection(self, node: int, deadline: float, *, is_long: bool = False) -> Connection:  # noqa: ARG002 -- one road
        """Return the connection: the node forwards what is another's.

        Raises:
            ClientClosed: HTTP is served no more.
        """
        async with self._opening:
            if self.is_closed:
                raise ClientClosed(what="HTTP server")
            if self._connection is None or self._connection.is_closed:
                self._connection = await connect_inside(self._dispatch, self._connect, process=self._process, arena=self._arena, name=NAME)
                self.greeted(self._connection.hello, where="this node")
            return self._connection

    async def other_than(self, _lacking: set[int]) -> Connection:
        """Return the same: there is no other."""
        return await self.connection(0, 0.0)

    def note_lacking(self, _lacking: set[int], _connection: Connection | None) -> bool:
        """Return that nobody else can be asked."""
        return False

    def drop(self, connection: Connection) -> None:
        """Close the connection; the next request opens another."""
        connection.close()

    @property
    def on_stale(self) -> Callable[[], None]:
        """What to call when primaries may be others: nothing, the node hears of that by itself."""
        return _nothing

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what requests hold in the node."""
        return {"http_bytes_in_flight": (self._process.used, self._process.limit, self._process.peak)}

    async def close(self) -> None:
        """Ask no more."""
        self.is_closed = True
        for connection in self.live():
            connection.close()
            await connection.wait_closed()


def _nothing() -> None:
    pass


class LocalCore:
    """What all requests share; a stream has one of its own."""

    def __init__(self, nodes: InsideRoads, shared: SharedAnswers) -> None:
        self.options = _OPTIONS
        self.nodes = nodes
        self.shared = shared
        self.requests = Requests(nodes, _OPTIONS)
        self.follower = Follower(nodes, self.requests, _OPTIONS)

    @property
    def cluster(self) -> str:
        """The id of the cluster, once `open` has returned."""
        return self.nodes.cluster

    @property
    def addresses(self) -> Mapping[int, str]:
        """None: everything goes through the node itself."""
        return {}

    async def open(self) -> None:
        """Learn what the node is, before `routes` is asked for."""
        await self.nodes.connection(0, 0.0)

    @property
    def routes(self) -> Routes:
        """How keys are spread over segments. Raises ClientClosed: it was never opened."""
        if self.nodes.routes is None:
            raise ClientClosed(what="HTTP server")
        return self.nodes.routes

    async def cache(self, name: str) -> "LocalCache":
        """Return a cache. It is looked up for each request: one that is dropped and created again is another.

        Raises:
            CacheNotFound: there is none of this name.
        """
        await self.open()
        return await LocalCache(self, name)

    @asynccontextmanager
    async def reads(self, name: str) -> AsyncIterator["LocalReads"]:
        """A cache to be read by a stream, over a road that is closed behind it. Raises CacheNotFound: there is none of this name."""
        core = LocalCore(self.nodes.another(), self.shared)
        try:
            await core.open()
            yield await LocalReads(core, name)
        finally:
            await core.nodes.close()


class LocalCache(CacheSingles, CacheByKey, CacheListeners):
    """A cache, as requests of HTTP use it."""

    _core: LocalCore

    async def write_many(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, removed: Sequence[bool], lifespans: Sequence[int]
    ) -> "WrittenMany":
        """Write keys and values as they are stored, a block for each segment. What becomes of a block may stay unknown.

        Only blocks that were refused are sent again: the others were written by then, and would be once more.

        Raises:
            EventLogError: none of it was written, or nobody knows of any of it.
        """
        given = _WrittenRows(keys=keys, values=values, removed=removed, lifespans=lifespans)
        found = WrittenMany.nothing(len(keys))
        patience = Patience(self._core.nodes, self._core.options)
        rows: Sequence[int] = range(len(keys))
        while True:
            await patience.connection()  # its time begins
            try:
                part = await self._write_rows(given, rows, timeout_ms=patience.left_ms)
            except EventLogError as error:
                if len(rows) == len(keys):
                    raise
                part = WrittenMany.refused(len(rows), error)
            found.take(rows, part)
            rows = [row for row in rows if isinstance(why := found.errors[row], CURABLE) and why.outcome == "none"]
            refusal = found.errors[rows[0]] if rows else None
            if refusal is None:
                return found
            try:
                await patience.wait_after(refusal, repeatable=False)
            except EventLogError:
                return found

    async def _write_rows(self, given: "_WrittenRows", rows: Sequence[int], *, timeout_ms: int) -> "WrittenMany":
        """Write some rows by one request, which is sent again only where none of it was written."""
        info, _ = await self._found()
        columns = given.columns(rows)
        frame = build_write(columns, segments=self._core.routes.segments, by_prefix=info.route_by_prefix)
        message = Message(write=pb.Write(cache_id=info.id, blocks=len(frame.table)))
        try:
            reply = await self._core.requests.ask(message, *frame.buffers, repeatable=False, timeout_ms=timeout_ms, is_parted=True)
        except ConnectionLost as error:
            if error.outcome != "unknown":
                raise
            raise OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came") from error
        return _many(reply.message.write_answer, reply.body, frame)

    async def _write_one(
        self,
        key: bytes,
        value: bytes,
        *,
        becomes: type[Written],
        condition: Condition | None,
        headers: bytes,
        wants_previous: bool,
        timeout_ms: int | None,
        lifespan_ms: int = 0,
        expecting: Expecting | None = None,
    ) -> Written:
        info, _ = await self._found()
        routes = self._core.routes
        segment = routes.segment(key, by_prefix=info.route_by_prefix)
        kind = Kind.REMOVED if becomes is Removed else Kind.CREATED
        if lifespan_ms:
            columns = Columns(
                kinds=np.array([kind], np.uint8),
                keys=[key],
                values=[value],
                expiry=np.array([lifespan_ms], np.int64),
                headers=[headers] if headers else None,
            )
            body = build_write(columns, segments=routes.segments, by_prefix=info.route_by_prefix).buffers
        else:
            body = [build_one(key, value, kind=kind, segment=segment, headers=headers)]
        write = pb.Write(cache_id=info.id, blocks=1, previous=wants_previous)
        if condition is not None:
            write.conditions.append(condition_of(condition))
        try:
            reply = await self._core.requests.ask(
                Message(write=write), *body, segment=segment, repeatable=False, timeout_ms=self._core.options.limit_ms(timeout_ms)
            )
        except ConnectionLost as error:
            if error.outcome != "unknown":
                raise
            raise OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came") from error
        answer = reply.message.write_answer
        found = written(answer.id, answer.kind)
        if answer.events != 1 or not isinstance(found, becomes):
            raise BadMessage(outcome="unknown", why=f"an answer of kind {answer.kind} for {answer.events} events to a write of one")
        if expecting is not None:
            await self._acknowledged(expecting, (key,), (found.id,))
        return found


def _many(answer: pb.WriteAnswer, body: memoryview, frame: WriteFrame) -> "WrittenMany":
    """Return what an answer says of the rows of a frame, in the order in which they were given."""
    count = len(frame.order)
    if answer.events == count == 1:
        ids, kinds = np.array([answer.id], np.int64), np.array([answer.kind], np.uint8)
    elif answer.events == count and len(body) == 9 * count:
        ids, kinds = np.frombuffer(body[: 8 * count], "<i8"), np.frombuffer(body[8 * count :], np.uint8)
    else:
        raise BadMessage(outcome="unknown", why=f"an answer for {answer.events} events to a write of {count}")
    back = np.empty(count, np.int64)
    back[frame.order] = np.arange(count)
    errors: list[EventLogError | None] = [None] * count
    ends = frame.table["count"].astype(np.int64).cumsum().tolist()
    order = frame.order.tolist()
    for refusal in answer.refusals:
        low, high = ends[refusal.block - 1] if refusal.block else 0, ends[refusal.block]
        for row in order[low:high]:
            errors[row] = read_error(refusal.error)
    return WrittenMany(ids=ids[back], kinds=kinds[back], errors=errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMany:
    """What many writes became, in their order: ids (0: nothing to remove), kinds, and of those that were not written why."""

    ids: Ints
    kinds: npt.NDArray[np.uint8]
    errors: list[EventLogError | None]

    @classmethod
    def nothing(cls, count: int) -> Self:
        """Return that of rows that are yet to be written."""
        return cls(ids=np.zeros(count, np.int64), kinds=np.zeros(count, np.uint8), errors=[None] * count)

    @classmethod
    def refused(cls, count: int, error: EventLogError) -> Self:
        """Return that of rows that were refused together."""
        return cls(ids=np.zeros(count, np.int64), kinds=np.zeros(count, np.uint8), errors=[error] * count)

    def take(self, rows: Sequence[int], part: "WrittenMany") -> None:
        """Take in what some rows became."""
        self.ids[rows], self.kinds[rows] = part.ids, part.kinds
        for row, error in zip(rows, part.errors, strict=True):
            self.errors[row] = error


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenRows:
    """Rows to be written; a lifespan of 0 is none."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    removed: Sequence[bool]
    lifespans: Sequence[int]

    def columns(self, rows: Sequence[int]) -> Columns:
        """Return some of them as they are sent."""
        removed, lifespans = [self.removed[row] for row in rows], [self.lifespans[row] for row in rows]
        return Columns(
            kinds=np.where(np.array(removed, bool), np.uint8(Kind.REMOVED), np.uint8(Kind.CREATED)).astype(np.uint8),
            keys=[self.keys[row] for row in rows],
            values=[self.values[row] for row in rows],
            expiry=np.array(lifespans, np.int64) if any(lifespans) else None,
        )


class LocalReads(CacheReads, CacheEntries):
    """A cache, as streams of HTTP read its events: each over a connection of its own, so that one that does not read holds up no other.

    What several get alike is taken apart once.
    """

    _core: LocalCore

    @property
    def core(self) -> LocalCore:
        """What its requests share."""
        return self._core

    async def lanes(self, reading: Reading, progress: MemberProgress) -> MemberLanes:
        """Return what reads a group member's segments, from where its progress says. Each node's are asked for apart: one may be gone."""
        reply = await self._core.requests.ask(Message(get_topology=pb.GetTopology()))
        self._core.nodes.took(topology_of(reply.message.topology_answer))
        outage = Outage(self.name, outage_ms=LANES_MS_MAX, told_ms=LANES_MS_MAX)
        return MemberLanes(self._core, progress, source=await self._source(reading), reading=reading, outage=outage)

    def _unpack(self, begun: Reading, source: EventSource, order: Order = "id") -> Unpack:
        unpack = super()._unpack(begun, source, order)
        if begun.position is not None or begun.listener or begun.state_first:
            return unpack  # batches of these say where their reader is
        asked = b"" if begun.filter is None else begun.filter.SerializeToString(deterministic=True)

        def shared(answer: PollAnswer, body: memoryview) -> list[EventBatch]:
            return self._core.shared.batches((source.cache_id, asked), answer, body, lambda: unpack(answer, body))

        return shared
