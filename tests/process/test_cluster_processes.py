"""`serve --processes`: several nodes under one process that keeps them running and ends them all."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

from eventlog.node.cluster.supervisor import Supervisor, SupervisorOptions
from eventlog.node.config import NodeConfig
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.clusters import ask
from tests.process.nodes import EVENTLOG

WITHIN_S = 60


class Several:
    """A supervisor with three nodes on free ports."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        self.ready = directory / "ready.json"
        addresses = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", str(self.ready)]
        command = [str(EVENTLOG), "serve", "--processes", "3", "--segments", "16", "--data", str(directory / "data"), *addresses]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def node(self, index: int) -> dict[str, Any] | None:
        path = self.ready.with_name(f"{self.ready.name}.{index}")
        return json.loads(path.read_text()) if path.exists() else None

    def nodes(self) -> list[dict[str, Any]]:
        self.until(lambda: all(self.node(index) for index in range(3)))
        return [node for index in range(3) if (node := self.node(index))]

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.02)  # a poll of files and processes; nothing else tells


@contextmanager
def several(directory: Path) -> Iterator[Several]:
    found = Several(directory)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.terminate()
        found.process.wait(WITHIN_S)


def live(address: str) -> int:
    return ask(address, Message(status=pb.Status())).status_answer.nodes_live


def known(address: str) -> int:
    return ask(address, Message(status=pb.Status())).status_answer.nodes


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_three_processes_are_one_cluster_and_end_together(tmp_path):
    with several(tmp_path) as found:
        nodes = found.nodes()
        found.until(lambda: [live(node["listen"]) for node in nodes] == [3, 3, 3])
        found.process.terminate()
        assert found.process.wait(WITHIN_S) == 0
        assert not any(is_alive(node["pid"]) for node in nodes)
        text = found.log.read_text()
        assert all(f"node={index} " in text for index in range(3))
        assert text.count("stopped clean=True") == 3


def test_the_directory_of_several_nodes_is_not_taken_for_one(tmp_path):
    with several(tmp_path) as found:
        found.nodes()
    command = [EVENTLOG, "serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 2
    assert f"{tmp_path / 'data'} holds the nodes of --processes" in done.stderr
    assert not (tmp_path / "data" / "member.json").exists()


def test_a_node_that_dies_is_started_again(tmp_path):
    with several(tmp_path) as found:
        nodes = found.nodes()
        found.until(lambda: live(nodes[0]["listen"]) == 3)
        os.kill(nodes[1]["pid"], signal.SIGKILL)
        found.until(lambda: (again := found.node(1)) is not None and again["pid"] != nodes[1]["pid"])
        found.until(lambda: live(nodes[0]["listen"]) == 3)
        assert known(nodes[0]["listen"]) == 3


def test_a_removed_node_is_not_started_again_and_the_others_go_on(tmp_path):
    with several(tmp_path) as found:
        nodes = found.nodes()
        found.until(lambda: live(nodes[0]["listen"]) == 3)
        name = nodes[2]["listen"].replace(":", "-")
        for command in (["drain", name], ["remove", name]):
            words = [str(EVENTLOG), "--timeout", f"{WITHIN_S}s", "--server", nodes[0]["listen"], "admin", *command]
            subprocess.run(words, capture_output=True, timeout=WITHIN_S, check=True)
        found.until(lambda: "node_given_up node=2" in found.log.read_text())
        found.until(lambda: live(nodes[0]["listen"]) == 2)
        assert known(nodes[1]["listen"]) == 2
        found.process.terminate()
        assert found.process.wait(WITHIN_S) == 0
        assert found.log.read_text().count("node_started node=2") == 1


def test_with_the_last_node_that_was_replaced_the_supervisor_ends(tmp_path):
    data, replaced = tmp_path / "data", "raise SystemExit(4)"
    supervisor = Supervisor(NodeConfig(data=data, processes=2), command=[sys.executable, "-c", replaced])
    assert asyncio.run(asyncio.wait_for(supervisor.run(), WITHIN_S)) == 4


_SAYS_AND_ENDS = """
import os, pathlib
told = pathlib.Path(os.environ["EVENTLOG_NODE_DATA"])
told.parent.mkdir(exist_ok=True)
with told.open("a") as file:
    print(os.environ["EVENTLOG_NODE_ACCEPT_DATA_LOSS"], file=file)
raise SystemExit((1, 2, 4)[told.read_text().count("\\n") - 1])
"""


def test_a_node_that_has_run_is_tried_again_whatever_it_meets_and_gives_up_data_only_once(tmp_path):
    config = NodeConfig(data=tmp_path / "data", processes=2, accept_data_loss=True)
    supervisor = Supervisor(config, command=[sys.executable, "-c", _SAYS_AND_ENDS], options=SupervisorOptions(pause_ms_max=10))
    assert asyncio.run(asyncio.wait_for(supervisor.run(), WITHIN_S)) == 4
    assert [(tmp_path / "data" / str(index)).read_text().split() for index in range(2)] == [["True", "False", "False"]] * 2


def test_a_node_for_which_the_system_has_no_process_is_tried_again(tmp_path, monkeypatch):
    refused = [1, 1]
    start = asyncio.create_subprocess_exec

    async def may_start(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if refused:
            refused.pop()
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", may_start)
    command = [sys.executable, "-c", "raise SystemExit(4)"]
    supervisor = Supervisor(NodeConfig(data=tmp_path / "data", processes=2), command=command, options=SupervisorOptions(pause_ms_max=10))
    assert asyncio.run(asyncio.wait_for(supervisor.run(), WITHIN_S)) == 4


def test_the_nodes_go_on_when_nobody_reads_the_log(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    log, says = os.fdopen(writer, "w"), "print('ready', flush=True); raise SystemExit(4)"
    supervisor = Supervisor(NodeConfig(data=tmp_path / "data", processes=2), command=[sys.executable, "-c", says])
    with redirect_stderr(log):
        assert asyncio.run(asyncio.wait_for(supervisor.run(), WITHIN_S)) == 4
    with suppress(BrokenPipeError):
        log.close()


def test_the_nodes_do_not_outlive_a_killed_supervisor(tmp_path):
    with several(tmp_path) as found:
        nodes = found.nodes()
        found.process.kill()
        found.until(lambda: not any(is_alive(node["pid"]) for node in nodes))


def test_what_no_node_can_be_started_with_ends_all_with_2(tmp_path):
    with several(tmp_path) as found:
        found.nodes()
        free = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command = [str(EVENTLOG), "serve", "--processes", "3", "--data", str(tmp_path / "data"), *free]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == 2
        assert "DIRECTORY_IN_USE" in done.stderr
        assert "Traceback" not in done.stderr
        assert found.process.poll() is None
