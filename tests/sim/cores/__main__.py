"""`python -m tests.sim.cores --seeds 0:500`: run seeds; `--trace SEED`: run one and print all that happened."""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import chain

from tests.sim.cores.cluster import run_seed
from tests.sim.cores.known import FAILED_ONCE
from tests.sim.cores.report import report_seeds
from tests.sim.report import say


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def main(arguments: list[str], *, known: Sequence[int] = FAILED_ONCE) -> int:
    """Return the exit code: 1 when a seed failed, or when an interesting state was never reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cores", description=__doc__)
    parser.add_argument("--seeds", type=_range, nargs="+", default=[range(100)], help="A:B, B excluded, or one seed; several if wanted")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--known", action="store_true", help="also run every seed that ever failed")
    parser.add_argument("--trace", type=int, metavar="SEED", help="run this one and print what happens in it")
    chosen = parser.parse_args(arguments)
    if chosen.trace is not None:
        return _trace(chosen.trace)
    seeds = [*(known if chosen.known else ()), *chain.from_iterable(chosen.seeds)]
    return 0 if report_seeds(seeds, processes=chosen.processes).is_good else 1


def _trace(seed: int) -> int:
    verdict = run_seed(seed, keep_lines=True)
    for line in verdict.lines:
        say(line)
    say(str(verdict.swarm))
    say(f"sum of the trace: {verdict.trace:08x}")
    for line in verdict.told:
        say(line)
    return 1 if verdict.violations or verdict.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
