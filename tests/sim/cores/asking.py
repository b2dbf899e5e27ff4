"""Runs of a cluster whose nodes ask all primaries: a clear, the cut of a retention beside holds, a list, a probe; and what may be answered.

An event that is committed stands for an entry, for a listener that holds what comes after it (one in five), and for a row of a list.
Nothing is removed: an answer is judged by what it has seen. A near cache's probe is answered with an id, up to which its node then looks.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from eventlog.errors import EventLogError
from eventlog.wire.eventlog_pb2 import CountAfter, Message
from tests.sim.cores.checks import Logs
from tests.sim.cores.cluster import Cluster
from tests.sim.cores.history import Fate
from tests.sim.cores.node import Node
from tests.sim.cores.swarm import choose
from tests.sim.cores.world import Trace

_QUESTION: Final = Message(count_after=CountAfter())
_TIMEOUT_MS: Final = 2_000
_EACH_US: Final = 45_000
_HOLDS_ONE_IN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed."""

    violations: tuple[str, ...]
    errors: tuple[str, ...]
    reached: Counter[str]


class Asking:
    """Has nodes ask, and judges their answers by what clients had been told before and what they were told later."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._chance = chance
        self._told: dict[int, int] = {}  # acknowledged events, each with a number that only what was asked for later exceeds
        self._released: dict[int, int] = {}  # listeners that hold nothing any more, in their order
        self._cuts: list[tuple[int, int]] = []  # ids, and how many had been released then
        self._doubts: list[tuple[str, int]] = []  # sentences, and the events that they are about
        self._acknowledge = self._world.history.acknowledge
        self._world.history.acknowledge = self._note  # type: ignore[method-assign]  # to hear of it as it happens

    def start(self) -> None:
        self._world.scheduler.after(int(_EACH_US * (0.5 + self._chance.random())), self._ask)

    def _note(self, token: int, id_: int) -> None:
        self._acknowledge(token, id_)
        self._told.setdefault(token, self._world.number())

    def _ask(self) -> None:
        node = self._cluster.hosts[self._chance.choice(sorted(self._cluster.hosts))].node
        act: Callable[[Node], Awaitable[None]] = self._chance.choice((self._clear, self._cut, self._list, self._probe))
        if node is not None and node.state is not None:
            loop, asking = node.state.loop, node
            node.process.run(lambda: loop.start(self._tried(act, asking)))
        self.start()

    async def _tried(self, act: Callable[[Node], Awaitable[None]], node: Node) -> None:
        try:
            await act(node)
        except EventLogError as error:
            self._world.reached[f"question refused: {error.code}"] += 1

    # ------------------------------------------------------------ what is asked

    async def _clear(self, node: Node) -> None:
        before = set(self._told)
        answers = await node.questions.primaries.ask(_QUESTION, node.questions.committed, timeout_ms=_TIMEOUT_MS)
        left = before.difference(*(one.count_after_answer.events for one in answers))
        self._world.reached["cleared"] += 1
        self._doubts += [(f"a clear at node {node.questions.number} left event {token}, which was there before", token) for token in left]

    async def _cut(self, node: Node) -> None:
        assert node.state is not None, "it asks"
        for token in self._told:
            if _holds(token) and token not in self._released and self._chance.random() < 0.2:
                self._released[token] = len(self._released)
        committed = node.state.low.limit()
        answers = await node.questions.primaries.ask(_QUESTION, node.questions.committed, timeout_ms=_TIMEOUT_MS)
        seen = [pair for one in answers for pair in zip(one.count_after_answer.events, one.count_after_answer.bytes, strict=True)]
        holds = [id_ for token, id_ in seen if _holds(token) and token not in self._released]
        self._cuts.append((min([committed, *holds]), len(self._released)))
        self._world.reached["cut by a hold" if min(holds, default=committed) < committed else "cut by what is committed"] += 1

    async def _list(self, node: Node) -> None:
        questions = node.questions
        answers = await questions.primaries.ask_as_of_one_moment(
            _QUESTION,
            questions.committed,
            changes=lambda one: len(one.count_after_answer.events),
            timeout_ms=_TIMEOUT_MS,
        )
        listed = {token for one in answers for token in one.count_after_answer.events}
        newest = max(listed, default=0)
        self._world.reached["listed"] += 1
        for token, number in self._told.items():
            if token not in listed and number < newest:
                self._doubts.append((f"a list has {newest}, which was asked for when {token} was there, and not {token}", token))

    async def _probe(self, node: Node) -> None:
        before = set(self._told)
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        node.questions.near.end(future.set_result)
        target = await future
        if target is None:
            self._world.reached["probe not answered"] += 1
            return
        self._world.reached["probe answered"] += 1
        appends = self._world.history.appends
        self._doubts += [
            (f"a probe at node {node.questions.number} looks up to {target}; {appends[token].id} was acknowledged before", token)
            for token in before
            if appends[token].id > target
        ]

    # ------------------------------------------------------------ what is judged

    def judge(self, logs: Logs) -> list[str]:
        """Return what must not be. What a forced takeover gave up may be missing."""
        appends = self._world.history.appends
        kept = {
            token: append.id
            for token, append in appends.items()
            if append.fate is Fate.ACKNOWLEDGED and not logs.is_lost(append.segment, append.id)
        }
        found = [sentence for sentence, token in self._doubts if token in kept]
        holds = [(token, id_) for token, id_ in kept.items() if _holds(token)]
        for cut, released in self._cuts:
            found += [
                f"a cut at {cut} removed what listener {token} held from {id_} on"
                for token, id_ in holds
                if id_ < cut and self._released.get(token, released) >= released
            ]
        return found


def _holds(token: int) -> bool:
    return token % _HOLDS_ONE_IN == 0


def run_questions(seed: int) -> Outcome:
    """Run a cluster on a seed while its nodes ask all primaries, and judge what they were answered."""
    chance = random.Random(seed)
    cluster = Cluster(choose(chance, seed=seed), chance=chance, trace=Trace())
    asking = Asking(cluster, random.Random(seed + 1))
    cluster.world.scheduler.after(400_000, asking.start)
    cluster.run()
    violations = asking.judge(cluster.logs())
    return Outcome(violations=tuple(violations), errors=tuple(cluster.world.errors), reached=cluster.world.reached)
