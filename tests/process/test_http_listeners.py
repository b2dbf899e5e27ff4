"""Listeners over HTTP: registered, listed, read, moved on, altered and removed, at a node that is killed meanwhile."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.process.nodes import NodeProcess

JSON = {"Content-Type": "application/json"}
AT = "/v1/caches/orders/listeners"


def raw(node: NodeProcess, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    with closing(HTTPConnection(node.http, timeout=60)) as connection:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, content, JSON if headers is None else headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read()


def ask(node: NodeProcess, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    status, answer = raw(node, method, path, body, headers)
    return status, json.loads(answer)


def read(node: NodeProcess, listener: str) -> list[dict]:
    status, answer = raw(node, "GET", f"/v1/caches/orders/events?listener={listener}&wait=1")
    assert status == 200, answer
    return [json.loads(line) for line in answer.splitlines()]


def put(node: NodeProcess, key: str, number: int, cache: str = "orders") -> str:
    status, answer = ask(node, "PUT", f"/v1/caches/{cache}/entries/{key}", {"n": number})
    assert status in {200, 201}, answer
    return answer["id"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http")) as found:
        for name in ("orders", "others"):
            assert ask(found, "POST", "/v1/caches", {"name": name, "before": True})[0] == 201
        yield found


def test_a_listener_is_registered_listed_altered_and_removed(node: NodeProcess):
    words = {"id": "big", "durable": True, "hold": 1 << 20, "where": "value.n > ?", "parameters": [3], "select": ["value.n"]}
    status, made = ask(node, "POST", AT, words)
    assert (status, made["id"], made["cache"], made["durable"], made["hold_bytes"]) == (201, "big", "orders", True, 1 << 20)
    assert isinstance(made["last_id"], str)
    assert ask(node, "POST", AT, words)[1]["id"] == "big"
    assert ask(node, "POST", AT, words | {"parameters": [4]})[1]["error"] == "LISTENER_EXISTS"
    put(node, "a", 9)
    assert [event["value"] for event in read(node, "big")] == [{"n": 9}]
    [listed] = ask(node, "GET", AT)[1]["listeners"]
    assert (listed["id"], listed["where"], listed["lag_events"]) == ("big", made["where"], 1)
    assert ask(node, "GET", "/v1/caches/others/listeners") == (200, {"listeners": []})
    status, altered = ask(node, "PATCH", f"{AT}/big", {"hold": 0, "hold_ms": 5})
    assert (status, altered["hold_bytes"], altered["hold_ms"], altered["where"]) == (200, None, 5, made["where"])
    assert ask(node, "GET", f"{AT}/big")[1]["hold_ms"] == 5
    assert ask(node, "DELETE", f"{AT}/big") == (200, {"id": "big"})
    assert ask(node, "GET", f"{AT}/big")[1]["error"] == "LISTENER_NOT_FOUND"
    assert ask(node, "DELETE", f"{AT}/big")[0] == 404


def test_a_listener_goes_on_behind_what_was_acknowledged_at_a_node_that_was_killed(tmp_path: Path):
    with NodeProcess(tmp_path) as node:
        assert ask(node, "POST", "/v1/caches", {"name": "orders"})[0] == 201
        put(node, "before", 0)
        for name, first in (("whole", {"from_id": "earliest"}), ("rest", {})):
            assert ask(node, "POST", AT, {"id": name, "durable": True} | first)[0] == 201
        ids = [put(node, f"k{number}", number) for number in range(5)]
        assert len(read(node, "whole")) == 6
        got = read(node, "rest")
        assert [event["id"] for event in got] == ids
        assert read(node, "rest") == got, "who has not said so has acknowledged nothing"
        status, moved = ask(node, "PUT", f"{AT}/rest/position", {"position": got[2]["position"]})
        assert (status, moved["lag_events"]) == (200, 2)
        assert ask(node, "PUT", f"{AT}/whole/position", {"position": ids[3]})[1]["position_id"] == ids[3]
        assert ask(node, "PUT", f"{AT}/whole/position", {"position": int(ids[0])})[1]["position_id"] == ids[3]
        node.kill()
        node.start()
        assert [event["id"] for event in read(node, "rest")] == ids[3:]
        assert [event["id"] for event in read(node, "whole")] == ids[4:]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", AT, b"", 400, "INVALID_ARGUMENT"),
        ("POST", AT, b"[" * 100_000, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"colour": "red"}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"durable": "yes"}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"hold": 5}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"hold": 1 << 63, "durable": True}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"hold_ms": -1, "durable": True}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"expire_ms": 0}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"expire_ms": 1, "durable": True}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"where": "value.n >"}, 400, "BAD_PREDICATE"),
        ("POST", AT, {"where": "value.n > ?", "parameters": 7}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"parameters": [7]}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"select": [7]}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"filter": "nothing"}, 404, "FILTER_NOT_FOUND"),
        ("POST", AT, {"params": {"a": 1}}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"from_id": "latest"}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"from_id": -1}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"from_id": "9" * 5_000}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"from_id": str((1 << 63) - 1)}, 400, "INVALID_ARGUMENT"),
        ("POST", AT, {"id": "\x00/.."}, 400, "INVALID_ARGUMENT"),
        ("POST", "/v1/caches/none/listeners", {}, 404, "CACHE_NOT_FOUND"),
        ("GET", "/v1/caches/none/listeners", None, 404, "CACHE_NOT_FOUND"),
        ("GET", "/v1/caches/others/listeners/kept", None, 404, "LISTENER_NOT_FOUND"),
        ("DELETE", "/v1/caches/others/listeners/kept", None, 404, "LISTENER_NOT_FOUND"),
        ("GET", f"{AT}/", None, 400, "INVALID_ARGUMENT"),
        ("GET", f"{AT}/%00", None, 404, "LISTENER_NOT_FOUND"),
        ("GET", f"{AT}/%FF", None, 400, "INVALID_ARGUMENT"),
        ("POST", f"{AT}/kept", {}, 405, "METHOD_NOT_ALLOWED"),
        ("PATCH", f"{AT}/kept", {"id": "other"}, 400, "INVALID_ARGUMENT"),
        ("PATCH", f"{AT}/kept", {"from_id": "earliest", "where": "value.n = 1"}, 400, "INVALID_ARGUMENT"),
        ("PATCH", f"{AT}/kept", {"from_id": 7}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/kept/position", {}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/kept/position", {"position": ""}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/kept/position", {"position": "x"}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/kept/position", {"position": -1}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/kept/position", {"position": 1 << 63}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/kept/position", {"position": str((1 << 63) - 1)}, 400, "INVALID_ARGUMENT"),
        ("PUT", f"{AT}/passing/position", {"position": 0}, 400, "INVALID_ARGUMENT"),
    ],
)
def test_what_cannot_be_is_refused(node: NodeProcess, method, path, body, status, code):
    for words in ({"id": "kept", "durable": True}, {"id": "passing"}):
        assert ask(node, "POST", AT, words)[0] == 201
    found = ask(node, method, path, body)
    assert (found[0], found[1]["error"]) == (status, code), found
    assert {one["id"] for one in ask(node, "GET", AT)[1]["listeners"]} == {"kept", "passing"}
    assert "http_failed" not in node.log_text()


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
def test_what_a_page_of_another_origin_reads_moves_nothing(node: NodeProcess, headers: dict[str, str]):
    assert ask(node, "POST", AT, {"id": "unmoved", "durable": True, "hold": 1 << 20})[0] == 201
    last = put(node, "unmoved", 1)
    path = f"/v1/caches/orders/events?listener=unmoved&after={last}&wait=1"
    status, refused = ask(node, "GET", path, headers=headers)
    assert (status, refused["error"]) == (403, "FOREIGN_PAGE")
    assert ask(node, "GET", f"{AT}/unmoved")[1]["lag_events"] == 1
    own = {"Origin": f"http://{node.http}"} if "Origin" in headers else {"Sec-Fetch-Site": "same-origin"}
    assert raw(node, "GET", path, headers=own) == (200, b"")
    assert ask(node, "GET", f"{AT}/unmoved")[1]["position_id"] == last
    assert ask(node, "DELETE", f"{AT}/unmoved")[0] == 200


def test_a_form_of_a_page_registers_nothing(node: NodeProcess):
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        assert ask(node, "POST", AT, {"id": "formed"}, headers)[1]["error"] == "UNSUPPORTED_BODY"
    assert ask(node, "GET", f"{AT}/formed")[0] == 404
