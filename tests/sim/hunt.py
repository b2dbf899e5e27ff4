"""Planted bugs: each is put in place of a method, and the runs that are to find it must, by what their histories tell.

A planted bug whose method is gone is an error. Three ranges of seeds are searched for each, with the asserts of all modules off, so that
nothing but the history tells; seeds whose runs lack what a bug needs are passed over. The code as it is runs on some of the same seeds.
`--known` runs each bug on the seed that is known to find it.
"""

import argparse
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from tests.sim.kinds import Kind, play
from tests.sim.planting import Mutant, applied
from tests.sim.players import pool
from tests.sim.report import say

RANGES: Final = (0, 100_000, 200_000)  # where the three ranges begin
KNOWN_MAX: Final = 90  # so many seeds are played where the known one finds nothing any more: it is another run once the code has moved on
SEEDS_MAX: Final[Mapping[Kind, int]] = {
    "clusters": 500,
    "clients": 100,
    "groups": 200,
    "work": 200,
    "near": 200,
    "reading": 200,
    "mirroring": 200,
}
CLEAN: Final[Mapping[Kind, int]] = {
    "clusters": 200,
    "clients": 20,
    "groups": 60,
    "work": 60,
    "near": 60,
    "reading": 60,
    "mirroring": 60,
}
"""On so many seeds of each range the code as it is runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Seeds to be played in a world, until one fails; with the planted bug of this place among all, None: with the code as it is."""

    world: Kind
    seeds: Sequence[int]
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """After how many seeds one failed, 0: none did; which, and what its history tells."""

    tried: int
    seed: int = 0
    why: str = ""


def mutants() -> tuple[Mutant, ...]:
    """Return all planted bugs."""
    from tests.sim.cluster.application_mutants import MUTANTS as OF_APPLICATIONS
    from tests.sim.cluster.mirroring_mutants import MUTANTS as OF_MIRRORS
    from tests.sim.cluster.mutants import MUTANTS as OF_CLUSTERS
    from tests.sim.mutants import MUTANTS as OF_CLIENTS

    return (*OF_CLUSTERS, *OF_CLIENTS, *OF_APPLICATIONS, *OF_MIRRORS)


def seeds_of(mutant: Mutant, first: int, count: int) -> list[int]:
    """Return the first so many seeds from `first` on whose runs have what a bug needs."""
    return list(itertools.islice((seed for seed in itertools.count(first) if mutant.among is None or mutant.among(seed)), count))


def is_misfit(why: str) -> bool:
    """Return whether a run failed because what is planted calls something that is no more as it was, which no history has found."""
    return any(f"{error.__name__}(" in why for error in (AttributeError, ImportError, NameError, TypeError))


def hunt(job: Job) -> Found:
    """Play seeds until one fails."""
    with nullcontext() if job.place is None else applied(mutants()[job.place]):
        for tried, seed in enumerate(job.seeds, start=1):
            if told := play(job.world, seed).violations:
                if job.place is not None and is_misfit(told[0]):
                    raise LookupError(f"{mutants()[job.place].name} does not fit the code any more: {told[0]}")
                return Found(tried=tried, seed=seed, why=told[0])
    return Found(tried=0)


def run_unmutated(*, processes: int) -> bool:
    """Run the code as it is on the ranges that bugs are hunted in; return whether all of it holds."""
    jobs = [
        Job(world=world, seeds=range(first + at, min(first + at + 20, first + count)))
        for world, count in CLEAN.items()
        for first in RANGES
        for at in range(0, count, 20)
    ]
    failed = 0
    for job, found in zip(jobs, _played(jobs, processes=processes), strict=True):
        if found.tried:
            failed += 1
            say(f"seed {found.seed} of {job.world}: {found.why}")
    say(f"the code as it is, on {sum(len(job.seeds) for job in jobs):,} seeds: {failed or 'none'} failed")
    return not failed


def search(places: Sequence[int], *, processes: int, seeds_max: int) -> bool:
    """Hunt bugs in each range; return whether all were found in all."""
    known = mutants()
    jobs = [
        Job(world=known[place].world, seeds=seeds_of(known[place], first, min(seeds_max, SEEDS_MAX[known[place].world])), place=place)
        for place in places
        for first in RANGES
    ]
    say("| planted bug | found by runs of | " + " | ".join(f"from {first:,}" for first in RANGES) + " | median | what the history says |")
    say("|---" * (len(RANGES) + 4) + "|")
    outcomes, counts = _played(jobs, processes=processes), list[int]()
    for place in places:
        hunts = [next(outcomes) for _ in RANGES]
        counts += [found.tried for found in hunts]
        say(_line(known[place], hunts))
    seen = [count for count in counts if count]
    say(f"{len(places)} planted bugs, {counts.count(0)} hunts in vain, median {statistics.median(seen) if seen else 0:.0f} seeds")
    return all(counts)


def _line(mutant: Mutant, hunts: Sequence[Found]) -> str:
    counts = [found.tried for found in hunts]
    seeds = " | ".join(f"{count or 'NONE'}" for count in counts)
    median = f"{statistics.median(counts):.0f}" if all(counts) else "-"
    return f"| {mutant.name} | {mutant.world} | {seeds} | {median} | {next((found.why for found in hunts if found.why), '')[:100]} |"


def run_known(places: Sequence[int], *, processes: int) -> bool:
    """Run each bug on its seed, or the first few once the code has moved on; return whether the history told on all."""
    known = mutants()
    jobs = [
        Job(world=known[place].world, seeds=(known[place].seed, *seeds_of(known[place], 0, KNOWN_MAX)), place=place) for place in places
    ]
    missed = 0
    for job, found in zip(jobs, _played(jobs, processes=processes), strict=True):
        assert job.place is not None, "one is planted"
        missed += not found.tried
        say(f"{known[job.place].name:<64} {job.world:<8} seed {found.seed:>6}   {found.why[:140] if found.tried else 'NOT FOUND'}")
    return not missed


def _played(jobs: Sequence[Job], *, processes: int) -> Iterator[Found]:
    with pool(processes) as players:
        yield from players.map(hunt, jobs)


def main(arguments: list[str], *, restart: Callable[[list[str]], None]) -> int:
    """Return the exit code: 1 when a planted bug was not found, or the code as it is failed."""
    if __debug__:  # asserts would find what the history must
        restart(arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.sim.hunt", description=__doc__)
    parser.add_argument("names", nargs="*", help="all of them unless named")
    parser.add_argument("--known", action="store_true", help="run each on its known seed alone")
    parser.add_argument("--seeds-max", type=int, default=max(SEEDS_MAX.values()), help="so many of each range, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    names = [mutant.name for mutant in mutants()]
    if unknown := [name for name in chosen.names if name not in names]:
        parser.error(f"no planted bug is called {unknown[0]!r}; there are {', '.join(names)}")
    places = [place for place, name in enumerate(names) if not chosen.names or name in chosen.names]
    if chosen.known:
        return 0 if run_known(places, processes=chosen.processes) else 1
    holds = bool(chosen.names) or run_unmutated(processes=chosen.processes)
    return 0 if search(places, processes=chosen.processes, seeds_max=chosen.seeds_max) and holds else 1


def _restart_without_asserts(arguments: list[str]) -> None:
    os.execv(sys.executable, [sys.executable, "-O", "-m", "tests.sim.hunt", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], restart=_restart_without_asserts))
