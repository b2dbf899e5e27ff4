"""`schemas/openapi.json` against a live node: every route is in it, every answer is as it says, and no request makes the node fail."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields
from schemathesis import APIOperation, Case, GenerationMode, checks

from eventlog.http.bulk import Line
from eventlog.http.entries import NewCache
from eventlog.http.groups import DoneUpto, NewMember
from eventlog.http.listeners import ListenerWanted, NewListener, Reached
from eventlog.http.server import DOCUMENT
from tests.http.api_ends import api_of
from tests.process.nodes import NodeProcess

pytestmark = pytest.mark.timeout(240)
TOP = Path(__file__).parents[2]
BODIES = {
    "Change": Line,
    "DoneUpto": DoneUpto,
    "ListenerWanted": ListenerWanted,
    "NewCache": NewCache,
    "NewListener": NewListener,
    "NewMember": NewMember,
    "Reached": Reached,
}
EXAMPLES = 50  # of each operation and way of making them
WAIT_MS = 5
EVENT_STREAM = {"Accept": "text/event-stream"}
checks.load_all_checks()
CHECKS = checks.CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)


@schemathesis.deserializer("application/x-ndjson")
def from_lines(_context: object, response: schemathesis.Response) -> list[Any]:
    return [json.loads(line) for line in response.content.splitlines()]


@schemathesis.serializer("application/x-ndjson")
def to_lines(_context: object, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"".join(json.dumps(line).encode() + b"\n" for line in (value if isinstance(value, list) else [value]))


SCHEMA = schemathesis.openapi.from_path(TOP / "schemas" / "openapi.json")
OPERATIONS = {found.definition.raw["operationId"]: found for found in (result.ok() for result in SCHEMA.get_all_operations())}
DOCUMENT_SHOWN = json.loads((TOP / "schemas" / "openapi.json").read_bytes())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http"), "--segments", "16") as found:
        yield found


def send(node: NodeProcess, case: Case, **more: Any) -> schemathesis.Response:
    """Send a request; check that its answer is as the document says."""
    case.query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in case.query.items()}
    answer = case.call(base_url=f"http://{node.http}", timeout=60, **more)
    case.validate_response(answer, checks=CHECKS)
    return answer


# ------------------------------------------------------------ what the document says, beside what the code has


def parameters_of(path: str, method: str) -> set[str]:
    """Return the parameters behind the question mark that the document knows."""
    item = DOCUMENT_SHOWN["paths"][path]
    listed = [*item.get("parameters", []), *item[method].get("parameters", [])]
    named = [DOCUMENT_SHOWN["components"]["parameters"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in listed]
    assert {one["name"] for one in named if one["in"] == "path"} == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    return {one["name"] for one in named if one["in"] == "query"}


def test_every_route_is_in_the_document_with_its_parameters_and_no_other():
    methods = {"get", "put", "post", "patch", "delete"}
    served = {(route.path, method.lower()): set(route.parameters.get(method, ())) for route in api_of().routes for method in route.handlers}
    described = {
        (path, method): parameters_of(path, method)
        for path, item in DOCUMENT_SHOWN["paths"].items()
        for method in item
        if method in methods
    }
    assert described == served


@pytest.mark.parametrize("name", BODIES)
def test_a_body_has_the_fields_that_the_code_reads(name: str):
    described = DOCUMENT_SHOWN["components"]["schemas"][name]
    known = fields(BODIES[name])
    assert set(described["properties"]) == {field.encode_name for field in known}
    assert set(described["required"]) == {field.encode_name for field in known if field.required}


# ------------------------------------------------------------ one request of each kind


def walk(node: NodeProcess) -> Iterator[tuple[str, int]]:
    """Ask for everything that can succeed, in an order in which it does; yield each operation with its status."""

    def ask(operation: str, *, path: dict[str, str] | None = None, **parts: Any) -> tuple[tuple[str, int], schemathesis.Response]:
        case = OPERATIONS[operation].Case(path_parameters=path or {}, **parts)
        answer = send(node, case)
        return (operation, answer.status_code), answer

    cache, entry = {"cache": "walked"}, {"cache": "walked", "key": "o-1"}
    as_json: dict[str, Any] = {"media_type": "application/json"}
    yield ask("getDocument")[0]
    yield ask("createCache", body={"name": "walked", "before": True, "promote": ["value.total"]}, **as_json)[0]
    for operation in ("listCaches", "getCache"):
        yield ask(operation, path=cache if operation == "getCache" else {})[0]
    yield ask("putEntry", path=entry, body={"total": 1}, headers={"Eventlog-Header-Trace": "t", "Eventlog-Lifespan": "9000000"}, **as_json)[
        0
    ]
    done, put = ask("putEntry", path=entry, body={"total": 2}, headers={"If-Match": "*"}, **as_json)
    yield done
    yield ask("getEntry", path=entry, query={"consistency": "any"})[0]
    yield ask("getEntry", path=entry, headers={"If-None-Match": put.headers["etag"][0]})[0]
    lines = [{"key": "o-2", "value": {"total": 3}}, {"key": "o-3", "remove": True}, {"key": "o-4", "value": 5, "remove": True}]
    yield ask("writeEntries", path=cache, body=lines, media_type="application/x-ndjson")[0]
    yield ask("listEntries", path=cache, query={"prefix": "o", "where": "value.total > ?", "parameters": "[0]"})[0]
    yield ask("readEvents", path=cache, query={"continuous": True, "where": "value.total < 9", "state_first": True})[0]
    yield ask("readEvents", path=cache, query={"follow": False}, headers=EVENT_STREAM)[0]
    listener = cache | {"listener": "small"}
    yield ask("registerListener", path=cache, body={"id": "small", "durable": True, "from_id": "earliest"}, **as_json)[0]
    for operation, body in (("alterListener", {"hold": 1 << 30}), ("acknowledge", {"position": json.loads(put.content)["id"]})):
        yield ask(operation, path=listener, body=body, **as_json)[0]
    for operation in ("listListeners", "getListener", "removeListener"):
        yield ask(operation, path=cache if operation == "listListeners" else listener)[0]
    group = {"group": "walkers"}
    done, joined = ask("joinGroup", path=group, body={"cache": "walked", "member": "one"}, **as_json)
    yield done
    member = group | {"member": json.loads(joined.content)["path"].rpartition("/")[2]}
    done, polled = ask("pollGroup", path=member, query={"generation": 1})
    yield done
    yield ask("commitGroup", path=member, body=json.loads(polled.content.splitlines()[-1]), **as_json)[0]
    for operation in ("listGroups", "getGroup"):
        yield ask(operation, path=group if operation == "getGroup" else {})[0]
    yield ask("leaveGroup", path=member)[0]
    yield ask("removeGroup", path=group)[0]
    yield ask("removeEntry", path=entry)[0]
    yield ask("dropCache", path=cache)[0]


def test_every_answer_that_is_no_refusal_is_given_and_is_as_described(node: NodeProcess):
    described = {
        (operation.definition.raw["operationId"], int(status))
        for operation in OPERATIONS.values()
        for status in operation.definition.raw["responses"]
        if int(status) < 400
    }
    assert set(walk(node)) == described


def test_the_document_that_is_served_is_this_one(node: NodeProcess):
    answer = OPERATIONS["getDocument"].Case().call(base_url=f"http://{node.http}")
    assert (DOCUMENT, answer.json()) == ("/v1/openapi.json", DOCUMENT_SHOWN)


# ------------------------------------------------------------ many requests of each kind


@pytest.fixture(scope="module")
def known(node: NodeProcess) -> dict[str, str]:
    """Return what there is, so that not every request is about nothing."""

    def made(operation: str, path: dict[str, str], body: object) -> schemathesis.Response:
        return send(node, OPERATIONS[operation].Case(path_parameters=path, body=body, media_type="application/json"))

    made("createCache", {}, {"name": "known"})
    for number in range(5):
        made("putEntry", {"cache": "known", "key": f"k{number}"}, {"n": number})
    made("registerListener", {"cache": "known"}, {"id": "listener", "durable": True})
    joined = made("joinGroup", {"group": "group"}, {"cache": "known", "member": "member", "session_timeout_ms": 600_000})
    member = json.loads(joined.content)["path"].rpartition("/")[2]
    return {"cache": "known", "key": "k1", "listener": "listener", "group": "group", "member": member}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_wrong_with_any_request_is_answered_as_described(node: NodeProcess, known: dict[str, str], name: str):
    operation = OPERATIONS[name]
    path = {part.name: known[part.name] for part in operation.path_parameters}
    given: dict[str, Any] = {"path_parameters": path}
    if operation.body:
        given |= {"body": {}, "media_type": operation.body[0].media_type}
    for wrong, status in (
        ({"query": {"nothing": "1"}}, 400),
        ({"path_parameters": path | {"key": "k" * 5_000}}, 413 if "key" in path else None),
        ({"query": {"prefix": "k" * 5_000}}, 413 if name == "listEntries" else None),
        ({"headers": {"Content-Type": "text/plain"}}, None if operation.method == "get" or operation.body else 415),
    ):
        if status is not None:
            assert send(node, operation.Case(**given | wrong)).status_code == status


def told_apart(operation: APIOperation, case: Case, known: dict[str, str]) -> None:
    """Have a request be about what there is, unless it would remove that for all that follow."""
    if operation.definition.raw["operationId"] not in {"dropCache", "removeListener", "leaveGroup"}:
        case.path_parameters.update({name: known[name] for name in case.path_parameters})


def ways() -> Iterator[tuple[str, GenerationMode]]:
    """Yield each operation with each way of making requests of it: some have nothing but texts, of which none is wrong by its kind."""
    for name, operation in OPERATIONS.items():
        yield name, GenerationMode.POSITIVE
        if any(part.location in {"query", "body"} for part in operation.iter_parameters()) or operation.body:
            yield name, GenerationMode.NEGATIVE


@pytest.mark.parametrize(("name", "mode"), list(ways()))
def test_no_request_makes_the_node_fail_or_answer_otherwise_than_described(
    node: NodeProcess, known: dict[str, str], name: str, mode: GenerationMode
):
    operation = OPERATIONS[name]

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), is_about_known=st.booleans())
    def check(case: Case, is_about_known: bool) -> None:
        if is_about_known:
            told_apart(operation, case, known)
        if case.query.get("wait") is not None:
            case.query["wait"] = WAIT_MS
        case.query.pop("follow", None)  # it would never end
        send(node, case)

    check()
