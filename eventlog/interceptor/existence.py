"""What a write did, from whether its key existed: CREATED or MODIFIED, REMOVED or nothing."""

import numpy as np
import numpy.typing as npt

from eventlog.batch.marks import ABSENT
from eventlog.events import Kind
from eventlog.interceptor.key_table import Hashes, KeyTable
from eventlog.interceptor.share import Ints, Share

_BECOMES = np.full(8, ABSENT, np.uint8)  # by the kind asked for, and 4 more where the key exists
_BECOMES[Kind.CREATED] = Kind.CREATED
_BECOMES[4:] = (Kind.MODIFIED, Kind.MODIFIED, Kind.REMOVED, Kind.EXPIRED)


def decide_kinds(share: Share) -> None:
    """Make the kinds of live rows final."""
    if not share.rules.state:
        return
    exists = _committed(share)
    followers = (share.previous >= 0).nonzero()[0]
    if len(followers):
        exists[followers] = share.kinds[share.previous[followers]] == Kind.CREATED
    kinds = _BECOMES.take(exists.view(np.uint8) << 2 | share.kinds)
    share.kinds = kinds if share.is_whole else np.where(share.live_rows, kinds, share.kinds)


def _committed(share: Share) -> npt.NDArray[np.bool_]:
    if share.table is not None:
        return share.in_table.copy()
    return np.fromiter((share.entries.get(key) is not None for key in share.keys), bool, len(share.keys))


def update_table(table: KeyTable, *, hashes: Hashes, kinds: npt.NDArray[np.uint8], rows: Ints) -> None:
    """Bring `table` up to date with the writes in `rows` that had an effect: only the last one to each key counts."""
    if not len(rows):
        return
    last = rows if len(rows) == 1 else _last_of_each(hashes, rows)
    known = table.contains(hashes[last])
    present = kinds[last] <= Kind.MODIFIED
    if np.count_nonzero(present != known):
        table.add(hashes[last[present & ~known]])
        table.remove(hashes[last[~present & known]])


def _last_of_each(hashes: Hashes, rows: Ints) -> Ints:
    order = hashes[rows].argsort(kind="stable")
    ordered = rows[order]
    is_last = np.ones(len(rows), bool)
    np.not_equal(hashes[ordered[1:]], hashes[ordered[:-1]], out=is_last[:-1])
    return ordered[is_last]
