"""What happened, as clients, readers and the logs' writers saw it. What can be judged at once is judged at once.

Nothing here asks a node what it believes: every entry is something that was told to somebody, or written by somebody.
"""

from dataclasses import dataclass

from tests.sim.cluster.history import VIOLATIONS_MAX, Append, Fate, Reader

__all__ = ["Append", "Fate", "History", "Reader", "Value"]


@dataclass(frozen=True, slots=True)
class Value:
    """A stored value: one event a token, their ids one run from `base` to `last`; without tokens it is the mark of an epoch."""

    base: int
    last: int
    epoch: int
    tokens: tuple[int, ...]


class History:
    """One run's. `violations` are sentences, at most `VIOLATIONS_MAX` of them."""

    def __init__(self) -> None:
        self.appends: dict[int, Append] = {}
        self.readers: dict[int, Reader] = {}
        self.violations: list[str] = []
        self.told: dict[tuple[int, int], tuple[int, int]] = {}  # (segment, watermark) -> (node, epoch) that first told it
        self.promises: dict[tuple[int, int, int], int] = {}  # (segment, epoch, last id) -> the highest id promised after it
        self.first_served: dict[int, int] = {}
        self._highest: dict[tuple[int, int, int], int] = {}  # (process, segment, epoch) -> watermark
        self._terms: dict[tuple[int, int], int] = {}  # (segment, epoch) -> the process that leads
        self._values: dict[tuple[int, int], Value] = {}  # (segment, base)
        self._issued: dict[int, int] = {}  # base id -> segment
        self.acknowledged = 0

    def violate(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX and what not in self.violations:
            self.violations.append(what)

    # ------------------------------------------------------------ clients

    def invoke(self, token: int, segment: int) -> None:
        self.appends[token] = Append(segment)

    def acknowledge(self, token: int, id_: int) -> None:
        """Note an answer with an id. One that comes after the client gave up is an answer all the same."""
        append = self.appends[token]
        if append.fate is Fate.ACKNOWLEDGED and append.id != id_:
            self.violate(f"event {token} of segment {append.segment} was acknowledged as {append.id} and as {id_}")
        append.fate, append.id = Fate.ACKNOWLEDGED, id_
        self.acknowledged += 1

    def fail(self, token: int) -> None:
        if self.appends[token].fate is Fate.PENDING:
            self.appends[token].fate = Fate.FAILED

    def lose_track(self, token: int) -> None:
        if self.appends[token].fate is Fate.PENDING:
            self.appends[token].fate = Fate.UNKNOWN

    def read(self, reader: int, *, upto: int, events: list[tuple[int, int]]) -> None:
        """Note an answer: everything after the reader's position up to `upto`, as (id, token) in order of ids."""
        known = self.readers.setdefault(reader, Reader())
        last = known.position
        for id_, token in events:
            if not last < id_ <= upto:
                self.violate(f"reader {reader} was given event {id_} after {last}, in an answer up to {upto}")
            known.seen[id_] = token
            last = id_
        known.position = max(known.position, upto)

    # ------------------------------------------------------------ nodes

    def lead(self, process: int, segment: int, epoch: int) -> None:
        """Note that a process acts as primary: it appends, answers or promises under `epoch`."""
        holder = self._terms.setdefault((segment, epoch), process)
        if holder != process:
            self.violate(f"processes {holder} and {process} are both primary of segment {segment} in epoch {epoch}")

    def write(self, segment: int, value: Value) -> None:
        """Note what somebody puts into a log: one id is one event, everywhere and for ever."""
        known = self._values.setdefault((segment, value.base), value)
        if known != value:
            self.violate(f"id {value.base} of segment {segment} is {known} and {value}")
        other = self._issued.setdefault(value.base, segment)
        if other != segment:
            self.violate(f"id {value.base} was issued in segments {other} and {segment}")

    def show(self, node: int, process: int, *, segment: int, epoch: int, watermark: int) -> None:
        """Note that a node shows a segment up to `watermark`."""
        key = (process, segment, epoch)
        before = self._highest.get(key, 0)
        if watermark < before:
            self.violate(f"node {node} took the watermark of segment {segment} in epoch {epoch} back from {before} to {watermark}")
        self._highest[key] = watermark
        self.told.setdefault((segment, watermark), (node, epoch))

    def forget(self, process: int, segments: list[int]) -> None:
        """Note that a process drops its copies of segments: what it shows of them later begins anew."""
        for key in [key for key in self._highest if key[0] == process and key[1] in segments]:
            del self._highest[key]

    def promise(self, segment: int, epoch: int, *, id_: int, last_id: int) -> None:
        """Note a promise: nothing of `segment` in `(last_id, id_]` is or will be committed."""
        key = (segment, epoch, last_id)
        if id_ > self.promises.get(key, -1):
            self.promises[key] = id_
