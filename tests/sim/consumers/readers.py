"""A reader with a filter, and one of the state and then the tail, each as a client is: what it keeps is its position."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from eventlog.batch.entries import StatePart, read_state_part
from eventlog.batch.layout import RUN
from eventlog.batch.views import decode_block
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.node.state.state_reads import StateScan, scan
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import NO_LIMIT, Answer, Limits
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_answer
from eventlog.read.position import Position, SegmentPositions
from eventlog.read.state import Overlap, StateProgress, tail_of, with_steps
from eventlog.read.token import decode, encode
from eventlog.segment.port import Snapshot
from tests.sim.consumers.log import CACHE, Copy, Log, Written

_CLUSTER: Final = "c" * 16
_ENTRIES_MAX: Final = (1, 2, 5)
Violate = Callable[[str], None]
Row = tuple[int, int, bytes, int, bytes]  # segment, id, key, kind, value


@dataclass(slots=True)
class Node:
    """A copy, and the moments of its state that readers hold on to, by the id that they are of."""

    copy: Copy
    pins: dict[int, Snapshot] = field(default_factory=dict)

    def pin(self, id_: int) -> tuple[int, Snapshot] | None:
        """Return the moment that is asked for, or one of now if it was lost; None where this node is not there yet."""
        if id_ and id_ in self.pins:
            return id_, self.pins[id_]
        if self.copy.applied < id_ or not self.copy.applied:
            return None
        return self.copy.applied, self.pins.setdefault(self.copy.applied, self.copy.store.snapshot())

    def forget(self) -> None:
        """Lose all pins, as a restart does."""
        self.pins.clear()


def rows_of(answer: Answer) -> list[Row]:
    """Return the events of an answer in order of their ids."""
    rows: list[Row] = []
    data = memoryview(b"".join(bytes(piece) for piece in answer.body))
    for part in answer.parts:
        own, data = data[: part.length], data[part.length :]
        runs = np.frombuffer(own[: part.runs * RUN.itemsize], RUN)
        block = decode_block(own[runs.nbytes :])
        places = [(int(run["segment"]), int(run["base"]) + rank * ID_STEP) for run in runs for rank in range(int(run["count"]))]
        columns = zip(places, block.keys.to_list(), block.kinds.tolist(), block.values.to_list(), strict=True)
        rows += [(segment, id_, key, kind, value) for (segment, id_), key, kind, value in columns]
    return sorted(rows, key=lambda row: row[1])


def as_rows(events: Sequence[Written]) -> list[Row]:
    return [(event.segment, event.id, event.key, int(event.kind), event.value) for event in events]


class FilteredReader:
    """Reads what matches, in order of ids, and keeps where it is; it may go on from an older place that it had kept."""

    def __init__(
        self, log: Log, matches: CompiledFilter, *, wanted: Callable[[Written], bool], chance: random.Random, violate: Violate
    ) -> None:
        self._log = log
        self._matches = matches
        self._wanted = wanted
        self._chance = chance
        self._violate = violate
        self._position = self._kept = 0
        self._seen: list[Row] = []

    def poll(self, node: Node) -> None:
        """Ask a node for what follows; it answers up to where it is."""
        top = node.copy.applied
        if top <= self._position:
            return
        chance = self._chance
        limits = Limits(events=chance.choice((1, 2, 5, NO_LIMIT)), nbytes=chance.choice((1, 60, NO_LIMIT)))
        cursor = Cursor.at_id(self._log.segments, self._position, asked=None)
        answer = filter_answer(node.copy.values(), cursor=cursor, top=top, limits=limits, matches=self._matches)
        if not self._position < answer.upto <= top:
            self._violate(f"a reader at {self._position} was told to go on at {answer.upto}, the node is at {top}")
        self._seen += rows_of(answer)
        self._position = answer.upto
        self._check()
        if chance.random() < 0.3:
            self._kept = self._position

    def restart(self) -> None:
        """Go on from the place that was kept last; what was seen after it is forgotten."""
        self._position = self._kept
        self._seen = [row for row in self._seen if row[1] <= self._kept]

    def _check(self) -> None:
        events = [event for event in self._log.events(upto=self._position) if self._wanted(event)]
        if self._seen != as_rows(events):
            missed = sorted(set(as_rows(events)) - set(self._seen))
            what = (
                f"never saw {len(missed)} that match, the first {missed[0][1]}" if missed else "saw what does not match, or something twice"
            )
            self._violate(f"a reader with the filter {self._matches.spec.where!r} is at {self._position} and {what}")

    def check_end(self) -> None:
        """Check that it has come to the end."""
        end = self._log.stored[-1].events[-1].id if self._log.stored else 0
        if self._position != end:
            self._violate(f"a reader with a filter stands at {self._position}, the log ends at {end}")


class StateReader:
    """Reads the state in pieces, then the tail; what it keeps between any two is its position, and what it has made of them."""

    def __init__(self, log: Log, everything: CompiledFilter, *, chance: random.Random, violate: Violate) -> None:
        self._log = log
        self._everything = everything
        self._chance = chance
        self._violate = violate
        self.repinned = 0
        self.begin()

    def begin(self) -> None:
        """Begin anew, with nothing."""
        self._progress: StateProgress | None = StateProgress(range(self._log.segments))
        self._position = self._progress.position(cluster=_CLUSTER, cache_id=CACHE, segments=self._log.segments)
        self._entries: dict[bytes, tuple[int, bytes]] = {}
        self._kept = self._position, dict(self._entries)

    def restart(self) -> None:
        """Go on from what was kept last."""
        position, entries = self._kept
        self._position = decode(encode(position))
        self._entries = dict(entries)
        self._progress = StateProgress.of(self._position) if self._position.unread else None

    def step(self, node: Node) -> None:
        """Take the next piece from a node, and keep it now and then."""
        if self._progress is not None:
            self._read(node, self._progress)
        else:
            self._follow(node)
        if self._chance.random() < 0.3:
            self._kept = self._position, dict(self._entries)

    def _read(self, node: Node, progress: StateProgress) -> None:
        wanted = progress.next
        found = node.pin(wanted.pin)
        if found is None:
            return
        pin, snapshot = found
        self.repinned += 0 < wanted.pin < pin
        batch = scan(
            StateScan(
                snapshot=snapshot, cache_id=CACHE, segments=wanted.segments, after=wanted.after, prefix=b"",
                pins=dict.fromkeys(wanted.segments, pin), filter=None, entries_max=self._chance.choice(_ENTRIES_MAX),
                bytes_max=1 << 20, metadata=True,
            )
        )  # fmt: skip
        for part in batch.parts:
            self._take(part)
        progress.took(batch.cursors.values())
        self._position = progress.position(cluster=_CLUSTER, cache_id=CACHE, segments=self._log.segments)
        if progress.is_finished:
            self._progress = None

    def _take(self, part: StatePart) -> None:
        data = memoryview(b"".join(bytes(piece) for piece in part.buffers))
        block = read_state_part(data, entries=part.entries, runs=part.runs)
        keys, values = block.block.keys.to_list(), block.block.values.to_list()
        for key, version, value in zip(keys, block.versions.tolist(), values, strict=True):
            if key in self._entries:
                self._violate(f"entry {key!r} was told twice with the state")
            self._entries[key] = version, value

    def _follow(self, node: Node) -> None:
        position = self._position
        cursor = _cursor(tail_of(position), self._log.segments)
        if node.copy.applied <= cursor.lowest:
            return
        limits = Limits(events=self._chance.choice((1, 3, NO_LIMIT)))
        answer = filter_answer(node.copy.values(), cursor=cursor, top=node.copy.applied, limits=limits, matches=self._everything)
        rows = rows_of(answer)
        overlap = Overlap(position.steps)
        segments, ids = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
        for row, is_new in zip(rows, overlap.keep(segments, ids, [row[2] for row in rows]).tolist(), strict=True):
            if is_new:
                self._apply(row, may_repeat=overlap.may_repeat(row[0], row[2], row[1]))
        cursor.advance(answer.upto, answer.ends)
        self._position = with_steps(cursor.position(cluster=_CLUSTER, cache_id=CACHE), position.steps)

    def _apply(self, row: Row, *, may_repeat: bool) -> None:
        segment, id_, key, kind, value = row
        known = self._entries.get(key, (0, b""))[0]
        if id_ <= known:
            if not may_repeat:
                self._violate(f"event {id_} of {key!r} in segment {segment} was told again: its version {known} is known")
            return
        if kind == Kind.CREATED and known:
            self._violate(f"{key!r} was created at {id_}, and was there already with version {known}")
        if kind != Kind.CREATED and not known:
            self._violate(f"{key!r} was changed at {id_}, and nobody had told of it")
        if kind in {Kind.REMOVED, Kind.EXPIRED}:
            self._entries.pop(key, None)
        else:
            self._entries[key] = id_, value

    def check_end(self) -> None:
        """Check that what was made of state and tail is the state."""
        wanted = {key: (event.id, event.value) for key, event in self._log.state.items()}
        if self._entries != wanted:
            wrong = sorted(key for key in {*self._entries, *wanted} if self._entries.get(key) != wanted.get(key))
            self._violate(f"state and tail together are not the state: {len(wrong)} keys differ, the first {wrong[0]!r}")


def _cursor(position: Position, segments: int) -> Cursor:
    at = position.at
    assert isinstance(at, SegmentPositions), "the tail of a state read goes on by segments"
    return Cursor(segments, at)
