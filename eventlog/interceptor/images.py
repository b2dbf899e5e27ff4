"""What a write replaced, and how long it will live."""

import numpy as np

from eventlog.batch.marks import ABSENT
from eventlog.events import Kind
from eventlog.interceptor.share import Share

_LIFESPAN_MS_MAX = 1 << 53  # more than that is for ever, and its sum with a time fits 63 bits


def keep_images(share: Share) -> None:
    """Set `expired`, `before` and `expiry` of the share where the cache asks for them."""
    if not share.rules.state:
        _set_expiry(share)
        return
    if share.rules.may_expire:
        _meet_expired(share)
    if share.rules.before:
        _keep_before(share)
    _set_expiry(share)


def _meet_expired(share: Share) -> None:
    """A write that meets an entry past its lifespan logs EXPIRED first; then a put creates and a removal finds nothing."""
    now = share.submitted.now
    past = np.zeros(len(share.kinds), bool)
    if not share.submitted.internal:
        for row in (share.live_rows & (share.previous < 0)).nonzero()[0].tolist():
            entry = share.entries.get(share.keys[row])
            past[row] = entry is not None and 0 < entry.expiry <= now
    if np.count_nonzero(past):
        share.expired = past
        share.kinds[past & (share.kinds == Kind.MODIFIED)] = Kind.CREATED
        share.kinds[past & (share.kinds == Kind.REMOVED)] = ABSENT


def _keep_before(share: Share) -> None:
    images = [b""] * len(share.kinds)
    replacing = ((share.kinds != Kind.CREATED) & (share.kinds != ABSENT) & share.live_rows).nonzero()[0]
    keys, values, entries = share.keys, share.values, share.entries
    for row, earlier in zip(replacing.tolist(), share.previous[replacing].tolist(), strict=True):
        if earlier >= 0:
            images[row] = values[earlier]
        elif (entry := entries.get(keys[row])) is not None:
            images[row] = entry.value
    share.before = images


def image_of(share: Share, row: int) -> bytes:
    """Return the value that `row` replaced: written earlier in the group, or committed."""
    earlier = int(share.previous[row])
    if earlier >= 0:
        return share.values[earlier]
    entry = share.entries.get(share.keys[row])
    return entry.value if entry is not None else b""


def _set_expiry(share: Share) -> None:
    """Lifespans become deadlines; the cache's own lifespan is the default."""
    lifespans = share.lifespans
    if lifespans is None and not share.rules.lifespan_ms:
        return
    spans = np.zeros(len(share.kinds), np.int64) if lifespans is None else lifespans.copy()
    spans[spans == 0] = share.rules.lifespan_ms
    deadlines = np.where(spans > 0, np.minimum(spans, _LIFESPAN_MS_MAX) + share.submitted.now, 0)
    deadlines[share.kinds > Kind.MODIFIED] = 0
    share.expiry = deadlines
