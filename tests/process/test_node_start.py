"""Starting and stopping: what is refused, what a stop leaves, what a second node on the same directory is told."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
from contextlib import ExitStack

import pytest

import eventlog
import eventlog.blocking
from eventlog.control.rebuilding import decode_kept
from eventlog.errors import EventLogError
from eventlog.node.home import RECORDS
from tests.process.nodes import EVENTLOG, NodeProcess

MOMENTS_MS = (None, 0, 30, 80, 150, 300)


def refused(*options: str) -> subprocess.CompletedProcess[str]:
    """Run `serve` with options that it must refuse; return what it said."""
    return subprocess.run([str(EVENTLOG), "serve", *options], capture_output=True, text=True, timeout=60, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--segments", "3"], "BAD_CONFIG"),
        (["--listen", "nonsense"], "BAD_CONFIG"),
        (["--listen", "127.0.0.1:99999"], "BAD_CONFIG"),
        (["--advertise", ".example.org:17404"], "BAD_CONFIG"),
        (["--http", "127.0.0.1"], "BAD_CONFIG"),
        (["--meta", "etcd://nowhere"], "BAD_CONFIG"),
        (["--disk-reserve", "many"], "USAGE"),
        (["--listen", "0.0.0.0:0"], "INSECURE"),
        (["--config", "/does/not/exist.toml"], "BAD_CONFIG"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_code_2(tmp_path, options, said):
    done = refused("--data", str(tmp_path / "data"), *options)
    assert done.returncode == 2
    assert last_line(done).startswith(f"error: {said}: ")
    assert not (tmp_path / "data").exists()


def test_an_unknown_setting_of_the_file_is_named(tmp_path):
    config = tmp_path / "node.toml"
    config.write_text("segmets = 16\n")
    done = refused("--data", str(tmp_path / "data"), "--config", str(config))
    assert done.returncode == 2
    assert "segmets" in last_line(done)


def test_a_second_node_on_the_same_directory_is_refused(tmp_path):
    with NodeProcess(tmp_path) as node:
        done = refused("--data", str(node.data), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        assert done.returncode == 2
        assert "DIRECTORY_IN_USE" in last_line(done)
        node.command("cache", "create", "still-there")


def test_a_port_in_use_is_named(tmp_path):
    with NodeProcess(tmp_path / "one") as node:
        done = refused("--data", str(tmp_path / "two"), "--listen", node.address, "--http", "127.0.0.1:0")
        assert done.returncode == 2
        assert node.address in last_line(done)


def test_an_http_port_in_use_is_named(tmp_path):
    with NodeProcess(tmp_path / "one") as node:
        done = refused("--data", str(tmp_path / "two"), "--listen", "127.0.0.1:0", "--http", node.http)
        assert done.returncode == 2
        assert last_line(done).startswith("error: BAD_CONFIG: http: ")
        assert node.http in last_line(done)


def test_a_ready_file_that_cannot_be_written_is_named(tmp_path):
    path = str(tmp_path / "nowhere" / "ready.json")
    done = refused("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", path)
    assert done.returncode == 2
    assert path in last_line(done)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_twice_stops_once_and_cleanly(tmp_path, number):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "c")
        node.signal(number)
        while node.is_running:  # also when it has stopped and is about to end
            node.signal(number)
            time.sleep(0.0001)
        assert node.wait() == 0
        assert node.log_text().count("stopped clean=True") == 1
        assert "Traceback" not in node.log_text()


def test_sigterm_during_the_start_ends_it_and_leaves_a_node_that_starts(tmp_path):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "c")
        node.command("put", "c", "k", "1")
        node.kill()
        node.spawn()
        deadline = time.monotonic() + 60
        while not node.catches(signal.SIGTERM):
            assert time.monotonic() < deadline
            time.sleep(0.001)  # a poll of the process table; nothing else tells
        node.signal(signal.SIGTERM)
        assert node.wait() == 0
        assert "Traceback" not in node.log_text()
        node.start()
        assert json.loads(node.command("get", "c", "k", "--json").stdout)["value"] == 1


def end_early(node: NodeProcess, after_ms: int | None) -> int:
    """Start a node, and end it so long after it has taken SIGTERM into its own hands, or before; return the exit code."""
    node.spawn()
    while after_ms is not None and node.is_running and not node.catches(signal.SIGTERM):
        time.sleep(0.001)  # a poll of the process table; nothing else tells
    time.sleep((after_ms or 0) / 1000)  # where it is by then differs, and each place will do
    node.signal(signal.SIGTERM)
    code = node.wait()
    assert "Traceback" not in node.log_text()
    return code


def test_sigterm_at_any_moment_of_a_first_start_leaves_a_whole_directory_or_none(tmp_path):
    for after_ms in MOMENTS_MS:
        with ExitStack() as stack:
            node = NodeProcess(tmp_path / f"{after_ms}", "--segments", "16")
            stack.push(node)
            code = end_early(node, after_ms)
            assert code == 0 or (code == -signal.SIGTERM and not node.data.exists())
            node.start()
            node.command("cache", "create", "c")
            assert node.stop() == 0


def test_sigterm_at_any_moment_of_joining_leaves_a_member_that_starts_or_none(tmp_path):
    with ExitStack() as stack:
        first = stack.enter_context(NodeProcess(tmp_path / "first", "--segments", "16"))
        for after_ms in MOMENTS_MS:
            node = NodeProcess(tmp_path / f"{after_ms}", "--join", first.address)
            stack.push(node)
            code = end_early(node, after_ms)
            assert code == 0 or (code == -signal.SIGTERM and not node.data.exists())
            node.start()
        first.command("admin", "status", "--check", "--wait", "60s")
        rows = [json.loads(line) for line in first.command("admin", "nodes", "--json").stdout.splitlines()]
        assert [row["state"] for row in rows] == ["live"] * (1 + len(MOMENTS_MS)), "nobody is left behind by a start that ended"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("option", ["--join", "--meta"])
def test_a_signal_ends_a_start_that_waits_for_others(tmp_path, number, option):
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        node = NodeProcess(tmp_path, option, address if option == "--join" else f"etcd://{address}")
        stack.push(node)  # to be ended; it never is ready
        node.spawn()
        stack.enter_context(silent.accept()[0])  # it waits for an answer from now on
        node.signal(number)
        assert node.wait() == 0
        assert "stopped before=ready" in node.log_text()


@pytest.mark.smoke
def test_health_and_metrics_are_there_from_the_first_moment(tmp_path):
    with NodeProcess(tmp_path) as node:
        assert json.loads(node.page("/health/live")) == {"live": True}
        assert json.loads(node.page("/health/ready"))["ready"] is True
        assert node.page("/") == "{}"
        page = node.page("/metrics")
        for name in ("used", "limit", "peak"):
            assert f'eventlog_{name}{{thing="connections"}}' in page
            assert f'eventlog_{name}{{thing="overlay_bytes"}}' in page
        with pytest.raises(urllib.error.HTTPError):
            node.page("/nothing")


@pytest.mark.smoke
def test_both_ports_may_be_of_ipv6_and_are_told_in_brackets(tmp_path):
    node = NodeProcess(tmp_path)
    node.address = node.http = "[::1]:0"
    with node:
        assert all(address.startswith("[::1]:") for address in (node.address, node.http))
        node.command("cache", "create", "c")
        assert json.loads(node.page("/health/live")) == {"live": True}


def test_sigterm_answers_what_is_in_flight_and_ends_with_0(tmp_path):
    async def run(node: NodeProcess) -> tuple[int, int, list[str]]:
        async with eventlog.connect(node.address, idempotent=False) as client:
            cache = await client.create_cache("c", format="json")
            writes = [asyncio.create_task(cache.put(f"k{number}", number)) for number in range(500)]
            await asyncio.sleep(0)
            stopped = asyncio.create_task(asyncio.to_thread(node.stop))
            results = await asyncio.gather(*writes, return_exceptions=True)
            codes = {error.code for error in results if isinstance(error, EventLogError)}
            return await stopped, sum(not isinstance(result, BaseException) for result in results), sorted(codes)

    with NodeProcess(tmp_path) as node:
        code, acknowledged, codes = asyncio.run(run(node))
        assert code == 0
        assert set(codes) <= {"STOPPING", "CONNECTION_LOST", "NOBODY_LISTENS", "OUTCOME_UNKNOWN"}
        node.start()
        opened = [line for line in node.log_text().splitlines() if " opened " in line]
        assert opened[-1].endswith("segments_to_replay=0"), "a clean stop leaves nothing to replay"
        found = json.loads(node.command("size", "c", "--json").stdout)["size"]
        assert found >= acknowledged


def test_a_data_directory_of_another_cluster_is_refused(tmp_path):
    with NodeProcess(tmp_path / "one"):
        pass
    with NodeProcess(tmp_path / "two") as node:
        node.stop()
        shutil.rmtree(tmp_path / "two" / "data.meta")
        shutil.copytree(tmp_path / "one" / "data.meta", tmp_path / "two" / "data.meta")
        done = refused("--data", str(node.data), "--listen", node.address, "--http", node.http)
        assert done.returncode == 1
        assert "WRONG_CLUSTER" in last_line(done)


def test_a_lost_metadata_file_is_named_and_not_replaced(tmp_path):
    with NodeProcess(tmp_path) as node:
        node.stop()
        shutil.rmtree(tmp_path / "data.meta")
        done = refused("--data", str(node.data), "--listen", node.address, "--http", node.http)
        assert done.returncode == 1
        assert "METADATA_LOST" in last_line(done)
        assert not (tmp_path / "data.meta" / "meta.db").exists()


def test_an_older_copy_of_the_metadata_is_named(tmp_path):
    with NodeProcess(tmp_path) as node:
        node.stop()
        shutil.copytree(tmp_path / "data.meta", tmp_path / "older")
        node.start()
        node.command("cache", "create", "later")
        node.stop()
        shutil.rmtree(tmp_path / "data.meta")
        (tmp_path / "older").rename(tmp_path / "data.meta")
        done = refused("--data", str(node.data), "--listen", node.address, "--http", node.http)
        assert done.returncode == 1
        assert "METADATA_LOST" in last_line(done)


def test_an_empty_directory_beside_metadata_that_remembers_events_is_not_taken_for_the_node(tmp_path):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "c")
        node.command("put", "c", "k", "1")
        node.kill()
        shutil.rmtree(node.data)
        done = refused("--data", str(node.data), "--listen", node.address, "--http", node.http)
        assert done.returncode == 1
        assert "LOST_DISK" in last_line(done)


def test_another_directory_with_the_same_metadata_is_another_member(tmp_path):
    with NodeProcess(tmp_path / "one") as node:
        meta = f"sqlite:{tmp_path / 'one' / 'data.meta' / 'meta.db'}"
        with NodeProcess(tmp_path / "two", "--meta", meta, "--node-name", "other") as other:
            assert json.loads(other.command("admin", "status", "--json").stdout)["nodes"] == 2
            assert other.stop() == 0
        node.command("cache", "create", "c")


def test_an_older_copy_of_the_whole_directory_is_named(tmp_path):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "c")
        node.command("put", "c", "k", "1")
        node.stop()
        shutil.copytree(node.data, tmp_path / "older")
        node.start()
        node.command("put", "c", "k", "2")
        node.stop()
        shutil.rmtree(node.data)
        (tmp_path / "older").rename(node.data)
        done = refused("--data", str(node.data), "--listen", node.address, "--http", node.http)
        assert done.returncode == 1
        assert "LOST_DISK" in last_line(done)
        assert "older copy" in last_line(done)


def test_a_clean_stop_keeps_what_was_just_changed_in_the_metadata(tmp_path):
    with NodeProcess(tmp_path) as node:
        names = [f"c{number}" for number in range(3)]
        with eventlog.blocking.connect(node.address) as client:
            for name in names:  # a copy is made a moment after each change, and not of several in a row
                client.create_cache(name)
        assert node.stop() == 0
        kept = decode_kept((node.data / RECORDS).read_bytes(), where="copy")
        assert [item.key for item in kept.items if item.key.startswith("cache/c")] == [f"cache/{name}" for name in names]
