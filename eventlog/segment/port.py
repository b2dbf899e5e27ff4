"""The port of the storage engine: ordered byte keys in three families, one log write at a time.

The engine knows nothing of caches, ids or events; `keys.py` makes the keys. What it promises:

1. `append`, `trim` and `drop` are each atomic, and durable once a later `sync` returned. They survive in order: a crash keeps a
   prefix of them that holds everything synced.
2. `apply` is atomic and has no journal: a crash keeps some prefix of the `apply` calls that holds everything up to the last
   `flush_state`. The state family is one unit; no two parts of it come back from different moments.
3. After a failed `sync` the store is fenced: every later writing call raises `StoreFenced`, reading goes on.
4. A full disk fences nothing: writing calls raise `DiskFull` until there is space.
5. Damage is raised (`CorruptData`, `LostDisk`), never skipped and never read as emptiness.

The writing methods (`append`, `sync`, `write_ends`, `apply`, `trim`, `drop`) belong to one thread. Everything else may be called from any
thread at any time between opening and `close`. Ranges are `[lower, upper)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from eventlog.limits import MIB

Pair = tuple[bytes, bytes]
Range = tuple[bytes, bytes]
Put = tuple[bytes, bytes | None]  # of the state: None removes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreEnds:
    """The last id in the log of each segment over all caches, and its epoch; 0 where there is none.

    `generation` is counted by the store, one up with every write of the side file; what a caller passes is ignored.
    """

    ids: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.uint32]
    generation: int = 0

    @staticmethod
    def empty(segments: int) -> "StoreEnds":
        """Return the ends of empty logs."""
        return StoreEnds(ids=np.zeros(segments, np.int64), epochs=np.zeros(segments, np.uint32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose data a directory holds. A directory is never opened as another's."""

    cluster: str
    node: int
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store is opened. The buffers are sized for 600 MiB a node; tests make them small to see files sooner.

    `identity` None takes the directory whosever it is. `must_exist` refuses to make a new store. `accepts_loss` opens also what is
    older than it was, and takes it for all that there is. `stall_ms_max` bounds how long a write waits for an engine that cannot keep
    up before it raises `Overloaded`.
    """

    identity: Identity | None = None
    must_exist: bool = False
    accepts_loss: bool = False
    log_buffer_bytes: int = 64 * MIB
    state_buffer_bytes: int = 64 * MIB
    buffers_bytes_max: int = 256 * MIB
    cache_bytes: int = 128 * MIB
    journal_bytes_max: int = 192 * MIB
    stall_ms_max: int = 30_000


class StoredRows(NamedTuple):
    """Keys and values of a range, item by item; `is_end`: nothing of the range comes after them; `nbytes`: those of the values."""

    keys: list[bytes]
    values: list[bytes]
    is_end: bool
    nbytes: int


class Snapshot(Protocol):
    """The state family as it was at one moment, between two `apply`s. Read it from any thread.

    It costs nothing to take; what is overwritten or deleted meanwhile stays where it is until it is closed, on the disk and in
    memory (`Store.pinned_bytes`). The store closes those that are left when it closes itself.
    """

    def read(self, lower: bytes, upper: bytes, *, rows_max: int, bytes_max: int) -> StoredRows:
        """Return rows in key order; stops after the one that brings their number or the bytes of their values to its bound.

        Raises:
            CorruptData: the engine met a damaged file.
            ClientClosed: the snapshot or its store is closed.
        """
        ...

    def close(self) -> None:
        """Let go of it. A read that runs ends as if nothing had happened. Closing twice is nothing."""
        ...


class Store(Protocol):
    """An open data directory."""

    @property
    def segments(self) -> int:
        """Number of segments of the cluster, fixed when the directory was made."""
        ...

    @property
    def identity(self) -> Identity | None:
        """Whose data this is, as written when the directory was made."""
        ...

    @property
    def ends(self) -> StoreEnds:
        """The log ends that stood beside the log when it was opened; zeros in a new store. The log must reach them."""
        ...

    @property
    def settled(self) -> npt.NDArray[np.int64]:
        """Up to which id of each segment the log was found whole when the store was opened; what lies above is to be looked through."""
        ...

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the previous process closed the store; True for a new one."""
        ...

    @property
    def unreadable(self) -> str:
        """What the engine said when it first met a damaged file since the store was opened, empty while it met none.

        Such a file stays as it is: whatever reads it fails, and so do merges of it, and all that is written after these.
        """
        ...

    def append(self, log: Sequence[Pair], meta: Sequence[Pair]) -> None:
        """Put log values and meta rows in one atomic write, journalled but not synced.

        Raises:
            Overloaded: the engine stalls; nothing was written.
            DiskFull: no space. Later writes succeed again when there is some; this one will not appear by itself.
            StoreFenced: this write or an earlier sync failed; outcome `unknown` if it was this write.
        """
        ...

    def sync(self, ends: StoreEnds | None = None) -> None:
        """Make everything appended so far durable, then write `ends` beside the log, if given. Releases the GIL while it waits.

        Raises:
            StoreFenced: it is not known what is durable. Nothing may be acknowledged any more, the process restarts.
        """
        ...

    def write_ends(self, ends: StoreEnds) -> None:
        """Write beside the log how far it is durable by now, not durably: an older copy only weakens the check of the next opening.

        Raises:
            DiskFull, StoreFenced: as `append`.
        """
        ...

    def settle(self, ends: StoreEnds | None = None) -> None:
        """Note beside the log how much of it the next opening need not look through. Seldom more than a look; from any thread.

        The first call after the opening says with `ends` up to where the log was found whole. Without it nothing is noted.
        """
        ...

    def apply(self, puts: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put (or, with None, delete) keys of the state family, atomically and without journal. Later pairs win.

        Raises:
            Overloaded, DiskFull, StoreFenced: as `append`.
        """
        ...

    def flush_state(self) -> None:
        """Make every `apply` that returned before this call durable. May take seconds, releases the GIL; from any thread.

        Raises:
            DiskFull, StoreFenced: it did not reach the disk.
        """
        ...

    def release_journal(self) -> None:
        """Write out whatever only the journal has, so that its files go. As `flush_state`, of which it is more.

        Raises:
            DiskFull, StoreFenced: not all of it reached the disk.
        """
        ...

    def trim(self, ranges: Sequence[Range], meta: Sequence[Pair], *, meta_ranges: Sequence[Range] = ()) -> None:
        """Delete log ranges, then meta ranges, and put meta rows, in one atomic write, not synced. Space comes back with `compact`."""
        ...

    def drop(
        self,
        log_ranges: Sequence[Range],
        state_ranges: Sequence[Range],
        meta_ranges: Sequence[Range],
        *,
        meta: Sequence[Pair] = (),
        ends: StoreEnds | None = None,
    ) -> None:
        """Delete ranges of all families, put `meta`; durable for log and meta when it returns, for state with `flush_state`.

        `ends` is for a log that gets shorter: it is written and synced beside the log before anything is deleted.
        """
        ...

    def compact(self, log_ranges: Sequence[Range], state_ranges: Sequence[Range] = ()) -> None:
        """Give back the space of deleted ranges. Slow (20 ms a range), releases the GIL; any thread but the writing one.

        Raises:
            CorruptData, DiskFull: it did not come to its end; the ranges stay deleted.
        """
        ...

    def read_log(self, lower: bytes, upper: bytes, *, bytes_max: int) -> list[Pair]:
        """Return log pairs in key order; stops after the one that brings the values' bytes to `bytes_max` or more.

        Raises:
            CorruptData: the engine met a damaged file.
        """
        ...

    def read_logs(self, ranges: Sequence[Range], *, bytes_max: int) -> list[Pair]:
        """Return `read_log` of many ascending, disjoint ranges as one list; `bytes_max` is for all of them together."""
        ...

    def read_logs_and_next(
        self, ranges: Sequence[Range], bounds: Sequence[bytes], *, bytes_max: int
    ) -> tuple[list[Pair], list[Pair | None]]:
        """Return `read_logs`, and of each range that was read to its end the first pair behind it, None where none is below its bound.

        `bounds` are at or above the ends of their ranges, and at or below the next range. What is behind a range costs no seek.
        """
        ...

    def last_log(self, lower: bytes, upper: bytes) -> Pair | None:
        """Return the log pair with the greatest key in the range."""
        ...

    def last_logs(self, ranges: Sequence[Range]) -> list[Pair | None]:
        """Return `last_log` of each of many ranges."""
        ...

    def first_log_keys(self, ranges: Sequence[Range]) -> list[bytes | None]:
        """Return the least log key of each of many ranges."""
        ...

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the state values of `keys`, None where there is none."""
        ...

    def get_in_memory(self, keys: list[bytes]) -> list[bytes] | None:
        """Return the state values of `keys` if memory holds every one of them, else None: never waits for the disk.

        An engine that cannot tell returns None, also for an empty value, which costs a hop to a thread that calls `get_many`.
        """
        ...

    def read_state(self, lower: bytes, upper: bytes, *, limit: int) -> list[Pair]:
        """Return at most `limit` state pairs in key order."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the state as it is now: with every `apply` that has returned, whole, and none that comes later."""
        ...

    def pinned_bytes(self) -> int:
        """Return the memory that only snapshots keep."""
        ...

    def read_meta(self, lower: bytes, upper: bytes) -> list[Pair]:
        """Return meta pairs in key order."""
        ...

    def free_bytes(self) -> int:
        """Return the bytes that the disk has left for unprivileged users."""
        ...

    def replay_bytes(self) -> int:
        """Return the most that opening it again after a kill would have to write, the state that was lost included."""
        ...

    def figures(self) -> dict[str, tuple[int, int]]:
        """Return (used, limit) of every bounded thing inside; limit 0 where there is no bound."""
        ...

    def close(self) -> None:
        """Write out what is buffered, leave the clean-stop mark, release the directory. Closing twice is nothing.

        Nothing else may be running on the store. Closing a fenced store leaves no mark and raises nothing.

        Raises:
            CorruptData, StoreFenced: something buffered could not be written. The directory is free, the next start replays.
        """
        ...
