"""The demo as a user runs it, and the commands that it ends with, pasted into a terminal."""

import contextlib
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from tests.process.cli_ends import PROGRAM

pytestmark = pytest.mark.timeout(600)
CPU_SECONDS_MAX = 120  # a third of it where nothing else runs. Of the processor alone: how long the rest takes is up to what else runs
HANGS_AFTER_SECONDS = 240
COMMAND_SECONDS_MAX = 60
PROMISES = {1: 13, 3: 15}


@dataclass
class Demo:
    """What one run of the demo said, and what it and its nodes took of the processors."""

    out: str
    cpu_seconds: float

    @property
    def commands(self) -> list[str]:
        lines = self.out.split("Try", 1)[1].splitlines()[1:]
        return [line.strip() for line in lines[: lines.index("")]]


def run_demo(directory: Path, *words: str) -> Demo:
    before = cpu_seconds_of_children()
    done = subprocess.run(
        [*PROGRAM, "demo", "--listen", "127.0.0.1:0", "--data", str(directory), *words],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Demo(done.stdout, cpu_seconds_of_children() - before)


def cpu_seconds_of_children() -> float:
    """Return what all processes have taken that ended and were waited for: here the demo, and there its nodes."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self) -> None:
        self._child, self._end = pty.fork()
        if self._child == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], os.environ | {"PS1": "", "TERM": "dumb"})

    def paste(self, line: str) -> tuple[str, int]:
        """Paste a line; return what was shown until it ended, and its exit code."""
        os.write(self._end, line.encode() + b'\necho "<"$?">"\n')
        shown = ""
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        while not (found := re.search(r"<(\d+)>\r?\n", shown)):
            assert time.monotonic() < deadline, f"{line} is not done: {shown}"
            if select.select([self._end], [], [], 1)[0]:
                shown += os.read(self._end, 65536).decode(errors="replace")
        return shown, int(found[1])

    def close(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        os.close(self._end)


def paste_all(commands: list[str]) -> list[str]:
    terminal = Terminal()
    shown = []
    try:
        for line in commands:
            text, code = terminal.paste(line)
            assert code == 0, f"{line} ended with {code}: {text}"
            shown.append(text)
    finally:
        terminal.close()
    return shown


@pytest.mark.smoke
def test_the_demo_keeps_every_promise_in_time_and_its_commands_work_when_pasted(tmp_path: Path) -> None:
    demo = run_demo(tmp_path / "demo")
    assert 0 < demo.cpu_seconds < CPU_SECONDS_MAX
    assert demo.out.count(" kept\n") == PROMISES[3]
    assert "BROKEN" not in demo.out
    assert len(demo.commands) == 6
    assert demo.commands[0] == f"sh {tmp_path / 'demo' / 'start'}"
    try:
        shown = paste_all(demo.commands)
    finally:
        stop_nodes_of(tmp_path / "demo")
    assert "health         ok" in shown[1]
    assert '"abbreviation":' in shown[2]
    assert len(re.findall(r'^\{"id":', shown[3], re.MULTILINE)) == 3
    assert '"written by":"me"' in shown[5].replace('": "', '":"')


@pytest.mark.smoke
def test_with_keep_the_node_goes_on_and_the_commands_work_against_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTLOG_NODE_META", f"sqlite:{tmp_path / 'of-a-real-cluster.db'}")
    home = tmp_path / "a demo"
    demo = run_demo(home, "--nodes", "1", "--keep")
    assert demo.out.count(" kept\n") == PROMISES[1]
    try:
        assert len(demo.commands) == 6
        shown = paste_all(demo.commands)
        assert "health         ok" in shown[0]
        assert "sequence" in shown[1]
        assert len(processes_on(home)) == 1
        assert not (tmp_path / "of-a-real-cluster.db").exists()
        paste_all(re.findall(r"^Stop them:  (.*)$", demo.out, re.MULTILINE))
        assert not processes_on(home), "its files can be removed from now on"
        paste_all(re.findall(r"remove them with: (.*)\)$", demo.out, re.MULTILINE))
        assert not home.exists()
    finally:
        stop_nodes_of(home)


def test_the_demo_of_a_file_is_told_as_json_on_request(tmp_path: Path) -> None:
    rows = [{"id": f"k{number % 70}", "n": number, "same": number // 140} for number in range(2_000)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows) + b"no json\n")
    demo = run_demo(tmp_path / "demo", "--nodes", "1", "--input", str(path), "--json")
    found = [orjson.loads(line) for line in demo.out.splitlines()]
    assert [row["kept"] for row in found[:-1]] == [True] * PROMISES[1]
    assert found[0]["checked"] == 2_000
    assert found[-1]["running"] is False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_interrupted_leaves_no_node_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    child = subprocess.Popen(
        [*PROGRAM, "demo", "--nodes", "1", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert re.match(r"start +n1 on ", child.stdout.readline())
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode == code
    assert not processes_on(tmp_path / "demo")


def test_a_directory_with_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = subprocess.run([*PROGRAM, "demo", "--data", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: USAGE: ")


def processes_on(directory: Path) -> list[int]:
    """Return the processes whose data lie in the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(os.fsencode(directory) + b"/n") for word in words) and b"serve" in words:
                found.append(int(entry.name))
    return found


def stop_nodes_of(directory: Path) -> None:
    pids = processes_on(directory)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGTERM)
    for pid in pids:
        wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_there(pid):
        assert time.monotonic() < deadline, f"process {pid} goes on"
        time.sleep(0.05)  # a poll of the process table; nothing else tells


def is_there(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:  # gone, before or while it was read
        return False


assert sys.platform == "linux", "the helpers above read /proc"
