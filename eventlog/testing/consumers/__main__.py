"""`python -m eventlog.testing.consumers --seeds 0:500`: run seeds of consumer groups and of readers."""

import argparse
import sys
import time
from collections import Counter

from eventlog.testing.consumers.run import KINDS, run_seed
from eventlog.testing.sim.report import say


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 when a seed failed, or when something never happened."""
    parser = argparse.ArgumentParser(prog="python -m eventlog.testing.consumers", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="A:B, B excluded, or one seed")
    chosen = parser.parse_args(arguments)
    first, _, end = chosen.seeds.partition(":")
    seeds = range(int(first), int(end or int(first) + 1))
    reached: Counter[str] = Counter()
    failed, begun = 0, time.process_time()
    for seed in seeds:
        for kind in KINDS:
            outcome = run_seed(kind, seed)
            reached += outcome.reached
            if outcome.violations or outcome.errors:
                failed += 1
                for sentence in (*outcome.violations[:3], *outcome.errors[:3]):
                    say(f"seed {seed} of {kind}: {sentence}")
    say(f"{len(seeds)} seeds of {' and '.join(KINDS)}, {failed} failed, {time.process_time() - begun:.1f} CPU-seconds")
    for name, count in sorted(reached.items()):
        say(f"  {name:<32} {count:>8,} times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
