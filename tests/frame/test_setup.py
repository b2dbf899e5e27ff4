"""Which interpreter the set-up takes."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

TOP = Path(__file__).resolve().parents[2]
SETUP = TOP / ".ci" / "setup"


def found(*, named: str = "", path: Path) -> str:
    """Return the interpreter that is found with `PYTHON` named, and with such a `PATH`."""
    script = SETUP.read_text()
    function = script[script.index("find_python() {") : script.index("python=$(find_python)")]
    distribution = function.replace("/usr/bin/", f"{path}/usr/")
    environment = os.environ | {"PYTHON": named, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", f"{distribution}\nfind_python"], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def make(file: Path, *, works: bool) -> str:
    """Make an interpreter that says that it will do, or that something is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\nexit {0 if works else 1}\n")
    file.chmod(0o755)
    return str(file)


def test_an_interpreter_that_is_named_is_taken(tmp_path):
    make(tmp_path / "usr" / "python3.11", works=True)
    named = make(tmp_path / "mine", works=True)
    assert found(named=named, path=tmp_path) == named


def test_a_distributions_own_comes_before_what_is_found_on_the_path(tmp_path):
    make(tmp_path / "python3.11", works=True)
    own = make(tmp_path / "usr" / "python3.12", works=True)
    assert found(path=tmp_path) == own


def test_an_interpreter_without_its_venv_module_is_passed_over(tmp_path):
    make(tmp_path / "usr" / "python3.11", works=False)
    make(tmp_path / "python3.11", works=True)
    assert found(path=tmp_path) == "python3.11"
