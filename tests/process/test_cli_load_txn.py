"""`load --txn`: all of a file or nothing of it, and by one name once."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import blocking
from tests.process.nodes import NodeProcess

KILLS = 8  # from its beginning to about its end
pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", "8") as running:
        yield running


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[blocking.Client]:
    with blocking.connect(node.address) as connected:
        yield connected


def file_of(path: Path, rows: int, *, bad: int = -1) -> Path:
    path.write_text("".join(json.dumps({"key": f"k{n}", "n": n}) + "\n" if n != bad else "{\n" for n in range(rows)))
    return path


def words(node: NodeProcess, cache: str, path: Path, name: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "eventlog_cli",
        "load",
        cache,
        str(path),
        "--key",
        "key",
        "--txn",
        name,
        "--server",
        node.address,
        "--json",
    ]


def load(node: NodeProcess, cache: str, path: Path, name: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words(node, cache, path, name), capture_output=True, check=False, text=True, timeout=60)


def test_a_file_is_written_once_by_its_name(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("once")
    path = file_of(tmp_path / "rows.jsonl", 12_000)
    told = [json.loads(load(node, "once", path, "2026-11-20").stdout) for _ in range(2)]
    assert [(one["loaded"], one["repeated"]) for one in told] == [(12_000, False), (0, True)]
    assert len(list(cache.events())) == 12_000
    assert json.loads(load(node, "once", path, "2026-11-21").stdout)["repeated"] is False
    assert len(list(cache.events())) == 24_000


def test_of_a_file_with_a_bad_row_nothing_is_written(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("whole")
    done = load(node, "whole", file_of(tmp_path / "bad.jsonl", 30_000, bad=25_000), "day")
    assert done.returncode == 1
    assert "nothing is written" in done.stderr
    assert list(cache.events()) == []
    assert json.loads(load(node, "whole", file_of(tmp_path / "good.jsonl", 500), "day").stdout)["loaded"] == 500
    assert cache.size() == 500


def test_killed_anywhere_and_loaded_again_all_of_it_is_there_once(node: NodeProcess, client: blocking.Client, tmp_path: Path) -> None:
    cache = client.create_cache("killed")
    path = file_of(tmp_path / "rows.jsonl", 60_000)
    client.create_cache("timed")
    began = time.monotonic()
    assert load(node, "timed", path, "day").returncode == 0
    takes_s, kills = time.monotonic() - began, 0
    for number in range(KILLS):
        with subprocess.Popen(words(node, "killed", path, "day"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            time.sleep(takes_s * (number + 1) / KILLS)
            kills += running.poll() is None
            running.kill()
    assert load(node, "killed", path, "day").returncode == 0
    assert kills
    assert sorted(event.key for event in cache.events()) == sorted(f"k{n}" for n in range(60_000))
