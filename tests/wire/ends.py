"""Two sessions and the way between them."""

from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import Get, Hello, HelloAnswer, Message, StreamItem, Watch
from eventlog.wire.session import Incoming, Session, SessionOptions

GET = Message(get=Get(cache_id=1, key=b"k"))
WATCH = Message(watch=Watch(credit=1000))
ITEM = Message(stream_item=StreamItem())


def raw(opaque, message, version=1):
    """Return the frame of a message that no session made."""
    return frames.encode(opaque, message, version=version)


def refusal(session):
    """Return the error that the session answers by itself."""
    [message] = messages(b"".join(session.take_outgoing()))
    return message


def parts(frame):
    """Return flags and payload of each frame in `frame`: bytes or a list of buffers."""
    data = frame if isinstance(frame, bytes) else b"".join(frame)
    found = []
    while data:
        length, flags = frames.HEADER.unpack_from(data)
        end = frames.HEADER.size + length
        found.append((flags, data[frames.HEADER.size : end]))
        data = data[end + (frames.TRAILER.size if flags & frames.CRC else 0) :]
    return found


def deliver(receiver, frame):
    """Return the events that `frame` means to `receiver`."""
    return [receiver.receive(*part) for part in parts(frame)]


def messages(frame):
    """Return the messages in `frame`."""
    return [frames.decode(*part, bytes_max=1 << 24, header_bytes_max=1 << 20)[0] for part in parts(frame)]


def greeting(**fields):
    return Message(hello=Hello(**{"version_min": 1, "version_max": 1, "features": 0xFF, **fields}))


def greeted(*, client=None, server=None, **answer):
    """Return a client's and a server's session after the handshake."""
    asking = Session("client", client or SessionOptions())
    answering = Session("server", server or SessionOptions())
    _, frame = asking.ask(greeting(features=asking.options.features), token="hello")
    [incoming] = deliver(answering, frame)
    assert isinstance(incoming, Incoming)
    deliver(asking, answering.answer(incoming, Message(hello_answer=HelloAnswer(**answer))))
    return asking, answering


def ask(asking, answering, message, *buffers, token=None):
    """Return a request at both its ends."""
    outgoing, frame = asking.ask(message, buffers, token=token)
    [incoming] = deliver(answering, frame)
    return outgoing, incoming
