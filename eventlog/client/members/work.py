"""A member of a work group as an application uses it: one event after the other, each acknowledged, tried again or rejected."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from operator import index
from typing import Any

import msgspec
import numpy as np

from eventlog.batch.views import decode_block
from eventlog.client.core import ClientCore
from eventlog.client.members.member import AGAIN_MS_MAX, CLOSE_MS_MAX, JoinedMember, MemberOptions
from eventlog.errors import BadMessage, ClientClosed, EventLogError, InvalidArgument, StaleMember, TimedOut
from eventlog.events import Event, EventSource, Kind
from eventlog.groups.work import TASK_ROW
from eventlog.limits import TASK_DELAY_MS_MAX
from eventlog.routing.retry import CURABLE
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.client")
PREFETCH_DEFAULT = 16
TAKE_WAIT_MS = 2_000
TAKE_MS_MAX = TAKE_WAIT_MS + 3_000
_DONE, _AGAIN, _REJECTED, _GIVEN_BACK = range(4)
Verdict = tuple[int, int, int, int, str, int]  # segment, id, verdict, milliseconds, reason, deliveries
Unsent = tuple[Verdict, "asyncio.Future[None]"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """An event that nobody else works on. `deliveries` counts how often it was handed out, this time included."""

    event: Event
    deliveries: int
    _consumer: "WorkConsumer" = field(repr=False)

    @property
    def id(self) -> int:
        """The event's id."""
        return self.event.id

    @property
    def key(self) -> str | bytes:
        """The event's key: no other event of it is handed out before this one is settled."""
        return self.event.key

    @property
    def value(self) -> Any:
        """The event's value."""
        return self.event.value

    @property
    def kind(self) -> str:
        """The event's kind."""
        return self.event.kind

    @property
    def headers(self) -> dict[str, bytes]:
        """The event's headers."""
        return self.event.headers

    @property
    def maybe_repeated(self) -> bool:
        """Whether it was handed out before: somebody may have done it, in part or whole."""
        return self.deliveries > 1

    async def ack(self) -> None:
        """Say that it is done; it is not handed out again once this has returned.

        Raises:
            StaleMember: this consumer's session ended, and somebody else has the event, or had it.
        """
        await self._settle(_DONE)

    async def retry(self, *, after_ms: int | None = None, reason: str = "") -> None:
        """Have it handed out again, to any member, after `after_ms` or a back-off that doubles; as a dead letter after too many times."""
        if after_ms is not None and not (hasattr(after_ms, "__index__") and 0 <= after_ms <= TASK_DELAY_MS_MAX):
            raise InvalidArgument(why=f"after_ms is {after_ms}: give a whole number in [0, {TASK_DELAY_MS_MAX}]")
        await self._settle(_AGAIN, after_ms=-1 if after_ms is None else index(after_ms), reason=reason)

    async def reject(self, reason: str) -> None:
        """Have it put among the dead letters at once, with the reason in its headers.

        Raises:
            InvalidArgument: the reason is no text.
            EventLogError: the cache of dead letters refuses it; the task is still this consumer's.
        """
        await self._settle(_REJECTED, reason=reason)

    async def _settle(self, verdict: int, *, after_ms: int = -1, reason: str = "") -> None:
        if not isinstance(reason, str):
            raise InvalidArgument(why=f"a reason is a text, not {type(reason).__name__}: give str(error)")
        sent = reason.encode("utf-8", "backslashreplace").decode()  # what an error says may hold half a character
        await self._consumer.settle((self.event.segment, self.event.id, verdict, after_ms, sent, self.deliveries))


def _always(_: Event) -> bool:
    return True


def _no_position(id_: int) -> str:
    raise InvalidArgument(why=f"event {id_} is a task: those are handed out in no order, so there is no place behind one")


class WorkConsumer(JoinedMember):
    """A member of a work group, from entering it to leaving it. What it has and has not settled when it leaves goes to others."""

    def __init__(
        self, core: ClientCore, source: EventSource, options: MemberOptions, *, prefetch: int = PREFETCH_DEFAULT, earliest: bool = False
    ) -> None:
        source = msgspec.structs.replace(source, position_at=_no_position)
        super().__init__(core, source, options)
        self._again = msgspec.structs.replace(source, may_repeat=_always)
        self._prefetch = prefetch
        self._earliest = earliest
        self._sending: asyncio.Task[None] | None = None
        self._unsent: list[Unsent] = []
        self._ready: deque[Task] = deque()
        self._holding: set[int] = set()  # ids of what it was handed and has not settled
        self._over: set[int] = set()  # ids of what was done with since the last request for more: a copy may be under way
        self._lives = 0  # sessions that are over
        self._taking: asyncio.Task[None] | None = None
        self._waiting = 0  # how many wait for tasks
        self._sequence = 0

    async def _settle_last(self) -> None:
        if self._taking is not None and not self._taking.done():
            self._taking.cancel()
            await asyncio.wait((self._taking,))
            await self._take_more(max_events=1, wait_ms=0)  # what its answer had goes back uncounted: it is not in hand
        await self._give_back()
        if self._sending is not None:
            await self._sending

    async def _give_back(self) -> None:
        """Let others have at once what no application has seen."""
        given_back = [(task.event.segment, task.event.id, _GIVEN_BACK, -1, "", task.deliveries) for task in self._ready]
        self._ready.clear()
        self._holding.difference_update(verdict[1] for verdict in given_back)  # should this not be heard, the next request says so
        if given_back:
            await self._send(given_back, timeout_ms=CLOSE_MS_MAX)

    async def _end(self) -> None:
        tasks = [task for task in (self._taking, self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, done in self._unsent:
            self._told(done, ClientClosed(what="consumer"))

    def _lost(self) -> None:
        self._holding.difference_update(task.id for task in self._ready)  # what is being worked on is still in hand
        self._ready.clear()
        self._lives += 1

    # ------------------------------------------------------------ tasks

    @property
    def in_hand(self) -> frozenset[int]:
        """Ids of events that are this member's now: those that wait to be taken from it, and those taken that are not settled."""
        return frozenset(self._holding)

    def __aiter__(self) -> AsyncIterator[Task]:
        return self.tasks()

    async def tasks(self) -> AsyncGenerator[Task, None]:
        """Yield tasks, on and on. Several may be worked on at once: each is settled by itself.

        A caller that stops waiting, by a timeout say, loses nothing: what comes then goes to the next one, here or elsewhere.

        Raises:
            EventsTrimmed: retention has taken events that nobody had acknowledged.
        """
        while True:
            self._member.check_time()
            self._check()
            if self._ready:
                yield self._ready.popleft()
            elif self._member.epoch:
                await self._take()
            else:
                await asyncio.sleep(AGAIN_MS_MAX / 1000)  # the session was lost, and another is being made

    async def _take(self) -> None:
        """Wait for tasks. They are asked for by a task of the consumer's own: what is answered when nobody waits any more is not lost."""
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take_for_those_who_wait(), name=f"eventlog-worker taking {self.group}")
            self._taking.add_done_callback(lambda task: task.cancelled() or task.exception())  # it may be that nobody waits for it
        taking = self._taking
        self._waiting += 1
        try:
            await asyncio.wait((taking,))
        finally:
            self._waiting -= 1
        if not taking.cancelled():
            taking.result()

    async def _take_for_those_who_wait(self) -> None:
        await self._take_more(max_events=self._prefetch, wait_ms=TAKE_WAIT_MS)
        if not self._waiting:
            with suppress(EventLogError):
                await self._give_back()

    async def _take_more(self, *, max_events: int, wait_ms: int) -> None:
        self._sequence += 1
        request = pb.TakeTasks(
            group=self.group,
            cache_id=self._source.cache_id,
            member=self._member.id,
            max_events=max_events,
            wait_ms=wait_ms,
            earliest=self._earliest,
            holding=len(self._holding),
            sequence=self._sequence,
        )
        held = np.array(sorted(self._holding), "<i8").tobytes()
        lives = self._lives
        self._over.clear()
        try:
            reply = await self._member.ask(Message(take_tasks=request), held, timeout_ms=TAKE_MS_MAX)
        except StaleMember:
            await asyncio.sleep(AGAIN_MS_MAX / 1000)  # the next heartbeat says so, too, and joins again
        except EventLogError as error:
            if not isinstance(error, (*CURABLE, TimedOut)):
                raise
            await asyncio.sleep(AGAIN_MS_MAX / 1000)
        else:
            if lives == self._lives:  # else they were handed to a session that is over
                found = [task for task in self._tasks_of(reply) if task.id not in self._over]
                self._ready.extend(found)
                self._holding.update(task.id for task in found)

    def _tasks_of(self, reply: Reply) -> list[Task]:
        count = reply.message.take_tasks_answer.tasks
        if not count:
            return []
        size = count * TASK_ROW.itemsize
        if size > len(reply.body):
            raise BadMessage(why=f"{count} tasks in {len(reply.body)} bytes")
        table = np.frombuffer(reply.body[:size], TASK_ROW)
        block = decode_block(reply.body[size:], where="answer")
        if block.count != count:
            raise BadMessage(why=f"{block.count} events for {count} tasks")
        before = block.before.to_list() if block.before is not None else None
        headers = block.headers.to_list() if block.headers is not None else None
        columns = zip(table.tolist(), block.kinds.tolist(), block.keys.to_list(), block.values.to_list(), strict=True)
        return [
            Task(
                event=Event(
                    id=id_,
                    kind_number=kind,
                    key_bytes=key,
                    value_bytes=value,
                    segment=segment,
                    offset=offset,
                    source=self._source if deliveries == 1 else self._again,
                    before_bytes=None if before is None or kind == Kind.CREATED else before[row],
                    header_bytes=None if headers is None else headers[row],
                ),
                deliveries=deliveries,
                _consumer=self,
            )
            for row, ((id_, offset, segment, deliveries, _, _), kind, key, value) in enumerate(columns)
        ]

    # ------------------------------------------------------------ settling

    async def settle(self, verdict: Verdict) -> None:
        """Keep what became of a task; those of one moment share a request."""
        self._check()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsent.append((verdict, done))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="eventlog-worker settling")
        await done

    async def _send_all(self) -> None:
        while self._unsent:
            batch, self._unsent = self._unsent, []
            try:
                await self._send_batch(batch)
            except Exception as error:  # as nobody awaits this task while its consumer lives, those that wait are told
                log.exception("tasks_not_settled group=%s events=%d", self.group, len(batch))
                for _, done in batch:
                    self._told(done, error)
            finally:
                for _, done in batch:
                    self._told(done, ClientClosed(what="consumer"))

    async def _send_batch(self, batch: list[Unsent]) -> None:
        error: EventLogError | None = None
        try:
            await self._send([verdict for verdict, _ in batch], timeout_ms=self._member.outage.outage_ms, what="acknowledgements")
        except EventLogError as found:
            error = found
        for verdict, done in batch:
            if error is None or done.done():
                self._told(done, None)
            elif len(batch) == 1 or isinstance(error, (*CURABLE, TimedOut)):
                self._refused(verdict, done, error)
            else:
                await self._send_alone(verdict, done)

    async def _send_alone(self, verdict: Verdict, done: "asyncio.Future[None]") -> None:
        """Find out which of several were refused."""
        try:
            await self._send([verdict], timeout_ms=self._member.outage.outage_ms, what="acknowledgements")
        except EventLogError as error:
            self._refused(verdict, done, error)
        else:
            self._told(done, None)

    def _refused(self, verdict: Verdict, done: "asyncio.Future[None]", error: EventLogError) -> None:
        if isinstance(error, StaleMember):
            self._holding.discard(verdict[1])  # should it be handed to this member again, that is another time
        self._told(done, error)

    @staticmethod
    def _told(done: "asyncio.Future[None]", error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    async def _send(self, verdicts: list[Verdict], *, timeout_ms: int, what: str = "") -> None:
        request = pb.SettleTasks(group=self.group, cache_id=self._source.cache_id, member=self._member.id, tasks=len(verdicts))
        await self._member.insist(Message(settle_tasks=request), msgspec.msgpack.encode(verdicts), timeout_ms=timeout_ms, what=what)
        self._holding.difference_update(verdict[1] for verdict in verdicts)
        over = {verdict[1] for verdict in verdicts if verdict[2] in (_DONE, _REJECTED)}
        self._over |= over
        if any(task.id in over for task in self._ready):
            self._ready = deque(task for task in self._ready if task.id not in over)
