"""Many followers that long-poll, as one process that costs next to nothing: what is measured is the node, not who asks it.

Each is a connection of its own that greets, polls, waits, and polls on from the last id it was told as soon as it is answered: nothing
tells it from an application to the node. Of an answer it looks at the frame's header and the id; answers and polls that differ in
nothing but the number of their request are read and encoded once.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from struct import Struct

import numpy as np
import numpy.typing as npt

from benchmarks.processes import Address
from eventlog.wire.eventlog_pb2 import Hello, Message, Poll
from eventlog.wire.frames import CRC, HEADER, TRAILER, decode, encode
from eventlog.wire.session import Reply, Session, SessionOptions

WAIT_MS = 30_000
BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16
AT_ONCE = 64
_OPAQUE = Struct("<I")
_OPAQUE_AT = slice(12, 16)  # of a frame: behind its header, the length of the body and a tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What followers were told: a row for each answer, in the order of their coming. `moments` are of `time.perf_counter`."""

    followers: npt.NDArray[np.int64]
    last_ids: npt.NDArray[np.int64]
    moments: npt.NDArray[np.float64]

    def delivered(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return when each follower had each of `ids`, which rise."""
        found = []
        for follower in np.unique(self.followers):
            own = self.followers == follower
            found.append(self.moments[own][np.searchsorted(self.last_ids[own], ids)])
        return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class Followers:
    """Followers in a process of their own, as the one who started them has them."""

    _pipe: Connection

    def used(self) -> tuple[int, float]:
        """Return how many answers came and how many seconds of CPU were used so far."""
        self._pipe.send(0)
        answers, seconds = self._pipe.recv()
        return int(answers), float(seconds)

    def end(self, last_id: int) -> Seen:
        """Return what all were told, once each has been told of `last_id`."""
        self._pipe.send(last_id)
        found: Seen = self._pipe.recv()
        return found


@contextmanager
def following(address: Address, cache_id: int, count: int) -> Iterator[Followers]:
    """Give followers of a cache that all wait for what comes next."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_follow, args=(theirs, address, cache_id, count), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield Followers(ours)
    finally:
        ours.close()
        process.terminate()
        process.join()


def _follow(pipe: Connection, address: Address, cache_id: int, count: int) -> None:
    crowd = _Crowd(cache_id)
    for _ in range(count):
        crowd.add(address)
    pipe.send(None)
    last_id = 0
    crowd.epoll.register(pipe.fileno(), select.EPOLLIN)
    while not last_id or not crowd.have_all(last_id):
        if not crowd.turn(other=pipe.fileno()):
            continue
        asked = pipe.recv()
        if asked:
            last_id = asked
        else:
            pipe.send((len(crowd.moments), time.process_time()))
    pipe.send(crowd.seen())


class _Crowd:
    """All followers of a process, by the descriptors of their sockets."""

    def __init__(self, cache_id: int) -> None:
        self.epoll = select.epoll()
        self.moments: list[float] = []
        self._sockets: dict[int, socket.socket] = {}
        self._followers: list[int] = []
        self._last_ids: list[int] = []
        self._latest: dict[int, int] = {}
        self._pieces: dict[int, bytes] = {}  # of answers that came in part
        self._opaque = 1
        self._poll: Callable[[int], bytes] = lru_cache(maxsize=64)(lambda after: _poll_frame(cache_id, after))

    def add(self, address: Address) -> None:
        """Greet, and wait for the first news."""
        connection = socket.create_connection((address.host, address.port))
        _greet(connection)
        connection.sendall(self._poll(0))
        connection.setblocking(False)
        descriptor = connection.fileno()
        self._sockets[descriptor] = connection
        self._latest[descriptor] = 0
        self.epoll.register(descriptor, select.EPOLLIN)

    def have_all(self, last_id: int) -> bool:
        """Return whether everybody was told of an id."""
        return min(self._latest.values()) >= last_id

    def turn(self, *, other: int) -> bool:
        """Serve some who were answered; return whether there is something to read at `other`."""
        is_other = False
        for descriptor, _ in self.epoll.poll(maxevents=AT_ONCE):
            if descriptor == other:
                is_other = True
            else:
                self._serve(descriptor)
        return is_other

    def _serve(self, descriptor: int) -> None:
        frame = os.read(descriptor, READ_BYTES)
        moment = time.perf_counter()
        if not frame:
            raise ConnectionError("the node has closed a follower's connection")
        if descriptor in self._pieces:
            frame = self._pieces.pop(descriptor) + frame
        if len(frame) < _length(frame):
            self._pieces[descriptor] = frame
            return
        last_id = _last_id(frame[: _OPAQUE_AT.start], frame[_OPAQUE_AT.stop : -TRAILER.size])
        self._opaque = self._opaque % 0xFFFF_FFFF + 1
        poll = self._poll(last_id)
        os.write(descriptor, poll[: _OPAQUE_AT.start] + _OPAQUE.pack(self._opaque) + poll[_OPAQUE_AT.stop :])
        self._latest[descriptor] = last_id
        self._followers.append(descriptor)
        self._last_ids.append(last_id)
        self.moments.append(moment)

    def seen(self) -> Seen:
        """Return every answer."""
        return Seen(followers=np.array(self._followers), last_ids=np.array(self._last_ids), moments=np.array(self.moments))


def _length(frame: bytes) -> int:
    """Return how many bytes a frame has that begins so, at least."""
    if len(frame) < HEADER.size:
        return HEADER.size
    length, flags = HEADER.unpack_from(frame)
    return HEADER.size + int(length) + (TRAILER.size if flags & CRC else 0)


@lru_cache(maxsize=64)
def _last_id(head: bytes, rest: bytes) -> int:
    """Return the id to go on after, of an answer without the number of its request."""
    length, flags = HEADER.unpack_from(head)
    payload = head[HEADER.size :] + bytes(_OPAQUE.size) + rest
    message, _ = decode(flags, payload[:length].ljust(length, b"\0"), bytes_max=READ_BYTES, header_bytes_max=READ_BYTES)
    if message.WhichOneof("kind") != "poll_answer":
        raise ValueError(f"a follower was told {message}")
    return message.poll_answer.last_id


def _poll_frame(cache_id: int, after: int) -> bytes:
    poll = Poll(cache_id=cache_id, max_bytes=BYTES_MAX, wait_ms=WAIT_MS)
    if after:
        poll.after = after
    else:
        poll.latest = True
    return encode(1, Message(poll=poll), version=1)


def _greet(connection: socket.socket) -> None:
    session = Session("client", SessionOptions())
    _, frame = session.ask(Message(hello=Hello(version_min=1, version_max=1, client="follower")), token=None)
    connection.sendall(b"".join(frame))
    found = connection.recv(READ_BYTES)
    while len(found) < _length(found):
        found += connection.recv(READ_BYTES)
    _, flags = HEADER.unpack_from(found)
    event = session.receive(flags, found[HEADER.size : _length(found)])
    assert isinstance(event, Reply), event
