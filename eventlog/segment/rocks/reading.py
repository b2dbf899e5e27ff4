"""Walking a family, as it is now or as it was at one moment.

- `keys()`, `values()` and `items()` of rocksdict end at a damaged block as if the data ended there; only an iterator has a
  `status`, so everything here is an iterator and every walk to an end asks for it.
- Three calls a value cost 0.4 us from memory; `items()` would be 0.3. An iterator that is not valid has no key.
- A snapshot is an iterator that was made at its moment, which RocksDB keeps at it as long as it lives. rocksdict has snapshots, too, but
  only their point reads keep to the moment: their iterators show what is there now (0.3.29).
- What such an iterator costs is the buffers that were being filled when it was made: they stay in memory after they were written out, so
  a caller that takes many looks at `Store.pinned_bytes`.
- An iterator can be sought again and used from any thread, by one at a time. Moving one past its end kills the process: it is moved only
  where it has a key.
"""

import threading
from collections.abc import Sequence
from itertools import repeat
from typing import cast

from rocksdict import Rdict, RdictIter, ReadOptions

from eventlog.errors import ClientClosed
from eventlog.segment.port import Pair, Range, StoredRows
from eventlog.segment.rocks.failing import Judge, calling

_Keys = list[str | int | float | bytes | bool]  # what the stub wants; a list is invariant


def read_values(family: Rdict, ranges: Sequence[Range], *, bytes_max: int, judge: Judge) -> list[Pair]:
    """Return the pairs of ascending, disjoint ranges until their values reach `bytes_max`."""
    return read_values_and_next(family, ranges, [upper for _, upper in ranges], bytes_max=bytes_max, judge=judge)[0]


def read_values_and_next(
    family: Rdict, ranges: Sequence[Range], bounds: Sequence[bytes], *, bytes_max: int, judge: Judge
) -> tuple[list[Pair], list[Pair | None]]:
    """Return the same, and the first pair behind each range that was read to its end, None where none is below its bound."""
    return calling(lambda: _walk_ranges(family, ranges, bounds, bytes_max), judge) if ranges else ([], [])


def read_pairs(family: Rdict, span: Range, *, limit: int | None, judge: Judge) -> list[Pair]:
    """Return the pairs of a range, at most `limit`."""
    return calling(lambda: _walk_pairs(family, span, limit), judge)


def last_pairs(family: Rdict, ranges: Sequence[Range], *, judge: Judge) -> list[Pair | None]:
    """Return the last pair of each range."""
    return calling(lambda: _step_back(family, ranges), judge) if ranges else []


def first_keys(family: Rdict, ranges: Sequence[Range], *, judge: Judge) -> list[bytes | None]:
    """Return the first key of each range."""
    return calling(lambda: _seek_keys(family, ranges), judge) if ranges else []


def get_values(family: Rdict, keys: list[bytes], *, judge: Judge) -> list[bytes | None]:
    """Return the values of `keys`."""
    return calling(lambda: cast("list[bytes | None]", family.get(cast("_Keys", keys))), judge)


def peek_values(family: Rdict, keys: list[bytes]) -> list[bytes] | None:
    """Return the values of `keys` if buffers and the cache of blocks hold all of them.

    None else: what is not found there is not believed to be nowhere, because the engine says the same of what it cannot read. Neither is
    an empty value: that is also what the engine says of a value whose index is not in the cache of blocks. Asking for the value of a key
    that it knows not to be there leaks 32 bytes in rocksdict 0.3.29, so that is asked first.
    """
    found: list[bytes] = []
    for key in keys:
        if not family.key_may_exist(key):
            return None
        _, value = cast("tuple[bool, bytes | None]", family.key_may_exist(key, fetch=True))
        if not value:
            return None
        found.append(value)
    return found


def _walk_ranges(family: Rdict, ranges: Sequence[Range], bounds: Sequence[bytes], bytes_max: int) -> tuple[list[Pair], list[Pair | None]]:
    options = _below(bounds[-1])
    # History keeps what it read: filling the cache as well takes a quarter of the time. Nothing is warmed: the engine does not say where
    # in a file a range lies, and a whole file is 64 MiB for the KiB that a chunk takes of a segment.
    options.fill_cache(False)  # type: ignore[call-arg]  # noqa: FBT003 -- its only argument, which the stub lacks
    iterator = family.iter(options)
    found: list[Pair] = []
    behind: list[Pair | None] = []
    for span, bound in zip(ranges, bounds, strict=True):
        bytes_max -= _walk_range(iterator, span, bytes_max, found)
        if bytes_max <= 0:
            break
        key = iterator.key()  # the walk has come to it anyway
        behind.append((key, iterator.value()) if key is not None and key < bound else None)
    return found, behind


def _walk_range(iterator: RdictIter, span: Range, bytes_max: int, found: list[Pair]) -> int:
    """Add the pairs of a range to `found`, return the bytes of their values."""
    lower, upper = span
    key_of, value_of, step, add = iterator.key, iterator.value, iterator.next, found.append
    taken = 0
    iterator.seek(lower)
    key = key_of()
    while key is not None:
        if key >= upper:
            return taken
        value = value_of()
        add((key, value))
        taken += len(value)
        if taken >= bytes_max:
            return taken
        step()
        key = key_of()
    iterator.status()
    return taken


def _walk_pairs(family: Rdict, span: Range, limit: int | None) -> list[Pair]:
    iterator = family.iter(_below(span[1]))
    is_valid, key_of, value_of, step = iterator.valid, iterator.key, iterator.value, iterator.next
    found: list[Pair] = []
    iterator.seek(span[0])
    while is_valid() and len(found) != limit:
        found.append((key_of(), value_of()))
        step()
    iterator.status()
    return found


def _step_back(family: Rdict, ranges: Sequence[Range]) -> list[Pair | None]:
    iterator = family.iter(_below(max(upper for _, upper in ranges)))
    seek, key_of, value_of, step_back = iterator.seek_for_prev, iterator.key, iterator.value, iterator.prev
    found: list[Pair | None] = []
    for lower, upper in ranges:
        seek(upper)
        key = key_of()
        if key == upper:
            step_back()
            key = key_of()
        if key is None:
            iterator.status()
        found.append((key, value_of()) if key is not None and key >= lower else None)
    return found


def _seek_keys(family: Rdict, ranges: Sequence[Range]) -> list[bytes | None]:
    iterator = family.iter(_below(max(upper for _, upper in ranges)))
    found: list[bytes | None] = []
    for lower, upper in ranges:
        iterator.seek(lower)
        key = iterator.key()
        if key is None:
            iterator.status()
        found.append(key if key is not None and key < upper else None)
    return found


def _below(upper: bytes) -> ReadOptions:
    """Return options with the upper bound alone: RocksDB does not hold `seek_to_last` to the lower one."""
    options = ReadOptions()
    options.set_iterate_upper_bound(upper)
    return options


class RocksSnapshot:
    """See `port.Snapshot`."""

    __slots__ = ("__weakref__", "_iterator", "_judge", "_lock")

    def __init__(self, family: Rdict, *, judge: Judge) -> None:
        options = ReadOptions()
        options.fill_cache(v=False)  # type: ignore[call-arg]  # the stub forgets it. What is read in order is not worth what others lose
        self._iterator: RdictIter | None = calling(lambda: family.iter(options), judge)
        self._judge = judge
        self._lock = threading.Lock()

    def read(self, lower: bytes, upper: bytes, *, rows_max: int, bytes_max: int) -> StoredRows:
        with self._lock:
            iterator = self._iterator
            if iterator is None:
                raise ClientClosed(what="snapshot")
            held = [iterator]
            del iterator  # a holder of the error holds this frame, and with an iterator the database's LOCK
            return calling(lambda: _read(held.pop(), (lower, upper), rows_max, bytes_max), self._judge)

    def close(self) -> None:
        self._iterator = None

    def wait(self) -> None:
        """Return when no read runs any more."""
        with self._lock:
            assert self._iterator is None, "close() comes first"


def _read(iterator: RdictIter, span: tuple[bytes, bytes], rows_max: int, bytes_max: int) -> StoredRows:
    lower, upper = span
    keys: list[bytes] = []
    values: list[bytes] = []
    key_of, value_of, step, add_key, add_value = iterator.key, iterator.value, iterator.next, keys.append, values.append
    taken = 0
    iterator.seek(lower)
    for _ in repeat(None, rows_max):
        key = key_of()
        if key is None or key >= upper:
            break
        if taken >= bytes_max:
            return StoredRows(keys, values, is_end=False, nbytes=taken)
        value = value_of()
        add_key(key)
        add_value(value)
        taken += len(value)
        step()
    else:
        key = key_of()
    if key is None:
        iterator.status()
    return StoredRows(keys, values, is_end=key is None or key >= upper, nbytes=taken)
