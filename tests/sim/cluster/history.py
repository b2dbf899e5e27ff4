"""What happened, as clients, readers and the logs' writers saw it, and what must hold of that, given the logs in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from itertools import pairwise

from eventlog.control.records import LostRange

VIOLATIONS_MAX = 20


@unique
class Fate(StrEnum):
    """What the client knows of an append."""

    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"  # never appended, it was told
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Value:
    """A stored value: ids from `base` to `last`; `sum` is of its bytes. One of cache 0 is the mark of an epoch."""

    base: int
    last: int
    epoch: int
    cache: int
    sum: int


@dataclass(slots=True)
class Append:
    """One event that a client wanted appended, and what it heard of it."""

    segment: int
    fate: Fate = Fate.PENDING
    id: int = 0


@dataclass(slots=True)
class Reader:
    """A reader of all segments: where it is, and what it was given, by id."""

    position: int = 0
    seen: dict[int, int] = field(default_factory=dict)  # id -> token


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs in the end by segment: the primary's, the events that a client reads in them, and the ranges that an operator gave up."""

    final: Mapping[int, Sequence[Value]]
    events: Mapping[int, int]  # id -> token
    lost: Mapping[int, Sequence[LostRange]] = field(default_factory=dict)

    def is_lost(self, segment: int, id_: int) -> bool:
        """Return whether what was at this id may be gone."""
        return any(gone.after < id_ <= gone.upto for gone in self.lost.get(segment, ()))


class History:
    """One run's. `violations` are sentences, at most `VIOLATIONS_MAX` of them."""

    def __init__(self, segments: int) -> None:
        self.appends: dict[int, Append] = {}
        self.readers: list[Reader] = []
        self.violations: list[str] = []
        self.acknowledged = 0
        self.trimmed = 0  # the number of the cache that keeps little; 0: there is none
        self._told: dict[tuple[int, int], str] = {}  # (segment, watermark) -> who first told it
        self._highest: dict[tuple[int, int, int], int] = {}  # (process, segment, epoch) -> watermark
        self._terms: dict[tuple[int, int], int] = {}  # (segment, epoch) -> the process that leads
        self._values: dict[tuple[int, int], Value] = {}  # (segment, base)
        self._issued: dict[int, int] = {}  # base id -> segment
        self._promised: list[dict[int, int]] = [{} for _ in range(segments)]  # watermark -> up to which id nothing was to come behind it

    def violate(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX and what not in self.violations:
            self.violations.append(what)

    # ------------------------------------------------------------ clients

    def invoke(self, token: int, segment: int) -> None:
        self.appends[token] = Append(segment)

    def acknowledge(self, token: int, id_: int) -> None:
        """Note an answer with an id."""
        append = self.appends[token]
        append.fate, append.id = Fate.ACKNOWLEDGED, id_
        self.acknowledged += 1

    def read(self, reader: Reader, id_: int, token: int) -> None:
        """Note the next event that a reader was given."""
        if id_ <= reader.position:
            self.violate(f"a reader was given event {id_} after {reader.position}")
        reader.seen[id_] = token
        reader.position = max(reader.position, id_)

    # ------------------------------------------------------------ nodes

    def lead(self, process: int, segment: int, epoch: int) -> None:
        """Note that a process serves a segment as its primary."""
        holder = self._terms.setdefault((segment, epoch), process)
        if holder != process:
            self.violate(f"processes {holder} and {process} are both primary of segment {segment} in epoch {epoch}")

    def write(self, segment: int, value: Value) -> None:
        """Note what somebody puts into a log: one id is one event, everywhere and for ever."""
        known = self._values.get((segment, value.base))
        if known is None:
            self._values[segment, value.base] = value
            other = self._issued.setdefault(value.base, segment)
            if other != segment:
                self.violate(f"id {value.base} was issued in segments {other} and {segment}")
        elif known != value:
            self.violate(f"id {value.base} of segment {segment} is {known} and {value}")

    def show(self, who: str, process: int, *, segment: int, epoch: int, watermark: int) -> None:
        """Note that a node shows a segment up to `watermark`."""
        key = (process, segment, epoch)
        before = self._highest.get(key, 0)
        if watermark < before:
            self.violate(f"{who} took the watermark of segment {segment} in epoch {epoch} back from {before} to {watermark}")
        self._highest[key] = watermark
        self._told.setdefault((segment, watermark), f"{who} in epoch {epoch}")

    def forget(self, process: int, segment: int) -> None:
        """Note that a process drops its copy of a segment: what it shows of it later begins anew."""
        for key in [key for key in self._highest if key[:2] == (process, segment)]:
            del self._highest[key]

    def promise(self, segment: int, *, after: int, upto: int) -> None:
        """Note that a reader may go on to `upto` behind what ends with `after`: nothing is or will be committed in between."""
        self._promised[segment][after] = max(self._promised[segment].get(after, 0), upto)

    # ------------------------------------------------------------ what must hold

    def check(self, logs: Logs) -> None:
        """Note what does not hold now that everything is over."""
        self._check_order(logs)
        self._check_appends(logs)
        self._check_watermarks(logs)
        self._check_promises(logs)
        self._check_readers(logs)

    def _check_order(self, logs: Logs) -> None:
        for segment, log in logs.final.items():
            for before, after in pairwise(log):
                if after.base <= before.last:
                    self.violate(f"ids of segment {segment} do not rise: {before.last}, then {after.base}")

    def _check_appends(self, logs: Logs) -> None:
        places: dict[int, list[int]] = {}
        for id_, token in logs.events.items():
            places.setdefault(token, []).append(id_)
        for token, append in self.appends.items():
            held = places.get(token, [])
            if append.fate is Fate.ACKNOWLEDGED and append.id not in held and not logs.is_lost(append.segment, append.id):
                self.violate(f"event {token} was acknowledged as {append.id} of segment {append.segment} and is not there")
            if append.fate is Fate.FAILED and held:
                self.violate(f"event {token} failed and is there: {held}")
            if len(held) > 1:
                self.violate(f"event {token} is there {len(held)} times: {held}")
        for token in sorted(set(places) - set(self.appends)):
            self.violate(f"event {token} was never asked for: {places[token]}")

    def _check_watermarks(self, logs: Logs) -> None:
        """What was committed once is committed for ever: each watermark told is the end of a value that is there.

        Marks of terms go once nobody needs them any more, and retention takes events.
        """
        ends = {segment: {value.last for value in log} | {0} for segment, log in logs.final.items()}
        for (segment, _), value in self._values.items():
            if value.cache in (0, self.trimmed):
                ends[segment].add(value.last)
        for (segment, watermark), who in self._told.items():
            if watermark not in ends[segment] and not logs.is_lost(segment, watermark):
                self.violate(f"{who} showed segment {segment} up to {watermark}; no value ends there now")

    def _check_promises(self, logs: Logs) -> None:
        for segment, log in logs.final.items():
            for value in log:
                passed = [upto for after, upto in self._promised[segment].items() if value.cache and after < value.base <= upto]
                if passed:
                    self.violate(f"readers were let pass {max(passed)} of segment {segment}, and then {value.base} came")

    def _check_readers(self, logs: Logs) -> None:
        gone = [one for ranges in logs.lost.values() for one in ranges]
        for number, reader in enumerate(self.readers):
            for id_, token in reader.seen.items():
                if logs.events.get(id_) != token and not any(one.after < id_ <= one.upto for one in gone):
                    self.violate(f"reader {number} saw event {token} at {id_}; there is now {logs.events.get(id_)}")
            missed = [id_ for id_ in logs.events if id_ <= reader.position and id_ not in reader.seen]
            if missed and not all(any(one.after < id_ <= one.upto for one in gone) for id_ in missed):
                self.violate(f"reader {number} is at {reader.position} and never saw {len(missed)} events, the first {min(missed)}")
