"""Which committed entries the interceptors will look at: as few as possible, all in one read."""

import numpy as np

from eventlog.events import Kind
from eventlog.interceptor.share import Share


def plan_reads(share: Share) -> dict[bytes, int]:
    """Return the keys whose entries must be in `share.entries` before the interceptors run, and the segment of each.

    Conditions and asked-for previous values need theirs. A before-image or a lifespan needs those of keys that exist; without a
    key table, existence itself is read.
    """
    rules, submitted = share.rules, share.submitted
    if not rules.state:
        return {}
    wanted = {condition.key: submitted.segments.item(condition.block) for condition in submitted.conditions}
    wanted.update((share.keys[row], submitted.segments.item(share.block_of_row[row])) for row in submitted.previous_rows)
    if rules.before or rules.may_expire or share.table is None:
        first = share.live_rows & (share.previous < 0)
        rows = np.flatnonzero(first if share.table is None else first & share.in_table)
        segments = submitted.segments[share.block_of_row[rows]].tolist()
        wanted.update(zip(map(share.keys.__getitem__, rows.tolist()), segments, strict=True))
    return wanted


assert Kind.CREATED < Kind.MODIFIED < Kind.REMOVED
