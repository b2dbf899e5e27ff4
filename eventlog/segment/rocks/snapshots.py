"""Reading the state as it was at one moment: an iterator that was made then, which RocksDB keeps at that moment as long as it lives.

rocksdict has snapshots, too, but only their point reads keep to the moment: their iterators show what is there now (0.3.29). What an
iterator costs is the buffers that were being filled when it was made: they stay in memory after they were written out, so whoever
takes many looks at `Store.pinned_bytes`.

An iterator can be sought again and used from any thread, by one at a time. Moving one past its end kills the process: it is moved only
where it has a key.
"""

import threading
from itertools import repeat

from rocksdict import Rdict, RdictIter, ReadOptions

from eventlog.errors import ClientClosed
from eventlog.segment.port import Rows
from eventlog.segment.rocks.failing import Judge, calling


class RocksSnapshot:
    """See `port.Snapshot`."""

    __slots__ = ("__weakref__", "_iterator", "_judge", "_lock")

    def __init__(self, family: Rdict, *, judge: Judge) -> None:
        options = ReadOptions()
        options.fill_cache(v=False)  # type: ignore[call-arg]  # the stub forgets it. What is read in order is not worth what others lose
        self._iterator: RdictIter | None = calling(lambda: family.iter(options), judge)
        self._judge = judge
        self._lock = threading.Lock()

    def read(self, lower: bytes, upper: bytes, *, rows_max: int, bytes_max: int) -> Rows:
        with self._lock:
            iterator = self._iterator
            if iterator is None:
                raise ClientClosed(what="snapshot")
            held = [iterator]
            del iterator  # whoever keeps an error keeps this frame, and with an iterator the database's LOCK
            return calling(lambda: _read(held.pop(), (lower, upper), rows_max, bytes_max), self._judge)

    def close(self) -> None:
        self._iterator = None

    def wait(self) -> None:
        """Return when no read runs any more."""
        with self._lock:
            assert self._iterator is None, "close() comes first"


def _read(iterator: RdictIter, span: tuple[bytes, bytes], rows_max: int, bytes_max: int) -> Rows:
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
            return Rows(keys, values, is_end=False, nbytes=taken)
        value = value_of()
        add_key(key)
        add_value(value)
        taken += len(value)
        step()
    else:
        key = key_of()
    if key is None:
        iterator.status()
    return Rows(keys, values, is_end=key is None or key >= upper, nbytes=taken)
