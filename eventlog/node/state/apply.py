"""What a committed group changes in the current state: entries, expiries, counters, the key table."""

from dataclasses import dataclass
from operator import add

import numpy as np
import numpy.typing as npt

from eventlog.batch.entries import FORMAT, HAS_EXPIRY, HEAD_EXPIRY
from eventlog.batch.stored import Values
from eventlog.events import Kind
from eventlog.interceptor import Share, Stamped
from eventlog.interceptor.key_table import update_table
from eventlog.node.state.bulk_apply import entry_heads
from eventlog.node.state.caches import CacheState
from eventlog.node.writing.results import CachePart
from eventlog.node.writing.storage import Put
from eventlog.segment.keys import entry_prefix, expiry_key

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`layer` is (state key, stored entry or None for removed) event by event; `expiries` are further pairs that no reader looks up."""

    layer: list[Put]
    expiries: list[Put]
    nbytes: int
    share: Share
    stamped: Stamped

    def commit(self, cache: CacheState, values: Values) -> None:
        """Move the cache's offsets, counters and key table."""
        cache.next_offsets[values.segments] += values.counts
        cache.stored_bytes += values.nbytes
        share = self.share
        if share.expiry is not None:
            cache.may_expire = True
        if not cache.options.state:
            return
        self._count(cache)
        arrival = self.stamped.changed_rows
        if cache.keys is not None:
            update_table(cache.keys, hashes=share.hashes, kinds=share.kinds, rows=arrival)
        elif cache.building is not None:
            cache.building.append((share.hashes, share.kinds, arrival))

    def _count(self, cache: CacheState) -> None:
        rows, expired = self.stamped.rows, self.stamped.expired_rows
        kinds = self.share.kinds[rows]
        if len(expired) or np.count_nonzero(kinds != Kind.MODIFIED):
            segments = self.share.submitted.segments[self.share.block_of_row]
            np.add.at(cache.live, segments[rows], (kinds == Kind.CREATED).astype(np.int64) - (kinds >= Kind.REMOVED))
            np.subtract.at(cache.live, segments[expired], 1)


def changes_of(part: CachePart) -> Change:
    """Return what the stamped events of a part do to the state."""
    share, stamped, values = part.share, part.stamped, part.stored
    if not share.rules.state:
        return Change(layer=[], expiries=[], nbytes=0, share=share, stamped=stamped)
    rows = stamped.rows
    ids = values.ids(stamped.rank[rows])
    segments = share.submitted.segments.repeat(share.blocks.counts)[rows].tolist()
    prefixes = {segment: entry_prefix(segment, share.rules.cache_id) for segment in set(segments)}
    picked = rows.tolist()
    keys, contents = share.keys, share.values
    state_keys = map(add, map(prefixes.__getitem__, segments), map(keys.__getitem__, picked))
    kinds = share.kinds[rows]
    expiries: list[Put] = []
    if share.expiry is not None and np.count_nonzero(share.expiry):
        deadlines = share.expiry[rows].tolist()
        entries: list[bytes | None] = [
            HEAD_EXPIRY.pack(FORMAT, HAS_EXPIRY, id_, deadline) + contents[row] if deadline else head + contents[row]
            for id_, deadline, row, head in zip(ids.tolist(), deadlines, picked, entry_heads(ids), strict=True)
        ]
        expiries = [
            (expiry_key(segment, share.rules.cache_id, deadline, keys[row]), b"")
            for segment, deadline, row in zip(segments, deadlines, picked, strict=True)
            if deadline
        ]
    else:
        entries = list(map(add, entry_heads(ids), map(contents.__getitem__, picked)))
    for index in (kinds > Kind.MODIFIED).nonzero()[0].tolist():
        entries[index] = None
    layer: list[Put] = [  # first: each is the first word of the group on its key
        (entry_prefix(int(share.submitted.segments[share.block_of_row[row]]), share.rules.cache_id) + keys[row], None)
        for row in stamped.expired_rows.tolist()
    ]
    layer += zip(state_keys, entries, strict=True)
    nbytes = int((share.blocks.value_end - share.blocks.value_at).sum()) + 100 * len(layer)
    return Change(layer=layer, expiries=expiries, nbytes=nbytes, share=share, stamped=stamped)
