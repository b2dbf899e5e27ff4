"""Runs as processes: that it is the seed alone that decides what they come to, and how what they come to is told."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lanes import lanes
from tests.sim.kinds import FACTS, NAMES
from tests.sim.report import Report, Verdict, judge, say_all

TOP = Path(__file__).resolve().parents[2]
process = pytest.mark.process


def played(*arguments: str, hash_seed: str = "0") -> str:
    """Return what a run of seeds prints; it must end well."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.sim", *arguments, "--processes", "1", "--trace"]
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@process
@pytest.mark.source
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "first", "second"), [("clusters", "402", "403"), *((kind, "7", "3") for kind in NAMES if kind != "clusters")]
)
def test_a_seed_is_one_run_whatever_order_sets_have_also_behind_another(kind: str, first: str, second: str) -> None:
    both = played(kind, first, second, hash_seed="1").splitlines()
    alone = played(kind, second, hash_seed="2").splitlines()
    assert both[1] == alone[0]
    assert alone[0].startswith(f"seed {second}: ")


def verdict(*violations: str, reached: str = "this") -> Verdict:
    return Verdict(seed=7, violations=violations, reached=Counter([reached]), simulated_ms=1_000, acknowledged=3, cpu_s=0.5)


def report_of(*verdicts: Verdict, reach_min: int = 1) -> Report:
    return say_all(verdicts, Report(required=("this",), reach_min=reach_min), again="again {}")


def test_a_failing_seed_is_told_with_what_plays_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_of(verdict()).is_good
    assert not report_of(verdict("it was lost"), verdict()).is_good
    assert "seed 7: it was lost\n    again, with all that happened: again 7\n2 seeds, 1 failed, 6 events" in capsys.readouterr().out


def test_many_seeds_that_never_reach_a_state_are_no_good_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert not report_of(verdict(reached="that")).is_good
    assert "never reached: this" in capsys.readouterr().out
    assert report_of(verdict(reached="that"), reach_min=2).is_good


def test_what_a_run_came_to_is_taken_as_it_ended() -> None:
    found = judge(5, lambda: SimpleNamespace(violations=["gone"], reached=Counter({"this": 2}), simulated_ms=9, acknowledged=4))
    assert (found.seed, found.violations, found.reached["this"], found.simulated_ms, found.acknowledged) == (5, ("gone",), 2, 9, 4)


def test_every_kind_is_played_by_every_test_run_with_enough_seeds_to_ask_what_they_reached() -> None:
    commands = [line[3:] for line in lanes()["sim"].commands if line[2] == "tests.sim"]
    assert [line[0] for line in commands] == list(NAMES)
    for kind, seeds, known, *_ in commands:
        assert known == "--known"
        assert int(seeds.partition(":")[2]) >= FACTS[kind].reach_min  # type: ignore[index]
