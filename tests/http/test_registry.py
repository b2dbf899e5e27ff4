"""The registry's paths as its clients call them: statuses, codes, bodies, and nothing that is answered with an error of ours."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData, NotPrimary
from eventlog.http.registry import CONTENT_TYPE, PAGES, TAKEN, HttpAnswer, answer, is_registry_path
from eventlog.schema.registry import Registry
from tests.schema.registries import Alone, body, record


class Failing(Alone):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def read(self) -> Registry:
        raise self.error


class Client:
    def __init__(self, registrar: Alone) -> None:
        self.registrar = registrar

    def raw(self, method: str, path: str, data: bytes = b"", *, content_type: str = CONTENT_TYPE) -> HttpAnswer:
        at, _, query = path.partition("?")
        return asyncio.run(answer(self.registrar, method=method, path=at, query=query, content_type=content_type, body=data))

    def __call__(self, method: str, path: str, data: bytes = b"") -> Any:
        found = self.raw(method, path, data)
        assert found.status == 200, found
        return json.loads(found.body)

    def refused(self, method: str, path: str, data: bytes = b"") -> tuple[int, int]:
        found = self.raw(method, path, data)
        said = json.loads(found.body)
        assert said.keys() == {"error_code", "message"}
        return found.status, said["error_code"]


@pytest.fixture
def client() -> Client:
    return Client(Alone())


A, AB, B = record("a"), record("a", optional=("b",)), record("a", "b")


def test_a_schema_is_registered_and_found_as_clients_do(client: Client):
    first = client("POST", "/subjects/s/versions?normalize=False", body(A))
    assert (first["id"], first["version"], first["subject"]) == (1, 1, "s")
    assert client("POST", "/subjects/s?normalize=False", body(A)) == first
    assert client("GET", "/subjects/s/versions/latest") == first
    assert client("GET", "/schemas/ids/1?subject=s") == first
    assert first.keys() >= {"id", "version", "subject", "schema", "guid"}, "what use.latest.version wants"
    assert client("GET", f"/schemas/guids/{first['guid']}") == first
    assert client("GET", "/schemas/ids/1?fetchMaxId=True")["maxId"] == 1
    assert json.loads(client.raw("GET", "/schemas/ids/1/schema").body) == A
    assert json.loads(client.raw("GET", "/subjects/s/versions/1/schema").body) == A
    assert client("GET", "/schemas/ids/1/subjects") == ["s"]
    assert client("GET", "/schemas/ids/1/versions") == [{"subject": "s", "version": 1}]
    assert client("GET", "/subjects") == ["s"]
    assert client("GET", "/subjects/s/versions") == [1]
    assert client("GET", "/subjects/s/versions/1/referencedby") == []
    assert set(client("GET", "/schemas/types")) == {"AVRO", "JSON", "PROTOBUF"}


def test_compatibility_is_asked_for_and_enforced(client: Client):
    client("POST", "/subjects/s/versions", body(A))
    assert client("POST", "/compatibility/subjects/s/versions/latest", body(AB)) == {"is_compatible": True}
    found = client("POST", "/compatibility/subjects/s/versions?verbose=true", body(B))
    assert found["is_compatible"] is False
    for at in ("", "/latest", "/1"):
        path = f"/compatibility/subjects/s/versions{at}"
        none = client("POST", f"{path}?verbose=true", b'{"schema": "\\"none\\""}')
        assert (none["is_compatible"], "there is no type 'none'" in none["messages"][0]) == (False, True), at
        assert client.refused("POST", path, b'{"schema": "\\"none\\""}') == (422, 42201)
    assert "value.b" in found["messages"][0]
    assert client.refused("POST", "/subjects/s/versions", body(B)) == (409, 409)


def test_levels_and_modes_are_read_set_and_removed(client: Client):
    assert client("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert client("PUT", "/config", b'{"compatibility": "FULL"}') == {"compatibility": "FULL"}
    assert client.refused("GET", "/config/s") == (404, 40408)
    assert client("GET", "/config/s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert client("PUT", "/config/s", b'{"compatibility": "none"}') == {"compatibility": "NONE"}
    assert client("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
    assert client("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert client("GET", "/mode") == {"mode": "READWRITE"}
    assert client("PUT", "/mode/s?force=true", b'{"mode": "READONLY"}') == {"mode": "READONLY"}
    assert client("GET", "/mode/s") == {"mode": "READONLY"}
    assert client.refused("POST", "/subjects/s/versions", body(A)) == (422, 42205)
    assert client("DELETE", "/mode/s") == {"mode": "READONLY"}


def test_deleting_is_soft_and_then_permanent(client: Client):
    client("POST", "/subjects/s/versions", body(A))
    assert client("DELETE", "/subjects/s/versions/latest") == 1
    assert client("GET", "/subjects?deleted=True") == ["s"]
    assert client("GET", "/subjects?deletedOnly=true") == ["s"]
    assert client("GET", "/subjects") == []
    assert client("GET", "/subjects/s/versions?deleted=true") == [1]
    assert client("GET", "/subjects/s/versions/1?deleted=true")["deleted"] is True
    assert client.refused("DELETE", "/subjects/s") == (404, 40404)
    assert client("DELETE", "/subjects/s?permanent=true") == [1]
    assert client.refused("GET", "/schemas/ids/1") == (404, 40403)


def test_lists_have_pages(client: Client):
    for name in "abcd":
        client("POST", f"/subjects/{name}/versions", body(A))
    assert client("GET", "/subjects?offset=1&limit=2") == ["b", "c"]
    assert client("GET", "/subjects?offset=-1&limit=-1") == ["a", "b", "c", "d"]
    assert client("GET", "/subjects?subjectPrefix=c") == ["c"]
    assert client.refused("GET", "/subjects?limit=x") == (422, 422)


def test_a_name_is_what_it_is_percent_encoded_or_not(client: Client):
    client("POST", "/subjects/a%2Fb%20%C3%BC/versions", body(A))
    assert client("GET", "/subjects") == ["a/b \u00fc"]
    assert client("GET", "/subjects/a%2Fb%20%c3%bc/versions/1")["subject"] == "a/b \u00fc"


CODES = {
    ("GET", "/subjects/none/versions", b""): (404, 40401),
    ("GET", "/subjects/s/versions/9", b""): (404, 40402),
    ("GET", "/schemas/ids/9", b""): (404, 40403),
    ("GET", "/schemas/ids/x", b""): (404, 40403),
    ("GET", f"/schemas/ids/{'9' * 5000}", b""): (404, 40403),
    ("GET", "/schemas/guids/x", b""): (404, 40403),
    ("DELETE", "/subjects/gone", b""): (404, 40404),
    ("DELETE", "/subjects/s?permanent=true", b""): (404, 40405),
    ("DELETE", "/subjects/gone/versions/1", b""): (404, 40406),
    ("DELETE", "/subjects/s/versions/1?permanent=true", b""): (404, 40407),
    ("GET", "/config/none", b""): (404, 40408),
    ("GET", "/mode/none", b""): (404, 40409),
    ("DELETE", "/config/s", b""): (404, 40401),
    ("DELETE", "/mode/s", b""): (404, 40401),
    ("POST", "/compatibility/subjects/none/versions/1", body(A)): (404, 40402),
    ("POST", "/compatibility/subjects/s/versions/9", body(A)): (404, 40402),
    ("POST", "/subjects/%FF/versions", body(A)): (422, 42208),
    ("GET", "/subjects/%C3/versions", b""): (404, 40401),
    ("PUT", "/config/%C3", b'{"compatibility": "NONE"}'): (422, 42208),
    ("PUT", "/mode/%C3", b'{"mode": "READWRITE"}'): (422, 42208),
    ("POST", "/subjects/s/versions", body(B)): (409, 409),
    ("POST", "/subjects/s/versions", b"{"): (422, 42201),
    ("POST", "/subjects/s/versions", b'{"schema": "\\ud800"}'): (422, 42201),
    ("POST", "/subjects/s", b""): (422, 42201),
    ("POST", "/compatibility/subjects/s/versions/1", b"[]"): (422, 42201),
    ("GET", "/subjects/s/versions/0", b""): (422, 42202),
    ("PUT", "/config", b'{"compatibility": "SOME"}'): (422, 42203),
    ("PUT", "/config", b"{"): (422, 42203),
    ("PUT", "/config", b"[]"): (422, 42203),
    ("PUT", "/mode", b'{"mode": 5}'): (422, 42204),
    ("PUT", "/mode", b""): (422, 42204),
    ("PUT", "/mode/s", b'{"mode": "IMPORT"}'): (422, 42205),
    ("DELETE", "/subjects/needed", b""): (422, 42206),
    ("POST", "/subjects/%0a/versions", body(A)): (422, 42208),
    ("GET", "/subjects/%FF/versions", b""): (404, 40401),
    ("GET", "/associations/resources/-/topic?x=1", b""): (404, 404),
    ("GET", "/subjects/s/versions/1/more", b""): (404, 404),
    ("GET", "/other", b""): (404, 404),
    ("GET", f"/subjects?{'&'.join(['a=1'] * 101)}", b""): (422, 422),
    ("DELETE", "/subjects", b""): (405, 405),
}


@pytest.mark.parametrize("request_", CODES, ids=lambda request: f"{request[0]} {request[1][:40]} {request[2][:20]!r}")
def test_each_mistake_has_its_code(client: Client, request_: tuple[str, str, bytes]):
    client("POST", "/subjects/s/versions", body(A))
    client("POST", "/subjects/gone/versions", body(A))
    client("DELETE", "/subjects/gone")
    client("POST", "/subjects/needed/versions", body(record("a", name="N")))
    outer = {"type": "record", "name": "O", "fields": [{"name": "n", "type": "N"}]}
    client("POST", "/subjects/needing/versions", body(outer, references=[{"name": "N", "subject": "needed", "version": 1}]))
    assert client.refused(*request_) == CODES[request_]


def test_what_may_be_asked_instead_is_said(client: Client):
    assert client.raw("PATCH", "/config").headers["Allow"] == "DELETE, GET, PUT"


def test_the_head_of_a_page_is_that_of_its_get(client: Client):
    client("POST", "/subjects/s/versions", body(A))
    assert client.raw("HEAD", "/subjects/s/versions/1").status == 200
    assert client.raw("HEAD", "/subjects/s/versions/2") == HttpAnswer(status=404, headers={"Content-Type": CONTENT_TYPE}, body=b"")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_can_send_is_not_taken(client: Client, content_type: str):
    assert client.raw("POST", "/subjects/s/versions", body(A), content_type=content_type).status == 415
    assert client("GET", "/subjects") == []


@pytest.mark.parametrize("content_type", sorted(TAKEN))
def test_what_clients_send_is_taken(client: Client, content_type: str):
    assert client.raw("POST", "/subjects/s/versions", body(A), content_type=f"{content_type.title()}; charset=utf-8").status == 200


def test_without_a_primary_the_client_may_try_again():
    client = Client(Failing(NotPrimary(segment=3)))
    assert client.refused("GET", "/subjects") == (500, 50003)
    assert Client(Failing(CorruptData(where="x", why="y"))).refused("GET", "/subjects") == (500, 50001)


def test_the_paths_of_the_registry_are_known():
    for path in ("/subjects", "/subjects/", "/config/s", "/schemas/nothing/such", "/associations/x"):
        assert is_registry_path(path)
    for path in ("/", "", "/v1/caches", "/health/live", "/subject"):
        assert not is_registry_path(path)


METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
STEPS = st.sampled_from(sorted({step for pattern in PAGES for step in pattern} | {"s", "1", "latest", "%00", "..", "", "%", "x" * 300}))
QUERIES = st.sampled_from(["", "deleted=true", "permanent=true", "limit=x", "offset=-5", "=&&=", "subject=%ff", "&".join(["a=1"] * 200)])
BODIES = st.sampled_from(
    [b"", b"{}", b"[]", b"\xff", b"{", body(A), body(A, references=[{}]), b'{"compatibility": "NONE"}', b'{"mode": []}']
)


@given(METHODS, st.lists(STEPS, max_size=5), QUERIES, BODIES)
def test_no_request_is_answered_with_a_failure_of_ours(method: str, steps: list[str], query: str, data: bytes):
    client = Client(Alone())
    client("POST", "/subjects/s/versions", body(A))
    found = client.raw(method, f"/{'/'.join(steps)}?{query}", data)
    assert found.status < 500
    if method != "HEAD":
        json.loads(found.body)
