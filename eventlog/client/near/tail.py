"""What keeps a near cache true: word of the writes to the keys that it holds, from one node after the other."""

import asyncio
from collections import deque

import numpy as np

from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.patience import chance
from eventlog.client.near.table import NearTable
from eventlog.client.options import ClientOptions
from eventlog.clock import now_s
from eventlog.errors import EventLogError, EventsTrimmed, PositionDiverged, Stopping, Unavailable
from eventlog.routing.retry import backoff_ms
from eventlog.transport.connection import Connection
from eventlog.transport.stream import Reply, Stream
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

PROBES_PER_STALENESS = 4  # so that an answer or two may be late
PROBE_S_MIN = 0.02
SILENT_S_MIN = 3.0  # a node that answers no probe for so long, and longer than a value may be old, is left for another
_PROBES_MAX = 64


class NearTail:
    """Follows the writes of one cache for one table, until cancelled. Lost connections are made good; meanwhile the table ages."""

    def __init__(self, nodes: Nodes, options: ClientOptions, table: NearTable, *, cache_id: int) -> None:
        self._nodes = nodes
        self._options = options
        self._table = table
        self._cache_id = cache_id
        self._probe_s = max(table.staleness_s / PROBES_PER_STALENESS, PROBE_S_MIN)
        self._silent_s = max(2 * table.staleness_s, SILENT_S_MIN)
        self._probes: deque[tuple[int, float]] = deque(maxlen=_PROBES_MAX)  # number, when it was asked
        self._number = 0
        self._heard_at = 0.0
        self._is_open = False
        self._due = asyncio.Event()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Tell the server of new keys soon."""
        self._due.set()

    async def run(self) -> None:
        """Work until cancelled, or until the cache cannot be followed any more: then nothing is held, and every read goes through."""
        attempt = 0
        while True:
            self._is_open = False
            try:
                connection = await self._connection(attempt)
                await self._follow(connection)
            except (EventsTrimmed, PositionDiverged):
                self._table.reset()
            except EventLogError as error:
                self._table.close()
                if not error.retry:
                    self._give_up(error)
                    return
            attempt = 0 if self._is_open else attempt + 1
            await asyncio.sleep(backoff_ms(self._options.retry, attempt=attempt, chance=chance()) / 1000)

    def _give_up(self, error: EventLogError) -> None:
        self._table.reset()
        if not self.opened.done():
            self.opened.set_exception(error)

    async def _connection(self, attempt: int) -> Connection:
        live = self._nodes.live()
        if live:
            return live[attempt % len(live)]
        loop = asyncio.get_running_loop()
        return await self._nodes.home.connection(loop.time() + self._options.timeout_ms / 1000)

    async def _follow(self, connection: Connection) -> None:
        """Follow at one node. Raises why that ended."""
        digests = self._table.opening()
        self._probes.clear()
        self._heard_at = now_s()
        watch = pb.NearWatch(
            cache_id=self._cache_id,
            after=self._table.upto,
            latest=not self._table.upto,
            digests=len(digests),
            probe=self._probe(),
        )
        stream = connection.stream(
            Message(near_watch=watch), np.array(digests, "<u8").tobytes(), credit_bytes=self._options.read_ahead_bytes
        )
        tasks = {asyncio.create_task(self._listen(stream)), asyncio.create_task(self._tell(connection, stream))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        raise Stopping  # a node ends a watch only when it goes away

    def _probe(self) -> int:
        self._number += 1
        self._probes.append((self._number, now_s()))
        return self._number

    # ------------------------------------------------------------ hearing

    async def _listen(self, stream: Stream) -> None:
        async for reply in stream:
            self._take(reply)

    def _take(self, reply: Reply) -> None:
        item = reply.message.stream_item.near_item
        size = 8 * item.digests
        digests: list[int] = np.frombuffer(reply.body[:size], "<u8").tolist()
        ids: list[int] = np.frombuffer(reply.body[size:], "<i8").tolist()
        self._table.advance(item.upto, digests=digests, ids=ids)
        if not self._is_open:
            self._is_open = True
            self._table.registered(item.upto)
            self._due.set()
        while self._probes and self._probes[0][0] <= item.probe:
            number, asked_at = self._probes.popleft()
            if number == item.probe:
                self._heard_at = now_s()
                self._table.confirm(asked_at)
                if not self.opened.done():
                    self.opened.set_result(None)

    # ------------------------------------------------------------ telling

    async def _tell(self, connection: Connection, stream: Stream) -> None:
        """Tell of new keys as they come, and ask now and then whether everything was heard of."""
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(self._probe_s, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()
            self._due.clear()
            if now_s() - self._heard_at > self._silent_s:
                raise Unavailable(why=f"{connection.peer} has not said for {self._silent_s:.0f} s how far it is")
            if self._is_open:
                await self._tell_once(connection, stream)

    async def _tell_once(self, connection: Connection, stream: Stream) -> None:
        added, removed = self._table.changes()
        is_due = not self._probes or now_s() - self._probes[-1][1] >= self._probe_s * 0.9
        if not added and not removed and not is_due:
            self._table.registered(0)
            return
        probe = self._probe() if is_due else 0
        interest = pb.NearInterest(watch=stream.number, added=len(added), removed=len(removed), probe=probe)
        body = np.array(added + removed, "<u8").tobytes()
        reply = await connection.request(Message(near_interest=interest), *([body] if body else []), timeout_ms=self._options.timeout_ms)
        self._table.registered(reply.message.near_interest_answer.after)
