"""How long an operation goes on trying, and where: a loop of `Patience.connection` and `wait_after`. `Requests` does so with one request.

What waits, and by what the time is told, is the roads' business: those of a client with an event loop, or without one.
"""

import random
from collections.abc import Callable
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from eventlog.client.options import ClientOptions
from eventlog.errors import ClientClosed, EventLogError, FilterNotFound, Outcome, OutcomeUnknown, TimedOut, Unavailable
from eventlog.routing.retry import CURABLE, MOVES, SEGMENTS_OWN, decide
from eventlog.routing.routes import NOBODY, Routes
from eventlog.transport.stream import Stream
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.kinds import read_error
from eventlog.wire.session import Reply

SILENT_S = 2  # a caller that waits for longer is told what for


class Asking(Protocol):
    """A connection, as far as operations ask on it."""

    async def request(self, message: Message, *buffers: object, timeout_ms: int = 0) -> Reply:
        """Ask, and wait for the answer."""
        ...

    def stream(self, message: Message, *buffers: object, credit_bytes: int = 0) -> Stream:
        """Open a stream."""
        ...


C = TypeVar("C", bound=Asking)


class Roads(Protocol[C]):
    """The roads to the nodes of a cluster. Deadlines are in the time of `now`."""

    is_closed: bool
    routes: Routes | None

    def now(self) -> float:
        """Return the time by which deadlines are kept, in seconds."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait."""
        ...

    def live(self) -> list[C]:
        """Return every open connection."""
        ...

    async def connection(self, node: int, deadline: float, *, is_long: bool = False) -> C:
        """Return a connection for requests of a node's segments; what is long is worth a direct one that is not open yet."""
        ...

    async def other_than(self, lacking: set[int]) -> C:
        """Return a connection to a member that is none of `lacking`."""
        ...

    def note_lacking(self, lacking: set[int], connection: C | None) -> bool:
        """Note that a node lacks what was asked of it; return whether there is another one to ask."""
        ...

    def drop(self, connection: C) -> None:
        """Close a connection that is of no more use."""
        ...

    @property
    def on_stale(self) -> Callable[[], None]:
        """To be called when the topology may be out of date."""
        ...


class Patience(Generic[C]):
    """The tries of one operation: `timeout_ms` (0: the client's) from the beginning, or from the last progress on.

    `outlasts`: also what its tries can end with, whose own time is shorter, or which another one need not meet.
    """

    def __init__(
        self, nodes: Roads[C], options: ClientOptions, *, timeout_ms: int = 0, outlasts: tuple[type[EventLogError], ...] = ()
    ) -> None:
        self._nodes = nodes
        self._options = options
        self._timeout_ms = timeout_ms or options.timeout_ms
        self._curable: tuple[type[EventLogError], ...] = (*CURABLE, *outlasts)
        self._attempt = 0
        self._has_progress = True
        self._is_told = False
        self._deadline = 0.0
        self._lacking: set[int] = set()  # nodes that do not have what was asked for
        self._connection: C | None = None

    @property
    def left_ms(self) -> int:
        """Return how much time is left, at least 1."""
        return max(1, int((self._deadline - self._nodes.now()) * 1000))

    def has_progress(self) -> None:
        """Take note of a row."""
        self._has_progress = True

    async def connection(self, owner: int = NOBODY, *, is_long: bool = False) -> C:
        """Return the connection to ask a node's segments on; without an owner, to ask whichever node is at hand."""
        self._begin()
        nodes = self._nodes
        if self._lacking:
            self._connection = await nodes.other_than(self._lacking)
        else:
            self._connection = await nodes.connection(owner, self._deadline, is_long=is_long)
        return self._connection

    async def other_connection(self) -> C:
        """Return a connection to any node, another one after each failure."""
        live = self._nodes.live()
        if self._lacking or not live:
            return await self.connection()
        self._begin()
        self._connection = live[self._attempt % len(live)]
        return self._connection

    def _begin(self) -> None:
        self._connection = None
        if self._has_progress:
            self._has_progress, self._is_told, self._attempt = False, False, 0
            self._deadline = self._nodes.now() + self._timeout_ms / 1000

    async def wait_after(self, error: EventLogError, *, repeatable: bool = True) -> None:
        """Return when it is time to try again. Raises `error` if that is of no use."""
        if isinstance(error, FilterNotFound):
            if not self._nodes.note_lacking(self._lacking, self._connection):
                raise error
            return
        if self._has_progress:
            self._attempt = 0
            self._deadline = self._nodes.now() + self._timeout_ms / 1000
        left_ms = int((self._deadline - self._nodes.now()) * 1000)
        retry, attempt = self._options.retry, self._attempt
        decision = decide(retry, error, attempt=attempt, left_ms=left_ms, repeatable=repeatable, chance=chance(), curable=self._curable)
        if not decision.again:
            raise error
        if self._nodes.is_closed:
            raise ClientClosed(what="client") from error
        if isinstance(error, (*MOVES, OutcomeUnknown)):  # the last: a node that passed it on has lost the primary
            self._nodes.on_stale()
        if decision.reconnect and self._connection is not None:
            self._nodes.drop(self._connection)
        if not self._is_told and left_ms <= self._timeout_ms - SILENT_S * 1000:
            self._is_told = True
            import logging  # noqa: PLC0415 -- hardly anybody waits for that long, and every command would load it

            log = logging.getLogger("eventlog.client")
            log.warning("%s (%s); it is tried again for %d s more", error, error.code, left_ms // 1000)
        await self._nodes.pause(decision.wait_ms / 1000)
        self._attempt += 1


def chance() -> float:
    """Return a number in [0, 1) that keeps clients from trying again at the same moment."""
    return random.random()  # noqa: S311 -- nothing is kept secret with it


class Requests:
    """Asks nodes on behalf of a client's calls."""

    def __init__(self, nodes: Roads[Any], options: ClientOptions) -> None:
        self._nodes = nodes
        self._options = options

    def __repr__(self) -> str:
        return repr(self._nodes)

    async def ask(
        self,
        message: Message,
        *buffers: bytes,
        segment: int | None = None,
        repeatable: bool = True,
        again_ms_max: int = 0,
        timeout_ms: int = 0,
        wait_ms: int = 0,
        is_parted: bool = False,
    ) -> Reply:
        """Return the answer to a request, whose body is `buffers`. `timeout_ms` is the client's where it is 0.

        `wait_ms`: how long the node itself may take on purpose. Of a write of one event it is the answer that it was written,
        of one `is_parted` the answer that tells of each block: some may be written where others are refused.

        `again_ms_max`, unless 0: after so long it is not sent again if nobody knows what became of an earlier try.

        It goes to the primary of `segment`, without one to any node. What is not `repeatable` is sent at most once, unless the node
        says that it did nothing.

        Raises:
            TimedOut: no answer until the deadline, and no refusal before that.
            OutcomeUnknown: it is not sent again.
            EventLogError: the node's refusal, or why no node could be asked.
        """
        timeout_ms = (timeout_ms or self._options.timeout_ms) + wait_ms
        patience = Patience(self._nodes, self._options, timeout_ms=timeout_ms)
        refusal: EventLogError | None = None
        doubt: Doubt | None = None  # nearly every first try is answered
        sent_at = 0.0
        while True:
            routes = self._nodes.routes
            try:
                if segment is not None and routes is not None:
                    connection = await patience.connection(routes.primary(segment))
                else:
                    connection = await patience.other_connection()
                if again_ms_max:
                    sent_at = self._nodes.now()
                    if doubt is not None:
                        doubt.check(sent_at)
                reply: Reply = await connection.request(message, *buffers, timeout_ms=patience.left_ms)
                for refused in () if is_parted else reply.message.write_answer.refusals:
                    raise read_error(refused.error)
                return reply
            except TimedOut as error:
                outcome: Outcome = "unknown" if doubt is not None and doubt.is_open else error.outcome
                if refusal is not None:
                    raise type(refusal)(outcome=outcome, **refusal.facts()) from None
                raise TimedOut(outcome=outcome, what=message.WhichOneof("kind"), timeout_ms=timeout_ms) from None
            except EventLogError as error:
                doubt = doubt or Doubt(again_ms_max)
                doubt.note(error, sent_at=sent_at)
                refusal = error if isinstance(error, SEGMENTS_OWN) else refusal
                try:
                    await patience.wait_after(error, repeatable=repeatable and not doubt.has_lasted(self._nodes.now()))
                except (Unavailable, ClientClosed) as last:
                    raise doubt.told(last) from None


class Doubt:
    """Whether an earlier try of a request may have been carried out: nobody has said what became of it.

    After `again_ms_max`, unless that is 0, it is not sent again: a node that gets it then may take it for a new one.
    """

    __slots__ = ("_again_ms_max", "_ends", "is_open")

    def __init__(self, again_ms_max: int = 0) -> None:
        self._again_ms_max = again_ms_max
        self._ends = inf
        self.is_open = False

    def check(self, now: float) -> None:
        """Raise OutcomeUnknown where another try would come too late."""
        if self.has_lasted(now):
            raise OutcomeUnknown(outcome="unknown", why="an earlier try was not answered, and it could be written twice by now")

    def has_lasted(self, now: float) -> bool:
        """Whether another try would come too late."""
        return now > self._ends

    def note(self, error: EventLogError, *, sent_at: float = 0.0) -> None:
        """Take note of how a try ended."""
        if error.outcome == "unknown":
            self.is_open = True
            if self._again_ms_max:
                self._ends = min(self._ends, sent_at + self._again_ms_max / 1000)

    def told(self, last: EventLogError) -> EventLogError:
        """Return the error that ended the last try as the caller is to see it: it says nothing of the tries before."""
        return type(last)(outcome="unknown", **last.facts()) if self.is_open else last
