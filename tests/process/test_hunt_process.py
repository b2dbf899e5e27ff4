"""The hunt for planted bugs as a process: without asserts, and called wrongly."""

import subprocess
import sys


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
