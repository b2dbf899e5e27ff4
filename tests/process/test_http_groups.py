"""Members of groups over HTTP alone: they share segments, come and go, and go on at another node where theirs was killed."""

import json
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

import eventlog.blocking
from eventlog.read import token
from eventlog.read.position import Position
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

pytestmark = pytest.mark.timeout(240)
JSON = {"Content-Type": "application/json"}
SEGMENTS = 16


def raw(node: NodeProcess, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    with closing(HTTPConnection(node.http, timeout=90)) as connection:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, content, JSON if headers is None else headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read()


def ask(node: NodeProcess, method: str, path: str, body: object = None) -> tuple[int, Any]:
    status, answer = raw(node, method, path, body)
    return status, json.loads(answer)


def write(node: NodeProcess, numbers: range, cache: str = "orders") -> None:
    lines = b"".join(b'{"key":"k%d","value":{"n":%d}}\n' % (number, number) for number in numbers)
    status, answer = raw(node, "POST", f"/v1/caches/{cache}/entries", lines, {"Content-Type": "application/x-ndjson"})
    assert status == 200, answer
    assert b"error" not in answer, answer


class Member:
    """A member, which asks whichever node it is given."""

    def __init__(self, node: NodeProcess, group: str, **words: object) -> None:
        status, joined = ask(node, "POST", f"/v1/groups/{group}/members", {"cache": "orders"} | words)
        assert status == 201, joined
        self.name, self.path, self.generation, self.segments = joined["member"], joined["path"], joined["generation"], joined["segments"]

    def try_poll(self, node: NodeProcess, *, wait: int = 0, most: int = 0) -> tuple[int, list[dict]]:
        path = f"{self.path}/events?generation={self.generation}&wait={wait}" + (f"&max={most}" if most else "")
        status, answer = raw(node, "GET", path)
        return status, [json.loads(line) for line in answer.splitlines()]

    def poll(self, node: NodeProcess, *, wait: int = 0, most: int = 0) -> tuple[list[dict], dict]:
        """Return events, and the last line."""
        status, [*events, end] = self.try_poll(node, wait=wait, most=most)
        assert status == 200, end
        self.generation = end["generation"]
        return events, end

    def commit(self, node: NodeProcess, end: dict, **more: object) -> tuple[int, dict]:
        return ask(node, "PUT", f"{self.path}/position", end | more)

    def leave(self, node: NodeProcess) -> None:
        assert ask(node, "DELETE", self.path)[0] == 200


def numbers(events: list[dict]) -> list[int]:
    return [event["value"]["n"] for event in events]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("http"), "--segments", str(SEGMENTS)) as found:
        assert ask(found, "POST", "/v1/caches", {"name": "orders"})[0] == 201
        write(found, range(100))
        yield found


def test_a_poll_gives_what_follows_the_last_commit(node: NodeProcess):
    member = Member(node, "follows")
    assert member.segments == SEGMENTS
    events, end = member.poll(node)
    assert sorted(numbers(events)) == list(range(100))
    assert set(events[0]) == {"id", "time", "segment", "offset", "kind", "key", "value", "position"}
    assert member.poll(node)[0] == events, "nothing was committed"
    assert member.commit(node, end) == (200, {"generation": end["generation"], "segments": SEGMENTS})
    assert member.poll(node)[0] == []


def test_a_part_of_a_poll_is_committed_up_to_an_id(node: NodeProcess):
    member = Member(node, "part")
    events, end = member.poll(node)
    ordered = sorted(events, key=lambda event: int(event["id"]))
    assert member.commit(node, end, upto=ordered[29]["id"], metadata="thirty")[0] == 200
    rest, end = member.poll(node, most=7)
    assert len(rest) == 7
    assert member.commit(node, end)[0] == 200
    last, _ = member.poll(node)
    assert Counter(numbers(ordered[:30]) + numbers(rest) + numbers(last)) == Counter(range(100))
    [described] = ask(node, "GET", "/v1/groups/part")[1]["caches"]
    assert (described["generation"], [one["member"] for one in described["members"]]) == (member.generation, [member.name])
    assert sum(one["lag_events"] for one in described["segments"]) == len(last)
    assert all(isinstance(one["id"], str) for one in described["segments"])


def test_only_what_matches_comes_and_the_rest_is_passed_over(node: NodeProcess):
    member = Member(node, "small", where="value.n < ?", parameters=[10], select=["value.n"])
    events, end = member.poll(node)
    assert sorted(numbers(events)) == list(range(10))
    assert member.commit(node, end)[0] == 200
    [described] = ask(node, "GET", "/v1/groups/small")[1]["caches"]
    assert sum(one["lag_events"] for one in described["segments"]) == 0


def test_a_poll_waits_for_what_comes_and_its_session_goes_on_meanwhile(node: NodeProcess):
    member = Member(node, "waits", from_id="latest", session_timeout_ms=1_000, cache="orders")
    with ThreadPoolExecutor(1) as beside:
        began = time.monotonic()
        polled = beside.submit(member.poll, node, wait=20_000)
        while time.monotonic() < began + 2.5:  # longer than the session would last
            assert not polled.done(), polled.result()
            time.sleep(0.05)
        write(node, range(100, 101))
        events, _ = polled.result()
    assert numbers(events) == [100]
    assert member.poll(node, wait=100)[0] == events


def test_two_members_share_and_one_takes_over_what_the_other_leaves(node: NodeProcess):
    first = Member(node, "pair")
    _, end_of_first = first.poll(node)
    second = Member(node, "pair")
    assert second.poll(node)[0] == [], "its segments are the first one's still"
    until(lambda: bool(first.poll(node) and second.poll(node)[0]))
    of_first, end = first.poll(node)
    of_second, end_of_second = second.poll(node)
    assert {event["segment"] for event in of_first}.isdisjoint(event["segment"] for event in of_second)
    assert Counter(numbers(of_first) + numbers(of_second)) >= Counter(range(100))
    status, refused = first.commit(node, end_of_first)
    assert (status, refused["error"]) == (409, "STALE_MEMBER"), "a commit by a generation in which it had all"
    assert first.commit(node, end)[0] == 200
    second.leave(node)
    assert second.commit(node, end_of_second)[1]["error"] == "STALE_MEMBER"
    assert second.try_poll(node)[1][-1]["error"] == "STALE_MEMBER"
    until(lambda: Counter(numbers(first.poll(node)[0])) == Counter(numbers(of_second)))


def test_what_a_silent_member_had_goes_to_another_one(node: NodeProcess):
    first = Member(node, "silent", session_timeout_ms=1_500)
    events, end = first.poll(node)
    second = Member(node, "silent")
    until(lambda: Counter(numbers(second.poll(node, wait=500)[0])) == Counter(numbers(events)))
    assert first.commit(node, end)[1]["error"] == "STALE_MEMBER"
    again = Member(node, "silent", member=first.name)
    assert again.name == first.name


def test_it_shares_with_a_member_that_has_a_client(node: NodeProcess):
    member = Member(node, "mixed")
    with eventlog.blocking.connect(node.address) as client:
        with client.cache("orders").consumer("mixed") as consumer:
            until(lambda: bool(member.poll(node, wait=100)) and len(consumer.assignment) == SEGMENTS // 2)
            own = {event["segment"] for event in member.poll(node)[0]}
            assert own == set(range(SEGMENTS)) - consumer.assignment
            [described] = ask(node, "GET", "/v1/groups/mixed")[1]["caches"]
            assert {(one["client"], one["node"] > 0, one["segments"]) for one in described["members"]} == {
                ("http", False, 8),
                ("", True, 8),
            }
        until(lambda: {event["segment"] for event in member.poll(node, wait=100)[0]} == set(range(SEGMENTS)))


def test_commits_keep_a_member_alive_that_works_on_what_it_was_given(node: NodeProcess):
    member = Member(node, "works", session_timeout_ms=1_500)
    events, end = member.poll(node)
    began = time.monotonic()
    for event in sorted(events, key=lambda event: int(event["id"])):
        assert member.commit(node, end, upto=event["id"])[0] == 200
        time.sleep(0.04)  # its work
    assert time.monotonic() > began + 3, "twice as long as its session would last"
    assert member.poll(node)[0] == []


def test_joining_anew_by_the_same_name_keeps_segments_and_fences_what_was_before(node: NodeProcess):
    before = Member(node, "anew", member="worker-1")
    _, end = before.poll(node)
    after = Member(node, "anew", member="worker-1")
    assert after.segments == SEGMENTS
    assert before.commit(node, end)[1]["error"] == "STALE_MEMBER"
    assert sorted(numbers(after.poll(node, most=1_000)[0]))[:100] == list(range(100))


def test_a_group_is_listed_and_removed_when_nobody_is_in_it(node: NodeProcess):
    member = Member(node, "gr\u00f6\u00dfe%2F".replace("\u00f6\u00df", "%C3%B6"))
    found = {one["group"]: one for one in ask(node, "GET", "/v1/groups")[1]["groups"]}
    assert found["gr\u00f6e/"]["members"] == 1
    path = "/v1/groups/gr%C3%B6e%2F"
    assert member.path.startswith(f"{path}/members/")
    assert ask(node, "DELETE", path)[1]["error"] == "GROUP_NOT_EMPTY"
    member.leave(node)
    assert ask(node, "DELETE", path) == (200, {"group": "gr\u00f6e/"})
    assert ask(node, "GET", path)[1]["error"] == "GROUP_NOT_FOUND"


def test_nothing_is_lost_and_only_what_was_not_committed_comes_again_when_the_node_is_killed(tmp_path: Path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        assert ask(cluster[0], "POST", "/v1/caches", {"name": "orders"})[0] == 201
        write(cluster[0], range(2_000))
        member = Member(cluster[1], "killed", session_timeout_ms=20_000)
        seen: Counter[str] = Counter()
        committed: set[str] = set()
        found: set[int] = set()
        nodes = [cluster[1], cluster[2], cluster[0]]
        turn = 0
        while len(found) < 4_000:
            turn += 1
            try:
                events, end = member.poll(nodes[0], wait=1_000, most=150)
                ids = [event["id"] for event in events]
                seen.update(ids)
                assert committed.isdisjoint(ids), "what was committed came again"
                if turn == 5:
                    cluster.kill(1)  # it has given events that are not committed
                    write(cluster[0], range(2_000, 4_000))
                status, told = member.commit(nodes[0], end)
            except (OSError, HTTPException):
                nodes.append(nodes.pop(0))
                continue
            assert (status, told.get("error")) == (200, None), told
            committed.update(ids)
            found.update(numbers(events))
        assert len(seen) == 4_000, "each line was written once"
        assert sum(count > 1 for count in seen.values()) == 150, "of one poll alone"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "INVALID_ARGUMENT"),
        (b"[" * 100_000, 400, "INVALID_ARGUMENT"),
        ({}, 400, "INVALID_ARGUMENT"),
        ({"cache": "none"}, 404, "CACHE_NOT_FOUND"),
        ({"cache": "orders", "colour": "red"}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "member": "a b"}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "member": ""}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "where": "value.n >"}, 400, "BAD_PREDICATE"),
        ({"cache": "orders", "where": "value.n > ?", "parameters": []}, 400, "BAD_PREDICATE"),
        ({"cache": "orders", "where": ""}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "parameters": [1]}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "select": [7]}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "where": "value.n in (" + ",".join("1" * 9 for _ in range(1_000)) + ")"}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "session_timeout_ms": 999}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "session_timeout_ms": 1 << 70}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "on_trimmed": "resync"}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "assignor": "best"}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "from_id": "yesterday"}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "from_id": -1}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "from_id": "9" * 5_000}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "from_id": 1, "from_time": 1}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "from_time": (1 << 53) + 1}, 400, "INVALID_ARGUMENT"),
        ({"cache": "orders", "from_time": -1}, 400, "INVALID_ARGUMENT"),
    ],
)
def test_joining_with_something_wrong_is_refused(node: NodeProcess, body: object, status: int, code: str):
    answer = ask(node, "POST", "/v1/groups/wrong/members", body)
    assert (answer[0], answer[1]["error"]) == (status, code), answer
    assert ask(node, "GET", "/v1/groups/wrong")[0] == 404, "nothing is kept of it"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/events", None, 400, "INVALID_ARGUMENT"),
        ("GET", "/events?generation=0", None, 400, "INVALID_ARGUMENT"),
        ("GET", "/events?generation=x", None, 400, "INVALID_ARGUMENT"),
        ("GET", "/events?generation=9999999", None, 409, "STALE_MEMBER"),
        ("GET", "/events?generation=9999999999999999999", None, 400, "INVALID_ARGUMENT"),
        ("GET", "/events?generation=1&max=0", None, 400, "INVALID_ARGUMENT"),
        ("GET", "/events?generation=1&wait=60001", None, 400, "INVALID_ARGUMENT"),
        ("GET", "/events?generation=1&follow=true", None, 400, "INVALID_ARGUMENT"),
        ("POST", "/events?generation=1", None, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/position", b"", 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 0, "position": None}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1 << 63, "position": None}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1, "position": "garbage"}, 400, "BAD_MESSAGE"),
        ("PUT", "/position", {"generation": 1, "position": "\u00e4"}, 400, "BAD_MESSAGE"),
        ("PUT", "/position", {"generation": 1, "position": "THEIRS"}, 400, "POSITION_MISMATCH"),
        ("PUT", "/position", {"generation": 1, "position": "SCALAR"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1, "position": "OWN", "upto": "x"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1, "position": "OWN", "upto": "latest"}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1, "position": "OWN", "upto": "9" * 5_000}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1, "position": "OWN", "upto": -1}, 400, "INVALID_ARGUMENT"),
        ("PUT", "/position", {"generation": 1, "position": "OWN", "metadata": "m" * 5_000}, 413, "TOO_LARGE"),
        ("PUT", "/position", {"generation": 1, "position": "OWN", "colour": "red"}, 400, "INVALID_ARGUMENT"),
        ("DELETE", "x", None, 400, "INVALID_ARGUMENT"),
    ],
)
def test_a_member_that_asks_for_something_wrong_is_refused(node: NodeProcess, method: str, path: str, body: object, status: int, code: str):
    member = Member(node, "asks", member="asks")
    _, end = member.poll(node)
    if isinstance(body, dict) and (of := body.get("position")) in {"OWN", "SCALAR", "THEIRS"}:
        if of == "THEIRS":
            ask(node, "POST", "/v1/caches", {"name": "others"})
            write(node, range(9), "others")
            end = Member(node, "theirs", cache="others").poll(node)[1]
        own = token.from_short_text(end["position"])
        scalar = token.to_short_text(Position(cluster=own.cluster, cache_id=own.cache_id, segments=own.segments, at=1))
        body = body | {"position": scalar if of == "SCALAR" else end["position"]}
    found, answer = raw(node, method, member.path + path, body)
    assert (found, json.loads(answer)["error"]) == (status, code), answer
    assert member.poll(node)[0], "it goes on, and nothing was committed"


def part_of(*words: object) -> str:
    """A member's part of a path, as nobody was told it."""
    return "x." + urlsafe_b64encode(json.dumps(words).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "part",
    ["x", "x.", "x.!!", "x.e30", "x.WzFd", "%00", part_of("orders", 0, 0)]
    + [part_of("orders", cache_id, 30_000) for cache_id in (-1, 1 << 32, 1 << 70)]
    + [part_of("orders", 1, timeout_ms) for timeout_ms in (-1, 1 << 32, 1 << 70)],
)
def test_a_path_that_no_join_has_told_is_refused(node: NodeProcess, part: str):
    for method, path, body in (
        ("GET", "/events?generation=1", None),
        ("PUT", "/position", {"generation": 1, "position": None}),
        ("DELETE", "", None),
    ):
        status, answer = ask(node, method, f"/v1/groups/asks/members/{part}{path}", body)
        assert status in {400, 404}, (method, answer)


def test_the_cache_of_a_member_may_be_dropped_and_made_again(node: NodeProcess):
    for _ in range(2):
        assert ask(node, "POST", "/v1/caches", {"name": "dropped"})[0] == 201
        member = Member(node, "dropped", cache="dropped")
        assert ask(node, "DELETE", "/v1/caches/dropped")[0] == 200
        status, answer = member.try_poll(node)
        assert (status, answer[-1]["error"]) == (404, "CACHE_NOT_FOUND")
    assert ask(node, "POST", "/v1/caches", {"name": "dropped"})[0] == 201
    status, answer = member.try_poll(node)
    assert (status, answer[-1]["error"]) == (404, "CACHE_NOT_FOUND"), "it is another cache"
