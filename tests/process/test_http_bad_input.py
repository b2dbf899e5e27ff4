"""What nobody means well with, sent to a node's HTTP port: it is answered with what was wrong, costs little, and holds nobody up."""

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.process.nodes import NodeProcess

MIB = 1 << 20
SILENT = 200
STALLED = 40
RSS_GROWTH_MAX = 400 * MIB
PIECES = 4_096
TIMEOUT_S = 60
NAMES = ["orders", "nobody", "", ".", "..", "%2e%2e", "%2E%2E%2Forders", "%00", "%", "%zz", "%FF", "a;b", "__own", "%0d%0aX:1", "x" * 5_000]
QUERIES = [
    "",
    "?",
    "?&&",
    "?=",
    "?=1",
    "?%00=1",
    "?x",
    "?where",
    "?max=",
    "?key=%FF",
    "?key=base64",
    "?max=1&max=2",
    "?after=%2B1",
    "?at=1e3",
]
PATHS = [  # "orders" is there, and its keys, listeners and subjects of that name are not
    "/v1/caches/{}",
    "/v1/caches/{}/entries",
    "/v1/caches/{}/entries/{}",
    "/v1/caches/{}/events",
    "/v1/caches/{}/listeners",
    "/v1/caches/{}/listeners/{}",
    "/v1/caches/{}/listeners/{}/position",
    "/v1/{}/orders",
    "/subjects/{}/versions/{}",
]
METHODS = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"]
JSON = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http")) as found:
        found.command("cache", "create", "orders")
        yield found
        assert "http_failed" not in found.log_text()


def opened(node: NodeProcess) -> socket.socket:
    host, _, port = node.http.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def status_of(connection: socket.socket) -> int:
    """Return the status that is answered, 0 where the connection is closed without one."""
    with suppress(ConnectionError):
        head = connection.recv(1 << 16)
        return int(head.split(b" ", 2)[1]) if head else 0
    return 0


def put(node: NodeProcess, key: str, value: bytes, **headers: str) -> tuple[int, bytes]:
    with closing(HTTPConnection(node.http, timeout=TIMEOUT_S)) as connection:
        connection.request("PUT", f"/v1/caches/orders/entries/{key}", value, headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read()


def rss(node: NodeProcess) -> int:
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.parametrize("path", PATHS)
def test_no_name_and_no_parameter_makes_the_node_fail(node: NodeProcess, path: str):
    places = [path.replace("{}", name) for name in NAMES] + [path.replace("{}", "orders") + query for query in QUERIES]
    for method in METHODS:
        for place in places:
            with opened(node) as connection:
                body = f"{JSON}Content-Length: 2\r\n\r\n{{}}" if method in {"PUT", "POST", "PATCH"} else "\r\n"
                connection.sendall(f"{method} {place} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{body}".encode())
                status = status_of(connection)
            assert 200 <= status < 500, (method, place[:100], status)
        if method == "DELETE" and path == PATHS[0]:
            node.command("cache", "create", "orders")  # for the tests behind this one


@pytest.mark.parametrize(
    "line",
    [
        "GET http://elsewhere/v1/caches HTTP/1.1",
        "GET * HTTP/1.1",
        "GET //v1//caches HTTP/1.1",
        "GET /v1/../metrics HTTP/1.1",
        "GET /v1/caches HTTP/9.9",
    ],
)
def test_no_first_line_makes_the_node_fail(node: NodeProcess, line: str):
    with opened(node) as connection:
        connection.sendall(f"{line}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert status_of(connection) < 500


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/caches/orders/entries/k"),
        ("POST", "/v1/caches/orders/entries"),
        ("POST", "/v1/caches"),
        ("POST", "/v1/caches/orders/listeners"),
    ],
)
def test_a_bomb_is_not_unpacked(node: NodeProcess, method: str, path: str):
    bomb, before = gzip.compress(bytes(256 * MIB), 1), rss(node)
    with closing(HTTPConnection(node.http, timeout=TIMEOUT_S)) as connection:
        kind = "application/x-ndjson" if path.endswith("entries") else "application/json"
        with suppress(ConnectionError):  # it is refused while it is sent
            connection.request(method, path, bomb, {"Content-Type": kind, "Content-Encoding": "gzip"})
        with connection.getresponse() as answer:
            assert (answer.status, json.loads(answer.read())["error"]) == (415, "UNSUPPORTED_BODY")
    assert rss(node) - before < 64 * MIB


def test_a_line_without_end_is_not_kept(node: NodeProcess):
    piece, before = b'{"key":"k","value":"' + b"x" * MIB, rss(node)
    with opened(node) as connection:
        connection.sendall(b"POST /v1/caches/orders/entries HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with suppress(ConnectionError):
            while sent < PIECES:
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
                sent += 1
    assert sent < PIECES, "it is closed on; what comes until then is thrown away"
    assert rss(node) - before < RSS_GROWTH_MAX
    assert put(node, "k", b"1")[0] in {200, 201}


def test_who_says_nothing_keeps_nobody_out(node: NodeProcess):
    with ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(opened(node)).sendall(b"GET /v1/caches HTTP/1.1\r\nX: ")
        assert put(node, "k", b"2")[0] in {200, 201}
        assert "eventlog" in node.page("/metrics")


def test_who_does_not_read_holds_no_writer_up_and_costs_the_same_however_much_there_is(node: NodeProcess):
    value = json.dumps("x" * (MIB // 2)).encode()
    with ExitStack() as stack:
        for _ in range(STALLED):
            stream = stack.enter_context(opened(node))
            stream.sendall(b"GET /v1/caches/orders/events?follow=true&after=latest HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status_of(stream) == 200
        stalled = {put(node, f"before{number}", value)[0] for number in range(80)}
        before = rss(node)  # no socket takes anything by now
        later = {put(node, f"after{number}", value)[0] for number in range(100)}
        assert (stalled, later) == ({201}, {201})
        assert rss(node) - before < RSS_GROWTH_MAX, f"{STALLED} streams have 50 MiB more to come each"
