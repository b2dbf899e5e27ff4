"""Plays seeds: python -m tests.sim FIRST:END ...; a line for each that must not be, and what was reached."""

from tests.sim import machine

machine.install()

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence

from tests.sim.run import never_reached, run_seed


def main() -> int:
    """Return 0 when nothing was violated, and every fault and client was reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seeds", nargs="+", metavar="FIRST:END", help="ranges of seeds, or single ones")
    parser.add_argument("--trace", action="store_true", help="print a line for each seed: how long it was, and how it ended")
    parser.add_argument("--log", action="store_true", help="show what the nodes log")
    chosen = parser.parse_args()
    sys.unraisablehook = lambda _: None  # coroutines of hosts that died are ended at last, somewhere in their middle
    logging.basicConfig(level=logging.INFO if chosen.log else logging.CRITICAL)
    seeds = [seed for given in chosen.seeds for seed in seeds_of(given)]
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
        run = run_seed(seed)
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


if __name__ == "__main__":
    sys.exit(main())
