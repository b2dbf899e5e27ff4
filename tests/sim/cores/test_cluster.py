"""Whole runs: the product's cores under faults, the same run for the same seed, and a failing one that says how to see it again."""

import pytest

from tests.lanes import lanes
from tests.sim.cores.__main__ import main
from tests.sim.cores.cluster import run_seed
from tests.sim.cores.known import FAILED_ONCE
from tests.sim.cores.mutants import MUTANTS
from tests.sim.cores.report import REQUIRED
from tests.sim.planting import applied
from tests.sim.report import SEEDS_MIN_FOR_REACH, Report


@pytest.mark.parametrize("seed", range(1_000_000, 1_000_008))
def test_the_history_of_a_seed_holds(seed):
    verdict = run_seed(seed)
    assert (verdict.violations, verdict.errors) == ((), ())
    assert verdict.acknowledged > 0


def test_a_seed_is_one_run_and_another_seed_is_another():
    assert run_seed(3).trace == run_seed(3).trace != run_seed(4).trace


def test_a_trace_tells_what_happens_and_does_not_change_it():
    verdict = run_seed(3, keep_lines=True)
    assert verdict.trace == run_seed(3).trace
    assert any("Rows" in line for line in verdict.lines)


def test_seeds_that_hold_end_with_what_was_reached(capsys):
    assert main(["--seeds", "0:3", "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert "3 seeds, 0 failed" in said
    assert "cluster-seconds in" in said
    assert all(name in said for name in REQUIRED)


def test_a_seed_that_fails_says_why_and_how_to_see_it_again(capsys):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "promise ignores what is in flight")
    with applied(mutant):
        assert main(["--seeds", str(mutant.seed), "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert f"seed {mutant.seed}: " in said
    assert f"--trace {mutant.seed}" in said


def test_a_trace_is_printed_with_the_verdict(capsys):
    assert main(["--trace", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 500
    assert lines[-1].startswith("sum of the trace: ")


def test_many_seeds_that_never_reach_an_interesting_state_fail():
    report = Report(required=REQUIRED)
    report.seeds = SEEDS_MIN_FOR_REACH - 1
    assert report.is_good, "a few seeds may miss one by chance"
    report.seeds += 1
    assert not report.is_good
    assert report.missing == REQUIRED
    report.reached.update(REQUIRED)
    assert report.is_good


def test_seeds_that_failed_once_are_run_again_by_every_test_run(capsys):
    assert all(isinstance(seed, int) and seed >= 0 for seed in FAILED_ONCE)
    assert any({"tests.sim.cores", "--known"} <= set(command) for command in lanes()["sim"].commands)
    assert main(["--known", "--seeds", "5", "--processes", "1"], known=(3, 4)) == 0
    assert "3 seeds, 0 failed" in capsys.readouterr().out
