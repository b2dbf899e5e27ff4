"""The keys of the three families, and the small values of the meta family. Pure.

    log     segment u16 | cache u32 | base id u64                               -> stored value (batch/layout.py)
    state   segment u16 | cache u32 | tag u8 | key, deadline u64 + key, or producer u64
            0xffff | "applied" | page u16                                       -> marks of 64 segments
            0xff 16 times | "flush"                                             -> number of the flush that this row is in
    meta    "epoch" segment u16 epoch u32                                       -> first id, id before it
            "trim" cache u32 segment u16                                        -> id, offset of the last event removed
            "step" cache u32 id u64                                             -> events, bytes so far
            "end" segment u16                                                   -> id, epoch: the log reached this, whatever is left
            "left"                                                              -> id: logs that were given away reached this
            "part" segment u16                                                  -> nothing: what is there of the segment is not whole
            "identity"                                                          -> JSON
            "sum"                                                               -> changes of these rows, their sum (rocks/rows.py)

Keys are big-endian, so that a segment, or a cache in a segment, is one range; numbers in values are little-endian.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from struct import Struct

import numpy as np
import numpy.typing as npt

from eventlog.errors import CorruptData
from eventlog.segment.port import Pair, Range

TAG_ENTRY = 1
TAG_EXPIRY = 2
TAG_PRODUCER = 3
TAG_INDEX = 4

MARKS_PER_PAGE = 64
NO_OFFSET = -1  # offset of the last event removed where no event was removed yet
IDENTITY_KEY = b"identity"
EVERY_ROW = b"", b"\xff"  # the range of all meta rows

_PLACE = Struct(">HI")
_LOG = Struct(">HIQ")
_TAGGED = Struct(">HIB")
_EXPIRY = Struct(">HIBQ")
_APPLIED = b"\xff\xffapplied"
FLUSH_KEY = b"\xff" * 16 + b"flush"  # above every range that is asked for
_MARKS = np.dtype([("ids", "<i8", MARKS_PER_PAGE), ("epochs", "<u4", MARKS_PER_PAGE)])
_TWO = Struct("<qq")
_END = Struct("<qI")
_LEFT = Struct("<q")
_FIRST_ID = Struct("<q")

# ---------------------------------------------------------------- log


log_key: Callable[[int, int, int], bytes] = _LOG.pack
"""Return the key of a stored value: of its segment, its cache and its base id."""


def log_keys(segments: Iterable[int], cache: int, bases: Iterable[int]) -> list[bytes]:
    """Return the keys of many stored values of one cache."""
    return list(map(_LOG.pack, segments, repeat(cache), bases))


def parse_log_key(key: bytes) -> tuple[int, int, int]:
    """Return (segment, cache, base id).

    Raises:
        CorruptData: not a key of the log.
    """
    if len(key) != _LOG.size:
        raise CorruptData(where="log", why=f"a key of {len(key)} bytes: {key.hex()}")
    segment, cache, base = _LOG.unpack(key)
    return segment, cache, base


def segment_range(segment: int) -> Range:
    """Return the range of a whole segment, in the log and in the state."""
    return segment.to_bytes(2), (segment + 1).to_bytes(2)


def cache_range(segment: int, cache: int) -> Range:
    """Return the range of one cache in one segment, in the log and in the state."""
    lower = _PLACE.pack(segment, cache)
    return lower, (int.from_bytes(lower) + 1).to_bytes(len(lower))


def log_range(segment: int, cache: int, *, after: int, upto: int) -> Range:
    """Return the range of values whose base id lies in `(after, upto]`.

    A value that begins at or below `after` may hold ids above it: readers begin with `last_log` below the range.
    """
    return _LOG.pack(segment, cache, after + 1), _LOG.pack(segment, cache, upto + 1)


# ---------------------------------------------------------------- state


def entry_prefix(segment: int, cache: int) -> bytes:
    """Return what stands before the key of an entry."""
    return _TAGGED.pack(segment, cache, TAG_ENTRY)


def entry_key(segment: int, cache: int, key: bytes) -> bytes:
    """Return the state key of an entry."""
    return _TAGGED.pack(segment, cache, TAG_ENTRY) + key


def tag_range(segment: int, cache: int, tag: int) -> Range:
    """Return the range of everything with one tag: all entries of a cache in a segment, all its producers, ..."""
    return _TAGGED.pack(segment, cache, tag), _TAGGED.pack(segment, cache, tag + 1)


def expiry_key(segment: int, cache: int, deadline: int, key: bytes) -> bytes:
    """Return the state key that says when an entry expires; `deadline` is milliseconds since 2020."""
    return _EXPIRY.pack(segment, cache, TAG_EXPIRY, deadline) + key


def expiry_range(segment: int, cache: int, *, before: int) -> Range:
    """Return the range of expiry entries whose deadline lies below `before`."""
    return _TAGGED.pack(segment, cache, TAG_EXPIRY), _EXPIRY.pack(segment, cache, TAG_EXPIRY, before)


def producer_key(segment: int, cache: int, producer: int) -> bytes:
    """Return the state key of a producer's last sequences."""
    return _EXPIRY.pack(segment, cache, TAG_PRODUCER, producer)


def parse_state_key(key: bytes) -> tuple[int, int, int, bytes]:
    """Return (segment, cache, tag, rest); the rest of an expiry entry begins with its deadline, 8 bytes.

    Raises:
        CorruptData: too short for a key of the state.
    """
    if len(key) < _TAGGED.size:
        raise CorruptData(where="state", why=f"a key of {len(key)} bytes: {key.hex()}")
    segment, cache, tag = _TAGGED.unpack_from(key)
    return segment, cache, tag, key[_TAGGED.size :]


def applied_key(page: int) -> bytes:
    """Return the key of the marks of segments `[64 * page, 64 * page + 64)`."""
    return _APPLIED + page.to_bytes(2)


def applied_keys(segments: int) -> list[bytes]:
    """Return the keys of all pages of marks."""
    return [applied_key(page) for page in range(-(-segments // MARKS_PER_PAGE))]


def encode_marks(page: int, ids: npt.NDArray[np.int64], epochs: npt.NDArray[np.uint32]) -> Pair:
    """Return the row of one page; `ids` and `epochs` are those of all segments."""
    low = page * MARKS_PER_PAGE
    row = np.zeros((), _MARKS)
    own = ids[low : low + MARKS_PER_PAGE]
    row["ids"][: len(own)] = own
    row["epochs"][: len(own)] = epochs[low : low + MARKS_PER_PAGE]
    return applied_key(page), row.tobytes()


def decode_marks(rows: Sequence[bytes | None], segments: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return (ids, epochs) of all segments from the rows of `applied_keys`, 0 where a page is not there.

    Raises:
        CorruptData: a row has another size.
    """
    ids = np.zeros(segments, np.int64)
    epochs = np.zeros(segments, np.uint32)
    for page, row in enumerate(rows):
        if row is None:
            continue
        if len(row) != _MARKS.itemsize:
            raise CorruptData(where=f"applied marks, page {page}", why=f"{len(row)} bytes instead of {_MARKS.itemsize}")
        marks = np.frombuffer(row, _MARKS)[0]
        low = page * MARKS_PER_PAGE
        count = min(MARKS_PER_PAGE, segments - low)
        ids[low : low + count] = marks["ids"][:count]
        epochs[low : low + count] = marks["epochs"][:count]
    return ids, epochs


# ---------------------------------------------------------------- meta

_EPOCH_KEY = Struct(">5sHI")
_TRIM_KEY = Struct(">4sIH")
_STEP_KEY = Struct(">4sIQ")
_END_KEY = Struct(">3sH")


def encode_epoch(segment: int, epoch: int, first_id: int, *, previous: int) -> Pair:
    """Return the row saying that `epoch` of `segment` begins with `first_id`; the log ended with the id `previous` before."""
    return _EPOCH_KEY.pack(b"epoch", segment, epoch), _TWO.pack(first_id, previous)


def decode_epoch(pair: Pair) -> tuple[int, int, int, int]:
    """Return (segment, epoch, first id, previous id).

    Rows of the first format have no previous id: everything below the epoch's first id is what was before it.
    """
    if len(pair[1]) == _FIRST_ID.size:
        pair = pair[0], pair[1] + _FIRST_ID.pack(max(_FIRST_ID.unpack(pair[1])[0] - 1, 0))
    _check(pair, _EPOCH_KEY.size, _TWO.size)
    _, segment, epoch = _EPOCH_KEY.unpack(pair[0])
    return segment, epoch, *_TWO.unpack(pair[1])


def epoch_range(segment: int | None = None) -> Range:
    """Return the range of the epoch history of one segment, or of all."""
    return _prefixed(b"epoch" if segment is None else b"epoch" + segment.to_bytes(2))


def encode_trim(cache: int, segment: int, last_id: int, offset: int) -> Pair:
    """Return the row of the last event that retention removed; `offset` is -1 where only empty values went."""
    return _TRIM_KEY.pack(b"trim", cache, segment), _TWO.pack(last_id, offset)


def decode_trim(pair: Pair) -> tuple[int, int, int, int]:
    """Return (cache, segment, id, offset)."""
    _check(pair, _TRIM_KEY.size, _TWO.size)
    _, cache, segment = _TRIM_KEY.unpack(pair[0])
    last_id, offset = _TWO.unpack(pair[1])
    return cache, segment, last_id, offset


def trim_range(cache: int | None = None) -> Range:
    """Return the range of trim rows of one cache, or of all."""
    return _prefixed(b"trim" if cache is None else b"trim" + cache.to_bytes(4))


def encode_step(cache: int, last_id: int, events: int, nbytes: int) -> Pair:
    """Return the row saying how many events and bytes a cache had, over all its life, up to and including `last_id`."""
    return _STEP_KEY.pack(b"step", cache, last_id), _TWO.pack(events, nbytes)


def decode_step(pair: Pair) -> tuple[int, int, int, int]:
    """Return (cache, id, events, bytes)."""
    _check(pair, _STEP_KEY.size, _TWO.size)
    _, cache, last_id = _STEP_KEY.unpack(pair[0])
    events, nbytes = _TWO.unpack(pair[1])
    return cache, last_id, events, nbytes


def step_range(cache: int, *, upto: int | None = None) -> Range:
    """Return the range of the steps of a cache, all or those at or below the id `upto`."""
    lower, upper = _prefixed(b"step" + cache.to_bytes(4))
    return lower, upper if upto is None else _STEP_KEY.pack(b"step", cache, upto + 1)


def encode_end(segment: int, last_id: int, epoch: int) -> Pair:
    """Return the row that keeps a segment's log end when its last value is dropped with its cache."""
    return _END_KEY.pack(b"end", segment), _END.pack(last_id, epoch)


def decode_end(pair: Pair) -> tuple[int, int, int]:
    """Return (segment, id, epoch)."""
    _check(pair, _END_KEY.size, _END.size)
    _, segment = _END_KEY.unpack(pair[0])
    last_id, epoch = _END.unpack(pair[1])
    return segment, last_id, epoch


def end_range() -> Range:
    """Return the range of all kept log ends."""
    return _prefixed(b"end")


def encode_left(last_id: int) -> Pair:
    """Return the row that remembers the highest end of the logs that this directory gave away."""
    return b"left", _LEFT.pack(last_id)


def decode_left(pair: Pair) -> int:
    """Return the id."""
    _check(pair, 4, _LEFT.size)
    last_id: int = _LEFT.unpack(pair[1])[0]
    return last_id


def left_range() -> Range:
    """Return the range of that one row."""
    return _prefixed(b"left")


def encode_partial(segment: int) -> Pair:
    """Return the row that stands as long as a segment is being deleted or copied: at a start, what is there of it is dropped."""
    return b"part" + segment.to_bytes(2), b""


def decode_partial(pair: Pair) -> int:
    """Return the segment."""
    _check(pair, 6, 0)
    return int.from_bytes(pair[0][4:])


def partial_range(segment: int | None = None) -> Range:
    """Return the range of these rows, of one segment or of all."""
    return _prefixed(b"part" if segment is None else b"part" + segment.to_bytes(2))


def _prefixed(prefix: bytes) -> Range:
    return prefix, (int.from_bytes(prefix) + 1).to_bytes(len(prefix))


def _check(pair: Pair, key_bytes: int, value_bytes: int) -> None:
    if len(pair[0]) != key_bytes or len(pair[1]) != value_bytes:
        raise CorruptData(where="meta", why=f"row {pair[0].hex()} has {len(pair[1])} bytes instead of {value_bytes}, or a bad key")
