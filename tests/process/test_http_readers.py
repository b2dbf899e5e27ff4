"""Programs without a client of ours read over HTTP, while the node that they read from is killed: nothing is lost, nothing comes twice."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.process.nodes import NodeProcess

pytestmark = pytest.mark.timeout(300)
JAVA = Path(__file__).with_name("java")
FILLING = "x" * 4_000  # so that a stream is longer than what sockets and pipes hold, and is cut in the middle
CURL = r"""
position=earliest
: > "$3"
while have=$(wc -l < "$3") && [ "$have" -lt "$4" ]; do
    curl -sN -f "http://$1/v1/caches/$2/events?follow=true&max=$(($4 - have))&position=$position" |
        while IFS= read -r line; do printf '%s\n' "$line"; done >> "$3" || true
    position=$(tail -n 1 "$3" | sed 's/.*"position":"\([^"]*\)".*/\1/')
    position=${position:-earliest}
done
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as found:
        ask(found, "POST", "/v1/caches", {"name": "orders", "before": True})
        yield found


def ask(node: NodeProcess, method: str, path: str, body: object) -> Any:
    with closing(HTTPConnection(node.http, timeout=120)) as connection:
        connection.request(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            found = json.loads(answer.read())
            assert answer.status in {200, 201}, found
            return found


def write(node: NodeProcess, numbers: range, *, filling: str = FILLING) -> list[str]:
    """Write entries by one request; return the ids of their events."""
    lines = b"".join(json.dumps({"key": f"k{n}", "value": {"n": n, "filling": filling}}).encode() + b"\n" for n in numbers)
    with closing(HTTPConnection(node.http, timeout=120)) as connection:
        connection.request("POST", "/v1/caches/orders/entries", lines, {"Content-Type": "application/x-ndjson"})
        with connection.getresponse() as answer:
            return [json.loads(line)["id"] for line in answer.read().splitlines()]


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def java(name: str, *words: str) -> tuple[str, ...]:
    return ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", str(JAVA / f"{name}.java"), *words)


def lines_of(process: subprocess.Popen[str], count: int | None = None) -> list[dict[str, Any]]:
    """Return so many lines of a process, or all until it ends well."""
    assert process.stdout is not None
    found = [json.loads(line) for line in islice(process.stdout, count)]
    if count is None:
        assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
    return found


def test_a_durable_listener_in_java_gets_each_event_once(node: NodeProcess):
    ask(node, "POST", "/v1/caches/orders/listeners", {"id": "all", "durable": True, "hold": 1 << 30})
    wanted = write(node, range(3_000))
    with running(*java("Listen", f"http://{node.http}", "orders", "all", "4000")) as reader:
        found = lines_of(reader, 500)
        node.kill()
        node.start()
        wanted += write(node, range(2_000, 3_000))
        found += lines_of(reader)
    assert [event["id"] for event in found] == sorted(wanted, key=int)
    place = {"position": found[-1]["position"]}
    listener = ask(node, "PUT", "/v1/caches/orders/listeners/all/position", place)
    assert listener["lag_events"] == 0


def test_a_continuous_query_in_java_tells_each_change_once(node: NodeProcess):
    write(node, range(3_000))
    with running(*java("Query", f"http://{node.http}", "orders", "value.n >= 1000", "2004")) as reader:
        found = lines_of(reader, 300)
        node.kill()  # in the middle of the entries that there were
        node.start()
        found += lines_of(reader, 1_700)
        for key, number in (("k1", 1_001), ("k2000", 1)):
            ask(node, "PUT", f"/v1/caches/orders/entries/{key}", {"n": number})
        changes = lines_of(reader, 1)
        node.kill()
        node.start()
        for key, number in (("k2001", 2_001), ("k1", 2), ("k0", 0)):
            ask(node, "PUT", f"/v1/caches/orders/entries/{key}", {"n": number})
        changes += lines_of(reader)
    assert sorted(event["key"] for event in found) == sorted(f"k{n}" for n in range(1_000, 3_000))
    assert {event["change"] for event in found} == {"JOINED"}
    told = [(event["key"], event["change"]) for event in changes]
    assert told == [("k1", "JOINED"), ("k2000", "LEFT"), ("k2001", "UPDATED"), ("k1", "LEFT")]


def test_curl_reads_each_event_once(node: NodeProcess, tmp_path: Path):
    wanted = write(node, range(1_000))
    file = tmp_path / "got"
    with running("bash", "-c", CURL, "curl", node.http, "orders", str(file), "1500") as reader:
        with running("tail", "-F", "-n", "+1", str(file)) as shown:
            lines_of(shown, 200)
        node.kill()
        node.start()
        wanted += write(node, range(500))
        assert reader.wait(120) == 0
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == sorted(wanted, key=int)
