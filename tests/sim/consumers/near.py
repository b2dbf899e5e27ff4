"""One run of a near cache: the product's table at a client, and the product's interest at nodes that look for the keys in the log.

Reads are answered late and in any order, nodes lag, watches break and go on at another node from the place that the table has. What
is served must have been true within the last `_STALENESS_S`; what the client itself wrote is never hidden by something older.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from eventlog.client.near.table import MISS, Fill, NearTable, Read
from eventlog.hashing import hash_key
from eventlog.read.near import Interest

_KEYS: Final = tuple(f"key{number}".encode() for number in range(6))
_NODES: Final = 2
_STEPS: Final = 500
_STALENESS_S: Final = 1.0
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    id: int
    key: bytes
    at: float


@dataclass(slots=True, kw_only=True)
class _Watch:
    """What a node looks for, from `at` on; `said` is on its way to the client. `aims` are probes: (number of events, asked at)."""

    node: int
    at: int
    interest: Interest
    said: deque[Callable[[], None]] = field(default_factory=deque)
    aims: deque[tuple[int, float]] = field(default_factory=deque)
    is_asked: bool = False


class NearRun:
    """`run` plays it; afterwards `violations` has what must not be, and `reached` what was. Ids count events from 1."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.violations: list[str] = []
        self.reached: Counter[str] = Counter()
        self._log = [_Written(id=1, key=b"", at=0.0)]  # a clock that nobody has heard of is 0: nothing is confirmed there
        self._applied = [1] * _NODES
        self._now = 0.0
        self._table = NearTable(entries_max=self._chance.choice((3, 100)), bytes_max=1 << 30, staleness_s=_STALENESS_S)
        self._reads: list[tuple[bytes, Fill | None, int]] = []
        self._own: dict[bytes, int] = {}
        self._watch: _Watch | None = None

    # ------------------------------------------------------------ steps

    def run(self) -> None:
        """Play all steps."""
        acts: dict[str, tuple[int, Callable[[], None]]] = {
            "write": (15, self._write_other),
            "own write": (4, self._write_own),
            "follow": (25, self._follow),
            "time passes": (15, self._wait),
            "get": (40, self._get),
            "read answered": (25, self._answer),
            "looked": (25, self._look),
            "heard": (40, self._hear),
            "keys told": (15, self._tell),
            "probe": (15, self._probe),
            "watch lost": (4, self._lose),
        }
        for name in self._chance.choices(list(acts), weights=[weight for weight, _ in acts.values()], k=_STEPS):
            if self._watch is None:
                self._open()
            self.reached[name] += 1
            acts[name][1]()
        self.reached["served from memory"] += self._table.statistics().hits

    def _write(self, key: bytes) -> int:
        self._log.append(_Written(id=len(self._log) + 1, key=key, at=self._now))
        return len(self._log)

    def _write_other(self) -> None:
        self._write(self._chance.choice(_KEYS))

    def _write_own(self) -> None:
        key = self._chance.choice(_KEYS)
        id_ = self._own[key] = self._write(key)
        self._table.wrote(hash_key(key), id_)

    def _follow(self) -> None:
        node = self._chance.randrange(_NODES)
        self._applied[node] = self._chance.randint(self._applied[node], len(self._log))

    def _wait(self) -> None:
        self._now += self._chance.choice((0.001, 0.05, 0.3))

    # ------------------------------------------------------------ reading

    def _get(self) -> None:
        key = self._chance.choice(_KEYS)
        found = self._table.find(key, self._now)
        if found is not MISS:
            self._judge(key, found)
            return
        fill = self._table.begin(key, hash_key(key), nbytes=len(key))
        self._reads.append((key, fill, len(self._log)))  # the primary reads now, and answers whenever it does

    def _answer(self) -> None:
        if not self._reads:
            return
        key, fill, as_of = self._reads.pop(self._chance.randrange(len(self._reads)))
        if fill is not None:
            self._table.end(fill, Read(entry=self._version(key, as_of), as_of=as_of, until=_NEVER, nbytes=10))

    def _version(self, key: bytes, upto: int) -> int:
        return max((event.id for event in self._log[:upto] if event.key == key), default=0)

    def _judge(self, key: bytes, version: int) -> None:
        old = max((event.id for event in self._log if event.key == key and event.at <= self._now - _STALENESS_S), default=0)
        if version < old:
            self._violate(f"{key!r} was served as written at {version}, and was written at {old} more than {_STALENESS_S} s ago")
        if version < self._own.get(key, 0):
            self._violate(f"{key!r} was served as written at {version}, after the client itself had written it at {self._own[key]}")

    def _violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    # ------------------------------------------------------------ the watch

    def _open(self) -> None:
        """Watch at a node, from where the table is; at the end of its log when it has been nowhere yet."""
        node = self._chance.randrange(_NODES)
        at = self._table.upto or self._applied[node]
        watch = self._watch = _Watch(node=node, at=at, interest=Interest(_digests(self._table.opening())))

        def opened() -> None:
            self._table.advance(at)
            self._table.registered(at)

        watch.said.append(opened)

    def _look(self) -> None:
        """Have the node look at some more of the log, and say what concerns the client."""
        watch = self._watch
        if watch is None or self._applied[watch.node] <= watch.at:
            return
        upto = self._chance.randint(watch.at + 1, self._applied[watch.node])
        events = self._log[watch.at : upto]
        found = watch.interest.matches(_digests([hash_key(event.key) for event in events]), np.array([event.id for event in events]))
        watch.at = upto
        if found:
            watch.said.append(lambda: self._table.advance(upto, digests=list(found), ids=list(found.values())))
        self._reach(watch)

    def _reach(self, watch: _Watch) -> None:
        """Answer the probes before which everything that was there has been looked at."""
        while watch.aims and watch.aims[0][0] <= watch.at:
            _, asked_at = watch.aims.popleft()
            upto = watch.at

            def confirm(upto: int = upto, asked_at: float = asked_at) -> None:
                self._table.advance(upto)
                self._table.confirm(asked_at)

            watch.said.append(confirm)

    def _hear(self) -> None:
        if self._watch is not None and self._watch.said:
            self._watch.said.popleft()()

    def _tell(self) -> None:
        """Tell the node of other keys; one request at a time, and not before it has said where it begins."""
        watch = self._watch
        if watch is None or watch.is_asked or not self._table.has_changes or self._is_opening(watch):
            return
        watch.is_asked = True
        added, removed = self._table.changes()
        watch.interest.change(added=_digests(added), removed=_digests(removed))
        after = watch.at

        def answered() -> None:
            watch.is_asked = False
            self._table.registered(after)

        watch.said.append(answered)

    def _is_opening(self, watch: _Watch) -> bool:
        return bool(watch.said) and watch.said[0].__name__ == "opened"

    def _probe(self) -> None:
        if self._watch is not None:
            self._watch.aims.append((len(self._log), self._now))
            self._reach(self._watch)

    def _lose(self) -> None:
        """Lose the watch, and what was on its way; another is opened with the next step."""
        self._table.close()
        self._watch = None


def _digests(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(numbers, np.uint64)
