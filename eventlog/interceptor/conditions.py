"""Conditional writes: a block whose versions do not match is refused whole.

The caller lets a block with conditions into a group only when no earlier block of the group touches its keys, so the committed
entry is what the condition is about.
"""

from eventlog.errors import EventLogError, KeyExists, NoState, VersionMismatch
from eventlog.interceptor.share import Condition, Share


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
    """Return why a repeated block was refused the first time; the version found then is not kept, 0 stands for it."""
    if not share.rules.state:
        return NoState(cache=share.rules.name)
    of_block = [condition for condition in share.submitted.conditions if condition.block == block]
    return _mismatch(of_block[0] if of_block else Condition(block=block, key=b"", version=None), found=0)


def _conflict(share: Share, condition: Condition) -> EventLogError | None:
    found = _version(share, condition.key)
    holds = found != 0 if condition.version is None else found == condition.version
    return None if holds else _mismatch(condition, found=found)


def _mismatch(condition: Condition, *, found: int) -> EventLogError:
    key = condition.key.decode(errors="backslashreplace")
    if condition.version == 0:
        return KeyExists(key=key, version=found)
    return VersionMismatch(key=key, expected=-1 if condition.version is None else condition.version, found=found)


def _version(share: Share, key: bytes) -> int:
    """Return the version of the key's entry; 0 where there is none or its lifespan is over (but for who expires it)."""
    entry = share.entries[key]
    if entry is None or (0 < entry.expiry <= share.submitted.now and not share.submitted.internal):
        return 0
    return entry.version
