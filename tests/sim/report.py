"""What came of many seeds: one line a failing seed, then what was reached, and how fast it went."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

SEEDS_MIN_FOR_REACH: Final = 200  # fewer may miss one by chance
_SAID_MAX: Final = 6


class Verdict(Protocol):
    """What became of a seed. `told`: what must not be, as sentences."""

    @property
    def seed(self) -> int: ...

    @property
    def told(self) -> Sequence[str]: ...

    @property
    def reached(self) -> Counter[str]: ...

    @property
    def simulated_ms(self) -> int: ...

    @property
    def acknowledged(self) -> int: ...

    @property
    def cpu_s(self) -> float: ...


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of the seeds so far. Of many, each state that is `required` has to be reached by one."""

    required: Sequence[str]
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
        if verdict.told:
            self.failed.append(verdict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the required states that were not reached, if that says anything."""
        return tuple(name for name in self.required if not self.reached[name]) if self.seeds >= SEEDS_MIN_FOR_REACH else ()

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.missing


def say(line: str) -> None:
    """Print a line at once, whoever reads it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_all(verdicts: Iterable[Verdict], *, required: Sequence[str], again: str, is_traced: bool = False) -> Report:
    """Say what there is to say of verdicts as they come; `again` is what plays a seed once more, `is_traced` has each said."""
    report, begun = Report(required=required), time.monotonic()
    for verdict in verdicts:
        report.add(verdict)
        for sentence in verdict.told[:_SAID_MAX]:
            say(f"seed {verdict.seed}: {sentence}")
        if verdict.told:
            say(f"    again, with all that happened: {again.format(verdict.seed)}")
        if is_traced:
            say(f"seed {verdict.seed}: {verdict.simulated_ms} ms, {sorted(verdict.reached.items())}")
    wall_s, simulated_s = max(time.monotonic() - begun, 0.001), report.simulated_ms / 1000
    say(f"{report.seeds} seeds, {len(report.failed)} failed, {report.acknowledged:,} events acknowledged")
    say(f"{simulated_s:,.0f} cluster-seconds in {wall_s:.1f} s, {simulated_s / max(report.cpu_s, 0.001):,.0f} in a CPU-second")
    for name in sorted({*report.reached, *required}):
        say(f"  {name:<36} {report.reached[name]:>8,} times in {report.runs[name]:>5,} seeds")
    for name in report.missing:
        say(f"never reached: {name}")
    return report
