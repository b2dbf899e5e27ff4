"""`eventlog serve`: a good start, bad ones in one line, a good end."""

import json
import os
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.process.cli_ends import PROGRAM, running_node
from tests.process.nodes import NodeProcess


def serve(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, "serve", *words], capture_output=True, text=True, timeout=60, env=os.environ | environment, check=False
    )


@pytest.mark.parametrize(
    ("words", "code", "start"),
    [
        (["--segments", "7"], 2, "error: BAD_CONFIG: segments"),
        (["--listen", "here"], 2, "error: BAD_CONFIG: listen"),
        (["--listen", "0.0.0.0:7400"], 2, "error: INSECURE: "),
        (["--config", "missing.toml"], 2, "error: BAD_CONFIG: missing.toml"),
        (["--durability", "hope"], 2, "error: USAGE: "),
        (["--disk-reserve", "much"], 2, "error: USAGE: Invalid value for '--disk-reserve'"),
        (["--meta", "etcd://nowhere"], 2, "error: BAD_CONFIG: meta"),
    ],
)
def test_bad_configuration_is_one_line_and_exit_code_2(tmp_path: Path, words: list[str], code: int, start: str) -> None:
    done = serve("--data", str(tmp_path / "data"), *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(start)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_file_and_the_environment_configure_and_are_checked_as_options_are(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('segments = 8\nnode-name = "from-file"\n')
    assert serve("--config", str(file), EVENTLOG_NODE_SEGMENTS="7").stderr.startswith("error: BAD_CONFIG: segments")
    file.write_text("no-such-thing = 1\n")
    assert serve("--config", str(file)).stderr.startswith("error: BAD_CONFIG: no_such_thing")
    file.write_text("segments = \n")
    assert serve("--config", str(file)).returncode == 2


def test_a_start_says_what_it_is_at_and_what_to_type_next(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "orders")
        assert node.stop() == 0  # its last words may come behind the file that says it is ready
        lines = [line for line in node.log_text().splitlines() if not line.startswith("20")]  # what is logged has its time in front
        assert lines == [
            f"starting a node on {node.data}",
            f"ready at {node.address}; in another terminal: eventlog cache create orders --server {node.address}",
        ]


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_who_cannot_have_its_addresses_becomes_no_member(tmp_path: Path, option: str) -> None:
    with running_node(tmp_path) as shell:
        addresses = {"--listen": "127.0.0.1:0", "--http": "127.0.0.1:0", option: shell.node.address}
        words = [word for pair in addresses.items() for word in pair]
        done = serve("--data", str(tmp_path / "other"), "--join", shell.node.address, *words)
        assert done.returncode == 2
        assert (
            done.stderr.splitlines()[-1]
            == f"error: BAD_CONFIG: {option[2:]}: cannot listen on {shell.node.address}: Address already in use"
        )
        assert not (tmp_path / "other").exists()
        assert len(shell.ok("admin", "nodes", "--json").rows) == 1


def test_one_address_for_clients_and_http_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = serve("--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}", "--http", f"localhost:{port}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: BAD_CONFIG: http: localhost:{port} is where clients connect; give it a port of its own"
    assert not (tmp_path / "data").exists()


def test_a_log_on_a_full_disk_keeps_no_node_from_its_work(tmp_path: Path) -> None:
    log_to_full_disk = ("sh", "-c", 'exec "$@" 2> /dev/full', "sh")
    with NodeProcess(tmp_path, "--segments", "4", wrapper=log_to_full_disk) as node:
        node.command("cache", "create", "c")
        node.command("put", "c", "k", "1")
        assert node.command("get", "c", "k").stdout == b"1"
        assert node.stop() == 0


def test_an_error_that_cannot_be_written_keeps_its_exit_code() -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        for environment in (buffered, {**buffered, "PYTHONUNBUFFERED": "1"}):
            assert subprocess.run([*PROGRAM, "nonsense"], stderr=full, timeout=60, check=False, env=environment).returncode == 2


def test_a_second_node_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with running_node(tmp_path) as shell:
        shell.ok("cache", "create", "c")
        done = serve("--data", str(shell.node.data), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("error: DIRECTORY_IN_USE: ")
        assert "Traceback" not in done.stderr
        assert shell.ok("size", "c").out == "0\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_until_it_is_told_to_end_and_then_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready.json"
    words = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", str(ready)]
    with NodeProcess(tmp_path / "other"):  # nothing is shared but the machine
        child = subprocess.Popen([*PROGRAM, "serve", *words], stderr=subprocess.PIPE)
        assert child.stderr is not None
        while b" ready " not in child.stderr.readline():
            assert child.poll() is None
        addresses = json.loads(ready.read_text())
        with urllib.request.urlopen(f"http://{addresses['http']}/health/ready") as answer:
            assert answer.status == 200
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
