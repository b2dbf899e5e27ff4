"""Who is taken for dead, by what connections tell. Safety never hangs on it: a wrong guess costs a needless move and no more.

Nobody listens where a member did: its process is gone, at once. A member that only says nothing for `SILENCE_MS_MAX` may be cut off
as well as dead, and so may this node be: silence counts only for whoever still reaches more than half of those whose processes
are not known to be gone; of two equal halves, for the one with the member of the lowest number.
"""

from collections.abc import Collection
from typing import Protocol

from eventlog.limits import SILENCE_MS_MAX


class Contact(Protocol):
    """What is asked of the connections to the other members."""

    def is_refused(self, number: int) -> bool:
        """Return whether nobody listens at a member's address."""
        ...

    def silent_ms(self, number: int) -> int:
        """Return for how long nothing was heard of a member."""
        ...


def dead_members(members: Collection[int], reach: Contact, *, me: int) -> frozenset[int]:
    """Return the numbers of members that are taken for dead; never the own one."""
    others = [number for number in members if number != me]
    gone = {number for number in others if reach.is_refused(number)}
    silent = {number for number in others if number not in gone and reach.silent_ms(number) >= SILENCE_MS_MAX}
    if not silent:
        return frozenset(gone)
    heard = {me, *others} - gone - silent
    is_larger = len(heard) > len(silent) or (len(heard) == len(silent) and min(heard) < min(silent))
    return frozenset(gone | silent if is_larger else gone)
