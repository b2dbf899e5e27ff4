"""Many seeds of clusters, in several processes."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from tests.sim.cluster.run import run_seed
from tests.sim.players import pool
from tests.sim.report import Report, say_all

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "groups": (
        "committed",
        "commit: STALE_MEMBER",
        "mishap: crash",
        "mishap: cut",
        "mishap: pause",
        "home parted from its members",
        "home given back",
        "fault: move",
        "fault: clock",
    ),
    "": (
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
}
"""States that make a run of many seeds about something worth it; one that was never reached fails it."""
_AGAIN: Final = "python -m tests.sim.cluster {} --log"


def report_seeds(seeds: Iterable[int], *, about: str = "", processes: int, is_traced: bool = False, is_logged: bool = False) -> Report:
    """Run seeds and say what there is to say."""
    with pool(processes, is_logged=is_logged) as players:
        return say_all(
            players.map(partial(run_seed, about=about), seeds, chunksize=4),
            required=REQUIRED[about],
            again=_AGAIN + (f" --about {about}" if about else ""),
            is_traced=is_traced,
        )
