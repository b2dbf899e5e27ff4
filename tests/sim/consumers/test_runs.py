"""Whole runs of consumers: what the product does holds, the same seed is the same run, and a planted bug is seen."""

import pytest

from tests.examples import examples
from tests.lanes import lanes
from tests.sim.consumers.__main__ import main
from tests.sim.consumers.mutants import CONSUMER_MUTANTS
from tests.sim.consumers.run import KINDS, run_seed
from tests.sim.consumers.work import WorkRun
from tests.sim.planting import applied


def test_seeds_that_failed_once_are_run_again_by_every_test_run(capsys):
    assert any({"tests.sim.consumers", "--known"} <= set(line) for line in lanes()["sim"].commands)
    assert main(["--known", "--seeds", "5"], known=(3, 4)) == 0
    assert "3 seeds of" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_the_history_of_seeds_holds(kind):
    for seed in range(500_000, 500_000 + examples(40)):
        outcome = run_seed(kind, seed)
        assert (seed, outcome.violations, outcome.errors) == (seed, (), ())


def test_a_failing_seed_is_told_and_fails_the_command(capsys):
    mutant = next(mutant for mutant in CONSUMER_MUTANTS if mutant.name == "event handed out twice at once")
    with applied(mutant):
        assert main(["--seeds", f"{mutant.seed}:{mutant.seed + 6}"]) == 1
    assert "of work: " in capsys.readouterr().out
    assert main(["--seeds", "3"]) == 0
    assert "1 seeds of reading, near, work, mirror: 0 failed" in capsys.readouterr().out


def test_what_was_never_reached_fails_a_run_of_many_seeds(capsys):
    assert main(["--seeds", "3"], required=("handed out", "a flood"), seeds_min_for_reach=1) == 1
    said = capsys.readouterr().out
    assert "never reached: a flood" in said
    assert "never reached: handed out" not in said


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ("reading", ("iterations", "query restarts", "pins changed within a segment")),
        ("near", ("served from memory", "watch lost", "own write")),
        (
            "mirror",
            (
                "events trimmed",
                "owner wakes",
                "owners overlap",
                "shard killed and moved",
                "connection lost: commit",
                "connection lost: done",
            ),
        ),
        ("work", ("handed out", "dead letters", "dead letters refused", "move", "session ends", "clock jumps", "retries")),
    ],
)
def test_what_makes_a_run_worth_something_happens_within_a_few_seeds(kind, states):
    missing = set(states)
    for seed in range(10):
        missing -= {state for state, count in run_seed(kind, seed).reached.items() if count}
        if not missing:
            break
    assert missing == set()


def test_a_work_group_ends_with_every_event_done_or_buried():
    run = WorkRun(5)
    run.run()
    assert run.violations == []
    assert run.reached["handed out"] > run.reached["write"] > 50


@pytest.mark.parametrize("mutant", [mutant for mutant in CONSUMER_MUTANTS if mutant.world != "group"], ids=lambda one: one.name)
def test_the_history_tells_on_a_planted_bug_within_a_few_seeds(mutant):
    with applied(mutant):
        assert any(run_seed(mutant.world, seed).violations for seed in range(mutant.seed, mutant.seed + 20))
