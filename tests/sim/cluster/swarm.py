"""What a seed's run is like: the cluster, the weather, and a random subset of faults at random rates.

Every seed leaves some faults out: many bugs need a fault to be absent as much as another to be there. Three of four runs are about
something: what several bugs need to be at hand together is there in each of them, and little else.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Final


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
    ECHO = "echo"  # what a node said to another one comes once more, later
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
    Fault.ECHO: 20,
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
_CALM = frozenset({Fault.UNHEARD, Fault.CLOCK, Fault.MOVE, Fault.DEAF, Fault.STALL})
_FOR_ONE = {Fault.STRANGER, Fault.CRASH, Fault.CRASH_ALL, Fault.PAUSE, Fault.CLOCK, Fault.STORE_OUT, Fault.DEAF, Fault.STALL}
_LESS_COPIES = {Fault.DISK, Fault.MEMBER, Fault.DRAIN, Fault.REMOVE, Fault.FORCE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """One run's settings.

    `about` is its theme, `intervals_ms` has the faults of this run alone, and `ambush` is the moment that ambushes mostly wait for.
    """

    about: str
    nodes: int
    segments: int
    replicas: int
    writers: int
    readers: int
    askers: int
    trimmers: int
    members: int
    faults_ms: int
    intervals_ms: Mapping[Fault, int]
    ambush: str
    delay_us: int
    us_per_kib: int
    slow_way_us: int
    sync_us: int
    think_us: int
    value_bytes: int
    patience_ms: int
    offsets_ms: tuple[int, ...]
    one_clock: bool
    store_unknown: float
    store_delay_us: int
    store_timeout_us: int
    watch_delay_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """What a run is about: the faults that it has in any case, those that it may have, and what its settings are chosen from."""

    weight: int
    always: frozenset[Fault] = frozenset()
    may: frozenset[Fault] = frozenset(Fault)
    nodes: tuple[int, ...] = (1, 2, 2, *(3,) * 8, 4, 4, 4, 5, 5, 5)
    segments: tuple[int, ...] = (2, 2, 4, 8)
    replicas: tuple[int, ...] = (1, 2, 3, 3, 3, 3, 5)
    readers: tuple[int, ...] = (0, 1, 2)  # where nobody reads, clocks stay apart
    askers: tuple[int, ...] = (0, 0, 2)
    trimmers: tuple[int, ...] = (0, 0, 1)  # where there is one, who was away gets copies
    members: tuple[int, ...] = (0,)  # of a group
    faults_ms: tuple[int, ...] = (8_000, 12_000, 18_000)
    rates: tuple[float, ...] = (1, 2.5, 6)
    ambushes: tuple[str, ...] = ("", "appended", "cut", "cut", "grown", "grown", "shrunk", "appointed")
    delay_us: tuple[int, ...] = (100, 300, 300, 3_000, 30_000)
    us_per_kib: tuple[int, ...] = (0, 0, 0, 5_000, 20_000)  # so that it takes a while to catch up
    slow_way_us: tuple[int, ...] = (0,)  # from one host to one other
    sync_us: tuple[int, ...] = (200, 1_000, 1_000, 20_000, 150_000)
    think_us: tuple[int, ...] = (20_000, 60_000, 200_000)
    value_bytes: tuple[int, ...] = (0,)
    offsets_ms: int = 20_000  # clocks are this far apart at most
    one_clock: bool = False  # when one jumps, the others are set right
    store_unknown: tuple[float, ...] = (0.0, 0.0, 0.02, 0.2, 0.4)
    store_delay_us: tuple[int, ...] = (1_000, 1_000, 30_000, 200_000)
    store_timeout_us: tuple[int, ...] = (500_000,)
    watch_delay_us: tuple[int, ...] = (1_000, 5_000, 50_000, 500_000)


_ANYTHING = Theme(weight=3)
THEMES: Final[Mapping[str, Theme]] = {
    "anything": _ANYTHING,
    "liars": replace(  # who says what is not true
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.STRANGER, Fault.LIAR}),
        may=frozenset({Fault.CRASH, Fault.PAUSE, Fault.CUT, Fault.CUT_ONE_WAY, Fault.MOVE, Fault.DISK, Fault.RESET, Fault.CLOCK}),
        nodes=(2, 3, 3, 3, 4),
        replicas=(2, 3, 3),
        askers=(0,),
        rates=(1, 2.5),
    ),
    "unheard": replace(  # sets grow while what their primary asked for or heard of is late
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.UNHEARD}),
        may=_CALM,
        nodes=(3, 3, 4, 5),
        replicas=(3,),
        askers=(0,),
        rates=(1,),
        store_timeout_us=(50_000, 500_000),  # 20 of them are waited for until what became of a commit stays unknown
    ),
    "leases apart": replace(  # leases that end far apart
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.CHAIN}),
        may=frozenset({Fault.RESET, Fault.STALL, Fault.ECHO}),
        nodes=(3, 3, 4),
        segments=(1, 2, 4),
        replicas=(3,),
        readers=(0,),
        askers=(0,),
        trimmers=(0,),
        faults_ms=(12_000, 18_000),
        rates=(1,),
        offsets_ms=0,
        store_unknown=(0.0,),
        store_delay_us=(1_000, 30_000),
        watch_delay_us=(1_000, 5_000),
    ),
    "appended": replace(  # who begins to lead is gone before anybody heard of it, and another one leads that has more, or less
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.AMBUSH}),
        may=frozenset({Fault.CRASH, Fault.RESET, Fault.MEMBER, Fault.CRASH_PRIMARY}),
        nodes=(3, 3, 4),
        segments=(1, 2, 2, 4),
        replicas=(3,),
        readers=(1, 2),
        askers=(0,),
        rates=(1,),
        ambushes=("appended",),
        delay_us=(3_000, 30_000),
        think_us=(20_000, 60_000),
        store_unknown=(0.0,),
        store_delay_us=(1_000, 30_000),
        watch_delay_us=(1_000, 5_000),
    ),
    "growing": replace(  # catching up takes long, and who joins a set is away before it has
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.AMBUSH, Fault.MEMBER}),
        may=frozenset({Fault.CRASH, Fault.RESET, Fault.JOIN}),
        nodes=(4, 4, 5),
        segments=(1, 2, 2),
        replicas=(3,),
        askers=(0,),
        rates=(1,),
        ambushes=("growing",),
        delay_us=(300, 3_000),
        us_per_kib=(20_000,),
        value_bytes=(1_000,),
        sync_us=(200, 1_000, 20_000),
        think_us=(200_000,),
        store_unknown=(0.0,),
        store_delay_us=(1_000, 30_000),
        watch_delay_us=(1_000, 5_000),
    ),
    "slow disks": replace(  # disks that take long, and lose what they had not written yet
        _ANYTHING,
        weight=2,
        always=frozenset({Fault.CRASH_ALL, Fault.ECHO, Fault.AMBUSH}),
        may=frozenset({Fault.STALL, Fault.RESET, Fault.PAUSE, Fault.MOVE}),
        nodes=(2, 3, 3),
        replicas=(2,),
        askers=(0,),
        rates=(1, 2.5),
        sync_us=(150_000,),
        think_us=(20_000, 60_000),
    ),
    "zombies": replace(  # questions to primaries that come and go
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.ZOMBIE}),
        may=frozenset({Fault.CRASH_PRIMARY, Fault.PAUSE_PRIMARY, Fault.MOVE, Fault.DEAF, Fault.CUT_ONE_WAY}),
        nodes=(3,),
        segments=(1, 2, 2),
        replicas=(3,),
        readers=(0,),
        askers=(4,),
        rates=(1, 2.5),
        delay_us=(300, 3_000, 30_000),
        sync_us=(200, 1_000, 20_000),
        store_unknown=(0.0,),
    ),
    "lists": replace(  # questions of which one primary hears later than another
        _ANYTHING,
        weight=1,
        always=frozenset({Fault.MOVE}),
        may=frozenset({Fault.RESET, Fault.CLOCK}),
        nodes=(4, 5),
        segments=(2, 4),
        replicas=(2,),
        readers=(0,),
        askers=(6,),
        trimmers=(0,),
        faults_ms=(8_000,),
        delay_us=(100, 300),
        slow_way_us=(200_000, 500_000),
        sync_us=(200, 1_000),
        store_unknown=(0.0,),
    ),
}


_OF_APPLICATIONS = replace(  # processes of applications, beside whose faults those of nodes are few
    _ANYTHING,
    weight=0,
    always=frozenset({Fault.MOVE}),
    may=frozenset({Fault.CRASH, Fault.CRASH_PRIMARY, Fault.PAUSE, Fault.PAUSE_PRIMARY, Fault.CUT, Fault.CLOCK, Fault.RESET, Fault.STALL}),
    nodes=(3,),
    segments=(2, 4),
    replicas=(3,),
    readers=(0,),
    askers=(0,),
    trimmers=(0,),
    members=(2, 3, 4),
    rates=(1, 2.5),
    delay_us=(100, 300, 3_000),
    us_per_kib=(0,),
    sync_us=(200, 1_000, 20_000),
    think_us=(200_000,),
    store_unknown=(0.0,),
    store_delay_us=(1_000, 30_000),
    watch_delay_us=(1_000, 5_000, 50_000),
)
OTHER_THEMES: Final[Mapping[str, Theme]] = {
    "groups": _OF_APPLICATIONS,
    "work": replace(_OF_APPLICATIONS, always=frozenset({Fault.MOVE, Fault.CLOCK}), faults_ms=(12_000,), offsets_ms=0, one_clock=True),
    "near": replace(_OF_APPLICATIONS, always=frozenset({Fault.MOVE, Fault.RESET})),
    "mirroring": replace(_OF_APPLICATIONS, segments=(2, 4), faults_ms=(12_000,)),
    "reading": replace(_OF_APPLICATIONS, always=frozenset({Fault.MOVE, Fault.RESET}), faults_ms=(8_000,)),
}
"""Runs of their own: no seed comes to them by chance."""


def choose(chance: random.Random, about: str = "") -> Swarm:
    """Return the settings of a run, `about` a theme of its own or what chance says."""
    about = about or chance.choices(tuple(THEMES), weights=[theme.weight for theme in THEMES.values()])[0]
    theme = OTHER_THEMES.get(about) or THEMES[about]
    nodes = chance.choice(theme.nodes)
    kinds = [kind for kind in Fault if chance.random() < _CHANCE.get(kind, 0.3) and _makes_sense(kind, nodes)]
    kinds = [kind for kind in Fault if kind in theme.always or (kind in kinds and kind in theme.may)]
    if Fault.BIT in kinds:  # else the sound copy might go, and nobody could tell loss from loss
        kinds = [kind for kind in kinds if kind not in _LESS_COPIES]
    if Fault.UNHEARD in kinds:  # sets have to grow while faults still come
        kinds = [kind for kind in kinds if kind in _CALM]
    return Swarm(
        about=about,
        nodes=nodes,
        segments=chance.choice(theme.segments),
        replicas=min(nodes, chance.choice(theme.replicas)),
        writers=chance.randint(2, 5),
        readers=chance.choice(theme.readers),
        askers=chance.choice(theme.askers),
        faults_ms=chance.choice(theme.faults_ms),
        intervals_ms={kind: int(INTERVAL_MS[kind] * chance.choice(theme.rates)) for kind in kinds},
        ambush=chance.choice(theme.ambushes),
        delay_us=chance.choice(theme.delay_us),
        us_per_kib=chance.choice(theme.us_per_kib),
        slow_way_us=chance.choice(theme.slow_way_us) if nodes > 1 else 0,
        sync_us=chance.choice(theme.sync_us),
        think_us=chance.choice(theme.think_us),
        value_bytes=chance.choice(theme.value_bytes),
        patience_ms=chance.choice((300, 1_000, 3_000)),
        offsets_ms=tuple(_offset_ms(chance, theme.offsets_ms) for _ in range(nodes)),
        one_clock=theme.one_clock,
        store_unknown=chance.choice(theme.store_unknown),
        store_delay_us=chance.choice(theme.store_delay_us),
        store_timeout_us=chance.choice(theme.store_timeout_us),
        watch_delay_us=chance.choice(theme.watch_delay_us),
        trimmers=chance.choice(theme.trimmers),
        members=chance.choice(theme.members),
    )


def _offset_ms(chance: random.Random, most: int) -> int:
    return chance.choice((0, chance.randint(-most // 10, most // 10), chance.randint(-most, 0), chance.randint(0, most)))


def _makes_sense(kind: Fault, nodes: int) -> bool:
    return nodes > 1 or kind in _FOR_ONE
