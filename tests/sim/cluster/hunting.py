"""Planted bugs, each until a seed finds it."""

from collections.abc import Sequence
from typing import Final

from tests.sim.cluster.mutants import MUTANTS
from tests.sim.cluster.run import run_seed
from tests.sim.planting import applied
from tests.sim.players import pool
from tests.sim.report import say

AGAIN: Final = 60
"""So many seeds are played where the known one finds nothing any more: it is another run once the product does something else."""


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
