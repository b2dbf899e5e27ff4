"""An iteration over all entries, served by one node after the other: what the client keeps is a cursor for each open segment."""

import random
from dataclasses import replace
from typing import Final

from eventlog.batch.entries import StatePart, read_state_part
from eventlog.errors import BadMessage
from eventlog.node.state.state_reads import StateScan, scan
from eventlog.query.iterate import IterationProgress
from tests.sim.consumers.log import CACHE, Log
from tests.sim.consumers.readers import Node, Violate

_ENTRIES_MAX: Final = (1, 2, 5)


class Iteration:
    """Iterations one after the other. Each entry that is there all the time is met once, no key twice."""

    def __init__(self, log: Log, *, chance: random.Random, violate: Violate) -> None:
        self._log = log
        self._chance = chance
        self._violate = violate
        self.finished = 0
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        self._progress = IterationProgress(range(self._log.segments))
        self._met: set[bytes] = set()
        self._pins: dict[int, tuple[int, int]] = {}  # the first and the last moment at which a segment was looked at

    def step(self, node: Node) -> None:
        """Take a batch from a node, which knows of the iteration only what it is told now."""
        served = IterationProgress(self._progress.left, self._progress.open.values())
        segments, cursor = served.next
        known = self._progress.open.get(segments[0])
        found = node.pin(known.pin if known else 0)
        if found is None:
            return
        pin, snapshot = found
        batch = scan(
            StateScan(
                snapshot=snapshot, cache_id=CACHE, segments=segments, after=cursor.key if cursor else None, prefix=b"",
                pins=dict.fromkeys(segments, pin), filter=None, entries_max=self._chance.choice(_ENTRIES_MAX),
                bytes_max=1 << 20, metadata=True,
            )
        )  # fmt: skip
        for segment in batch.cursors:
            self._pins[segment] = self._pins.get(segment, (pin, pin))[0], pin
        for part in batch.parts:
            self._meet(part)
        try:
            self._progress.took(replace(one, pin=pin) for one in batch.cursors.values())
        except BadMessage as error:
            self._violate(f"an iteration was handed what it cannot be: {error}")
            self.begin()
        if self._progress.is_finished:
            self._check()
            self.begin()

    def _meet(self, part: StatePart) -> None:
        data = memoryview(b"".join(bytes(piece) for piece in part.buffers))
        for key in read_state_part(data, entries=part.entries, runs=part.runs).block.keys.to_list():
            if key in self._met:
                self._violate(f"entry {key!r} was met twice in one iteration")
            self._met.add(key)

    def _check(self) -> None:
        """Check that whatever was there from the first look at its segment to the last was met."""
        self.finished += 1
        there: set[bytes] = set()
        for event in self._log.events(upto=max((last for _, last in self._pins.values()), default=0)):
            first, last = self._pins.get(event.segment, (0, 0))
            if event.id <= first and event.number is not None:
                there.add(event.key)
            elif event.id <= last and event.number is None:
                there.discard(event.key)
        if missed := sorted(there - self._met):
            self._violate(f"an iteration missed {len(missed)} entries, the first {missed[0]!r}")
