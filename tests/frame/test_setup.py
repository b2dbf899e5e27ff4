"""Which interpreter the set-up takes, and that two set-ups at once do no harm to each other."""

import os
import shutil
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
        ["sh", "-c", f"{distribution}\nfind_python"], cwd=path, env=environment, capture_output=True, text=True, check=True
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


def test_an_environment_keeps_its_interpreter(tmp_path):
    make(tmp_path / "usr" / "python3.11", works=True)
    make(tmp_path / ".venv" / "bin" / "python", works=True)
    assert found(path=tmp_path) == ".venv/bin/python"


def test_no_other_than_the_named_interpreter_is_taken(tmp_path):
    make(tmp_path / "usr" / "python3.11", works=True)
    assert found(named=make(tmp_path / "old", works=False), path=tmp_path) == ""
    assert found(named=make(tmp_path / "with space" / "python3", works=True), path=tmp_path) == str(tmp_path / "with space" / "python3")


INTERPRETER = """\
#!/bin/sh
case "$*" in
    *"-m venv"*) echo laid >>log; sleep 0.5; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    *"pip install"*) echo installed >>log ;;
    -VV) echo Python 3 ;;
esac
"""


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    for name in ("pyproject.toml", "requirements/base.txt", ".ci/setup"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    shutil.copy(SETUP, top / ".ci" / "setup")
    (top / "python").write_text(INTERPRETER)
    (top / "python").chmod(0o755)
    return top


def start(tree: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([tree / ".ci" / "setup", "base"], env=os.environ | {"PYTHON": str(tree / "python")}, stderr=subprocess.DEVNULL)


def log_of(tree: Path) -> list[str]:
    return (tree / "log").read_text().split()


def test_of_two_at_once_the_second_waits_for_the_first(tree):
    both = start(tree), start(tree)
    assert [one.wait() for one in both] == [0, 0]
    assert log_of(tree) == ["laid", "installed", "installed"]


def test_an_environment_is_laid_anew_where_its_folder_was_moved(tree):
    assert start(tree).wait() == 0
    moved = tree.rename(tree.with_name("moved"))
    assert start(moved).wait() == 0
    assert log_of(moved) == ["laid", "installed", "installed"] * 2
