"""What the command line sets in its own process before anything is imported."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
from eventlog_cli.__main__ import run
sys.argv = ["eventlog", *sys.argv[1:]]
try:
    run()
except SystemExit:
    pass
assert "numpy" in sys.modules, "what is looked at here is what numpy starts"
names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
print(os.environ["OPENBLAS_NUM_THREADS"], names.count(Path("/proc/self/comm").read_text()))  # pyarrow's thread has a name of its own
"""
WITH_NUMPY = ("consume", "--help"), ("serve", "--listen", "192.0.2.1:7400", "--insecure")  # nobody has that address


def last_line(*words: str, threads: str | None) -> str:
    """Return what a process says that has run a command, with this in its environment."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if threads is not None:
        environment["OPENBLAS_NUM_THREADS"] = threads
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, env=environment, check=True, timeout=120)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("words", WITH_NUMPY)
def test_numpy_starts_no_thread_a_core_for_matrices_that_are_not_there(words: tuple[str, ...]) -> None:
    assert last_line(*words, threads=None) == "1 1"


@pytest.mark.parametrize("words", WITH_NUMPY)
def test_a_number_of_threads_that_was_chosen_stays(words: tuple[str, ...]) -> None:
    assert last_line(*words, threads="2").split()[0] == "2"


def test_the_library_leaves_the_environment_of_its_application_alone() -> None:
    script = "import os; before = dict(os.environ); import eventlog, eventlog.client.client, numpy; assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
