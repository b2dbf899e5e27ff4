"""Questions to all primaries of a simulated cluster, and the checks of what was answered."""

from collections import Counter

from tests.sim.cores.asking import run_questions


def test_what_all_primaries_are_asked_is_answered_for_all_of_them_or_not_at_all():
    reached: Counter[str] = Counter()
    for seed in range(30):
        outcome = run_questions(seed)
        assert (outcome.violations, outcome.errors) == ((), ()), seed
        reached += outcome.reached
    refused = ("question refused: PRIMARIES_MISSING", "probe not answered")
    for what in ("cleared", "listed", "cut by a hold", "cut by what is committed", "probe answered", *refused):
        assert reached[what] > 20, (what, reached)
