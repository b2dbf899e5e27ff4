"""What one end of a connection may say and hear next: handshake, requests in flight both ways, streams with credit.

Pure: `receive` takes a frame and returns what it means, the other methods return buffers to send. Both roles are this class; they
differ in which end says Hello. Requests of the two sides have opaques of their own, so either side may ask.

Legal changes are the three tables below. What a peer does outside of them is refused: with BAD_MESSAGE where the request can be
named and the connection can go on, else by raising. What our own code does outside of them raises Misuse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from eventlog import limits
from eventlog.errors import BadFrame, BadMessage, EventLogError, Misuse, Overloaded, TooLarge, UnsupportedVersion
from eventlog.wire.eventlog_pb2 import Credit as CreditMessage
from eventlog.wire.eventlog_pb2 import Done, EndStream, Message, StreamEnd
from eventlog.wire.flow import Credit
from eventlog.wire.frames import (
    CODEC_BITS,
    FIELDS_BYTES_MAX,
    READABLE,
    Buffers,
    Codec,
    SharedFrame,
    byte_buffers,
    decode,
    encode,
    encode_with_body,
)
from eventlog.wire.kinds import SHAPES, ExchangeShape, error_message, read_error

VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
ANNOUNCED_FRAME_BYTES_MAX: Final = limits.BATCH_BYTES_CAP + limits.MIB  # no server can be set to more
OPAQUE_MAX: Final = 0xFFFF_FFFF
CONNECTION_OPAQUE: Final = 0
"""An Error with this opaque, where none such was asked, is about the connection."""

Role = Literal["client", "server"]
Answer = Message | bytes | SharedFrame

_NOTHING = memoryview(b"")
_STREAM_END = Message(stream_end=StreamEnd()).SerializeToString()
_DONE = Message(done=Done()).SerializeToString()


class ConnectionStage(IntEnum):
    """Where the connection is."""

    NEW = 0
    GREETING = 1  # Hello is out, not answered
    OPEN = 2
    CLOSED = 3


class SessionStep(IntEnum):
    """What moves a connection or an exchange on."""

    HELLO = 0
    WELCOME = 1  # the answer to Hello
    CLOSE = 2
    ANSWER = 3
    ERROR = 4
    ITEM = 5
    END = 6
    END_STREAM = 7


class Phase(IntEnum):
    """Where an exchange is."""

    WAITING = 0  # one answer is due
    STREAMING = 1
    ENDING = 2  # the reader wants no more; residue may come
    FAILED = 3  # the error was said, the end is due
    OVER = 4


STAGES: Final = {
    (ConnectionStage.NEW, SessionStep.HELLO): ConnectionStage.GREETING,
    (ConnectionStage.GREETING, SessionStep.WELCOME): ConnectionStage.OPEN,
    (ConnectionStage.NEW, SessionStep.CLOSE): ConnectionStage.CLOSED,
    (ConnectionStage.GREETING, SessionStep.CLOSE): ConnectionStage.CLOSED,
    (ConnectionStage.OPEN, SessionStep.CLOSE): ConnectionStage.CLOSED,
    (ConnectionStage.CLOSED, SessionStep.CLOSE): ConnectionStage.CLOSED,
}

ANSWERING: Final = {
    (Phase.WAITING, SessionStep.ANSWER): Phase.OVER,
    (Phase.WAITING, SessionStep.ERROR): Phase.OVER,
    (Phase.STREAMING, SessionStep.ITEM): Phase.STREAMING,
    (Phase.STREAMING, SessionStep.ERROR): Phase.FAILED,
    (Phase.STREAMING, SessionStep.END): Phase.OVER,
    (Phase.STREAMING, SessionStep.END_STREAM): Phase.ENDING,
    (Phase.ENDING, SessionStep.ITEM): Phase.ENDING,
    (Phase.ENDING, SessionStep.ERROR): Phase.FAILED,
    (Phase.ENDING, SessionStep.END): Phase.OVER,
    (Phase.ENDING, SessionStep.END_STREAM): Phase.ENDING,
    (Phase.FAILED, SessionStep.END): Phase.OVER,
}
"""What the side that answers may do; END_STREAM is the reader's."""

ASKING: Final = ANSWERING | {(Phase.FAILED, SessionStep.END_STREAM): Phase.FAILED}
"""The same seen by the side that asked: it may end a stream whose error is on its way."""


@dataclass(slots=True, eq=False)
class Incoming:
    """A request of the peer, from its arrival to its last answer. An event and the session's record in one; `token` is the caller's.

    `size` is in bytes what is held of it: decompressed, where it came compressed.
    """

    kind: str
    message: Message
    body: memoryview
    size: int
    opaque: int
    phase: Phase = Phase.WAITING
    credit: Credit | None = None  # of a stream
    token: Any = None


@dataclass(slots=True, kw_only=True, eq=False)
class Outgoing:
    """A request of ours, until its last answer. `token` and `timeout_ms` are the caller's."""

    opaque: int
    kind: str
    phase: Phase = Phase.WAITING
    token: Any = None
    timeout_ms: int = 0


@dataclass(slots=True, eq=False)
class Reply:
    """The answer to `outgoing`.

    `body` is a read-only view whose memory is the caller's, at a multiple of 8; `size` is the payload's, in bytes.
    """

    outgoing: Outgoing
    message: Message
    body: memoryview
    size: int


class StreamItem(Reply):
    """One item of a stream. Its `size` is to be given back with `give_credit` once it is used."""

    __slots__ = ()


class Failed(NamedTuple):
    """The peer refused a request; of a stream `Ended` follows. Without `outgoing` it gave up the connection."""

    outgoing: Outgoing | None
    error: EventLogError


class Ended(NamedTuple):
    """Nothing more comes on this stream."""

    outgoing: Outgoing


class CreditGiven(NamedTuple):
    """A stream whose credit was used up may send again."""

    incoming: Incoming


class ReaderEnded(NamedTuple):
    """The reader of a stream wants no more; `end` or `fail` is due."""

    incoming: Incoming


Event = Incoming | Reply | Failed | Ended | CreditGiven | ReaderEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Bounds, inclusive, and what this end prefers."""

    frame_bytes_max: int = limits.FRAME_BYTES_MAX  # a payload, before and after decompression
    header_bytes_max: int = limits.FRAME_HEADER_BYTES_MAX  # of a request; answers may be lists as large as a frame
    requests_max: int = limits.REQUESTS_PER_CONNECTION_MAX  # of either side
    streams_max: int = limits.STREAMS_PER_CONNECTION_MAX
    credit_bytes: int = limits.STREAM_CREDIT_BYTES_DEFAULT  # of a stream whose request names none
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    features: int = READABLE
    crc: bool = True  # of frames with a body
    codec: Codec = Codec.NONE  # of bodies we send, if the peer reads it
    codec_bytes_min: int = 4 * limits.KIB


class Session:
    """One end of one connection."""

    __slots__ = (
        "_last_opaque",
        "_outgoing_frames",
        "features",
        "frame_bytes_in_max",
        "frame_bytes_out_max",
        "incoming",
        "options",
        "outgoing",
        "role",
        "stage",
        "streams",
        "version",
    )

    def __init__(self, role: Role, options: SessionOptions) -> None:
        self.role = role
        self.options = options
        self.stage = ConnectionStage.NEW
        self.version = options.version_min  # as agreed, from the stage OPEN on
        self.features = 0
        self.frame_bytes_in_max = min(limits.FRAME_BYTES_BEFORE_HELLO_MAX, options.frame_bytes_max)
        self.frame_bytes_out_max = options.frame_bytes_max
        self.incoming: dict[int, Incoming] = {}  # by opaque, all in phases other than OVER
        self.outgoing: dict[int, Outgoing] = {}
        self.streams = 0  # how many of `incoming`
        self._last_opaque = CONNECTION_OPAQUE
        self._outgoing_frames: list[bytes] = []

    # ------------------------------------------------------------ receiving

    def receive(self, flags: int, payload: bytes | memoryview) -> Event | None:
        """Return what a frame means; None if nothing has to be done beside sending `take_outgoing`.

        Raises:
            BadFrame: it breaks the format or the order of things. The connection cannot go on.
            UnsupportedVersion: Hello and its answer have no version in common. Likewise.
        """
        options = self.options
        limit = self.frame_bytes_in_max
        message, body = decode(
            flags, payload, bytes_max=limit, header_bytes_max=options.header_bytes_max if self.role == "server" else limit
        )
        kind = message.WhichOneof("kind")
        shape = SHAPES.get(kind, ExchangeShape.UNKNOWN)
        if self.stage is not ConnectionStage.OPEN:
            return self._greet(kind, message, len(payload))
        held = message.ByteSize() + len(body) if flags & CODEC_BITS else len(payload)
        if shape is ExchangeShape.REQUEST and message.version == self.version and kind != "hello":
            incoming = Incoming(kind, message, body, held, message.opaque)
            if incoming.opaque not in self.incoming and len(self.incoming) < options.requests_max:
                self.incoming[incoming.opaque] = incoming
                return incoming
        if shape <= ExchangeShape.STREAM or shape is ExchangeShape.PING:
            return self._asked(kind, shape, Incoming(kind or "", message, body, held, message.opaque))
        if shape is ExchangeShape.CREDIT or shape is ExchangeShape.END_STREAM:
            return self._steered(message)
        return self._answered(shape, message, body, len(payload))

    def take_outgoing(self) -> list[bytes]:
        """Return the frames that receiving made, to be sent now."""
        frames, self._outgoing_frames = self._outgoing_frames, []
        return frames

    def _asked(self, kind: str | None, shape: ExchangeShape, incoming: Incoming) -> Incoming | None:
        opaque = incoming.opaque
        refused = self._reason_to_refuse(kind, shape, incoming)
        if refused is not None:
            self._refuse(opaque, refused, ends=shape is ExchangeShape.STREAM)
            return None
        if shape is ExchangeShape.PING:
            self._outgoing_frames.append(encode(opaque, _DONE, version=self.version))
            return None
        if shape is ExchangeShape.STREAM:
            incoming.phase = Phase.STREAMING
            incoming.credit = Credit(getattr(incoming.message, incoming.kind).credit or self.options.credit_bytes)
            self.streams += 1
        self.incoming[opaque] = incoming
        return incoming

    def _reason_to_refuse(self, kind: str | None, shape: ExchangeShape, incoming: Incoming) -> EventLogError | None:
        if shape is ExchangeShape.UNKNOWN or kind == "hello":
            return BadMessage(why="Hello said twice" if kind else "a request that this version does not know")
        if incoming.message.version != self.version:
            return BadMessage(why=f"version {incoming.message.version}, agreed was {self.version}")
        if incoming.opaque in self.incoming:
            return BadMessage(why=f"opaque {incoming.opaque} names a request in flight")
        if len(self.incoming) >= self.options.requests_max:
            return Overloaded(what="the number of requests in flight on this connection", limit=self.options.requests_max)
        if shape is ExchangeShape.STREAM and self.streams >= self.options.streams_max:
            return Overloaded(what="the number of a client's iterations and followers at one node", limit=self.options.streams_max)
        return None

    def _refuse(self, opaque: int, error: EventLogError, *, ends: bool) -> None:
        self._outgoing_frames.append(encode(opaque, error_message(error), version=self.version))
        if ends:
            self._outgoing_frames.append(encode(opaque, _STREAM_END, version=self.version))

    def _steered(self, message: Message) -> Event | None:
        """Credit and EndStream: about a stream that we send, or one that is over already, which nobody can help."""
        control = message.credit if message.HasField("credit") else message.end_stream
        incoming = self.incoming.get(control.stream)
        if incoming is None:
            return None
        if incoming.credit is None:
            self._refuse(message.opaque, BadMessage(why=f"opaque {control.stream} names no stream"), ends=False)
            return None
        if isinstance(control, CreditMessage):
            return CreditGiven(incoming=incoming) if incoming.credit.give(control.bytes) else None
        was, incoming.phase = incoming.phase, ANSWERING[incoming.phase, SessionStep.END_STREAM]
        return ReaderEnded(incoming=incoming) if was is Phase.STREAMING else None

    def _answered(self, shape: ExchangeShape, message: Message, body: memoryview, size: int) -> Event:
        outgoing = self.outgoing.get(message.opaque)
        if outgoing is None:
            if shape is ExchangeShape.ERROR and message.opaque == CONNECTION_OPAQUE:
                return Failed(outgoing=None, error=read_error(message.error))
            raise BadFrame(why=f"an answer to opaque {message.opaque}, which names no request")
        phase = ASKING.get((outgoing.phase, _ANSWER_STEPS[shape]))
        if phase is None:
            raise BadFrame(why=f"{_ANSWER_STEPS[shape].name} for a {outgoing.kind} that is {outgoing.phase.name}")
        outgoing.phase = phase
        if phase is Phase.OVER:
            del self.outgoing[message.opaque]
        if shape is ExchangeShape.ANSWER:
            return Reply(outgoing, message, body, size)
        if shape is ExchangeShape.ITEM:
            return StreamItem(outgoing, message, body, size)
        return Ended(outgoing=outgoing) if shape is ExchangeShape.END else Failed(outgoing=outgoing, error=read_error(message.error))

    # ------------------------------------------------------------ handshake

    def _greet(self, kind: str | None, message: Message, size: int) -> Event | None:
        if self.role == "server" and self.stage is ConnectionStage.NEW and kind == "hello":
            hello = message.hello
            self._agree(hello.version_min, hello.version_max)
            self.features = hello.features & self.options.features
            self.stage = STAGES[self.stage, SessionStep.HELLO]
            incoming = Incoming("hello", message, _NOTHING, size, message.opaque)
            self.incoming[incoming.opaque] = incoming
            return incoming
        if self.role == "client" and self.stage is ConnectionStage.GREETING:
            if kind == "hello_answer":
                self._welcome(message)
            if kind in ("hello_answer", "error"):
                return self._answered(SHAPES[kind], message, _NOTHING, size)
        if self.role == "client" and kind == "error":  # refused before we said anything
            return Failed(outgoing=None, error=read_error(message.error))
        raise BadFrame(why=f"{kind or 'an unknown message'} before the handshake is over")

    def _welcome(self, message: Message) -> None:
        answer = message.hello_answer
        self._agree(answer.version, answer.version)
        self.features = answer.features & self.options.features
        self._open()
        if answer.frame_bytes_max:  # the server's word holds for both directions
            self.frame_bytes_out_max = answer.frame_bytes_max
            self.frame_bytes_in_max = min(max(self.frame_bytes_in_max, answer.frame_bytes_max), ANNOUNCED_FRAME_BYTES_MAX)

    def _agree(self, version_min: int, version_max: int) -> None:
        ours = self.options
        version = min(version_max, ours.version_max)
        if version < max(version_min, ours.version_min):
            raise UnsupportedVersion(theirs=f"{version_min} to {version_max}", ours=f"{ours.version_min} to {ours.version_max}")
        self.version = version

    def _open(self) -> None:
        self.stage = STAGES[self.stage, SessionStep.WELCOME]
        self.frame_bytes_in_max = self.options.frame_bytes_max

    # ------------------------------------------------------------ asking

    def ask(self, message: Message, buffers: Sequence[object] = (), *, token: Any, timeout_ms: int = 0) -> tuple[Outgoing, Buffers]:
        """Return the request and its frame. `message` has its kind set and nothing that frames add; `buffers` are its body.

        Raises:
            Overloaded: as many requests as the limit allows are unanswered, abandoned ones too.
            TooLarge: the frame, or its header, is above what the peer takes.
        """
        kind = message.WhichOneof("kind")
        shape = SHAPES.get(kind, ExchangeShape.UNKNOWN)
        if kind is None or (shape > ExchangeShape.STREAM and shape is not ExchangeShape.PING):
            raise Misuse(why=f"{kind} is no request")
        if self.stage is not (ConnectionStage.NEW if kind == "hello" else ConnectionStage.OPEN):
            raise Misuse(why=f"{kind} on a connection that is {self.stage.name}")
        if len(self.outgoing) >= self.options.requests_max:
            raise Overloaded(what="the number of requests in flight on this connection", limit=self.options.requests_max)
        opaque = self._next_opaque()
        frame = self._encode(opaque, message, buffers, timeout_ms)
        limit = self.options.header_bytes_max
        if payload_bytes(frame) > limit and message.ByteSize() + FIELDS_BYTES_MAX > limit:
            raise TooLarge(what="a request without its body", size=message.ByteSize() + FIELDS_BYTES_MAX, limit=limit)
        if kind == "hello":
            self.stage = STAGES[self.stage, SessionStep.HELLO]
        phase = Phase.STREAMING if shape is ExchangeShape.STREAM else Phase.WAITING
        outgoing = self.outgoing[opaque] = Outgoing(opaque=opaque, kind=kind, phase=phase, token=token, timeout_ms=timeout_ms)
        return outgoing, frame

    def give_credit(self, outgoing: Outgoing, size: int) -> bytes:
        """Return the frame that lets the peer send `size` bytes more."""
        return encode(self._next_opaque(), Message(credit=CreditMessage(stream=outgoing.opaque, bytes=size)), version=self.version)

    def end_stream(self, outgoing: Outgoing) -> bytes | None:
        """Return the frame that asks for the end of a stream; None if that was said, or the stream is over."""
        if outgoing.phase is not Phase.STREAMING:
            return None
        outgoing.phase = ASKING[outgoing.phase, SessionStep.END_STREAM]
        return encode(self._next_opaque(), Message(end_stream=EndStream(stream=outgoing.opaque)), version=self.version)

    def _next_opaque(self) -> int:
        opaque = self._last_opaque
        while True:
            opaque = opaque + 1 if opaque < OPAQUE_MAX else CONNECTION_OPAQUE + 1
            if opaque not in self.outgoing:
                self._last_opaque = opaque
                return opaque

    # ------------------------------------------------------------ answering

    def answer(self, incoming: Incoming, message: Answer, buffers: Sequence[object] = ()) -> Buffers:
        """Return the one answer to a request that opens no stream.

        Raises:
            TooLarge: the frame is above what may be sent; the request is still unanswered.
        """
        phase = self._allowed(incoming, SessionStep.ANSWER)
        if incoming.kind == "hello":
            self._fill_welcome(message)
        frame = self._encode(incoming.opaque, message, buffers)
        incoming.phase = phase
        del self.incoming[incoming.opaque]
        if incoming.kind == "hello":
            self._open()
        return frame

    def item(self, incoming: Incoming, message: Answer, buffers: Sequence[object] = ()) -> Buffers:
        """Return one item of a stream, counted against its credit, which it may overdraw. Raises TooLarge."""
        self._allowed(incoming, SessionStep.ITEM)
        frame = self._encode(incoming.opaque, message, buffers)
        assert incoming.credit is not None
        incoming.credit.take(payload_bytes(frame))
        return frame

    def end(self, incoming: Incoming) -> bytes:
        self._advance(incoming, SessionStep.END)
        return encode(incoming.opaque, _STREAM_END, version=self.version)

    def fail(self, incoming: Incoming, error: EventLogError) -> bytes:
        """Return the refusal of a request; a stream is ended with it, and only ended if its reader has left."""
        if incoming.credit is None:
            self._advance(incoming, SessionStep.ERROR)
            return encode(incoming.opaque, error_message(error), version=self.version)
        if incoming.phase is Phase.ENDING:
            return self.end(incoming)
        self._advance(incoming, SessionStep.ERROR)
        return encode(incoming.opaque, error_message(error), version=self.version) + self.end(incoming)

    def farewell(self, error: EventLogError) -> bytes:
        """Return what is said to a peer before its connection is closed."""
        return encode(CONNECTION_OPAQUE, error_message(error), version=self.version)

    def close(self) -> tuple[list[Outgoing], list[Incoming]]:
        """End everything; return our requests that nobody will answer and the peer's that nobody needs to."""
        self.stage = STAGES[self.stage, SessionStep.CLOSE]
        unanswered, unneeded = list(self.outgoing.values()), list(self.incoming.values())
        for incoming in unneeded:
            incoming.phase = Phase.OVER
        self.incoming.clear()
        self.outgoing.clear()
        self.streams = 0
        return unanswered, unneeded

    def _allowed(self, incoming: Incoming, step: SessionStep) -> Phase:
        phase = ANSWERING.get((incoming.phase, step))
        if phase is None:
            raise Misuse(why=f"{step.name} for a {incoming.kind} that is {incoming.phase.name}")
        return phase

    def _advance(self, incoming: Incoming, step: SessionStep) -> None:
        incoming.phase = self._allowed(incoming, step)
        if incoming.phase is Phase.OVER:
            del self.incoming[incoming.opaque]
            if incoming.credit is not None:
                self.streams -= 1

    def _fill_welcome(self, message: Answer) -> None:
        if not isinstance(message, Message) or not message.HasField("hello_answer"):
            raise Misuse(why="Hello is answered with a HelloAnswer")
        answer = message.hello_answer
        answer.version, answer.features, answer.frame_bytes_max = self.version, self.features, self.options.frame_bytes_max

    def _encode(self, opaque: int, message: Answer, buffers: Sequence[object], timeout_ms: int = 0) -> Buffers:
        options, limit = self.options, self.frame_bytes_out_max
        if isinstance(message, SharedFrame) and not (message.is_small and options.codec is Codec.NONE):
            buffers, message = message.body, message.message
        if isinstance(message, SharedFrame):
            parts: Buffers = [message.frame(opaque, version=self.version, crc=options.crc)]
        elif not buffers:
            parts = [encode(opaque, message, version=self.version, timeout_ms=timeout_ms)]
        else:
            body = byte_buffers(buffers)
            size = sum(map(len, body))
            if size > limit:
                raise TooLarge(what="the body of a frame", size=size, limit=limit)
            codec = options.codec if size >= options.codec_bytes_min and self.features >> options.codec & 1 else Codec.NONE
            parts = encode_with_body(opaque, message, body, version=self.version, timeout_ms=timeout_ms, crc=options.crc, codec=codec)
        if (found := payload_bytes(parts)) > limit:
            raise TooLarge(what="a frame", size=found, limit=limit)
        return parts


_ANSWER_STEPS: Final = {
    ExchangeShape.ANSWER: SessionStep.ANSWER,
    ExchangeShape.ERROR: SessionStep.ERROR,
    ExchangeShape.ITEM: SessionStep.ITEM,
    ExchangeShape.END: SessionStep.END,
}


def payload_bytes(frame: Buffers) -> int:
    """Return the length that stands in a frame's header: what counts against a stream's credit."""
    return int.from_bytes(frame[0][:4])
