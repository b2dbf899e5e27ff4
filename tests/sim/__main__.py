"""Plays seeds: python -m tests.sim KIND FIRST:END ...; a line for each that must not be, and what was reached."""

import argparse
import os
import sys
from collections.abc import Iterable
from functools import partial
from itertools import chain

from tests.sim.kinds import FACTS, NAMES, Kind, play
from tests.sim.players import pool
from tests.sim.report import Report, say_all


def seeds_of(given: str) -> range:
    """Return the seeds of a range as it is written."""
    first, _, end = given.partition(":")
    return range(int(first), int(end or int(first) + 1))


def report_seeds(kind: Kind, seeds: Iterable[int], *, processes: int, is_traced: bool = False, is_logged: bool = False) -> Report:
    """Run seeds and say what there is to say."""
    report = Report(required=FACTS[kind].required, reach_min=FACTS[kind].reach_min)
    with pool(processes, is_logged=is_logged) as players:
        verdicts = players.map(partial(play, kind), seeds, chunksize=1 if is_traced or is_logged else 4)
        return say_all(verdicts, report, again=f"python -m tests.sim {kind} {{}} --log", is_traced=is_traced)


def main() -> int:
    """Return the exit code: 1 when a seed failed, or an interesting state was never reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("kind", choices=NAMES, help="what the runs are of")
    parser.add_argument("seeds", nargs="*", type=seeds_of, metavar="FIRST:END", help="ranges of seeds, or single ones")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--known", action="store_true", help="also the seeds that ever failed")
    parser.add_argument("--trace", action="store_true", help="print a line for each seed: how long it was, and what it reached")
    parser.add_argument("--log", action="store_true", help="show what is logged")
    chosen = parser.parse_intermixed_args()
    seeds = [*(FACTS[chosen.kind].failed_once if chosen.known else ()), *chain.from_iterable(chosen.seeds)]
    processes = 1 if chosen.log else chosen.processes
    return 0 if report_seeds(chosen.kind, seeds, processes=processes, is_traced=chosen.trace, is_logged=chosen.log).is_good else 1


if __name__ == "__main__":
    sys.exit(main())
