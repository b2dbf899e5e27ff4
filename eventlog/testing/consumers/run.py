"""Seeds of the simulators of consumers: `python -m eventlog.testing.consumers --seeds 0:200` runs both kinds on each."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from eventlog.testing.consumers.groups import GroupRun
from eventlog.testing.consumers.reading import ReadingRun

KINDS: Final = ("group", "reading")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed. `errors` are what a process died of, or a core found wrong."""

    violations: tuple[str, ...]
    errors: tuple[str, ...]
    reached: Counter[str]


def run_group(seed: int) -> Outcome:
    """Run a consumer group on a seed, and judge it."""
    run = GroupRun(seed)
    run.run()
    reached = run.reached + Counter({"commits": run.history.commits})
    return Outcome(violations=tuple(run.history.violations), errors=tuple(map(repr, run.errors)), reached=reached)


def run_reading(seed: int) -> Outcome:
    """Run readers with filters and reads of state on a seed, and judge them."""
    run = ReadingRun(seed)
    run.run()
    return Outcome(violations=tuple(run.violations), errors=(), reached=run.reached)


def run_seed(kind: str, seed: int) -> Outcome:
    """Run a seed of one of `KINDS`."""
    return {"group": run_group, "reading": run_reading}[kind](seed)
