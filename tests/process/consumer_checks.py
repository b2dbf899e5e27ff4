"""What must hold of what the consumers of `every_consumer` wrote down, against the log that is left at the end."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.process.every_consumer import KINDS, STALENESS_MS, STATIC, Line, read_lines
from tests.process.group_checks import gaps, out_of_order, read_twice, worked_twice
from tests.process.near_reader import Read, Write, too_old


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An event of the log; `n` and `was` are what queries ask for, None where there is no value."""

    id: int
    key: str
    n: int | None
    was: int | None

    @property
    def change(self) -> str | None:
        """What it is to a query of `n > 10`."""
        new, old = (self.n or 0) > 10, (self.was or 0) > 10
        return "UPDATED" if new and old else "JOINED" if new else "LEFT" if old else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What happened: the whole log in the order of ids, and the acknowledged writes."""

    log: Sequence[Logged]
    acknowledged: frozenset[int]
    near_writes: Sequence[Write]

    @property
    def last_id(self) -> int:
        """The last acknowledged id."""
        return max(self.acknowledged)


class Kept:
    """The files of the consumers of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def lines(self, kind: str) -> list[Line]:
        """Return what one has written down."""
        return read_lines(self._directory / f"{kind}.jsonl")

    def several(self, *kinds: str) -> list[list[Any]]:
        """Return the lines of the members of a group."""
        return [line["line"] for kind in kinds for line in self.lines(kind) if "line" in line]

    def progress(self) -> dict[str, int]:
        """Return how much each has seen; what members of a group saw counts for both."""
        found = {kind: sum(len(line.keys() - {"error", "held", "begin"}) > 0 for line in self.lines(kind)) for kind in KINDS}
        for one, two in (("group-1", "group-2"), ("work-1", "work-2")):
            found[one] = found[two] = found[one] + found[two]
        return found

    # ------------------------------------------------------------ judged when all have come to the end

    def is_at_end(self, truth: Truth) -> dict[str, bool]:
        """Return who has got everything that was acknowledged; of those that never end, everybody."""
        of = {
            "query": lambda: self._last("query", "row", 0) >= max(one.id for one in truth.log if one.change),
            "listener": lambda: truth.acknowledged <= self._listened(),
            "group-1": lambda: truth.acknowledged <= {line[4] for line in self.several("group-1", "group-2") if line[0] == "read"},
            "work-1": lambda: truth.acknowledged.intersection(wanted) <= self._worked("end"),
        }
        wanted = [one.id for one in truth.log if (one.n or 0) > 10]
        found = {kind: ask() for kind, ask in of.items()}
        return found | {kind: self._ids(kind)[-1:] >= wanted[-1:] for kind in ("filtered", "filtered-gateway")}

    def _last(self, kind: str, name: str, column: int) -> int:
        return next((int(line[name][column]) for line in reversed(self.lines(kind)) if name in line), 0)

    def _listened(self) -> set[int]:
        return {line["id"] for line in self.lines("listener") if "id" in line}

    def _worked(self, what: str) -> set[int]:
        return {line[2] for line in self.several("work-1", "work-2") if line[0] == what}

    def _ids(self, kind: str) -> list[int]:
        return [id_ for line in self.lines(kind) for id_ in line.get("ids", ())]

    def violations(self, truth: Truth) -> dict[str, list[str]]:
        """Return what must not be, by kind."""
        judges: dict[str, Callable[[], Iterable[str]]] = {
            "filtered": lambda: self._differs(self._ids("filtered"), [one.id for one in truth.log if (one.n or 0) > 10]),
            "filtered-gateway": lambda: self._differs(self._ids("filtered-gateway"), [one.id for one in truth.log if (one.n or 0) > 10]),
            "query": lambda: self._query(truth),
            "listener": self._listener,
            "group": lambda: (*gaps(self.several("group-1", "group-2")), *read_twice(self.several("group-1", "group-2"))),
            "work": lambda: (
                *self._unasked(truth),
                *worked_twice(self.several("work-1", "work-2")),
                *out_of_order(self.several("work-1", "work-2")),
            ),
            "near": lambda: self._near(truth),
            "tasks": lambda: self._counts("tasks"),
            "state": lambda: self._state("state", truth),
            "state-gateway": lambda: self._state("state-gateway", truth),
            "iteration": lambda: self._counts("iteration"),
            "iteration-gateway": lambda: self._counts("iteration-gateway"),
        }
        found = {kind: [*judge()][:5] for kind, judge in judges.items()}
        return {kind: what for kind, what in found.items() if what}

    def _unasked(self, truth: Truth) -> Iterable[str]:
        wanted = {one.id for one in truth.log if (one.n or 0) > 10}
        yield from (f"task {id_} does not match" for id_ in self._worked("task") - wanted)

    @staticmethod
    def _differs(seen: Sequence[Any], expected: Sequence[Any]) -> Iterable[str]:
        if list(seen[: len(expected)]) != list(expected):
            at = next(
                (row for row, (one, two) in enumerate(zip(seen, expected, strict=False)) if one != two), min(len(seen), len(expected))
            )
            yield f"of {len(expected)}, {len(seen)} came, otherwise from the {at}th on: {seen[at : at + 3]} and not {expected[at : at + 3]}"

    def _query(self, truth: Truth) -> Iterable[str]:
        """Per key: an entry of the beginning, if it was in the set then, and all changes after it; in the order of ids."""
        told: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
        last_id = 0
        for id_, change, key, is_initial in (line["row"] for line in self.lines("query") if "row" in line):
            told[key].append((id_, change))
            if not is_initial and id_ <= last_id:
                yield f"{id_} of {key} came behind {last_id}"
            last_id = last_id if is_initial else id_
        changes: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
        for one in truth.log:
            if one.change:
                changes[one.key].append((one.id, one.change))
        for key, expected in changes.items():
            seen = told[key]
            if not seen and expected[-1][1] == "LEFT":
                continue  # before the beginning
            first = [(id_, "JOINED") for id_, _ in expected[-len(seen) :][:1]]  # of the beginning, or really
            if seen != expected[-len(seen) :] and seen != [*first, *expected[-len(seen) :][1:]]:
                yield f"of {key} came {seen[:3]} ... {seen[-3:]}, not the end of {expected}"

    def _listener(self) -> Iterable[str]:
        last_id = 0
        for line in self.lines("listener"):
            if "begin" in line:
                last_id = 0
            elif "id" in line:
                if line["id"] <= last_id:
                    yield f"{line['id']} came behind {last_id}"
                last_id = line["id"]

    def _near(self, truth: Truth) -> Iterable[str]:
        rows = [row for line in self.lines("near") for row in line.get("reads", ())]
        reads = [Read(key=row[0], number=row[1], began=row[2], ended=row[3], is_hit=row[4]) for row in rows]
        yield from too_old(truth.near_writes, reads, staleness_s=STALENESS_MS / 1000)
        yield from (f"it forgot everything {line['resets']} times" for line in self.lines("near") if line.get("resets"))
        if not any(read.is_hit for read in reads):
            yield "nothing was served from memory"

    def _counts(self, kind: str) -> Iterable[str]:
        for line in self.lines(kind):
            if line.get("static", STATIC) != STATIC or line.get("twice", 0) or line.get("totals", STATIC) != STATIC:
                yield str(line)

    def _state(self, kind: str, truth: Truth) -> Iterable[str]:
        rounds: dict[int, list[Line]] = defaultdict(list)
        for line in self.lines(kind):
            if "rows" in line:
                rounds[line["round"]].append(line)
        for number, lines in sorted(rounds.items())[:-1]:  # the last one was in the middle of it
            for problem in _round(lines, truth):
                yield f"round {number}: {problem}"


def _round(lines: Sequence[Line], truth: Truth) -> Iterable[str]:
    """What was seen of each key is the end of what happened to it; what was never seen was gone when the state was read."""
    upto = max((line["upto"] for line in lines), default=0)
    seen: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        for key, id_, _ in line["rows"]:
            seen[key].append(id_)
    log: dict[str, list[int]] = defaultdict(list)
    for one in truth.log:
        log[one.key].append(one.id)
    for key, ids in seen.items():
        happened = [id_ for id_ in log[key] if id_ <= max(upto, ids[0])]  # the entry may be of a moment that the tail has not reached
        if ids != happened[-len(ids) :]:
            yield f"of {key} came {ids}, not the end of {happened}"
    yield from (f"{key} never came" for key in log if key not in seen and not key.startswith("r"))
