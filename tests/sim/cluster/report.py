"""Many seeds, in several processes: one line a failing seed, then what was reached, and how fast it went."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.sim.cluster.run import Verdict, run_seed
from tests.sim.players import pool

REQUIRED: Final = (
    "truncation",
    "failover twice in a row",
    "left alone with the shortest log",
    "lost disk",
    "released",
    "forced",
    "removed",
    "drained",
    "joined under load",
    "bit flipped",
    "lie told",
    "stranger refused: NOT_MEMBER",
    "cleared",
    "listed",
    "probe answered",
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
        if verdict.violations:
            self.failed.append(verdict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the required states that were not reached, if that says anything."""
        return tuple(name for name in REQUIRED if not self.reached[name]) if self.seeds >= SEEDS_MIN_FOR_REACH else ()

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.missing


def say(line: str) -> None:
    """Print a line at once, whoever reads it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def describe(verdict: Verdict) -> Iterator[str]:
    """Yield what there is to say about a failing seed."""
    for sentence in verdict.violations[:3]:
        yield f"seed {verdict.seed}: {sentence}"
    yield f"    again, with what its nodes log: python -m tests.sim.cluster {verdict.seed} --log"


def report_seeds(seeds: Iterable[int], *, processes: int, is_traced: bool = False, is_logged: bool = False) -> Report:
    """Run seeds and say what there is to say."""
    report, begun = Report(), time.monotonic()
    with pool(processes, is_logged=is_logged) as players:
        for verdict in players.map(run_seed, seeds, chunksize=4):
            report.add(verdict)
            if verdict.violations:
                for line in describe(verdict):
                    say(line)
            if is_traced:
                say(f"seed {verdict.seed}: {verdict.simulated_ms} ms, {sorted(verdict.reached.items())}")
    wall_s = max(time.monotonic() - begun, 0.001)
    simulated_s = report.simulated_ms / 1000
    say(f"{report.seeds} seeds, {len(report.failed)} failed, {report.acknowledged:,} events acknowledged")
    say(f"{simulated_s:,.0f} cluster-seconds in {wall_s:.1f} s, {simulated_s / max(report.cpu_s, 0.001):,.0f} in a CPU-second")
    for name in sorted({*report.reached, *REQUIRED}):
        say(f"  {name:<36} {report.reached[name]:>8,} times in {report.runs[name]:>5,} seeds")
    for name in report.missing:
        say(f"never reached: {name}")
    return report
