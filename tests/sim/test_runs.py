"""Real nodes on virtual time, in processes of their own: what they come to, and that it is the seed alone that decides it."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.run import REQUIRED, never_reached

TOP = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.process, pytest.mark.source, pytest.mark.timeout(600)]


def played(*arguments: str, of: str = "tests.sim", hash_seed: str = "0") -> str:
    """Return what a run of seeds prints; it must end well."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", of, *arguments]
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_seed_is_one_run_whatever_order_sets_have() -> None:
    assert played("3", "5", "--trace", hash_seed="1") == played("3", "5", "--trace", hash_seed="2")


def test_a_seed_of_a_cluster_is_one_run_also_behind_another() -> None:
    both = played("402", "403", "--trace", "--processes", "1", of="tests.sim.cluster", hash_seed="1").splitlines()
    alone = played("403", "--trace", "--processes", "1", of="tests.sim.cluster", hash_seed="2").splitlines()
    assert both[1] == alone[0]
    assert alone[0].startswith("seed 403: ")


def test_many_seeds_that_never_reach_a_fault_are_no_good_run() -> None:
    reached = Counter(dict.fromkeys(REQUIRED, 1))
    assert never_reached(reached, seeds=27) == []
    del reached["rot"]
    assert never_reached(reached, seeds=27) == ["rot"]
    assert never_reached(reached, seeds=1) == []
