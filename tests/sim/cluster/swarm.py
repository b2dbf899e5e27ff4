"""What a seed's run is like: the cluster, the weather, and a random subset of faults at random rates.

Every seed leaves some faults out: many bugs need a fault to be absent as much as another to be there.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Fault(StrEnum):
    """What can be made to happen during the first phase."""

    CRASH = "crash"  # all that was not synced is lost; back after a while
    CRASH_PRIMARY = "crash primary"  # of some segment, and perhaps its successor right after it
    CRASH_ALL = "crash all"
    PAUSE = "pause"
    PAUSE_PRIMARY = "pause primary"
    CUT = "cut"  # both ways, some hosts from the others
    CUT_ONE_WAY = "cut one way"
    CLOCK = "clock"  # the wall clock jumps
    DISK = "disk"  # crash, and the disk is empty afterwards
    STORE_OUT = "metadata store out"
    ZOMBIE = "zombie"  # a primary that hears of no change and reaches no other node, though it works on for longer than its lease
    CHAIN = "chain"  # two appointments in the same moment, once a primary promised more than either may issue
    MOVE = "move"  # the controller appoints another member of the in-sync set, nobody having failed
    MEMBER = "member"  # owners change: one comes, one goes
    JOIN = "join"  # a member that nobody knew, and load is evened out
    DRAIN = "drain"  # a member is emptied; then it is taken back, or removed
    REMOVE = "remove"  # a member is gone for good
    FORCE = "force"  # all that hold what was committed are gone, and an operator gives it up
    BIT = "bit"  # of a stored value on a disk is flipped; never of the last sound copy
    AMBUSH = "ambush"  # right when a log is cut, a set grows or a term begins, the primary or another of the set goes
    DEAF = "deaf"  # a host hears of no change of the metadata for a while; what it asks is answered
    RESET = "reset"  # connections between two hosts break
    STALL = "stall"  # a disk is done with nothing for a while
    STRANGER = "stranger"  # who is no member speaks as one
    LIAR = "lying member"  # a member speaks of what another one leads
    UNHEARD = "unheard"  # a set grows, or was to grow, and its primary cannot know; who joins is parted from it, and leads soon


INTERVAL_MS = {  # the mean between two of a kind, at the rate 1
    Fault.CRASH: 1_500,
    Fault.CRASH_PRIMARY: 2_000,
    Fault.CRASH_ALL: 5_000,
    Fault.PAUSE: 1_500,
    Fault.PAUSE_PRIMARY: 2_000,
    Fault.CUT: 2_000,
    Fault.CUT_ONE_WAY: 1_500,
    Fault.CLOCK: 1_000,
    Fault.DISK: 3_000,
    Fault.STORE_OUT: 4_000,
    Fault.ZOMBIE: 2_500,
    Fault.CHAIN: 2_500,
    Fault.MOVE: 1_000,
    Fault.MEMBER: 2_500,
    Fault.JOIN: 3_000,
    Fault.DRAIN: 3_000,
    Fault.REMOVE: 3_000,
    Fault.FORCE: 2_500,
    Fault.BIT: 400,
    Fault.AMBUSH: 800,
    Fault.DEAF: 1_500,
    Fault.RESET: 500,
    Fault.STALL: 2_000,
    Fault.STRANGER: 400,
    Fault.LIAR: 150,
    Fault.UNHEARD: 2_000,
}


_CHANCE = {
    Fault.AMBUSH: 0.75,
    Fault.JOIN: 0.15,
    Fault.DRAIN: 0.15,
    Fault.REMOVE: 0.15,
    Fault.FORCE: 0.15,
    Fault.BIT: 0.3,
    Fault.UNHEARD: 0.2,
    Fault.STRANGER: 0.2,
    Fault.LIAR: 0.2,
}
_CALM = {Fault.UNHEARD, Fault.CLOCK, Fault.MOVE, Fault.DEAF, Fault.STALL}
_FOR_ONE = {Fault.STRANGER, Fault.CRASH, Fault.CRASH_ALL, Fault.PAUSE, Fault.CLOCK, Fault.STORE_OUT, Fault.DEAF, Fault.STALL}
_LESS_COPIES = {Fault.DISK, Fault.MEMBER, Fault.DRAIN, Fault.REMOVE, Fault.FORCE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """One run's settings; times in milliseconds. `intervals_ms` has the faults of this run alone."""

    nodes: int
    segments: int
    replicas: int
    writers: int
    readers: int
    askers: int
    faults_ms: int
    intervals_ms: Mapping[Fault, int]
    delay_us: int
    us_per_kib: int
    sync_us: int
    think_us: int
    patience_ms: int
    offsets_ms: tuple[int, ...]
    store_unknown: float
    store_delay_us: int
    watch_delay_us: int


def choose(chance: random.Random) -> Swarm:
    """Return the settings of a run."""
    nodes = chance.choices((1, 2, 3, 4, 5), weights=(1, 2, 8, 3, 3))[0]
    kinds = [kind for kind in Fault if chance.random() < _CHANCE.get(kind, 0.3) and _makes_sense(kind, nodes)]
    if Fault.BIT in kinds:  # else the sound copy might go, and nobody could tell loss from loss
        kinds = [kind for kind in kinds if kind not in _LESS_COPIES]
    if Fault.UNHEARD in kinds:  # sets have to grow while faults still come
        kinds = [kind for kind in kinds if kind in _CALM]
    return Swarm(
        nodes=nodes,
        segments=chance.choice((2, 2, 4, 8)),
        replicas=min(nodes, chance.choice((1, 2, 3, 3, 3, 3, 5))),
        writers=chance.randint(2, 5),
        readers=chance.choice((0, 1, 2)),  # where nobody reads, clocks stay apart
        askers=chance.choice((0, 0, 2)),
        faults_ms=chance.choice((8_000, 12_000, 18_000)),
        intervals_ms={kind: int(INTERVAL_MS[kind] * chance.choice((1, 2.5, 6))) for kind in kinds},
        delay_us=chance.choice((100, 300, 300, 3_000, 30_000)),
        us_per_kib=chance.choice((0, 0, 0, 5_000, 20_000)),  # so that it takes a while to catch up
        sync_us=chance.choice((200, 1_000, 1_000, 20_000, 150_000)),
        think_us=chance.choice((20_000, 60_000, 200_000)),
        patience_ms=chance.choice((300, 1_000, 3_000)),
        offsets_ms=tuple(
            chance.choice((0, chance.randint(-2_000, 2_000), chance.randint(-20_000, 0), chance.randint(0, 20_000))) for _ in range(nodes)
        ),
        store_unknown=chance.choice((0.0, 0.0, 0.02, 0.2, 0.4)),
        store_delay_us=chance.choice((1_000, 1_000, 30_000, 200_000)),
        watch_delay_us=chance.choice((1_000, 5_000, 50_000, 500_000)),
    )


def _makes_sense(kind: Fault, nodes: int) -> bool:
    return nodes > 1 or kind in _FOR_ONE
