"""The kinds of runs: what plays a seed of each, what many seeds have to reach, and the seeds that failed once.

A player imports what it plays once its clocks are a simulation's, and not before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from tests.sim.report import Verdict

Kind = Literal["clusters", "groups", "work", "near", "reading", "mirroring", "clients"]
NAMES: Final[tuple[Kind, ...]] = get_args(Kind)
_MISHAPS: Final = ("mishap: crash", "mishap: cut", "mishap: pause", "fault: move")
_ISOLATION: Final = ("commit held up", "clock jumped while a member was deaf")
_HOME: Final = ("home parted from its members", "home given back", "fault: clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is asked of runs of a kind.

    `required`: states that make a run of `reach_min` seeds or more worth it; one that was never reached fails it. `failed_once`: seeds that
    failed on code that was not meant to. A change of the simulator gives such a seed another run; then it is an ordinary one.
    """

    required: tuple[str, ...]
    reach_min: int  # fewer seeds may miss a state by chance
    failed_once: tuple[int, ...] = ()


FACTS: Final[Mapping[Kind, Facts]] = {
    "clusters": Facts(
        required=(
            "truncation",
            "failover twice in a row",
            "left alone with the shortest log",
            "lost disk",
            "released",
            "forced",
            "removed",
            "drained",
            "joined under load",
            "copied as a whole",
            "bit flipped",
            "repaired from another replica",
            "said again",
            "growth that its primary did not hear of",
            "proposal void when its turn came",
            "new primary that nobody heard of",
            "failover of a successor with a lesser lease",
            "failover by a controller that heard of no lease",
            "lie told",
            "stranger refused: NOT_MEMBER",
            "cleared",
            "listed",
            "probe answered",
        ),
        reach_min=200,
        failed_once=(1040,),
    ),
    "groups": Facts(required=("committed", *_ISOLATION, "commit: STALE_MEMBER", *_MISHAPS, *_HOME), reach_min=30),
    "work": Facts(required=("done", "handed out", "put off", "rejected", *_MISHAPS, *_HOME), reach_min=30),
    "near": Facts(required=("served from memory", "fault: reset", *_MISHAPS), reach_min=30),
    "reading": Facts(
        required=("filtered reader went on", "state reader went on", "query went on", "iterated", "fault: reset", *_MISHAPS), reach_min=30
    ),
    "mirroring": Facts(
        required=(
            "connection lost: commit",
            "connection lost: done",
            "events mirrored",
            "events trimmed",
            "partition without a leader",
            "old end of a topic",
            "given up where nobody leads",
            "last transaction left open",
            "shards rested before the last event",
            "owner stands still",
            "owner parted",
            "fault: move",
        ),
        reach_min=30,
        failed_once=(100_057,),
    ),
    "clients": Facts(
        required=(
            *("crash", "pause", "cut", "jump", "blackout", "drain", "fill", "fail_sync", "rot", "rotten", "flip", "flipped"),
            *("counting", "workers", "listener", "near", "reader", "iterating", "querying", "retaining", "transacting"),
            *("written", "iterated", "events trimmed", "groups audited"),
        ),
        reach_min=20,
    ),
}


def play(kind: Kind, seed: int) -> Verdict:
    """Play a seed, in a process whose clocks and chance are the machine's of a simulation."""
    if kind == "clients":
        from tests.sim.run import run_seed as run_clients

        return run_clients(seed)
    from tests.sim.cluster.run import run_seed as run_cluster

    return run_cluster(seed, "" if kind == "clusters" else kind)
