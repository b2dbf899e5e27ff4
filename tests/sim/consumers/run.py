"""Seeds of the simulators of consumers: `python -m tests.sim.consumers --seeds 0:200` runs every kind on each."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.sim.consumers.mirrors import MirrorRun
from tests.sim.consumers.near import NearRun
from tests.sim.consumers.reading import ReadingRun
from tests.sim.consumers.work import WorkRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed. `errors` are what a process died of, or a core found wrong."""

    violations: tuple[str, ...]
    errors: tuple[str, ...]
    reached: Counter[str]


def run_reading(seed: int) -> Outcome:
    """Run readers with filters and reads of state on a seed, and judge them."""
    run = ReadingRun(seed)
    run.run()
    return Outcome(violations=tuple(run.violations), errors=(), reached=run.reached)


def run_near(seed: int) -> Outcome:
    """Run a near cache on a seed, and judge it."""
    run = NearRun(seed)
    run.run()
    return Outcome(violations=tuple(run.violations), errors=(), reached=run.reached)


def run_work(seed: int) -> Outcome:
    """Run a work group on a seed, and judge it."""
    run = WorkRun(seed)
    run.run()
    return Outcome(violations=tuple(run.violations), errors=tuple(map(repr, run.errors)), reached=run.reached)


def run_mirror(seed: int) -> Outcome:
    """Run a mirror on a seed, and judge it."""
    run = MirrorRun(seed)
    run.run()
    return Outcome(violations=tuple(run.violations), errors=tuple(map(repr, run.errors)), reached=run.reached)


RUNS: Final[Mapping[str, Callable[[int], Outcome]]] = {
    "reading": run_reading,
    "near": run_near,
    "work": run_work,
    "mirror": run_mirror,
}
KINDS: Final = tuple(RUNS)


def run_seed(kind: str, seed: int) -> Outcome:
    """Run a seed of one of `KINDS`."""
    return RUNS[kind](seed)
