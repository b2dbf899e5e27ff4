"""Runs benchmarks one after the other and prints a table each."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import machine
from benchmarks.figures import Row, Scale, render, without_place, write_document, write_json

NAMES = (
    "append",
    "puts",
    "keyed",
    "latency",
    "columns",
    "objects",
    "filtered",
    "load",
    "memory",
    "start",
    "commands",
    "flat",
    "replicated",
    "failover",
    "fan-out",
    "slow",
    "short",
    "group",
    "follow",
    "near",
    "iteration",
    "operation",
    "kafka-records",
    "mirror",
    "mirror-live",
    "registry",
    "validated",
    "http",
    "archive",
    "backfill",
    "transactions",
    "spark-sink",
    "spark-source",
    "spark-stream",
)


def main(words: Sequence[str]) -> int:
    """Return 0 when everything ran, whatever was reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the sizes: shows that it runs, the figures are rough")
    parser.add_argument(
        "--events", type=int, default=0, metavar="N", help="so many events, where a benchmark takes that: spark-source, backfill"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here, too")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into this page, docs/benchmarks.md for instance")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if chosen.page is not None and (lacking := without_place(chosen.page.read_text(), chosen.names or NAMES)):
        parser.error(f"{chosen.page} has no place for {', '.join(lacking)}")
    about = machine.describe()
    print(f"{about}\n{'QUICK RUN: the sizes are too small for the figures to count' if chosen.quick else ''}".rstrip(), flush=True)
    results: list[tuple[str, str, list[Row]]] = []
    for name in chosen.names or NAMES:
        module = import_module(f"benchmarks.{name.replace('-', '_')}")
        print(f"\n{name}: {module.__doc__}", flush=True)
        watch = machine.Watch.start()
        rows: list[Row] = []
        for row in module.run(Scale(quick=chosen.quick, events=chosen.events)):
            rows.append(row)
            print(f"  ... {row.case}: {row.measured}", file=sys.stderr, flush=True)
        results.append((name, watch.remark(), rows))
        print(f"{render(rows)}\n({results[-1][1]})", flush=True)
    if chosen.json is not None:
        write_json(chosen.json, about, results)
    if chosen.page is not None:
        write_document(chosen.page, about, results)
    missed = [f"{name}: {row.case}" for name, _, rows in results for row in rows if row.reached is False]
    print("\nall targets reached" if not missed else "\nmissed: " + "; ".join(missed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
