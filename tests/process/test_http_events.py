"""Events over HTTP: as lines, as server-sent events, to the end of the log or on and on."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.process.nodes import NodeProcess

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http")) as found:
        found.command("cache", "create", "orders", "--before")
        for number in range(10):
            put(found, f"k{number % 4}", {"n": number})
        yield found


def put(node: NodeProcess, key: str, value: object, cache: str = "orders") -> str:
    connection = HTTPConnection(node.http, timeout=TIMEOUT_S)
    connection.request("PUT", f"/v1/caches/{cache}/entries/{key}", json.dumps(value))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    assert answer.status in {200, 201}, body
    connection.close()
    return body["id"]


@contextmanager
def opened(
    node: NodeProcess, cache: str = "orders", *, accept: str = "*/*", last: str = "", **parameters: object
) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(node.http, timeout=TIMEOUT_S)
    headers = {"Accept": accept} | ({"Last-Event-ID": last} if last else {})
    with closing(connection):
        connection.request("GET", f"/v1/caches/{cache}/events?{urlencode(parameters)}", headers=headers)
        with connection.getresponse() as answer:
            yield answer


def rows(node: NodeProcess, cache: str = "orders", **parameters: object) -> list[dict]:
    with opened(node, cache, **parameters) as answer:
        body = answer.read()
        assert answer.status == 200, body
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in body.splitlines()]


def server_sent(answer: HTTPResponse, count: int) -> list[tuple[dict[str, str], dict]]:
    """Read so many server-sent events: their fields, and their data as an object."""
    found: list[tuple[dict[str, str], dict]] = []
    fields: dict[str, str] = {}
    while len(found) < count:
        line = answer.readline().decode()
        assert line, f"the stream ended after {found}"
        name, _, value = line.rstrip("\n").partition(": ")
        if line != "\n":
            fields[name] = value
        elif "data" in fields:
            found.append((fields, json.loads(fields["data"])))
            fields = {}
    return found


def test_lines_are_those_of_the_command_line_with_ids_as_text(node: NodeProcess):
    told = [json.loads(line) for line in node.command("consume", "orders", "--json").stdout.splitlines()]
    for event in told:
        event["id"] = event["position"] = event.pop("id_str")
    assert rows(node) == told
    assert len(told) >= 10
    assert {event["kind"] for event in told} == {"CREATED", "MODIFIED"}


def test_a_read_goes_on_behind_any_of_its_events(node: NodeProcess):
    whole = rows(node)
    for place in (0, 3, len(whole) - 1):
        rest = [event for event in whole if int(event["id"]) > int(whole[place]["id"])]
        assert rows(node, after=whole[place]["id"]) == rest
        assert rows(node, position=whole[place]["position"]) == rest
    assert rows(node, after="latest") == []
    assert rows(node, max=3) == whole[:3]


def test_only_what_matches_comes_and_only_of_it_what_is_selected(node: NodeProcess):
    found = rows(node, where="value.n >= ?", parameters="[7]", select="value.n")
    assert [event["value"] for event in found] == [{"n": 7}, {"n": 8}, {"n": 9}]


def test_state_first_is_the_entries_and_then_what_happens(node: NodeProcess):
    found = rows(node, state_first="true")
    state = [event for event in found if event["kind"] == "STATE"]
    assert {event["key"]: event["value"]["n"] for event in state} == {"k0": 8, "k1": 9, "k2": 6, "k3": 7}
    again = rows(node, position=state[1]["position"])
    assert [event["key"] for event in again if event["kind"] == "STATE"] == [event["key"] for event in state[2:]]


def test_server_sent_events_follow_and_resume_behind_the_last_one_through_a_kill(tmp_path: Path):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "told")
        wanted = [put(node, f"k{number}", number, "told") for number in range(5)]
        with opened(node, "told", accept="text/event-stream") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            got = [fields["id"] for fields, _ in server_sent(answer, 5)]
            wanted.append(put(node, "later", 5, "told"))
            got += [fields["id"] for fields, _ in server_sent(answer, 1)]
            node.kill()
        node.start()
        wanted += [put(node, f"l{number}", number, "told") for number in range(3)]
        with opened(node, "told", accept="text/event-stream", last=got[-1], after="earliest") as answer:
            found = server_sent(answer, 3)
    got += [fields["id"] for fields, _ in found]
    assert got == wanted, "nothing lost, nothing twice"
    assert [data["value"] for _, data in found] == [0, 1, 2]


def test_what_a_reader_takes_is_named_in_any_case(node: NodeProcess):
    with opened(node, accept="Text/Event-Stream;q=0.9, */*", follow="false", max=1) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"


def test_a_position_that_was_changed_is_refused_without_all_of_it(node: NodeProcess):
    (first,) = rows(node, state_first="true", max=1)
    assert len(first["position"]) > 200
    for changed in (first["position"][:-1], f"{first['position']}A", first["position"][:99] + "." + first["position"][100:]):
        with opened(node, position=changed) as answer:
            message = json.loads(answer.read())["message"]
        assert answer.status == 400
        assert message.startswith(f"'{changed[:60]}...' is neither an id nor a position of a reader: not a position token: ")
        assert len(message) < 200


def test_a_stream_of_lines_follows_as_well(node: NodeProcess):
    with opened(node, after="latest", follow="true") as answer:
        id_ = put(node, "followed", 1)
        assert json.loads(answer.readline())["id"] == id_


def test_streams_that_ask_the_same_share_what_they_get_and_others_do_not(node: NodeProcess):
    node.command("cache", "create", "shared")
    wanted = [
        {},
        {},
        {"where": "value.n >= 2"},
        {"select": "value.n"},
        {"max": 2},
        {"where": "value.n >= 2"},
        {"continuous": "true", "where": "value.n > 0"},
    ]
    with ExitStack() as stack:
        streams = [stack.enter_context(opened(node, "shared", follow="true", after=0, **one)) for one in wanted]
        sent = stack.enter_context(opened(node, "shared", accept="text/event-stream", after=0))
        ids = [put(node, f"k{n}", {"n": n, "text": "x"}, "shared") for n in range(4)]
        lines = [[json.loads(stream.readline()) for _ in range(2)] for stream in streams]
        assert [[line["id"] for line in own] for own in lines] == [ids[:2], ids[:2], ids[2:], ids[:2], ids[:2], ids[2:], ids[1:3]]
        assert [line["value"] for line in lines[3]] == [{"n": 0}, {"n": 1}]
        assert {line["change"] for line in lines[6]} == {"JOINED"}
        assert lines[0] == lines[1]
        assert [(fields["id"], data["value"]) for fields, data in server_sent(sent, 2)] == [
            (id_, {"n": n, "text": "x"}) for n, id_ in enumerate(ids[:2])
        ]
    with closing(HTTPConnection(node.http, timeout=TIMEOUT_S)) as connection:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    assert 'eventlog_limit{thing="http_shared_answers"} 64' in page


def test_who_waits_is_answered_with_what_comes_and_with_nothing_in_the_end(node: NodeProcess):
    assert rows(node, after="latest", wait=20) == []
    last = put(node, "before", 1)
    with socket.create_connection(node.http.split(":"), timeout=TIMEOUT_S) as waiting:
        waiting.sendall(f"GET /v1/caches/orders/events?after={last}&wait=60000 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        id_ = put(node, "waited", 1)
        with waiting.makefile("rb") as answer:
            assert any(f'"id":"{id_}"'.encode() in line for line in answer)


def test_of_a_place_that_retention_has_passed_both_forms_tell(tmp_path: Path):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "short", "--retain-events", "1")
        first = put(node, "a", 1, "short")
        for number in range(200):
            put(node, "a", number, "short")
        node.command("admin", "retention", "run", "short")
        with opened(node, "short", after=first) as answer:
            body = json.loads(answer.read())
        assert (answer.status, body["error"]) == (410, "EVENTS_TRIMMED")
        assert int(body["first_id"]) > int(first)
        with opened(node, "short", accept="text/event-stream", last=first) as answer:
            [(fields, data)] = server_sent(answer, 1)
            assert (answer.status, fields["event"], data["error"], data["first_id"]) == (200, "error", "EVENTS_TRIMMED", body["first_id"])
            assert answer.read() == b"", "that is the end"


@pytest.mark.parametrize(
    ("parameters", "status", "code"),
    [
        ({"after": "x"}, 400, "INVALID_ARGUMENT"),
        ({"after": "-1"}, 400, "INVALID_ARGUMENT"),
        ({"after": "99999999999999999999"}, 400, "INVALID_ARGUMENT"),
        ({"position": "x"}, 400, "INVALID_ARGUMENT"),
        ({"position": "1", "after": "1"}, 400, "INVALID_ARGUMENT"),
        ({"from_time": "yesterday"}, 400, "INVALID_ARGUMENT"),
        ({"where": "value.n >"}, 400, "BAD_PREDICATE"),
        ({"where": ""}, 400, "INVALID_ARGUMENT"),
        ({"where": "value.n > ?", "parameters": "[1"}, 400, "INVALID_ARGUMENT"),
        ({"where": "value.n > ?", "parameters": "1"}, 400, "INVALID_ARGUMENT"),
        ({"parameters": "[1]"}, 400, "INVALID_ARGUMENT"),
        ({"select": ","}, 400, "INVALID_ARGUMENT"),
        ({"listener": "nobody"}, 404, "LISTENER_NOT_FOUND"),
        ({"follow": "yes"}, 400, "INVALID_ARGUMENT"),
        ({"state_first": "1"}, 400, "INVALID_ARGUMENT"),
        ({"max": "0"}, 400, "INVALID_ARGUMENT"),
        ({"wait": "60001"}, 400, "INVALID_ARGUMENT"),
        ({"wait": "5", "follow": "true"}, 400, "INVALID_ARGUMENT"),
        ({"filter": "x"}, 400, "INVALID_ARGUMENT"),
    ],
)
def test_what_cannot_be_read_is_refused(node: NodeProcess, parameters, status, code):
    with opened(node, **parameters) as answer:
        body = json.loads(answer.read())
        assert (answer.status, body["error"]) == (status, code), body
    assert "http_failed" not in node.log_text()


@pytest.mark.parametrize("start", ["after", "position"])
def test_of_two_places_to_begin_both_are_named_as_they_were_given(node: NodeProcess, start: str):
    with opened(node, from_time="0", **{start: "1"}) as answer:
        assert (answer.status, json.loads(answer.read())["message"]) == (400, "after, position and from_time exclude each other")


def test_a_continuous_query_tells_who_joins_and_who_leaves(tmp_path: Path):
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "asked", "--before")
        put(node, "a", {"n": 5}, "asked")
        with opened(node, "asked", accept="text/event-stream", where="value.n > 3", continuous="true", state_first="true") as answer:
            [(_, first)] = server_sent(answer, 1)
            for number in (6, 1, 9):
                put(node, "a", {"n": number}, "asked")
            rest = [data for _, data in server_sent(answer, 3)]
    assert [first["kind"], *(data["change"] for data in [first, *rest])] == ["STATE", "JOINED", "UPDATED", "LEFT", "JOINED"]


def test_a_listener_goes_on_where_it_has_acknowledged(node: NodeProcess):
    node.command("listener", "register", "orders", "--durable", "--id", "big", "--hold", "1MiB", "--where", "value.n > 100")
    put(node, "big", {"n": 101})
    with opened(node, listener="big", follow="true") as answer:
        assert json.loads(answer.readline())["value"] == {"n": 101}
        put(node, "small", {"n": 1})
        put(node, "big", {"n": 102})
        assert json.loads(answer.readline())["value"] == {"n": 102}
