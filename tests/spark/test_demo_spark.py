"""`eventlog demo --spark` as a user runs it, and what it says where something is missing."""

import os
import subprocess
from pathlib import Path

import orjson
import pytest

from tests.process.cli_ends import PROGRAM

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
HANGS_AFTER_SECONDS = 240


def run(directory: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [*PROGRAM, "demo", "--spark", "--listen", "127.0.0.1:0", "--data", str(directory), *words]
    own = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_SECONDS, check=False, env=own)


def test_the_demo_reads_over_an_archive_and_nodes_and_keeps_every_promise(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    done = run(home, "--nodes", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    *checks, rest = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert {row["promise"]: row["kept"] for row in checks if not row["kept"]} == {}
    counts = {row["promise"]: row["checked"] for row in checks}
    assert len(counts) == 8
    whole = counts["a stream from the beginning has the same events as a batch"]
    assert whole > 20_000
    assert 0 < counts["what the nodes keep no more is read from the archive"] <= counts["the archive is as it was written"] < whole
    assert [line.split()[0] for line in done.stderr.splitlines()] == [
        "start",
        "load",
        "spark",
        "archive",
        "load",
        "retain",
        "batch",
        "stream",
        "check",
    ]
    start, status, *_, over_both = rest["commands"]
    try:
        for line in (start, status):
            subprocess.run(["bash", "-c", line], check=True, capture_output=True, timeout=60)
        told = subprocess.run(["bash", "-c", over_both], check=True, capture_output=True, timeout=60)
        assert len(told.stdout.splitlines()) == 3
    finally:
        subprocess.run(["sh", str(home / "stop")], check=True, capture_output=True, timeout=60)


def test_without_java_it_says_what_to_install_and_starts_nothing(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    done = run(home, PATH=str(tmp_path), JAVA_HOME="")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "there is no Java on PATH" in line
    assert not home.exists()


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no', name='pyspark')")
    done = run(tmp_path / "demo", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("pyspark is not installed, which Spark takes: pip install 'eventlog[spark]'")


def test_an_older_pyspark_is_refused_by_name_and_version(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("__version__ = '4.0.1'")
    done = run(tmp_path / "demo", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("PySpark 4.0.1 is too old for eventlog, which needs 4.1 or newer")
