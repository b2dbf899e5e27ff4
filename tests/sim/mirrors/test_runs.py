"""Whole runs of mirrors: what the product does holds, what makes them worth something happens, and a planted bug is seen."""

import pytest

from tests.examples import examples
from tests.sim.kinds import FACTS
from tests.sim.mirrors.mutants import MUTANTS
from tests.sim.mirrors.run import run_seed
from tests.sim.planting import applied


def test_the_history_of_seeds_holds():
    for seed in range(500_000, 500_000 + examples(40)):
        assert (seed, run_seed(seed).violations) == (seed, ())


def test_what_makes_a_run_worth_something_happens_within_a_few_seeds():
    missing = set(FACTS["mirrors"].required)
    for seed in range(10):
        missing -= {state for state, count in run_seed(seed).reached.items() if count}
        if not missing:
            break
    assert missing == set()


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.world == "mirrors"], ids=lambda one: one.name)
def test_the_history_tells_on_a_planted_bug_within_a_few_seeds(mutant):
    with applied(mutant):
        assert any(run_seed(seed).violations for seed in range(mutant.seed, mutant.seed + 20))
