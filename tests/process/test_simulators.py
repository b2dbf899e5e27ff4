"""The simulators and the hunt for planted bugs as processes: of any order of sets, without asserts, called wrongly."""

import os
import subprocess
import sys

SAYS_RUNS = """
from tests.sim import machine
machine.install()
from tests.sim.cluster.run import run_seed as run_cluster
from tests.sim.consumers.run import KINDS, run_seed
verdict = run_cluster(7, "groups")
print(verdict.simulated_ms, verdict.acknowledged, sorted(verdict.reached.items()))
print(*(sorted(run_seed(kind, 7).reached.items()) for kind in KINDS))
"""


def test_the_same_seed_is_the_same_run_whatever_the_order_of_sets():
    said = set()
    for hash_seed in ("0", "1", "4711"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        said.add(subprocess.run([sys.executable, "-c", SAYS_RUNS], env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(said) == 1


def test_the_hunt_runs_without_asserts():
    command = [sys.executable, "-m", "tests.sim.hunt", "--known", "no floor", "condition not judged", "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition("  ")[0] for line in done.stdout.splitlines()] == ["no floor", "condition not judged"]
    assert "NOT FOUND" not in done.stdout


def test_an_unknown_name_is_wrong_usage():
    done = subprocess.run([sys.executable, "-m", "tests.sim.hunt", "nobody"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no planted bug is called 'nobody'" in done.stderr
