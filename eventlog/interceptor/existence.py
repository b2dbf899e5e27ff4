"""What a write did, from whether its key existed: CREATED or MODIFIED, REMOVED or nothing."""

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import ABSENT
from eventlog.events import Kind
from eventlog.interceptor.key_table import Hashes, KeyTable
from eventlog.interceptor.share import Ints, Share

_ALONE = np.full(1, -1, np.int64)
_ALONE.flags.writeable = False


def link_rows(hashes: Hashes, rows: Ints) -> tuple[Ints, Ints]:
    """Return, for each of `rows`, the row before and the row after it with the same hash, or -1."""
    if len(rows) == 1:
        return _ALONE, _ALONE
    order = np.argsort(hashes[rows], kind="stable")
    ordered = hashes[rows][order]
    same = ordered[1:] == ordered[:-1]
    before = np.full(len(rows), -1, np.int64)
    after = np.full(len(rows), -1, np.int64)
    before[order[1:][same]] = rows[order[:-1][same]]
    after[order[:-1][same]] = rows[order[1:][same]]
    return before, after


def decide_kinds(share: Share) -> None:
    """Make the kinds of live rows final."""
    if not share.rules.state:
        return
    rows = np.flatnonzero(share.live_rows)
    before, _ = link_rows(share.hashes, rows)
    puts = share.kinds[rows] == Kind.CREATED
    exists = _committed(share, rows)
    followers = before >= 0
    exists[followers] = share.kinds[before[followers]] == Kind.CREATED
    share.previous = np.full(len(share.kinds), -1, np.int64)
    share.previous[rows] = before
    share.kinds[rows[puts & exists]] = Kind.MODIFIED
    share.kinds[rows[~puts & ~exists]] = ABSENT


def _committed(share: Share, rows: Ints) -> npt.NDArray[np.bool_]:
    if share.table is not None:
        return share.table.contains(share.hashes[rows])
    entries, keys = share.entries, share.keys
    return np.fromiter((entries.get(keys[row]) is not None for row in rows.tolist()), bool, len(rows))


def update_table(table: KeyTable, *, hashes: Hashes, kinds: npt.NDArray[np.uint8], rows: Ints) -> None:
    """Bring `table` up to date with the writes in `rows` that had an effect: only the last one to each key counts."""
    if not len(rows):
        return
    _, after = link_rows(hashes, rows)
    last = rows[after < 0]
    known = table.contains(hashes[last])
    present = kinds[last] <= Kind.MODIFIED
    if (present != known).any():
        table.add(hashes[last[present & ~known]])
        table.remove(hashes[last[~present & known]])
