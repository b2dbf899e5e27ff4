"""One run of readers at nodes that lag, restart and forget.

There is one with a filter, one of the state and then the tail, one that iterates over all entries, and one of a continuous query.

Steps are taken at random, one at a time: time plays no part in what these promise.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Final

from eventlog.events import Kind
from eventlog.predicate.compile import compile_filter
from eventlog.predicate.spec import FilterContext, FilterSpec
from tests.sim.consumers.continuous import QueryReader
from tests.sim.consumers.iterating import Iteration
from tests.sim.consumers.log import Copy, Log, Written
from tests.sim.consumers.readers import FilteredReader, Node, StateReader

_STEPS: Final = 600
_NODES: Final = 2
_LAST_STEPS: Final = 400
_CONTEXT: Final = FilterContext(format="json", text_keys=True, before=False)


def _is_third(event: Written) -> bool:
    return event.number == 3


_FILTERS: Final = {
    "value.n = 3": _is_third,
    "value.n >= 2 AND key LIKE 'a%'": lambda event: event.number is not None and event.number >= 2 and event.key.startswith(b"a"),
    "key = 'b3'": lambda event: event.key == b"b3",
    "kind = 'REMOVED'": lambda event: event.kind is Kind.REMOVED,
    "NOT value.n = 1": lambda event: event.number not in (None, 1),
    "": lambda _: True,
}

_QUERIES: Final = ("value.n = 3", "value.n >= 2 AND key LIKE 'a%'", "key = 'b3'")


class ReadingRun:
    """`run` plays it; afterwards `violations` has what must not be, and `reached` what was."""

    def __init__(self, seed: int) -> None:
        chance = self._chance = random.Random(seed)
        self.violations: list[str] = []
        self.reached: Counter[str] = Counter()
        self._log = Log(chance, segments=chance.choice((2, 4)))
        self._nodes = [Node(Copy(self._log)) for _ in range(_NODES)]
        where = chance.choice(sorted(_FILTERS))
        matches = compile_filter(FilterSpec(where=where), _CONTEXT)
        self._filtered = FilteredReader(self._log, matches, wanted=_FILTERS[where], chance=chance, violate=self._violate)
        self._state = StateReader(self._log, compile_filter(FilterSpec(), _CONTEXT), chance=chance, violate=self._violate)

        asked = chance.choice(_QUERIES)
        query = compile_filter(FilterSpec(where=asked, continuous=True), replace(_CONTEXT, before=True))
        self._query = QueryReader(self._log, query, wanted=_FILTERS[asked], chance=chance, violate=self._violate)
        self._iteration = Iteration(self._log, chance=chance, violate=self._violate)

    def _violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def run(self) -> None:
        """Play all steps, then let everybody come to the end, and judge."""
        acts = {
            "write": (30, self._log.write),
            "follow": (30, self._follow),
            "poll": (20, lambda: self._filtered.poll(self._node())),
            "filtered reader restarts": (2, self._filtered.restart),
            "state step": (20, lambda: self._state.step(self._node())),
            "state reader restarts": (3, self._state.restart),
            "state read anew": (1, self._state.begin),
            "pins are lost": (2, self._forget),
            "query": (15, lambda: self._query.poll(self._node())),
            "query restarts": (2, self._query.restart),
            "iteration step": (20, lambda: self._iteration.step(self._node())),
        }
        weights = [weight for weight, _ in acts.values()]
        for name in self._chance.choices(list(acts), weights=weights, k=_STEPS):
            self.reached[name] += 1
            acts[name][1]()
        self.reached["pins changed within a segment"] += self._state.repinned
        self._come_to_the_end()
        self.reached["iterations"] += self._iteration.finished

    def _follow(self) -> None:
        self._node().copy.follow()

    def _forget(self) -> None:
        self._node().forget()

    def _node(self) -> Node:
        return self._chance.choice(self._nodes)

    def _come_to_the_end(self) -> None:
        for node in self._nodes:
            for _ in self._log.stored:
                node.copy.follow()
        for _ in range(_LAST_STEPS):
            self._filtered.poll(self._node())
            self._state.step(self._node())
            self._query.poll(self._node())
        self._filtered.check_end()
        self._state.check_end()
        self._query.check_end()
