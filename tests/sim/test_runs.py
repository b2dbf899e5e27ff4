"""Real nodes on virtual time, in processes of their own: what they come to, and that it is the seed alone that decides it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.run import KINDS

TOP = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.process, pytest.mark.source, pytest.mark.timeout(600)]


def played(*arguments: str, hash_seed: str = "0") -> str:
    """Return what a run of seeds prints; it must end well."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.sim", *arguments]
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_seed_is_one_run_whatever_order_sets_have() -> None:
    assert played("3", "5", "--trace", hash_seed="1") == played("3", "5", "--trace", hash_seed="2")


def test_faults_are_reached_and_nothing_is_lost() -> None:
    found = played("7", "100:108")
    assert "9 seeds, 0 failed" in found
    faults = ("crash", "pause", "cut", "jump", "blackout", "drain", "fill", "fail_sync", "rot", "rotten", "flip", "flipped")
    for reached in (*faults, "written", "iterated", "events trimmed", "groups audited", *KINDS):
        assert f"{reached} " in found
