"""Which committed entries the interceptors will look at: as few as possible, all in one read."""

import numpy as np

from eventlog.events import Kind
from eventlog.interceptor.share import Share


def plan_reads(share: Share) -> list[bytes]:
    """Return the keys whose entries must be in `share.entries` before the interceptors run, each once.

    Conditions and asked-for previous values need theirs. A before-image or a lifespan needs those of keys that exist; without a
    key table, existence itself is read.
    """
    if not share.rules.state:
        return []
    wanted = dict.fromkeys(condition.key for condition in share.submitted.conditions)
    wanted.update((share.keys[row], None) for row in share.submitted.previous_rows)
    rules = share.rules
    if rules.before or rules.may_expire or share.table is None:
        first = np.flatnonzero(share.live_rows & (share.previous < 0))
        if share.table is not None:
            first = first[share.table.contains(share.hashes[first])]
        wanted.update((share.keys[row], None) for row in first.tolist())
    return list(wanted)


assert Kind.CREATED < Kind.MODIFIED < Kind.REMOVED
