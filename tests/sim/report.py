"""What became of seeds: a verdict for each, and of many a line for each that failed, then what was reached, and how fast it went."""

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from resource import RUSAGE_SELF, getrusage
from typing import Final, Protocol

_SAID_MAX: Final = 6
_COLLECTIONS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a seed. `violations` are of the history, or what broke; `acknowledged` counts events."""

    seed: int
    violations: tuple[str, ...]
    reached: Counter[str]
    simulated_ms: int
    acknowledged: int
    cpu_s: float


class Played(Protocol):
    """A run that is over, or one that is to be played."""

    @property
    def violations(self) -> Sequence[str]: ...

    @property
    def reached(self) -> Counter[str]: ...

    @property
    def simulated_ms(self) -> int: ...

    @property
    def acknowledged(self) -> int: ...


def judge(seed: int, play: Callable[[], Played]) -> Verdict:
    """Play a run and return what became of it.

    Garbage is collected between runs: what is finalised in the middle of one, and when, would go by how much memory was used before.
    """
    for _ in range(_COLLECTIONS):  # the first ends what was in the middle of something, which goes with the next
        gc.collect()
    gc.freeze()  # what is left are modules and caches, which need not be looked through after each run
    gc.disable()
    begun_s = getrusage(RUSAGE_SELF).ru_utime
    try:
        run = play()
    finally:
        gc.enable()
    return Verdict(
        seed=seed,
        violations=tuple(run.violations),
        reached=Counter(run.reached),
        simulated_ms=run.simulated_ms,
        acknowledged=run.acknowledged,
        cpu_s=getrusage(RUSAGE_SELF).ru_utime - begun_s,
    )


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of the seeds so far. Of `reach_min` or more of them, one has to reach each state that is `required`."""

    required: Sequence[str]
    reach_min: int
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
        return tuple(name for name in self.required if not self.reached[name]) if self.seeds >= self.reach_min else ()

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.missing


def say(line: str) -> None:
    """Print a line at once, whoever reads it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_all(verdicts: Iterable[Verdict], report: Report, *, again: str, is_traced: bool = False) -> Report:
    """Say what there is to say of verdicts as they come; `again` is what plays a seed once more, `is_traced` has each said."""
    begun = time.monotonic()
    for verdict in verdicts:
        report.add(verdict)
        for sentence in verdict.violations[:_SAID_MAX]:
            say(f"seed {verdict.seed}: {sentence}")
        if verdict.violations:
            say(f"    again, with all that happened: {again.format(verdict.seed)}")
        if is_traced:
            say(f"seed {verdict.seed}: {verdict.simulated_ms} ms, {sorted(verdict.reached.items())}")
    wall_s, simulated_s = max(time.monotonic() - begun, 0.001), report.simulated_ms / 1000
    say(f"{report.seeds} seeds, {len(report.failed)} failed, {report.acknowledged:,} events acknowledged")
    say(f"{simulated_s:,.0f} simulated seconds in {wall_s:.1f} s, {simulated_s / max(report.cpu_s, 0.001):,.0f} in a CPU-second")
    for name in sorted({*report.reached, *report.required}):
        say(f"  {name:<36} {report.reached[name]:>8,} times in {report.runs[name]:>5,} seeds")
    for name in report.missing:
        say(f"never reached: {name}")
    return report
