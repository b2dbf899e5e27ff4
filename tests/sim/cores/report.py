"""Many seeds of the runs of cores, in several processes."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from tests.sim.cores.cluster import Verdict, run_seed
from tests.sim.report import Report, say_all

REQUIRED: Final = (
    "truncation",
    "in-sync set at its least",
    "deposed with a tail",
    "failover twice in a row",
    "catch-up from the log",
    "snapshot catch-up",
    "lost disk",
    "lease used up",
    "released",
    "forced",
    "removed",
    "drained",
    "joined under load",
    "repaired from another replica",
    "taken once its record was read",
)
"""States that make a run of many seeds worth something; one that was never reached fails it."""
_AGAIN: Final = "python -m tests.sim.cores --trace {}"


def run_seeds(seeds: Iterable[int], *, processes: int) -> Iterator[Verdict]:
    """Yield verdicts as they come; their order is that of the seeds."""
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_seed, seeds, chunksize=4)


def report_seeds(seeds: Iterable[int], *, processes: int) -> Report:
    """Run seeds and say what there is to say."""
    return say_all(run_seeds(seeds, processes=processes), required=REQUIRED, again=_AGAIN)
