"""Pages that are printed again and again: into a pipe as they come, on a terminal over each other, and where no node answers."""

import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.process.cli_ends import PROGRAM, Shell, running_node

WITHIN_S = 60
HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("top")) as shell:
        shell.ok("cache", "create", "orders", "--format", "bytes")
        shell.ok("listener", "register", "orders", "--durable", "--id", "slow", "--hold", "1MiB")
        shell.ok("load", "orders", "-", "--key", "k", given=b"".join(b'{"k": "%d"}\n' % number for number in range(50)))
        yield shell


def lines_of(running: "subprocess.Popen[bytes]", count: int) -> list[bytes]:
    """Return the first lines of a command that goes on."""
    assert running.stdout is not None
    return [running.stdout.readline() for _ in range(count)]


def interrupted(running: "subprocess.Popen[bytes]") -> int:
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=WITHIN_S)
    return running.returncode


@pytest.mark.parametrize("words", [("top", "--interval", "200ms"), ("admin", "status", "--watch")])
def test_each_page_reaches_a_pipe_when_it_is_made(shell: Shell, words: tuple[str, ...]) -> None:
    running = shell.start(*words, "--json")
    rows = [orjson.loads(line) for line in lines_of(running, 2)]
    assert [(row["health"], row["advice"]) for row in rows] == [("ok", []), ("ok", [])]
    assert interrupted(running) == 130


def test_a_page_has_nodes_rates_lag_and_the_next_command(shell: Shell) -> None:
    first, second = shell.ok("top", "--interval", "200ms", "--count", "2", "--json").rows
    assert (first["written_per_second"], second["written_per_second"]) == (None, 0.0)
    assert first["held_by"] is None
    [node] = first["nodes"]
    assert (node["address"], node["state"], node["segments"]) == (shell.node.address, "live", 256)
    [reader] = first["readers"]
    assert (reader["kind"], reader["name"], reader["cache"], reader["lag"]) == ("listener", "slow", "orders", 50)
    text = shell.ok("top", "--count", "1").out
    assert HOME_AND_CLEAR not in text
    assert text.endswith("\nnext: nothing to do\n")
    for wanted in (f"{shell.node.address}  live", "1 of 1 nodes live", "listener  slow  orders   50", "low watermark"):
        assert wanted in text


@pytest.mark.parametrize("words", [("top", "--interval", "200ms", "--count", "2"), ("admin", "status", "--watch")])
def test_on_a_terminal_a_page_takes_the_place_of_the_one_before(shell: Shell, words: tuple[str, ...]) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen([*PROGRAM, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=shell.environment)
    os.close(theirs)
    shown = ""
    while shown.count("next: ") < 2:
        assert select.select([ours], [], [], WITHIN_S)[0], shown
        shown += os.read(ours, 1 << 16).decode()
    running.send_signal(signal.SIGINT)
    running.wait(WITHIN_S)
    os.close(ours)
    assert shown.startswith(HOME_AND_CLEAR)
    assert shown.count(HOME_AND_CLEAR) == 2


@pytest.mark.parametrize("words", [("top", "--interval", "200ms"), ("admin", "status", "--watch")])
def test_where_no_node_answers_that_is_a_page_and_the_next_one_is_tried(tmp_path: Path, words: tuple[str, ...]) -> None:
    with running_node(tmp_path) as shell:
        running = shell.start("--timeout", "1s", *words, "--json")
        assert orjson.loads(lines_of(running, 1)[0])["health"] == "ok"
        shell.node.kill()
        while "error" not in (row := orjson.loads(lines_of(running, 1)[0])):
            pass
        assert set(row) == {"error", "why"}
        shell.node.start()
        while "error" in (row := orjson.loads(lines_of(running, 1)[0])):
            pass
        assert row["cluster"]
        assert interrupted(running) == 130
