"""Planted protocol bugs: each replaces a method of a core, and the simulator's history checkers must find every one of them.

A mutant whose method is gone fails the run. `python -m tests.sim.hunt` searches three ranges of seeds for each, with the
asserts of all modules off, so that nothing but the history tells; `--known` runs each on the one seed that is known to find it.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tests.sim.consumers.mutants import CONSUMER_MUTANTS
from tests.sim.consumers.run import RUNS
from tests.sim.cores import mutants as protocol
from tests.sim.cores.asking import run_questions
from tests.sim.cores.cluster import run_seed
from tests.sim.cores.report import report_seeds
from tests.sim.planting import Mutant, applied
from tests.sim.report import say

MUTANTS: Final = (*protocol.MUTANTS, *CONSUMER_MUTANTS)
SEEDS_MAX: Final = 500
KNOWN_SEEDS_MAX: Final = 500
_RUNS: Final[Mapping[str, Callable[[int], Any]]] = {"cluster": run_seed, "questions": run_questions, **RUNS}
RANGES: Final = (0, 100_000, 200_000)  # where the three ranges begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """How many seeds it took from `first` on; 0: it was not found. `why` is what the history tells."""

    mutant: str
    first: int
    seeds: int
    why: str


def hunt(name: str, first: int, seeds_max: int) -> Hunt:
    """Run a mutant on seeds until the history tells on it."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with applied(mutant):
        for tried in range(seeds_max):
            violations = _RUNS[mutant.world](first + tried).violations
            if violations:
                return Hunt(mutant=name, first=first, seeds=tried + 1, why=violations[0])
    return Hunt(mutant=name, first=first, seeds=0, why="")


def run_unmutated(*, processes: int, seeds_max: int) -> bool:
    """Run the code as it is on the ranges that mutants are hunted in; return whether all of it holds."""
    firsts = sorted({mutant.since + first for mutant in MUTANTS for first in RANGES})
    say(f"the code as it is, on {len(firsts)} times {seeds_max} seeds:")
    holds = report_seeds((first + tried for first in firsts for tried in range(seeds_max)), processes=processes).is_good
    seeds = [first + tried for first in RANGES for tried in range(seeds_max)]
    with ProcessPoolExecutor(processes) as pool:
        outcomes = list(pool.map(_run_others, seeds, chunksize=8))
    told = [what for whats in outcomes for what in whats]
    for what in told[:10]:
        say(what)
    say(f"{len(seeds)} seeds of questions and of consumers, {len(told)} failed")
    return holds and not told


def _run_others(seed: int) -> list[str]:
    """Return a sentence for each kind of run beside the cluster alone that fails on a seed."""
    outcomes = [(kind, run(seed)) for kind, run in _RUNS.items() if kind != "cluster"]
    return [
        f"seed {seed} of {kind}: {(*outcome.violations, *outcome.errors)[0]}"
        for kind, outcome in outcomes
        if outcome.violations or outcome.errors
    ]


def search(mutants: Sequence[Mutant], *, processes: int, seeds_max: int) -> bool:
    """Hunt each mutant in each range; return whether all were found in all."""
    jobs = [(mutant.name, mutant.since + first, seeds_max) for mutant in mutants for first in RANGES]
    counts: list[int] = []
    say("| planted bug | " + " | ".join(f"from {first:,}" for first in RANGES) + " | median | what the history says |")
    say("|---" * (len(RANGES) + 3) + "|")
    with ProcessPoolExecutor(processes) as pool:
        found = pool.map(_hunt, jobs)
        for mutant in mutants:
            hunts = [next(found) for _ in RANGES]
            counts += [one.seeds for one in hunts]
            say(_line(mutant, hunts))
    is_good = all(counts)
    seen = [count for count in counts if count]
    say(f"{len(mutants)} mutants, {counts.count(0)} hunts in vain, median {statistics.median(seen) if seen else 0:.0f} seeds")
    return is_good


def _line(mutant: Mutant, hunts: Sequence[Hunt]) -> str:
    counts = [one.seeds for one in hunts]
    seeds = " | ".join(f"{count or 'NONE'}" for count in counts)
    median = f"{statistics.median(counts):.0f}" if all(counts) else "-"
    return f"| {mutant.name} | {seeds} | {median} | {next((one.why for one in hunts if one.why), '')[:100]} |"


def _hunt(job: tuple[str, int, int]) -> Hunt:
    return hunt(*job)


def run_known(mutants: Sequence[Mutant], *, processes: int) -> bool:
    """Run each mutant on its seed, or the few after it once the code has moved on; return whether the history told on all."""
    with ProcessPoolExecutor(processes) as pool:
        found = list(pool.map(_hunt, [(mutant.name, mutant.seed, KNOWN_SEEDS_MAX) for mutant in mutants]))
    for mutant, one in zip(mutants, found, strict=True):
        say(f"{mutant.name:<44} seed {mutant.seed + max(one.seeds - 1, 0):>6}   {one.why[:140] or 'NOT FOUND'}")
    return all(one.seeds for one in found)


def main(arguments: list[str], *, restart: Callable[[list[str]], None]) -> int:
    """Return the exit code: 1 when a mutant was not found."""
    if __debug__:  # asserts would find what the history must
        restart(arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.sim.hunt", description=__doc__)
    parser.add_argument("names", nargs="*", help="all of them unless named")
    parser.add_argument("--known", action="store_true", help="run each on its known seed alone")
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"no mutant is called {unknown[0]!r}; there are {', '.join(known)}")
    mutants = [known[name] for name in chosen.names] or list(MUTANTS)
    if chosen.known:
        return 0 if run_known(mutants, processes=chosen.processes) else 1
    holds = bool(chosen.names) or run_unmutated(processes=chosen.processes, seeds_max=chosen.seeds_max)
    return 0 if search(mutants, processes=chosen.processes, seeds_max=chosen.seeds_max) and holds else 1


def _restart_without_asserts(arguments: list[str]) -> None:
    os.execv(sys.executable, [sys.executable, "-O", "-m", "tests.sim.hunt", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], restart=_restart_without_asserts))
