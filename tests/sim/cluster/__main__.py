"""Plays seeds of clusters: python -m tests.sim.cluster FIRST:END ...; a line for each that must not be, and what was reached."""

import argparse
import os
import sys
from itertools import chain

from tests.sim.cluster.known import FAILED_ONCE
from tests.sim.cluster.report import report_seeds
from tests.sim.cluster.swarm import OTHER_THEMES


def seeds_of(given: str) -> range:
    """Return the seeds of a range as it is written."""
    first, _, end = given.partition(":")
    return range(int(first), int(end or int(first) + 1))


def main() -> int:
    """Return the exit code: 1 when a seed failed, or an interesting state was never reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cluster", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=seeds_of, metavar="FIRST:END", help="ranges of seeds, or single ones")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--about", choices=OTHER_THEMES, default="", help="runs that no seed comes to by chance")
    parser.add_argument("--known", action="store_true", help="also the seeds that ever failed")
    parser.add_argument("--trace", action="store_true", help="print a line for each seed: how long it was, and what it reached")
    parser.add_argument("--log", action="store_true", help="show what the nodes log")
    chosen = parser.parse_args()
    seeds = list(chain.from_iterable(chosen.seeds))
    seeds = [*(FAILED_ONCE if chosen.known else ()), *seeds]
    report = report_seeds(
        seeds, about=chosen.about, processes=1 if chosen.log else chosen.processes, is_traced=chosen.trace, is_logged=chosen.log
    )
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
