"""Caches over HTTP."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests.process.nodes import NodeProcess

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http")) as found:
        yield found


def ask(node: NodeProcess, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, dict]:
    with closing(HTTPConnection(node.http, timeout=60)) as connection:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, content, JSON if headers is None else headers)
        with connection.getresponse() as answer:
            return answer.status, json.loads(answer.read())


def test_a_cache_is_made_listed_described_and_dropped(node: NodeProcess):
    status, made = ask(node, "POST", "/v1/caches", {"name": "b", "retain_events": 7, "promote": ["value.n"], "retain_bytes": 0})
    assert (status, made["name"], made["retain_events"], made["retain_bytes"], made["promote"]) == (201, "b", 7, None, ["value.n"])
    assert ask(node, "POST", "/v1/caches", {"name": "a", "format": "bytes"})[0] == 201
    assert [cache["name"] for cache in ask(node, "GET", "/v1/caches")[1]["caches"]] == ["a", "b"]
    assert ask(node, "GET", "/v1/caches/b") == (200, made)
    described = json.loads(node.command("cache", "describe", "b", "--json").stdout)
    assert described["retain_events"] == 7
    assert ask(node, "POST", "/v1/caches", {"name": "a"})[1]["error"] == "CACHE_EXISTS"
    assert ask(node, "DELETE", "/v1/caches/b") == (200, {"name": "b"})
    assert ask(node, "GET", "/v1/caches/b")[1]["error"] == "CACHE_NOT_FOUND"
    assert ask(node, "DELETE", "/v1/caches/b")[0] == 404


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", JSON, 400, "INVALID_ARGUMENT"),
        (b"{", JSON, 400, "INVALID_ARGUMENT"),
        (b"[" * 100_000, JSON, 400, "INVALID_ARGUMENT"),
        (b'{"name": "\xff"}', JSON, 400, "INVALID_ARGUMENT"),
        ([], JSON, 400, "INVALID_ARGUMENT"),
        ({}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": 7}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": "__own"}, JSON, 400, "BAD_NAME"),
        ({"name": "c", "colour": "red"}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": "c", "events": "no"}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": "c", "format": "xml"}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": "c", "retain_events": -1}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": "c", "retain_events": 1 << 63}, JSON, 400, "INVALID_ARGUMENT"),
        ({"name": "c"}, {}, 415, "UNSUPPORTED_BODY"),
        ({"name": "c"}, {"Content-Type": "text/plain"}, 415, "UNSUPPORTED_BODY"),
        ({"name": "c"}, {"Content-Type": "application/x-www-form-urlencoded"}, 415, "UNSUPPORTED_BODY"),
    ],
)
def test_what_describes_no_cache_makes_none(node: NodeProcess, body, headers, status, code):
    found = ask(node, "POST", "/v1/caches", body, headers)
    assert (found[0], found[1]["error"]) == (status, code), found
    assert ask(node, "GET", "/v1/caches/c")[0] == 404
    assert "http_failed" not in node.log_text()
