"""When a node that owes an answer, and says nothing, is asked whether it lives: a paused host keeps its sockets open."""

from collections.abc import Iterable

ASK_MS_MAX = 500  # for an answer that needs no disk
LOOK_EVERY_MS = 500
SILENT_LOOKS_MAX = 4  # without a byte from a node that owes an answer, which may be late on purpose
QUICK = frozenset({"write", "get", "get_topology", "size", "near_interest"})
"""Requests that no node keeps for long without a reason."""


def silent_looks_max(kinds: Iterable[str]) -> int:
    """Return after how many looks without a byte a node is asked, which owes answers to requests of some kinds."""
    return SILENT_LOOKS_MAX if QUICK.isdisjoint(kinds) else 1
