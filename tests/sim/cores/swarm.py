"""What a seed's run is like: the cluster, the weather, and a random subset of faults at random rates.

Every seed leaves some faults out: many bugs need a fault to be absent as much as another to be there.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.sim.cluster.swarm import INTERVAL_MS as OF_CLUSTERS
from tests.sim.cluster.swarm import Fault
from tests.sim.cores.network import Weather

INTERVAL_MS = {**OF_CLUSTERS, Fault.STRANGER: 100}  # the mean between two of a kind, at the rate 1

_CHANCE = {
    Fault.AMBUSH: 0.75,
    Fault.JOIN: 0.15,
    Fault.DRAIN: 0.15,
    Fault.REMOVE: 0.15,
    Fault.FORCE: 0.15,
    Fault.BIT: 0.3,
    Fault.UNHEARD: 0.2,
}
_SINCE = {  # the seeds from which on there is a fault: those below it keep their runs
    Fault.DEAF: 1_000_000,
    Fault.STALL: 1_000_000,
    Fault.UNHEARD: 1_000_000,
    Fault.STRANGER: 2_000_000,
    Fault.LIAR: 2_000_000,
}
_UNTIL = {Fault.UNHEARD: 2_000_000, Fault.RESET: 0}  # and from which on there is none any more: nothing here has connections
_CALM = {Fault.UNHEARD, Fault.CLOCK, Fault.MOVE, Fault.DEAF, Fault.STALL}
_FOR_ONE = {Fault.CRASH, Fault.CRASH_ALL, Fault.PAUSE, Fault.CLOCK, Fault.STORE_OUT, Fault.DEAF, Fault.STALL, Fault.STRANGER}
_LESS_COPIES = {Fault.DISK, Fault.MEMBER, Fault.DRAIN, Fault.REMOVE, Fault.FORCE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """One run's settings; times in milliseconds. `intervals_ms` has the faults of this run alone.

    `chunk_values`: how many values at once a backup is sent that catches up.
    """

    nodes: int
    segments: int
    replicas: int
    writers: int
    readers: int
    faults_ms: int
    intervals_ms: Mapping[Fault, int]
    weather: Weather
    sync_us: int
    think_us: int
    offsets_ms: tuple[int, ...]
    store_unknown: float
    store_delay_us: int
    watch_delay_us: int
    promise_ms: int
    chunk_values: int
    trims: bool
    closes_up: bool


def choose(chance: random.Random, *, seed: int) -> Swarm:
    """Return the settings of the run of a seed."""
    nodes = chance.choices((1, 2, 3, 4, 5), weights=(1, 2, 8, 3, 3))[0]
    there_are = [kind for kind in Fault if _SINCE.get(kind, 0) <= seed < _UNTIL.get(kind, seed + 1)]
    kinds = [kind for kind in there_are if chance.random() < _CHANCE.get(kind, 0.4) and _makes_sense(kind, nodes)]
    if Fault.BIT in kinds:  # else the sound copy might go, and nobody could tell loss from loss
        kinds = [kind for kind in kinds if kind not in _LESS_COPIES]
    if Fault.UNHEARD in kinds:  # sets have to grow while faults still come
        kinds = [kind for kind in kinds if kind in _CALM]
    return Swarm(
        nodes=nodes,
        segments=chance.choice((2, 2, 4, 8)),
        replicas=min(nodes, chance.choice((1, 2, 3, 3, 3, 3, 5))),
        writers=chance.randint(2, 5),
        readers=chance.randint(1, 2),
        faults_ms=12_000 if {Fault.ZOMBIE, Fault.UNHEARD}.intersection(kinds) else chance.choice((4_000, 6_000, 9_000)),
        intervals_ms={kind: int(INTERVAL_MS[kind] * chance.choice((0.4, 1, 2.5))) for kind in kinds},
        weather=_weather(chance),
        sync_us=chance.choice((200, 1_000, 1_000, 20_000, 150_000)),
        think_us=chance.choice((2_000, 20_000, 60_000)),
        offsets_ms=tuple(
            chance.choice((0, chance.randint(-2_000, 2_000), chance.randint(-20_000, 0), chance.randint(0, 20_000))) for _ in range(nodes)
        ),
        store_unknown=chance.choice((0.0, 0.0, 0.02, 0.2, 0.4)),
        store_delay_us=chance.choice((1_000, 1_000, 30_000, 200_000)),
        watch_delay_us=chance.choice((1_000, 5_000, 50_000, 500_000)),
        promise_ms=chance.choice((20, 100, 500)),
        chunk_values=chance.choice((1, 4)),
        trims=chance.random() < 0.3,
        closes_up=chance.random() < 0.5,
    )


def _makes_sense(kind: Fault, nodes: int) -> bool:
    return nodes > 1 or kind in _FOR_ONE


def _weather(chance: random.Random) -> Weather:
    return Weather(
        delay_us=chance.choice((100, 300, 300, 3_000, 30_000)),
        lost=chance.choice((0.0, 0.0, 0.0, 0.01, 0.1)),
        repeated=chance.choice((0.0, 0.0, 0.02, 0.3)),
        slow=chance.choice((0.0, 0.0, 0.01, 0.1)),
        slow_us=chance.choice((50_000, 500_000, 3_000_000)),
        is_ordered=chance.random() < 0.5,
        echoes=chance.choice((0.0, 0.5)),
    )
