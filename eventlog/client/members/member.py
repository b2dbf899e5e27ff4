"""What every member of a group does: one request after the other says that it lives, and the answers say what it may read.

`Membership` is that, `Outage` how long it goes on while the cluster does not answer, `JoinedMember` what consumers are made on.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from eventlog.client.connections.requests import Doubt, chance
from eventlog.client.core import ClientCore
from eventlog.client.values import Shown
from eventlog.clock import now_s
from eventlog.errors import ClientClosed, EventLogError, GroupNotFound, InvalidArgument, OutcomeUnknown, StaleMember, TimedOut
from eventlog.events import EventSource
from eventlog.groups.record import AssignorName, Mode, Place, decode_places, decode_set, encode_places, encode_set, route_of
from eventlog.limits import SESSION_TIMEOUT_MS_DEFAULT
from eventlog.routing.retry import CURABLE, MOVES, backoff_ms
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Filter, Message
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.client")
OUTAGE_MS_DEFAULT = 5 * 60_000
AGAIN_MS_MAX = 200
CLOSE_MS_MAX = 5_000
UNHEARD_MS_MAX = 1_000  # what a good-bye may take of one that has not heard whether it is a member
OnOutage = Callable[[EventLogError | None], None]


class Outage:
    """What of one member fails now: heartbeats, commits, reading from a node. Each is known by a name, and fails since some time.

    A line is logged and `on_outage` called with the error when something has failed for `told_ms`; again, with None, when all works.
    """

    def __init__(
        self, group: str, *, outage_ms: int, told_ms: int, on_outage: OnOutage | None = None, now: Callable[[], float] = now_s
    ) -> None:
        self.outage_ms = outage_ms
        self._now = now
        self._group = group
        self._told_ms = told_ms
        self._on_outage = on_outage
        self._since: dict[str, float] = {}
        self._is_told = False

    def failed(self, what: str, error: EventLogError) -> bool:
        """Take note of a failed try; return whether it is to be given up: no try has succeeded for `outage_ms`."""
        now = self._now()
        lasted_ms = (now - self._since.setdefault(what, now)) * 1000
        if lasted_ms >= self._told_ms and not self._is_told:
            self._is_told = True
            log.warning("group_outage group=%s what=%s gives_up_after_ms=%d error=%s", self._group, what, self.outage_ms, error)
            self._tell(error)
        return lasted_ms >= self.outage_ms

    def works(self, what: str) -> None:
        """Take note of a try that was answered."""
        if self._since and self._since.pop(what, None) is not None and not self._since and self._is_told:
            self._is_told = False
            log.info("group_outage_over group=%s", self._group)
            self._tell(None)

    def _tell(self, error: EventLogError | None) -> None:
        if self._on_outage is None:
            return
        try:
            self._on_outage(error)
        except Exception:  # the application's own code: the member goes on
            log.exception("on_outage_failed group=%s", self._group)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """How a member joins."""

    group: str
    instance_id: str = ""
    mode: Mode = "read"
    assignor: AssignorName = "uniform"
    session_timeout_ms: int = SESSION_TIMEOUT_MS_DEFAULT
    start_id: int = 0
    deliveries_max: int = 0
    dead_letters: str = ""
    filter: Filter | None = None
    ack_timeout_ms: int = 0
    outage_ms: int = OUTAGE_MS_DEFAULT
    on_outage: OnOutage | None = None

    @property
    def beat_wait_ms(self) -> int:
        """How long the coordinator may keep a request."""
        return min(3_000, self.session_timeout_ms // 3)

    @property
    def beat_ms_max(self) -> int:
        """After how long a request has failed that nobody answers: another road is tried well before the session ends."""
        return self.beat_wait_ms + min(2_000, self.session_timeout_ms // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHooks:
    """What is told. `assigned` gets all segments to read, and the places of those that are new; it returns when the others are let go.

    `lost`: the session is over, and with it everything that was assigned. `failed`: for good.
    """

    assigned: Callable[[frozenset[int], Mapping[int, Place]], Awaitable[None]]
    lost: Callable[[], None]
    failed: Callable[[Exception], None]


class Membership:
    """One member, as long as `run` runs. `epoch` 0: it is none at the moment. `now`: seconds, as sessions end by."""

    def __init__(
        self, core: ClientCore, cache_id: int, options: MemberOptions, hooks: MemberHooks, *, now: Callable[[], float] = now_s
    ) -> None:
        self.id = uuid.uuid4().hex
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.changed = asyncio.Event()  # set, and replaced, whenever the coordinator has answered, or will not
        self._core = core
        self._cache_id = cache_id
        self._options = options
        self._hooks = hooks
        self._now = now
        self.outage = Outage(
            options.group, outage_ms=options.outage_ms, told_ms=core.options.timeout_ms, on_outage=options.on_outage, now=now
        )
        self._words = self._first_words()  # here, where the caller that chose what a request cannot hold hears of it
        self._expiry: asyncio.TimerHandle | None = None
        self._expires_at = 0.0
        self._may_be_known = False  # it has asked to join, and nobody has said since that it is no member
        self._attempt = 0
        self._losses = 0
        self._commits = 0  # on their way
        self._committed = asyncio.Event()  # none is
        self._committed.set()

    @property
    def segment(self) -> int:
        """The segment whose primary coordinates the group."""
        return self._core.routes.segment(route_of(self._options.group), by_prefix=True)

    async def run(self) -> None:
        """Join, and stay a member."""
        while True:
            if not self.epoch:
                await self._committed.wait()  # a member that joins anew is given its segments anew: a commit of before would be refused
            sent_at, losses = self._now(), self._losses
            self._may_be_known = True
            try:
                reply = await self.ask(Message(group_beat=self._beat()), timeout_ms=self._options.beat_ms_max)
            except (StaleMember, GroupNotFound) as error:
                log.info("group_rejoined group=%s why=%s", self._options.group, error)
                self._may_be_known = False
                self._lose()
            except EventLogError as error:
                if not isinstance(error, (*CURABLE, TimedOut)) or self.outage.failed("heartbeats", error):
                    self._may_be_known = False
                    self._lose()
                    self._hooks.failed(error)
                    self.tell()
                    return
                await self._pause()
            else:
                self._attempt = 0
                self.outage.works("heartbeats")
                if losses == self._losses:  # else it tells only what is new to a session that has ended here meanwhile
                    await self._take(reply, sent_at)

    def tell(self) -> None:
        """Wake whoever waits for `changed`."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _beat(self) -> pb.GroupBeat:
        beat = pb.GroupBeat(member=self.id, epoch=self.epoch, owned=encode_set(self.owned, self._core.routes.segments))
        beat.MergeFrom(self._words)
        return beat

    def _first_words(self) -> pb.GroupBeat:
        """Return what every heartbeat says."""
        options = self._options
        return pb.GroupBeat(
            group=options.group,
            cache_id=self._cache_id,
            instance=options.instance_id,
            client=self._core.options.name,
            session_timeout_ms=options.session_timeout_ms,
            assignor=options.assignor,
            mode=options.mode,
            start_id=options.start_id,
            wait_ms=options.beat_wait_ms,
            deliveries_max=options.deliveries_max,
            dead_letters=options.dead_letters,
            filter=options.filter,
            ack_timeout_ms=options.ack_timeout_ms,
        )

    async def _take(self, reply: Reply, sent_at: float) -> None:
        answer, count = reply.message.group_beat_answer, self._core.routes.segments
        assigned = decode_set(answer.assigned, count)
        places = decode_places(reply.body, rows=answer.places, count=count)
        self._expire_at(sent_at + self._options.session_timeout_ms / 1000)
        self.epoch = answer.epoch
        if assigned != self.owned:
            await self._hooks.assigned(assigned, places)
            if self.epoch:  # it may have been lost meanwhile
                self.owned = assigned
        self.tell()

    def _expire_at(self, when: float) -> None:
        """Stop reading by then unless the coordinator has answered again: it may have given the segments to others."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires_at = when
        self._expiry = asyncio.get_running_loop().call_later(when - self._now(), self._lose)

    @property
    def is_late(self) -> bool:
        """Whether the session is over and nothing has had time to say so: the process stood still. Any thread may ask."""
        return self.epoch != 0 and self._now() >= self._expires_at

    def check_time(self) -> None:
        """Lose the session at once where it is over."""
        if self.is_late:
            self._lose()

    def _lose(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.epoch:
            self.epoch, self.owned = 0, frozenset()
            self._losses += 1
            self._hooks.lost()

    async def _pause(self) -> None:
        wait_ms = min(AGAIN_MS_MAX, backoff_ms(self._core.options.retry, attempt=self._attempt, chance=chance()))
        self._attempt += 1
        await asyncio.sleep(wait_ms / 1000)

    async def ask(self, message: Message, *buffers: bytes, timeout_ms: int) -> Reply:
        """Send one request to the coordinator, over its own connection or one that forwards; one try."""
        core = self._core
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection: Connection | None = None
        try:
            live = core.nodes.live()
            if self._attempt % 2 and live:
                connection = live[self._attempt % len(live)]
            else:
                connection = await core.nodes.connection(core.routes.primary(self.segment), deadline)
            return await connection.request(message, *buffers, timeout_ms=timeout_ms)
        except (*MOVES, OutcomeUnknown):  # the last: a node that passed it on has lost the coordinator
            core.nodes.on_stale()
            raise

    async def insist(self, message: Message, *buffers: bytes, timeout_ms: int, what: str = "") -> Reply:
        """Send a request that may be repeated to the coordinator until it is answered, or `timeout_ms` have passed.

        `what` it is, for the callback of outages: else nothing is told.

        Raises:
            EventLogError: the last refusal; TimedOut only where nobody ever answered. Its `outcome` is of all tries.
        """
        loop = asyncio.get_running_loop()
        refusal: EventLogError | None = None
        doubt = Doubt()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            try:
                reply = await self.ask(message, *buffers, timeout_ms=max(1, min(left_ms, self._options.beat_ms_max)))
            except EventLogError as error:
                refusal = refusal if isinstance(error, TimedOut) else error
                doubt.note(error)
                is_curable = isinstance(error, (*CURABLE, TimedOut))
                if not is_curable:
                    self.outage.works(what)  # it was answered
                if not is_curable or (what and self.outage.failed(what, error)) or left_ms <= AGAIN_MS_MAX:
                    raise (doubt.told(refusal or error) if is_curable else error) from None
            else:
                self.outage.works(what)
                return reply
            await self._pause()

    async def commit(self, places: Mapping[int, Place], *, epoch: int, metadata: str, timeout_ms: int) -> None:
        """Have places kept that were reached in the session `epoch`. One that has ended is fenced: another member may have read on since.

        Raises:
            StaleMember: that session is over.
        """
        request = pb.CommitGroup(
            group=self._options.group, cache_id=self._cache_id, member=self.id, epoch=epoch, places=len(places), metadata=metadata
        )
        self._commits += 1
        self._committed.clear()
        try:
            await self.insist(Message(commit_group=request), encode_places(places), timeout_ms=timeout_ms, what="commits")
        finally:
            self._commits -= 1
            if not self._commits:
                self._committed.set()

    async def leave(self, *, timeout_ms: int) -> None:
        """Say good-bye, also where no answer has come yet to the request to join. A static member does not: it is expected back."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._may_be_known and not self._options.instance_id:
            request = pb.LeaveGroup(group=self._options.group, cache_id=self._cache_id, member=self.id)
            with suppress(GroupNotFound):
                await self.insist(Message(leave_group=request), timeout_ms=timeout_ms if self.epoch else min(timeout_ms, UNHEARD_MS_MAX))
        self.epoch, self.owned = 0, frozenset()


class JoinedMember(Shown):
    """A member from entering to leaving. A class derived from it says what is to be done in the time between."""

    def __init__(self, core: ClientCore, source: EventSource, options: MemberOptions) -> None:
        self.group = options.group
        self._core = core
        self._source = source
        self._member = Membership(core, source.cache_id, options, MemberHooks(assigned=self._assigned, lost=self._lost, failed=self._fail))
        self._tasks: list[asyncio.Task[None]] = []
        self._error: Exception | None = None
        self._is_closed = False

    def _described(self) -> str:
        return f" of group {self.group!r} over cache {self._source.cache!r}, member {self._member.id}: {self._core}"

    # ------------------------------------------------------------ what each does its own way

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run as long as it is a member."""
        return []

    async def _assigned(self, assigned: frozenset[int], places: Mapping[int, Place]) -> None:
        """Take in which segments it may read from now on, and where those begin that are new."""

    def _lost(self) -> None:
        """Take in that its session is over."""

    async def _settle_last(self) -> None:
        """Say, before leaving, what has become of what it was given."""

    async def _end(self) -> None:
        """Let go of everything; nothing is said any more."""

    # ------------------------------------------------------------ what all do

    async def open(self) -> Self:
        """Join the group; return when the coordinator has answered.

        Raises:
            EventLogError: why it refused.
        """
        if self._tasks or self._is_closed:
            raise InvalidArgument(why="this consumer was opened before; make another")
        self._tasks = [asyncio.create_task(work, name=f"eventlog-consumer {self.group}") for work in (self._member.run(), *self._works())]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._core.options.reconnect_ms_max / 1000):
                while not self._member.epoch:
                    self._check()
                    await self._member.changed.wait()
        except TimeoutError:
            await self.close()
            raise TimedOut(what=f"group {self.group} to be joined", timeout_ms=self._core.options.reconnect_ms_max) from None
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Settle what is done, and leave the group: what it had goes to the others at once."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # before it leaves: else it would join anew
        try:
            try:
                if self._error is None and self._member.epoch:
                    await self._settle_last()
            finally:  # what could not be settled goes to others when it has left
                await self._member.leave(timeout_ms=CLOSE_MS_MAX)
        except EventLogError as error:
            log.warning("group_left_late group=%s error=%s", self.group, error)  # its session ends by itself
        finally:
            await self._end()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close()

    @property
    def member_id(self) -> str:
        """What the group knows it by."""
        return self._member.id

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Take in what a task did not expect: whoever waits for what it does would wait for ever."""
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)
            self._member.tell()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClientClosed(what="consumer")
        if not self._tasks and not self._member.epoch:
            raise InvalidArgument(why="this consumer is not open: enter it with `with` or `async with`")
