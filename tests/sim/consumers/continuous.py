"""A reader of a continuous query: of what it is told it makes the entries that match, and nothing else."""

import random
from collections.abc import Callable
from typing import Final

import numpy as np

from eventlog.batch.layout import RUN
from eventlog.batch.views import decode_block
from eventlog.events import Change
from eventlog.ids import ID_STEP
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import NO_LIMIT, Answer, Limits
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_answer
from tests.sim.consumers.log import Log, Written
from tests.sim.consumers.readers import Node, Violate

Told = tuple[int, bytes, int, bytes]  # id, key, change, value
_ALIGNED: Final = 8


def told_in(answer: Answer) -> list[Told]:
    """Return the changes of an answer in order of their ids."""
    told: list[Told] = []
    data = memoryview(b"".join(bytes(piece) for piece in answer.body))
    for part in answer.parts:
        own, data = data[: part.length], data[part.length :]
        runs = np.frombuffer(own[: part.runs * RUN.itemsize], RUN)
        rest = own[runs.nbytes :]
        changes = np.frombuffer(rest[: part.events], np.uint8).tolist()
        block = decode_block(rest[part.events + -part.events % _ALIGNED :])
        ids = [int(run["base"]) + rank * ID_STEP for run in runs for rank in range(int(run["count"]))]
        told += zip(ids, block.keys.to_list(), changes, block.values.to_list(), strict=True)
    return sorted(told)


class QueryReader:
    """Begins with the first event, where nothing matches; keeps its place with what it has made, and goes on from there."""

    def __init__(
        self, log: Log, matches: CompiledFilter, *, wanted: Callable[[Written], bool], chance: random.Random, violate: Violate
    ) -> None:
        self._log = log
        self._matches = matches
        self._wanted = wanted
        self._chance = chance
        self._violate = violate
        self._position = 0
        self._entries: dict[bytes, bytes] = {}
        self._kept: tuple[int, dict[bytes, bytes]] = (0, {})

    def poll(self, node: Node) -> None:
        """Ask a node what has changed."""
        top = node.copy.applied
        if top <= self._position:
            return
        limits = Limits(events=self._chance.choice((1, 3, NO_LIMIT)))
        cursor = Cursor.at_id(self._log.segments, self._position, asked=None)
        answer = filter_answer(node.copy.values(), cursor=cursor, top=top, limits=limits, matches=self._matches)
        for told in told_in(answer):
            self._apply(*told)
        self._position = answer.upto
        self._check()
        if self._chance.random() < 0.3:
            self._kept = self._position, dict(self._entries)

    def restart(self) -> None:
        """Go on from what was kept last."""
        self._position, self._entries = self._kept[0], dict(self._kept[1])

    def _apply(self, id_: int, key: bytes, change: int, value: bytes) -> None:
        if (change == Change.JOINED) == (key in self._entries):
            self._violate(f"a query {self._matches.spec.where!r} was told {Change(change).name} of {key!r} at {id_} at the wrong time")
        if change == Change.LEFT:
            self._entries.pop(key, None)
        else:
            self._entries[key] = value

    def _check(self) -> None:
        latest = {event.key: event for event in self._log.events(upto=self._position)}
        wanted = {key: event.value for key, event in latest.items() if event.number is not None and self._wanted(event)}
        if self._entries != wanted:
            wrong = sorted(key for key in {*self._entries, *wanted} if self._entries.get(key) != wanted.get(key))
            self._violate(
                f"a query {self._matches.spec.where!r} is at {self._position}, and {len(wrong)} keys differ, the first {wrong[0]!r}"
            )

    def check_end(self) -> None:
        """Check that it has come to the end."""
        end = self._log.stored[-1].events[-1].id if self._log.stored else 0
        if self._position != end:
            self._violate(f"a query stands at {self._position}, the log ends at {end}")
