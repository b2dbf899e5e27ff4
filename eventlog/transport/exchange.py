"""A request that came in, and its answering: what a handler holds until it is done."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eventlog.errors import ClientClosed, EventLogError
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.flow import REQUEST_WEIGHT_BYTES
from eventlog.wire.session import Answer, Incoming, Phase, payload_bytes

if TYPE_CHECKING:
    from eventlog.transport.connection import Connection


class Exchange:
    """One request of a peer, to be answered once.

    That is `answer` or `fail`; of a stream, `stream_send` as often as `credit` allows and then `stream_end` or `fail`. Once the
    connection is gone all of these do nothing.

    `on_end`, if set, is called once when nobody waits for more: the reader of the stream ended it, or the connection is gone.
    """

    __slots__ = ("_incoming", "_is_cut", "_waiter", "body", "connection", "kind", "message", "on_end")

    def __init__(self, connection: "Connection", incoming: Incoming) -> None:
        self.connection = connection
        self.kind = incoming.kind
        self.message: Message = incoming.message
        self.body = incoming.body
        self.on_end: Callable[[], None] | None = None
        self._incoming = incoming
        self._is_cut = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def request(self) -> Any:
        """The message of this kind inside `message`."""
        return getattr(self.message, self.kind)

    @property
    def is_over(self) -> bool:
        """Whether no answer is due any more, or could be delivered."""
        return self._incoming.phase is Phase.OVER

    @property
    def is_stream(self) -> bool:
        """Whether the request opened a stream."""
        return self._incoming.credit is not None

    @property
    def is_ending(self) -> bool:
        """Whether the reader of the stream wants no more."""
        return self._incoming.phase is Phase.ENDING

    @property
    def has_room(self) -> bool:
        """Whether an answer made now leaves soon. If not, and it is large, make it later: see `room`."""
        return self.connection.has_room

    async def room(self) -> None:
        """Wait until `has_room`. Raises ConnectionLost."""
        await self.connection.room()

    def answer(self, message: Answer, *buffers: object) -> None:
        """Answer a request that opened no stream. `buffers` are the body; they must not change any more.

        Raises:
            TooLarge: the frame would be; the request is still unanswered.
        """
        connection, incoming = self.connection, self._incoming
        if connection.is_closed:
            return
        connection.write_frame(connection.session.answer(incoming, message, buffers))
        incoming.token = None  # no cycle for the collector to find
        connection.release(incoming.size + REQUEST_WEIGHT_BYTES)
        if incoming.kind == "hello":
            connection.on_welcomed(message)

    def fail(self, error: EventLogError) -> None:
        """Refuse the request; a stream is ended with it."""
        if self.connection.is_closed or self._is_cut:
            return
        frame = self.connection.session.fail(self._incoming, error)
        self.connection.write(frame)
        self._release()

    async def credit(self) -> None:
        """Wait until the reader takes a further item.

        Raises:
            ClientClosed: the reader ended the stream, or we are stopping. `stream_end` is still due, and harmless if not.
            ConnectionLost: the connection is gone.
        """
        credit = self._incoming.credit
        assert credit is not None, "credit is a stream's"
        while True:
            if self.connection.is_closed:
                raise self.connection.lost()
            if self._incoming.phase is not Phase.STREAMING:
                raise ClientClosed(what="stream")
            if credit.balance <= 0:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            elif not self.connection.has_room:
                await self.connection.room()
            else:
                return

    def stream_send(self, message: Answer, *buffers: object) -> int:
        """Send one item; return the bytes it took of the credit. Raises TooLarge."""
        if self.connection.is_closed or self._is_cut:
            return 0
        frame = self.connection.session.item(self._incoming, message, buffers)
        self.connection.write_frame(frame)
        return payload_bytes(frame)

    def stream_end(self) -> None:
        """End the stream."""
        if self.connection.is_closed or self._is_cut:
            return
        frame = self.connection.session.end(self._incoming)
        self.connection.write(frame)
        self._release()

    def cut(self, error: EventLogError) -> None:
        """Refuse the request on behalf of whoever works on it, who may go on as if nothing had happened."""
        self.fail(error)
        self._is_cut = True
        self.wake(has_ended=True)

    def wake(self, *, has_ended: bool = False) -> None:
        """Called by the connection: there is credit again, or nobody waits for more."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if has_ended and self.on_end is not None:
            on_end, self.on_end = self.on_end, None
            on_end()

    def _release(self) -> None:
        self._incoming.token = None
        self.connection.release(self._incoming.size + REQUEST_WEIGHT_BYTES)
