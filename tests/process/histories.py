"""The history of a workload against the log that is left at the end: linear in its length."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process.stalls import stalled_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One event of the log at the end."""

    id: int
    segment: int
    offset: int
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the writers and readers of `workload.py` saw, and when their process did not run."""

    operations: list[dict[str, Any]]
    readings: list[dict[str, Any]]
    stalls: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> "History":
        """Return the history in a file."""
        return cls(**json.loads(file.read_text()))

    @classmethod
    def of_all(cls, histories: Sequence["History"]) -> "History":
        """Return the histories of several workloads as one."""
        return cls(
            operations=[one for history in histories for one in history.operations],
            readings=[one for history in histories for one in history.readings],
        )

    def acknowledged_between(self, start: float, end: float) -> int:
        """Return how many operations began and were acknowledged within a time."""
        return sum(one["outcome"] == "ok" and start <= one["began"] and one["ended"] <= end for one in self.operations)

    def counts(self) -> Counter[str]:
        """Return how many operations ended how."""
        return Counter(operation["outcome"] for operation in self.operations)

    def hit_by(self, instants: Iterable[float], *, within_s: float = 0.0) -> int:
        """Return how many operations were in flight at one of these instants, or within a time after it."""
        found = sorted(instants)
        return sum(any(one["began"] <= instant + within_s and instant <= one["ended"] for instant in found) for one in self.operations)

    def longest_s(self) -> float:
        """Return how long the slowest operation took, stalls of the machine left out."""
        return max(
            (one["ended"] - one["began"] - stalled_s(one["began"], one["ended"], self.stalls) for one in self.operations), default=0.0
        )

    def errors(self) -> list[str]:
        """Return what operations failed with."""
        return sorted({one["error"] for one in self.operations if one["error"]})


def violations(history: History, log: Sequence[Stored]) -> list[str]:
    """Return what must not be, a sentence each; `log` is everything that a reader from the beginning gets at the end, in its order."""
    return [*_of_log(log), *_of_writes(history, log), *_of_readers(history, log)]


def _of_log(log: Sequence[Stored]) -> list[str]:
    found = []
    ids = [event.id for event in log]
    if ids != sorted(set(ids)):
        found.append("the ids of the log do not rise")
    offsets: dict[int, list[int]] = {}
    for event in log:
        offsets.setdefault(event.segment, []).append(event.offset)
    gaps = [segment for segment, own in offsets.items() if own != list(range(len(own)))]
    if gaps:
        found.append(f"the offsets of segments {gaps[:5]} have gaps or repeat themselves")
    return found


def _of_writes(history: History, log: Sequence[Stored]) -> list[str]:
    times = Counter(event.value for event in log)
    ids = {event.value: event.id for event in log}
    found = []
    for one in history.operations:
        for at, value in enumerate(one["values"]):
            count = times.pop(value, 0)
            if one["outcome"] == "ok" and count != 1:
                found.append(f"{value} was acknowledged and is there {count} times")
            elif one["outcome"] == "ok" and one["ids"] and ids[value] != one["ids"][at]:
                found.append(f"{value} was acknowledged with id {one['ids'][at]} and has {ids[value]}")
            elif one["outcome"] == "none" and count:
                found.append(f"{value} was refused ({one['error']}) and is there")
            elif count > 1:
                found.append(f"{value} of unknown outcome is there {count} times")
    found += [f"{value} is there and nobody wrote it" for value in times]
    return found


def _of_readers(history: History, log: Sequence[Stored]) -> list[str]:
    found = []
    pairs = [(event.id, event.value) for event in log]
    for number, reading in enumerate(history.readings):
        seen = [(id_, value) for id_, value in reading["events"]]
        if seen == pairs[: len(seen)]:
            continue
        at = next((at for at, (one, other) in enumerate(zip(seen, pairs, strict=False)) if one != other), len(pairs))
        there = pairs[at] if at < len(pairs) else None
        found.append(f"reader {number} was shown {seen[at]} as number {at}, where the log has {there}")
    return found
