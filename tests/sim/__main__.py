"""Plays seeds: python -m tests.sim FIRST:END ...; a line for each that must not be, and what was reached."""

from tests.sim import machine

machine.install()

import argparse
import gc
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.sim.mutants import MUTANTS
from tests.sim.planting import applied
from tests.sim.run import Run, never_reached

AGAIN = 30
"""So many seeds are played where the known one finds nothing any more: it is another run once the product does something else."""


def play(seed: int) -> Run:
    """Play one seed in a directory of its own.

    Garbage is collected between runs: what is finalised in the middle of one, and when, would go by how much memory was used before.
    """
    gc.collect()
    gc.disable()
    try:
        with tempfile.TemporaryDirectory(prefix="eventlog-sim-") as directory:
            run = Run(seed, Path(directory))
            machine.begin(seed, lambda: run.world.scheduler.now_us)
            run.play()
            return run
    finally:
        gc.enable()


def main() -> int:
    """Return 0 when nothing was violated, and each planted bug was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seeds", nargs="*", metavar="FIRST:END", help="ranges of seeds, or single ones")
    parser.add_argument("--trace", action="store_true", help="print a line for each seed: how long it was, and how it ended")
    parser.add_argument("--mutants", action="store_true", help="plant each bug, and play the seeds until one finds it")
    parser.add_argument("--known", action="store_true", help="plant each bug, and play the seed that is known to find it, or a few others")
    parser.add_argument("--log", action="store_true", help="show what the nodes log")
    chosen = parser.parse_args()
    sys.unraisablehook = lambda _: None  # coroutines of hosts that died are ended at last, somewhere in their middle
    logging.basicConfig(level=logging.INFO if chosen.log else logging.CRITICAL)
    seeds = [seed for given in chosen.seeds for seed in seeds_of(given)]
    if chosen.known or chosen.mutants:
        return hunt(None if chosen.known else seeds)
    return play_all(seeds, is_traced=chosen.trace)


def seeds_of(given: str) -> range:
    """Return the seeds of a range as it is written."""
    first, _, end = given.partition(":")
    return range(int(first), int(end or int(first) + 1))


def play_all(seeds: Sequence[int], *, is_traced: bool) -> int:
    """Play seeds and say what they came to."""
    reached: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        run = play(seed)
        reached += run.reached
        failed += bool(run.violations)
        for violation in run.violations:
            print(f"seed {seed}: {violation}", flush=True)
        if is_traced:
            print(f"seed {seed}: {run.world.scheduler.now_us} us, {dict(run.reached)}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(reached.items())))
    for name in (missing := never_reached(reached, seeds=len(seeds))):
        print(f"never reached: {name}")
    print(f"{len(seeds)} seeds, {failed} failed")
    return 1 if failed or missing else 0


def hunt(seeds: Sequence[int] | None) -> int:
    """Plant the bugs one after the other, and play seeds, None: the one that is known first; return 0 when all are found."""
    missed = 0
    for mutant in MUTANTS:
        with applied(mutant):
            tried = (mutant.seed, *range(AGAIN)) if seeds is None else seeds
            found = next(((seed, run.violations[0]) for seed in tried if (run := play(seed)).violations), None)
        missed += found is None
        print(f"{mutant.name}: " + ("NOT FOUND" if found is None else f"found by seed {found[0]}: {found[1][:200]}"), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
