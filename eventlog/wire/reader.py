"""Frames out of received bytes, without a second copy of large ones.

What arrives goes into a place that `get_buffer` hands out: small frames share one buffer, which all connections of a thread may
share too, because nothing stays in it between two reads; a frame above `OWN_BUFFER_BYTES_MIN` gets its own memory, beside that of
the one before, and its payload begins there at a multiple of 8. Payloads are the caller's from then on.
"""

from typing import Final

from eventlog.errors import BadFrame
from eventlog.limits import KIB
from eventlog.wire.flow import SHARED_BYTES, Arena, ProcessBudget
from eventlog.wire.frames import CRC, HEADER, LEGAL_FLAGS, TRAILER, check_crc

OWN_BUFFER_BYTES_MIN: Final = 32 * KIB
CLAIMED_BYTES_MIN: Final = 128 * KIB
assert SHARED_BYTES > CLAIMED_BYTES_MIN > OWN_BUFFER_BYTES_MIN, "a frame that needs no claim fits the shared buffer whole"


class Reader:
    """The receiving half of a connection: `get_buffer`, `received`, `next_frame` until None, `keep`.

    `frame_bytes_max` is the largest payload accepted, inclusive; it is compared with the frame's header before anything else is
    taken in, and may be changed between two frames. `claims` bounds what all readers reserve for large frames that are still on
    their way: above it `next_frame` returns None with `is_waiting` set, and is to be called again when the claims have room. A frame up
    to `CLAIMED_BYTES_MIN` never waits: without room it goes through the shared buffer, so peers that claim much hold up only large frames.
    """

    __slots__ = (
        "_arena",
        "_at",
        "_data",
        "_end",
        "_own",
        "_own_filled",
        "_own_flags",
        "_shared",
        "claims",
        "frame_bytes_max",
        "is_waiting",
    )

    def __init__(self, *, frame_bytes_max: int, arena: Arena | None = None, claims: ProcessBudget | None = None) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.is_waiting = False
        self._arena = arena if arena is not None else Arena()
        self._shared = self._arena.shared
        self.claims = claims if claims is not None else ProcessBudget(frame_bytes_max)
        self._data = self._shared  # what lies in [_at, _end) is received and not taken: in the shared buffer, or kept
        self._at = 0
        self._end = 0
        self._own: memoryview | None = None
        self._own_filled = 0
        self._own_flags = 0

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of a further frame has arrived."""
        return self._own is None and self._at == self._end

    def get_buffer(self) -> memoryview:
        """Return where to put what arrives next; valid until `keep`. Not empty if `next_frame` returned None without waiting."""
        if self._own is not None:
            return self._own[self._own_filled :]
        left = self._end - self._at
        if left:
            self._shared[:left] = self._data[self._at : self._end]
        self._data = self._shared
        self._at, self._end = 0, left
        return self._shared[left:]

    def received(self, size: int) -> None:
        """Take note of `size` bytes put into the buffer."""
        if self._own is not None:
            self._own_filled += size
        else:
            self._end += size

    def next_frame(self) -> tuple[int, bytes | memoryview] | None:
        """Return flags and payload of the next whole frame; None until more arrives.

        Raises:
            BadFrame: flags, length or checksum are wrong. Nothing after it can be understood.
        """
        if self._own is not None:
            return self._take_own(self._own)
        at = self._at
        left = self._end - at
        self.is_waiting = False
        if left < HEADER.size:
            return None
        length, flags = HEADER.unpack_from(self._data, at)
        if flags not in LEGAL_FLAGS:
            raise BadFrame(why=f"flags {flags:#06x}, which this version does not know")
        if length > self.frame_bytes_max:
            raise BadFrame(why=f"a payload of {length} bytes, the limit is {self.frame_bytes_max}")
        start = at + HEADER.size
        end = start + length
        total = HEADER.size + length + (TRAILER.size if flags & CRC else 0)
        if total > OWN_BUFFER_BYTES_MIN and (own := self._start_own(flags, total - HEADER.size)) is not None:
            return self._take_own(own)
        if left < total:
            self.is_waiting = total - HEADER.size > CLAIMED_BYTES_MIN
            return None
        payload = bytes(self._data[start:end])
        if flags & CRC:
            check_crc(payload, TRAILER.unpack_from(self._data, end)[0])
        self._at = at + total
        return flags, payload

    def keep(self) -> None:
        """Move what is left out of the shared buffer, so that somebody else may use it."""
        if self._at == self._end:
            self._data, self._at, self._end = self._shared, 0, 0
        elif self._data is self._shared:
            self._data = memoryview(bytes(self._shared[self._at : self._end]))
            self._at, self._end = 0, self._end - self._at

    def close(self) -> None:
        """Forget what has arrived of a frame."""
        if self._own is not None:
            self.claims.give(len(self._own))
            self._own = None
        self._at = self._end = 0

    def _start_own(self, flags: int, size: int) -> memoryview | None:
        """Move what is there of a frame into memory of its own; None if there is no room for it."""
        if not self.claims.has_room(size):
            return None
        try:
            own = self._arena.reserve(size)
        except MemoryError:
            raise BadFrame(why=f"a payload of {size} bytes, and no memory for it") from None
        self.claims.take(size)
        begin = self._at + HEADER.size
        end = min(self._end, begin + size)
        own[: end - begin] = self._data[begin:end]
        self._own, self._own_filled, self._own_flags = own, end - begin, flags
        self._at = end
        return own

    def _take_own(self, own: memoryview) -> tuple[int, memoryview] | None:
        if self._own_filled < len(own):
            return None
        self._own = None
        self.claims.give(len(own))
        payload = own.toreadonly()
        if self._own_flags & CRC:
            payload = payload[: -TRAILER.size]
            check_crc(payload, TRAILER.unpack_from(own, len(payload))[0])
        return self._own_flags, payload
