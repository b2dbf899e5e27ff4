"""Many seeds, in several processes: one line a failing seed, then what was reached, and how fast it went."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from tests.sim.cores.cluster import Verdict, run_seed

REQUIRED: Final = (
    "truncation",
    "in-sync set at its least",
    "deposed with a tail",
    "failover twice in a row",
    "catch-up from the log",
    "snapshot catch-up",
    "lost disk",
    "lease used up",
    "released",
    "forced",
    "removed",
    "drained",
    "joined under load",
    "repaired from another replica",
    "taken once its record was read",
)
"""States that make a run of many seeds worth something; one that was never reached fails it."""

SEEDS_MIN_FOR_REACH: Final = 200  # fewer may miss one by chance


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of the seeds so far."""

    seeds: int = 0
    failed: list[Verdict] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)  # in how many seeds a state was reached
    acknowledged: int = 0
    simulated_ms: int = 0
    cpu_s: float = 0.0

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.simulated_ms += verdict.simulated_ms
        self.cpu_s += verdict.cpu_s
        self.acknowledged += verdict.acknowledged
        self.reached += verdict.reached
        self.runs += Counter(list(verdict.reached))
        if verdict.violations or verdict.errors:
            self.failed.append(verdict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the required states that were not reached, if that says anything."""
        return tuple(name for name in REQUIRED if not self.reached[name]) if self.seeds >= SEEDS_MIN_FOR_REACH else ()

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.missing


def run_seeds(seeds: Iterable[int], *, processes: int) -> Iterator[Verdict]:
    """Yield verdicts as they come; their order is that of the seeds."""
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_seed, seeds, chunksize=4)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def describe(verdict: Verdict) -> Iterator[str]:
    """Yield what there is to say about a failing seed."""
    for sentence in [*verdict.violations[:3], *verdict.errors[:3]]:
        yield f"seed {verdict.seed}: {sentence}"
    yield f"    again, with all that happened: python -m tests.sim.cores --trace {verdict.seed}"


def report_seeds(seeds: Iterable[int], *, processes: int) -> Report:
    """Run seeds and say what there is to say."""
    report, begun = Report(), time.monotonic()
    for verdict in run_seeds(seeds, processes=processes):
        report.add(verdict)
        if verdict.violations or verdict.errors:
            for line in describe(verdict):
                say(line)
    wall_s = max(time.monotonic() - begun, 0.001)
    simulated_s = report.simulated_ms / 1000
    say(f"{report.seeds} seeds, {len(report.failed)} failed, {report.acknowledged:,} events acknowledged")
    say(f"{simulated_s:,.0f} cluster-seconds in {wall_s:.1f} s, {simulated_s / max(report.cpu_s, 0.001):,.0f} in a CPU-second")
    for name in sorted({*report.reached, *REQUIRED}):
        say(f"  {name:<28} {report.reached[name]:>8,} times in {report.runs[name]:>5,} seeds")
    for name in report.missing:
        say(f"never reached: {name}")
    return report
