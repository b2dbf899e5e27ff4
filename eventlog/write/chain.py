"""The interceptors, in their order, and which committed entries they will look at: as few as possible, all in one read.

1. Conditions: a block whose versions do not match is refused whole. The caller lets a block with conditions into a group only when no
   earlier block of the group touches its keys, so the committed entry is what the condition is about.
2. Existence: what a write did, from whether its key existed: CREATED or MODIFIED, REMOVED or nothing.
3. Images: what a write replaced, and how long it will live.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from eventlog.batch.marks import ABSENT
from eventlog.errors import EventLogError, KeyExists, NoState, VersionMismatch
from eventlog.events import Kind
from eventlog.write.share import KeyCondition, Share

assert Kind.CREATED < Kind.MODIFIED < Kind.REMOVED
_BECOMES = np.full(8, ABSENT, np.uint8)  # by the kind asked for, and 4 more where the key exists
_BECOMES[Kind.CREATED] = Kind.CREATED
_BECOMES[4:] = (Kind.MODIFIED, Kind.MODIFIED, Kind.REMOVED, Kind.EXPIRED)
_LIFESPAN_MS_MAX = 1 << 53  # more than that is for ever, and its sum with a time fits 63 bits


def refuse_conflicts(share: Share) -> None:
    """Refuse every live block with a condition that does not hold."""
    for condition in share.submitted.conditions:
        if not share.live[condition.block]:
            continue
        error = _conflict(share, condition) if share.rules.state else NoState(cache=share.rules.name)
        if error is not None:
            share.refuse(condition.block, error)
            share.conflicts.add(condition.block)


def refused_before(share: Share, block: int) -> EventLogError:
    """Return why a repeated block was refused the first time; the version found then is not kept, 0 stands for it.

    The condition is not judged again: it might hold now, and a write would be made that the first answer had refused.
    """
    if not share.rules.state:
        return NoState(cache=share.rules.name)
    of_block = [condition for condition in share.submitted.conditions if condition.block == block]
    return _mismatch(of_block[0] if of_block else KeyCondition(block=block, key=b"", version=None), found=0)


def _conflict(share: Share, condition: KeyCondition) -> EventLogError | None:
    found = _version(share, condition.key)
    holds = found != 0 if condition.version is None else found == condition.version
    return None if holds else _mismatch(condition, found=found)


def _mismatch(condition: KeyCondition, *, found: int) -> EventLogError:
    key = condition.key.decode(errors="backslashreplace")
    if condition.version == 0:
        return KeyExists(key=key, version=found)
    return VersionMismatch(key=key, expected=-1 if condition.version is None else condition.version, found=found)


def _version(share: Share, key: bytes) -> int:
    """Return the version of the key's entry; 0 where there is none or its lifespan is over (but for what expires it)."""
    entry = share.entries[key]
    if entry is None or (0 < entry.expiry <= share.submitted.now and not share.submitted.internal):
        return 0
    return entry.version


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
    """Lifespans become deadlines, by the primary's clock; the cache's own lifespan is the default.

    Clients send lengths, because their clocks may be wrong by minutes. A deadline has the place and size of a length: nothing is copied.
    """
    lifespans = share.lifespans
    if lifespans is None and not share.rules.lifespan_ms:
        return
    spans = np.zeros(len(share.kinds), np.int64) if lifespans is None else lifespans.copy()
    spans[spans == 0] = share.rules.lifespan_ms
    deadlines = np.where(spans > 0, np.minimum(spans, _LIFESPAN_MS_MAX) + share.submitted.now, 0)
    deadlines[share.kinds > Kind.MODIFIED] = 0
    share.expiry = deadlines


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


INTERCEPTORS: tuple[Callable[[Share], None], ...] = (refuse_conflicts, decide_kinds, keep_images)
