"""`make setup` and `make proto`: what they say when something is missing or out of date."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree as a script of .ci sees it, and a folder `bin` for all the programs there are."""
    tree = tmp_path / "tree"
    shutil.copytree(TOP / ".ci", tree / ".ci")
    (tmp_path / "bin").mkdir()
    for name in ("sh", "dirname"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    return tree


def python_that(folder: Path, script: str) -> None:
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def setup(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(tree.parent / "bin")}
    return subprocess.run(
        [tree / ".ci" / "setup", *words], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_without_python_one_line_says_what_to_install(tree: Path) -> None:
    done = setup(tree)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer" in done.stderr


def test_a_python_that_is_too_old_is_not_taken(tree: Path) -> None:
    python_that(tree.parent / "bin", 'case "$2" in *version_info*) exit 1;; esac')
    assert "Python 3.11 or newer" in setup(tree).stderr


def test_without_the_venv_module_one_line_says_what_to_install(tree: Path) -> None:
    python_that(tree.parent / "bin", 'case "$2" in *ensurepip*) exit 1;; esac')
    done = setup(tree)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "python3-venv" in done.stderr


@pytest.fixture
def installs(tree: Path) -> Path:
    """A log of every installation that setup makes in the tree; its pythons do nothing but write there."""
    log = tree.parent / "installs.log"
    for name in ("cat", "cksum", "env"):
        (tree.parent / "bin" / name).symlink_to(shutil.which(name) or name)
    (tree / "requirements").mkdir()
    for name in ("pyproject.toml", "requirements/base.txt", "requirements/dev.txt"):
        (tree / name).write_text(name)
    (tree / ".venv" / "bin").mkdir(parents=True)
    python_that(tree.parent / "bin", "exit 0")
    python_that(tree / ".venv" / "bin", f'case "$*" in *install*) echo "$*" >>{log};; esac')
    (tree / ".venv" / "bin" / "python3").rename(tree / ".venv" / "bin" / "python")
    log.touch()
    return log


def installed(log: Path) -> list[str]:
    words = log.read_text()
    log.write_text("")
    return [name for name in ("base.txt", "dev.txt", "--editable .") if name in words]


def test_a_second_setup_installs_nothing(tree: Path, installs: Path) -> None:
    assert setup(tree).returncode == 0
    assert installed(installs) == ["dev.txt", "--editable ."]
    assert setup(tree).returncode == 0
    assert installed(installs) == []


def test_the_base_packages_alone_are_installed_for_the_demo(tree: Path, installs: Path) -> None:
    assert setup(tree, "base").returncode == 0
    assert installed(installs) == ["base.txt", "--editable ."]


def test_whoever_has_the_dev_packages_has_the_base_packages(tree: Path, installs: Path) -> None:
    setup(tree)
    installed(installs)
    assert setup(tree, "base").returncode == 0
    assert installed(installs) == []


@pytest.mark.parametrize("changed", ["requirements/dev.txt", "pyproject.toml"])
def test_what_changed_is_installed_again(tree: Path, installs: Path, changed: str) -> None:
    setup(tree)
    installed(installs)
    (tree / changed).write_text("changed")
    assert setup(tree).returncode == 0
    assert installed(installs) == ["dev.txt", "--editable ."]


def test_an_installation_that_failed_is_tried_again(tree: Path, installs: Path) -> None:
    python = tree / ".venv" / "bin" / "python"
    works = python.read_text()
    python.write_text('#!/bin/sh\ncase "$*" in *install*) exit 1;; esac\n')
    done = setup(tree)
    assert done.returncode == 1
    assert "could not install requirements/dev.txt" in done.stderr
    python.write_text(works)
    assert setup(tree).returncode == 0
    assert installed(installs) == ["dev.txt", "--editable ."]


@pytest.fixture
def generated(tree: Path) -> Path:
    """The tree with the schema and the code that is generated from it."""
    (tree / ".venv").symlink_to(TOP / ".venv")
    shutil.copytree(TOP / "schemas", tree / "schemas")
    for name in ("wire/eventlog_pb2.py", "control/metastores/etcd_pb2.py"):
        copy = tree / "eventlog" / name
        copy.parent.mkdir(parents=True)
        shutil.copy(TOP / "eventlog" / name, copy)
        shutil.copy(TOP / "eventlog" / f"{name}i", f"{copy}i")
    return tree


def proto(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tree / ".ci" / "proto", *options], env=dict(os.environ), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def test_the_generated_code_is_current(generated: Path) -> None:
    done = proto(generated, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_changed_schema_is_noticed_and_generated(generated: Path) -> None:
    schema = generated / "schemas" / "eventlog.proto"
    schema.write_text(schema.read_text() + "\nmessage OneMore { int64 id = 1; }\n")
    done = proto(generated, "--check")
    assert done.returncode == 1
    assert "run make proto" in done.stderr
    assert proto(generated).returncode == 0
    assert "class OneMore" in (generated / "eventlog" / "wire" / "eventlog_pb2.pyi").read_text()
    assert proto(generated, "--check").returncode == 0
