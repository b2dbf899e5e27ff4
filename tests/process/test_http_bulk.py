"""Many entries written by one request over HTTP: each line answered, what breaks off told, memory a part of the body."""

import base64
import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

TIMEOUT_S = 60
LINES = "application/x-ndjson"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http")) as found:
        yield found


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[blocking.Client]:
    with blocking.connect(node.address) as found:
        yield found


def post(address: str, cache: str, body: Any, *, kind: str = LINES, query: str = "") -> tuple[int, list[dict[str, Any]]]:
    with closing(HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
        connection.request("POST", f"/v1/caches/{cache}/entries{query}", body, {"Content-Type": kind})
        answer = connection.getresponse()
        return answer.status, [json.loads(line) for line in answer.read().splitlines()]


def lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_each_line_is_answered_in_its_order(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("one")
    cache.put("k1", 0)
    status, found = post(
        node.http,
        "one",
        lines(
            [
                {"key": "k0", "value": {"ä": [1, None]}},
                {"key": "k1", "value": 2},
                {"key": "k1", "remove": True},
                {"key": "k9", "remove": True},
            ]
        ),
    )
    assert status == 200
    assert [row["kind"] for row in found] == ["CREATED", "MODIFIED", "REMOVED", None]
    events = {str(event.id): (event.key, event.kind, event.value) for event in cache.events()}
    assert [events[row["id"]] for row in found[:3]] == [("k0", "CREATED", {"ä": [1, None]}), ("k1", "MODIFIED", 2), ("k1", "REMOVED", None)]
    assert {key: entry.value for key, entry in cache.entries()} == {"k0": {"ä": [1, None]}}


def test_a_large_body_is_written_in_parts_and_read_in_pieces(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("large")
    rows = [{"key": f"k{number}", "value": {"n": number, "text": "x" * 100}} for number in range(30_000)]
    body = lines(rows)

    def pieces() -> Iterator[bytes]:
        yield from (body[low : low + 70_001] for low in range(0, len(body), 70_001))

    status, found = post(node.http, "large", pieces())
    assert (status, len(found)) == (200, 30_000)
    ids = {event.key: str(event.id) for event in cache.events()}
    assert [row["id"] for row in found] == [ids[row["key"]] for row in rows]


def test_what_came_before_a_line_that_means_nothing_is_written_and_told(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("broken")
    for number, wrong in enumerate(
        [
            b"{",
            b'{"key": 5, "value": 1}',
            b'{"value": 1}',
            b'{"key": "k"}',
            b'{"key": "k", "value": 1, "remove": true}',
            b'{"key": "k", "remove": true, "lifespan_ms": 5}',
            b'{"key": "k", "x": 1}',
            b'{"key": "k", "value": 1, "lifespan_ms": 18446744073709551616}',
            b'{"key": "k", "value": 1, "lifespan_ms": 0}',
            b'{"key": "k", "value": 1, "lifespan_ms": null}',
            b'{"key": "k", "value": ' + b"[" * 9_000 + b"]" * 9_000 + b"}",
            b"\xff",
        ]
    ):
        status, found = post(
            node.http, "broken", lines([{"key": f"g{number}", "value": number}]) + wrong + b"\n" + lines([{"key": "late", "value": 1}])
        )
        assert status == 200
        assert [row.get("kind") for row in found] == ["CREATED", None]
        assert (found[1]["line"], found[1]["error"] in {"INVALID_ARGUMENT", "BAD_VALUE"}) == (2, True)
    assert {key for key, _ in cache.entries()} == {f"g{number}" for number in range(12)}
    status, found = post(node.http, "broken", b"{\n")
    assert (status, found[0]["error"], found[0]["line"]) == (400, "INVALID_ARGUMENT", 1)


GOOD = b'{"key": "good", "value": 1}'


@pytest.mark.parametrize(
    ("body", "line", "answered"),
    [
        (GOOD + GOOD, 1, 0),
        (GOOD + b" " + GOOD + b"\n", 1, 0),
        (GOOD + b"\r" + GOOD + b"\n", 1, 0),
        (GOOD + b"\n" + GOOD + GOOD + b"\n" + GOOD, 2, 1),
        (GOOD + GOOD + b"\n" + b'{"key": "split",\n"value": 1}', 1, 0),
        (b'{"key": "split", "value":\n{"a": 1}}\n', 1, 0),
        (GOOD + b"\n" + b'{"key": "split", "value": [{}\n,{}]}\n', 2, 1),
        (GOOD + b'{"key": "split", "value":\n{"a": 1}}\n' + GOOD, 1, 0),
        (b"\n\n" + GOOD + b"\n \n{\n", 5, 1),
        (b"\n" + GOOD + b'\n\n{"key": "k"}\n', 4, 1),
        (b"\n\n" + (GOOD + b"\n\n") * 60_000 + b"{", 120_003, 60_000),
    ],
)
def test_a_line_is_one_whole_object_and_what_is_not_is_told_by_its_number(
    node: NodeProcess, client: blocking.Client, body: bytes, line: int, answered: int
) -> None:
    client.create_cache("whole", if_exists="use")
    status, found = post(node.http, "whole", body)
    assert (status, len(found), found[-1]["line"]) == (200 if answered else 400, answered + 1, line)


@pytest.mark.parametrize("body", [b"", b"\n\n", GOOD, GOOD + b"\n", GOOD + b"\r\n" + GOOD + b"\r\n", b"\n" + GOOD + b" \n\n" + GOOD])
def test_lines_end_as_they_like_and_empty_ones_say_nothing(node: NodeProcess, client: blocking.Client, body: bytes) -> None:
    client.create_cache("whole", if_exists="use")
    status, found = post(node.http, "whole", body)
    assert (status, len(found), [row for row in found if "error" in row]) == (200, body.count(GOOD), [])


def test_a_body_that_breaks_off_leaves_its_whole_lines(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("cut")
    body = lines({"key": f"k{number}", "value": "x" * 1_000} for number in range(2_000))
    host, _, port = node.http.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        told = f"Content-Type: {LINES}\r\nContent-Length: {len(body) + 100}"
        head = f"POST /v1/caches/cut/entries HTTP/1.1\r\nHost: {node.http}\r\n{told}\r\n\r\n"
        connection.sendall(head.encode() + body[:1_500_000])
        assert connection.recv(100).startswith(b"HTTP/1.1 200"), "the first megabyte is written and told"
    written = [int(key[1:]) for key in sorted((key for key, _ in cache.entries()), key=lambda key: int(key[1:]))]
    assert written == list(range(len(written)))
    assert 900 < len(written) < 2_000


def test_lines_are_written_and_told_where_a_body_pauses_and_stay_when_it_breaks_off(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("paused")
    host, _, port = node.http.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        head = f"POST /v1/caches/paused/entries HTTP/1.1\r\nHost: {node.http}\r\nContent-Type: {LINES}\r\nContent-Length: 500\r\n\r\n"
        connection.sendall(head.encode() + b'{"key": "a", "value": 1}\n{"key": "b", "value": 2}\n{"key": "c", "va')
        told = b""
        while told.count(b"CREATED") < 2:
            told += (piece := connection.recv(1 << 16))
            assert piece, told
        connection.sendall(b'lue": 3}\n')
        while told.count(b"CREATED") < 3:
            told += (piece := connection.recv(1 << 16))
            assert piece, told
    assert told.startswith(b"HTTP/1.1 200 ")
    assert {key: entry.value for key, entry in cache.entries()} == {key: value for value, key in enumerate("abc", 1)}


def test_caches_of_other_formats(node: NodeProcess, client: blocking.Client) -> None:
    plain = client.create_cache("plain", format="bytes", key_format="bytes")
    key = base64.urlsafe_b64encode(b"\x00\xff").decode()
    status, _ = post(node.http, "plain", lines([{"key": key, "value": base64.b64encode(b"v\x00").decode()}]), query="?key=base64")
    assert (status, plain.get(b"\x00\xff").value) == (200, b"v\x00")
    assert post(node.http, "plain", lines([{"key": "k", "value": "eA=="}]))[0] == 400
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    typed = client.create_cache("typed", format="avro", schema=json.dumps(schema))
    status, found = post(node.http, "typed", lines([{"key": "k", "value": {"n": 1}}, {"key": "l", "value": {"n": "x"}}]))
    assert (status, typed.get("k").value, found[1]["error"]) == (200, {"n": 1}, "BAD_VALUE")
    status, found = post(node.http, "typed", b'{"key": "m", "value": {"n": 3}}\n{"key": "n", "value": {"n": 1e999}}\n')
    assert (status, typed.get("m").value, found[1]["error"]) == (200, {"n": 3}, "BAD_VALUE")


@pytest.mark.parametrize(
    ("cache", "kind", "query", "status"),
    [
        ("one", "application/json", "", 415),
        ("one", "text/plain", "", 415),
        ("none", LINES, "", 404),
        ("one", LINES, "?x=1", 400),
        ("one", LINES, "?key=x", 400),
    ],
)
def test_what_cannot_be_is_refused(node: NodeProcess, client: blocking.Client, cache: str, kind: str, query: str, status: int) -> None:
    client.create_cache("one", if_exists="use")
    assert post(node.http, cache, lines([{"key": "k", "value": 1}]), kind=kind, query=query)[0] == status


def test_an_entry_ends_when_its_line_says_so(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("mortal")
    post(node.http, "mortal", lines([{"key": "short", "value": 1, "lifespan_ms": 600_000}, {"key": "long", "value": 1}]))
    assert cache.get("short").expires_ms is not None
    assert cache.get("long").expires_ms is None


def test_any_node_takes_them_and_says_which_were_not_written(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, segments=16) as cluster:
        cluster.balance()
        with blocking.connect(*cluster.addresses) as client:
            cache = client.create_cache("c")
            rows = [{"key": f"k{number}", "value": number} for number in range(500)]
            status, found = post(cluster[1].http, "c", lines(rows))
            assert (status, {row["kind"] for row in found}) == (200, {"CREATED"})
            assert sorted(row["id"] for row in found) == sorted(str(event.id) for event in cache.events())
