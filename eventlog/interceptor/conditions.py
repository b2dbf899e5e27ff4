"""Conditional writes: a block whose versions do not match is refused whole.

The caller lets a block with conditions into a group only when no earlier block of the group touches its keys, so the committed
entry is what the condition is about.
"""

from eventlog.errors import KeyExists, NoState, VersionMismatch
from eventlog.interceptor.share import Condition, Share


def refuse_conflicts(share: Share) -> None:
    """Refuse every live block with a condition that does not hold."""
    for condition in share.submitted.conditions:
        if not share.live[condition.block]:
            continue
        if not share.rules.state:
            share.refuse(condition.block, NoState(cache=share.rules.name))
            continue
        _compare(share, condition)


def _compare(share: Share, condition: Condition) -> None:
    found = _version(share, condition.key)
    if condition.version is None:
        if found == 0:
            share.refuse(condition.block, VersionMismatch(key=_readable(condition.key), expected=-1, found=0))
    elif condition.version == 0:
        if found != 0:
            share.refuse(condition.block, KeyExists(key=_readable(condition.key), version=found))
    elif found != condition.version:
        share.refuse(condition.block, VersionMismatch(key=_readable(condition.key), expected=condition.version, found=found))


def _version(share: Share, key: bytes) -> int:
    """Return the version of the key's entry; 0 where there is none or its lifespan is over (but for who expires it)."""
    entry = share.entries[key]
    if entry is None or (0 < entry.expiry <= share.submitted.now and not share.submitted.internal):
        return 0
    return entry.version


def _readable(key: bytes) -> str:
    return key.decode(errors="backslashreplace")
