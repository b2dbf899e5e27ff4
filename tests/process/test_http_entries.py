"""Entries over HTTP, asked of a node as any program would ask it."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.process.nodes import NodeProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http")) as found:
        found.command("cache", "create", "orders")
        found.command("listener", "register", "orders", "--durable", "--id", "kept", "--hold", "1MiB")  # makes the cluster's own cache
        found.command("cache", "create", "blobs", "--format", "bytes", "--key-format", "bytes")
        schema = Path(found.directory / "row.avsc")
        schema.write_text('{"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}')
        found.command("cache", "create", "rows", "--format", "avro", "--schema", str(schema))
        yield found


def ask(node: NodeProcess, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(node.http, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def told(body: bytes) -> dict:
    return json.loads(body)


def test_what_is_put_is_got_with_its_version_as_its_tag_and_is_gone_when_removed(node: NodeProcess):
    put, body = ask(node, "PUT", "/v1/caches/orders/entries/a", b'{"n": 12345678901234567890}')
    assert (put.status, told(body)["kind"]) == (201, "CREATED")
    assert put.headers["ETag"] == f'"{told(body)["id"]}"'
    got, value = ask(node, "GET", "/v1/caches/orders/entries/a")
    assert (got.status, value, got.headers["ETag"]) == (200, b'{"n": 12345678901234567890}', put.headers["ETag"])
    assert got.headers["Content-Type"] == "application/json"
    head, nothing = ask(node, "HEAD", "/v1/caches/orders/entries/a")
    assert (head.status, nothing, head.headers["ETag"]) == (200, b"", put.headers["ETag"])
    tag = put.headers["ETag"]
    for known in (tag, "*", f"W/{tag}", f'"7", {tag}', f'W/"7",W/{tag}'):
        same, nothing = ask(node, "GET", "/v1/caches/orders/entries/a", If_None_Match=known)
        assert (same.status, nothing, same.headers["ETag"]) == (304, b"", tag), known
    for other in ('"7"', tag.strip('"'), f'"{tag[2:]}', ""):
        assert ask(node, "GET", "/v1/caches/orders/entries/a", If_None_Match=other)[0].status == 200, other
    again, body = ask(node, "PUT", "/v1/caches/orders/entries/a", b"2")
    assert (again.status, told(body)["kind"]) == (200, "MODIFIED")
    removed, body = ask(node, "DELETE", "/v1/caches/orders/entries/a")
    assert (removed.status, told(body)["kind"]) == (200, "REMOVED")
    for method in ("GET", "DELETE"):
        missing, body = ask(node, method, "/v1/caches/orders/entries/a")
        assert (missing.status, told(body)["error"]) == (404, "NO_ENTRY")


def test_a_condition_that_does_not_hold_is_answered_with_the_version_found_and_nothing_is_written(node: NodeProcess):
    path = "/v1/caches/orders/entries/conditions"
    put, _ = ask(node, "PUT", path, b"1", If_None_Match="*")
    tag = put.headers["ETag"]
    for method, headers in (("PUT", {"If_None_Match": "*"}), ("PUT", {"If_Match": '"7"'}), ("DELETE", {"If_Match": '"7"'})):
        refused, body = ask(node, method, path, b"2" if method == "PUT" else None, **headers)
        assert (refused.status, refused.headers["ETag"]) == (412, tag), headers
        assert told(body)["error"] in {"KEY_EXISTS", "VERSION_MISMATCH"}
        assert tag.strip('"') in {told(body).get("version"), told(body).get("found")}
    assert ask(node, "GET", path)[1] == b"1"
    replaced, _ = ask(node, "PUT", path, b"3", If_Match=tag)
    assert replaced.status == 200
    assert ask(node, "PUT", "/v1/caches/orders/entries/none", b"3", If_Match="*")[0].status == 412
    assert ask(node, "DELETE", path, If_Match=replaced.headers["ETag"])[0].status == 200


def test_headers_and_a_lifespan_are_those_of_the_event(node: NodeProcess):
    path = "/v1/caches/orders/entries/spanned"
    put, body = ask(node, "PUT", path, b"1", Eventlog_Lifespan="3600000", Eventlog_Header_Trace="t-1")
    got, _ = ask(node, "GET", path)
    assert int(got.headers["Eventlog-Expires"]) > 1_700_000_000_000
    events = node.command("consume", "orders", "--json").stdout.splitlines()
    event = next(one for one in map(json.loads, events) if one["id_str"] == told(body)["id"])
    assert (event["key"], event["headers"]) == ("spanned", {"trace": "t-1"})
    assert put.status == 201


@pytest.mark.parametrize("key", ["ä/ö ?#", "a+b", "..", "%", "\0", "x" * 4_096, "\N{PILE OF POO}" * 1_000])
def test_every_key_has_a_path(node: NodeProcess, key: str):
    path = f"/v1/caches/orders/entries/{quote(key, safe='')}"
    assert ask(node, "PUT", path, b'"there"')[0].status == 201
    assert ask(node, "GET", path)[1] == b'"there"'
    assert node.command("get", "orders", key).stdout.strip() == b'"there"' if "\0" not in key else True
    assert ask(node, "DELETE", path)[0].status == 200


def test_keys_that_are_bytes_are_named_in_base64_and_values_that_are_bytes_come_as_they_are(node: NodeProcess):
    path = "/v1/caches/blobs/entries/_wD-?key=base64"
    assert ask(node, "PUT", path, b"\0\xff", Content_Type="application/octet-stream")[0].status == 201
    got, value = ask(node, "GET", path)
    assert (value, got.headers["Content-Type"]) == (b"\0\xff", "application/octet-stream")
    assert ask(node, "GET", "/v1/caches/blobs/entries/%FF%00%FE")[1] == b"\0\xff"


def test_a_key_that_is_no_text_is_refused_where_keys_are(node: NodeProcess):
    for method in ("GET", "PUT", "DELETE"):
        refused, body = ask(node, method, "/v1/caches/orders/entries/a%FF", b"1" if method == "PUT" else None)
        assert (refused.status, told(body)["message"]) == (400, "key b'a\\xff' in the path is not UTF-8")


def test_a_lifespan_is_given_once(node: NodeProcess):
    connection = HTTPConnection(node.http, timeout=60)
    connection.putrequest("PUT", "/v1/caches/orders/entries/once")
    for lifespan in ("3600000", "7200000"):
        connection.putheader("Eventlog-Lifespan", lifespan)
    connection.putheader("Content-Length", "1")
    connection.endheaders(b"1")
    answer = connection.getresponse()
    assert (answer.status, told(answer.read())["message"]) == (400, "Eventlog-Lifespan is given twice")
    connection.close()


@pytest.mark.parametrize("lifespan", ["0", "-1", "9007199254740993", "1h"])
def test_a_lifespan_that_is_none_is_refused_by_the_name_of_its_header(node: NodeProcess, lifespan: str):
    refused, body = ask(node, "PUT", "/v1/caches/orders/entries/never", b"1", Eventlog_Lifespan=lifespan)
    why = f"Eventlog-Lifespan is '{lifespan}': give whole milliseconds from 1 to 9007199254740992"
    assert (refused.status, told(body)["message"]) == (400, why)


def test_keys_that_are_text_may_be_named_in_base64(node: NodeProcess):
    path = "/v1/caches/orders/entries/w7w?key=base64"
    assert ask(node, "PUT", path, b"1")[0].status == 201
    assert ask(node, "GET", "/v1/caches/orders/entries/%C3%BC")[1] == ask(node, "GET", path)[1] == b"1"
    listed = [json.loads(line) for line in ask(node, "GET", "/v1/caches/orders/entries?key=base64&prefix=w7w")[1].splitlines()]
    assert [line["key"] for line in listed] == ["w7w"]
    assert ask(node, "DELETE", path)[0].status == 200
    assert "no text in UTF-8" in told(ask(node, "GET", "/v1/caches/orders/entries/_w?key=base64")[1])["message"]


def test_values_of_an_avro_cache_are_json_over_http(node: NodeProcess):
    assert ask(node, "PUT", "/v1/caches/rows/entries/a", b'{"n": 5}')[0].status == 201
    got, value = ask(node, "GET", "/v1/caches/rows/entries/a")
    assert (json.loads(value), got.headers["Content-Type"]) == ({"n": 5}, "application/json")
    refused, body = ask(node, "PUT", "/v1/caches/rows/entries/a", b'{"m": 5}')
    assert (refused.status, told(body)["error"]) == (400, "BAD_VALUE")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", "/v1/", None, {}, 404, "NO_SUCH_ROUTE"),
        ("GET", "/v1/caches/orders/../orders/entries/a", None, {}, 404, "NO_SUCH_ROUTE"),
        ("PATCH", "/v1/caches/orders/entries/a", b"1", {}, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/caches/nothing/entries/a", None, {}, 404, "CACHE_NOT_FOUND"),
        ("GET", "/v1/caches/%FF/entries/a", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/orders/entries/%zz", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/orders/entries/%FF", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/orders/entries/a?key=base32", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/orders/entries/a?keys=text", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/orders/entries/a?key=text&key=text", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/orders/entries/a?consistency=strong", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/blobs/entries/a.b?key=base64", None, {}, 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/caches/blobs/entries/a?key=base64", None, {}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"{", {}, 400, "BAD_VALUE"),
        ("PUT", "/v1/caches/orders/entries/a", b"", {}, 400, "BAD_VALUE"),
        ("PUT", "/v1/caches/orders/entries/a", b"[" * 300 + b"]" * 300, {}, 400, "BAD_VALUE"),
        ("PUT", f"/v1/caches/orders/entries/{'x' * 4_097}", b"1", {}, 413, "TOO_LARGE"),
        ("PUT", "/v1/caches/orders/entries/a", b"1" * ((1 << 20) + 1), {}, 413, "TOO_LARGE"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Content_Encoding": "gzip"}, 415, "UNSUPPORTED_BODY"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Content_Type": "text/plain"}, 415, "UNSUPPORTED_BODY"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Origin": "http://elsewhere.example"}, 403, "FOREIGN_PAGE"),
        ("DELETE", "/v1/caches/orders/entries/a", None, {"Origin": "null"}, 403, "FOREIGN_PAGE"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Origin": "http://[::1"}, 403, "FOREIGN_PAGE"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Origin": "http://\xe9"}, 403, "FOREIGN_PAGE"),
        ("DELETE", "/v1/caches/orders/entries/a", None, {"Origin": "http://x.example:1", "Host": "x.example:1"}, 403, "FOREIGN_PAGE"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"If_Match": "7"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"If_Match": '"0"'}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"If_Match": '"9999999999999999999"'}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"If_None_Match": '"7"'}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"If_None_Match": "*", "If_Match": "*"}, 400, "INVALID_ARGUMENT"),
        ("DELETE", "/v1/caches/orders/entries/a", None, {"If_None_Match": "*"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Eventlog_Lifespan": "1h"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Eventlog_Lifespan": "0"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/orders/entries/a", b"1", {"Eventlog_Header_": "x"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/v1/caches/__listeners/entries/a", b"1", {}, 409, "OPERATION_REFUSED"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(node: NodeProcess, method, path, body, headers, status, code):
    refused, said = ask(node, method, path, body, **headers)
    assert (refused.status, told(said)["error"]) == (status, code), said
    assert told(said)["message"]
    assert ask(node, "GET", "/v1/caches/orders/entries/a")[0].status == 404, "nothing was written"


@pytest.mark.parametrize("what", ["", "/entries", "/events", "/entries/a", "/listeners"])
def test_the_head_of_a_cache_that_is_not_there_says_so(node: NodeProcess, what: str):
    assert ask(node, "HEAD", f"/v1/caches/nobody{what}")[0].status == 404
    assert ask(node, "HEAD", f"/v1/caches/orders{what}")[0].status == (404 if what == "/entries/a" else 200)


def test_a_page_of_the_nodes_own_may_write(node: NodeProcess):
    put, _ = ask(node, "PUT", "/v1/caches/orders/entries/own", b"1", Origin=f"http://{node.http}")
    assert put.status == 201
    assert "http_failed" not in node.log_text()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://elsewhere.example"},
        {"Origin": "http://x.example:1", "Host": "x.example:1"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
def test_pages_of_other_origins_change_nothing_in_the_registry(node: NodeProcess, headers: dict[str, str]) -> None:
    body = json.dumps({"schema": '"long"'}).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    for method, path, sent in (
        ("POST", "/subjects/s/versions", body),
        ("PUT", "/config", b'{"compatibility": "NONE"}'),
        ("DELETE", "/subjects/s", None),
    ):
        refused, told = ask(node, method, path, sent, **kind, **headers)
        assert (refused.status, json.loads(told)["error_code"]) == (403, 403)
    assert ask(node, "POST", "/subjects/s/versions", body, **kind, Origin=f"http://{node.http}")[0].status == 200
    assert ask(node, "GET", "/subjects", None, **headers)[0].status == 200
