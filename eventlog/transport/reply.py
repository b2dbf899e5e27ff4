"""What comes back: one answer, or one item of a stream."""

from eventlog.wire.eventlog_pb2 import Message


class Reply:
    """`body` is a read-only view whose memory is the caller's, at a multiple of 8; `size` is the payload's, in bytes."""

    __slots__ = ("body", "message", "size")

    def __init__(self, message: Message, body: memoryview, size: int) -> None:
        self.message = message
        self.body = body
        self.size = size
