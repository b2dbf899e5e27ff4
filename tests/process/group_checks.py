"""What must not be, of what the members of a group saw: see `group_member` for the lines."""

from collections.abc import Iterable
from typing import Any

Line = list[Any]


def read_twice(lines: Iterable[Line]) -> list[str]:
    """Return reads of events that the group had committed before."""
    committed: dict[int, int] = {}
    found = []
    for what, at, *rest in sorted(lines, key=lambda line: line[1]):
        if what == "commit":
            for segment, offset in rest[0].items():
                committed[int(segment)] = max(offset, committed.get(int(segment), 0))
        elif what == "read" and rest[1] < committed.get(rest[0], 0):
            found.append(f"{at}: segment {rest[0]}, offset {rest[1]} is read, committed was {committed[rest[0]]}")
    return found


def gaps(lines: Iterable[Line]) -> list[str]:
    """Return offsets of segments that nobody read, below the highest that somebody did."""
    seen: dict[int, set[int]] = {}
    for what, _, *rest in lines:
        if what == "read":
            seen.setdefault(rest[0], set()).add(rest[1])
    return [
        f"segment {segment}: {sorted(set(range(max(offsets) + 1)) - offsets)}"
        for segment, offsets in seen.items()
        if len(offsets) <= max(offsets)
    ]


def worked_twice(lines: Iterable[Line]) -> list[str]:
    """Return tasks that were handed out although they were acknowledged."""
    acknowledged: set[int] = set()
    found = []
    for what, at, id_, *_ in sorted(lines, key=lambda line: line[1]):
        if what == "ack":
            acknowledged.add(id_)
        elif what == "task" and id_ in acknowledged:
            found.append(f"{at}: task {id_} is handed out after it was acknowledged")
    return found


def out_of_order(lines: Iterable[Line]) -> list[str]:
    """Return tasks that were handed out before an earlier one of their key was done with, or said to be: an end may go unheard."""
    ended: set[int] = set()
    begun: dict[str, int] = {}
    found = []
    for what, at, id_, *rest in sorted(lines, key=lambda line: line[1]):
        if what == "end":
            ended.add(id_)
        elif what == "task":
            before = begun.get(rest[0])
            if before is not None and before < id_ and before not in ended:
                found.append(f"{at}: task {id_} of key {rest[0]} is handed out while {before} is not done")
            begun[rest[0]] = max(id_, before or 0)
    return found
