"""Plays seeds of clusters: python -m tests.sim.cluster FIRST:END ...; a line for each that must not be, and what was reached."""

from tests.sim import machine

if __name__ == "__mp_main__":  # of a process that plays seeds
    machine.install()

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import chain

from tests.sim.cluster.known import FAILED_ONCE
from tests.sim.cluster.mutants import MUTANTS
from tests.sim.cluster.report import pool, report_seeds, say
from tests.sim.cluster.run import run_seed
from tests.sim.planting import applied

AGAIN = 60
"""So many seeds are played where the known one finds nothing any more: it is another run once the product does something else."""


def seeds_of(given: str) -> range:
    """Return the seeds of a range as it is written."""
    first, _, end = given.partition(":")
    return range(int(first), int(end or int(first) + 1))


def hunt(job: tuple[str, Sequence[int]]) -> tuple[int, str] | None:
    """Plant a bug and play seeds until one finds it; return that seed and what its history says."""
    name, seeds = job
    with applied(next(mutant for mutant in MUTANTS if mutant.name == name)):
        return next(((seed, found[0]) for seed in seeds if (found := run_seed(seed).violations)), None)


def hunt_all(seeds: Sequence[int] | None, *, processes: int) -> int:
    """Hunt each planted bug on seeds, None: the one that is known first; return 0 when all are found."""
    jobs = [(mutant.name, (mutant.seed, *range(AGAIN)) if seeds is None else seeds) for mutant in MUTANTS]
    missed = 0
    with pool(processes) as players:
        for (name, _), found in zip(jobs, players.map(hunt, jobs), strict=True):
            missed += found is None
            say(f"{name}: " + ("NOT FOUND" if found is None else f"found by seed {found[0]}: {found[1][:160]}"))
    return 1 if missed else 0


def main() -> int:
    """Return the exit code: 1 when a seed failed, when an interesting state was never reached, or when a planted bug was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cluster", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=seeds_of, metavar="FIRST:END", help="ranges of seeds, or single ones")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutants", action="store_true", help="plant each bug, and play the seeds until one finds it")
    parser.add_argument("--known", action="store_true", help="also the seeds that ever failed; with --mutants, those that found one")
    parser.add_argument("--trace", action="store_true", help="print a line for each seed: how long it was, and what it reached")
    parser.add_argument("--log", action="store_true", help="show what the nodes log")
    chosen = parser.parse_args()
    seeds = list(chain.from_iterable(chosen.seeds))
    if chosen.mutants:
        return hunt_all(None if chosen.known else seeds, processes=chosen.processes)
    seeds = [*(FAILED_ONCE if chosen.known else ()), *seeds]
    report = report_seeds(seeds, processes=1 if chosen.log else chosen.processes, is_traced=chosen.trace, is_logged=chosen.log)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
