"""The writes of one group to one cache, as columns that the interceptors change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.check import CheckedBlocks, slices
from eventlog.batch.entries import StoredEntry
from eventlog.batch.views import Block, decode_block
from eventlog.errors import EventLogError
from eventlog.state.caches import CacheRules
from eventlog.state.key_table import Hashes, KeyTable

_NO_HASHES = np.zeros(0, np.uint64)
_ALONE = np.full(1, -1, np.int64)
_ALONE.flags.writeable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCondition:
    """What must hold for a key, or its block is refused: `version` is an id, 0 for absent, None for present."""

    block: int
    key: bytes
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Blocks of one cache as they came, of one or more frames, in `data`; one number a block in the arrays.

    They lie back to back, or where `starts` says, at multiples of 8.
    `now` is physical time in milliseconds since 2020; lifespans count from it.
    """

    data: npt.NDArray[np.uint8]
    segments: Ints
    lengths: Ints
    counts: Ints
    producers: npt.NDArray[np.uint64]
    sequences: Ints
    starts: Ints | None = None
    conditions: tuple[KeyCondition, ...] = ()
    previous_rows: tuple[int, ...] = ()
    internal: bool = False
    now: int = 0


@dataclass(kw_only=True)
class Share:
    """Events of one cache in one group. Rows are events in order of arrival, blocks likewise.

    Invariants: `live` blocks will be logged, and only `leave_out` changes which; `refusals` name the others that were refused; `kinds`
    of a live row is final once `decide_kinds` ran, ABSENT where a removal found nothing. `entries` holds the committed entry of every
    key planned.
    """

    rules: CacheRules
    submitted: Submitted
    blocks: CheckedBlocks
    kinds: npt.NDArray[np.uint8]
    live: npt.NDArray[np.bool_]
    table: KeyTable | None = None
    keys: list[bytes] = field(default_factory=list)
    hashes: Hashes = field(default_factory=lambda: _NO_HASHES)
    entries: dict[bytes, StoredEntry | None] = field(default_factory=dict)
    refusals: dict[int, EventLogError] = field(default_factory=dict)
    conflicts: set[int] = field(default_factory=set)  # of the refused: those whose condition failed; a producer's leave a row in the log
    expired: npt.NDArray[np.bool_] | None = None  # rows that meet an expired entry: EXPIRED is logged before them
    before: list[bytes] | None = None
    expiry: Ints | None = None

    @cached_property
    def block_of_row(self) -> Ints:
        return np.arange(len(self.live)).repeat(self.blocks.counts)

    @cached_property
    def raw(self) -> bytes:
        """Return the blocks as bytes, from which keys and values are cut."""
        return self.blocks.data.tobytes()

    @cached_property
    def values(self) -> list[bytes]:
        """Return the value of every row."""
        return slices(self.raw, self.blocks.value_at, self.blocks.value_end)

    @cached_property
    def headers(self) -> Sequence[bytes] | None:
        """Return the headers of every row, or None where no block has any."""
        if not np.count_nonzero(self.blocks.bitmaps & 4):
            return None
        return [header for block in self._decoded for header in (block.headers.to_list() if block.headers else [b""] * block.count)]

    @cached_property
    def lifespans(self) -> Ints | None:
        """Return the lifespan that each row asks for in milliseconds, 0 for none; None where no block has any."""
        if not np.count_nonzero(self.blocks.bitmaps & 1):
            return None
        return np.concatenate([np.zeros(b.count, np.int64) if b.expiry is None else b.expiry for b in self._decoded])

    @cached_property
    def _decoded(self) -> list[Block]:
        data = self.blocks.data.data
        ends = (self.blocks.starts + self.blocks.lengths).tolist()
        return [decode_block(data[low:high]) for low, high in zip(self.blocks.starts.tolist(), ends, strict=True)]

    @cached_property
    def is_whole(self) -> bool:
        """Whether all blocks are live."""
        return bool(np.count_nonzero(self.live) == len(self.live))

    @cached_property
    def live_rows(self) -> npt.NDArray[np.bool_]:
        """Return which rows belong to live blocks."""
        return np.ones(len(self.kinds), bool) if self.is_whole else self.live[self.block_of_row]

    @cached_property
    def in_table(self) -> npt.NDArray[np.bool_]:
        """Return which rows' keys the key table has: what was there before this group."""
        assert self.table is not None, "asked where there is one"
        return self.table.contains(self.hashes)

    @cached_property
    def previous(self) -> Ints:
        """Return for each live row the live row before it with the same key, or -1."""
        if len(self.kinds) == 1:
            return _ALONE
        if self.is_whole:
            return link_rows(self.hashes)
        rows = self.live_rows.nonzero()[0]
        linked = link_rows(self.hashes[rows])
        found = np.full(len(self.kinds), -1, np.int64)
        found[rows] = np.where(linked >= 0, rows[linked], -1)
        return found

    def leave_out(self, block: int) -> None:
        """Take a block out of the group."""
        self.live[block] = False
        for known in ("is_whole", "live_rows", "previous"):
            self.__dict__.pop(known, None)

    def refuse(self, block: int, error: EventLogError) -> None:
        """Take a block out of the group; the first reason stays."""
        self.leave_out(block)
        self.refusals.setdefault(block, error)


def link_rows(hashes: Hashes) -> Ints:
    """Return for each row the row before it with the same hash, or -1."""
    order = hashes.argsort(kind="stable")
    ordered = hashes[order]
    same = (ordered[1:] == ordered[:-1]).nonzero()[0]
    before = np.full(len(hashes), -1, np.int64)
    before[order[same + 1]] = order[same]
    return before
