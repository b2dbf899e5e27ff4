"""The entries of a cache over HTTP: lines of JSON, of now and of then."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from eventlog import blocking
from eventlog.ids import id_before
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", "8") as running:
        yield running


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[blocking.Client]:
    with blocking.connect(node.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def orders(client: blocking.Client) -> blocking.Cache:
    cache = client.create_cache("orders", before=True)
    cache.put_many([(f"k{key} ä", {"n": key, "deep": {"a": [key, None]}}) for key in range(500)])
    return cache


def listed(node: NodeProcess, cache: str, **query: Any) -> list[dict[str, Any]]:
    with urlopen(f"http://{node.http}/v1/caches/{cache}/entries?{urlencode(query)}") as answer:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.read().splitlines()]


def refused(node: NodeProcess, cache: str, **query: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(HTTPError) as raised:
        listed(node, cache, **query)
    return raised.value.code, json.load(raised.value)


def test_every_entry_is_a_line(node: NodeProcess, orders: blocking.Cache) -> None:
    found = listed(node, "orders")
    assert {line["key"]: (line["value"], int(line["version"])) for line in found} == {
        key: (entry.value, entry.version) for key, entry in orders.entries(metadata=True)
    }
    assert len(found) == 500


def test_entries_are_chosen_by_prefix_condition_and_number(node: NodeProcess, orders: blocking.Cache) -> None:
    assert {line["key"] for line in listed(node, "orders", prefix="k12")} == {f"k{n} ä" for n in (12, *range(120, 130))}
    assert {line["value"]["n"] for line in listed(node, "orders", where="value.n < ?", parameters="[7]")} == set(range(7))
    assert listed(node, "orders", where="value.n = 3", select="value.deep.a")[0]["value"] == {"deep": {"a": [3, None]}}
    assert len(listed(node, "orders", max="9")) == 9
    assert listed(node, "orders", where="value.n = -1") == []


def test_a_listing_goes_on_behind_its_last_key(node: NodeProcess, client: blocking.Client, orders: blocking.Cache) -> None:
    whole = listed(node, "orders")
    pages = listed(node, "orders", max="70")
    while page := listed(node, "orders", max="70", after=pages[-1]["key"]):
        pages += page
    assert pages == whole
    at = orders.log_ends().last_id
    assert listed(node, "orders", after=whole[100]["key"], at=at) == whole[101:]
    chosen = listed(node, "orders", where="value.n < 100")
    assert listed(node, "orders", where="value.n < 100", after=chosen[40]["key"], prefix="k") == chosen[41:]
    assert listed(node, "orders", after=whole[-1]["key"]) == []
    by_prefix = client.create_cache("routed", key_format="bytes", route_by_prefix=True)
    by_prefix.put_many([(b"%d\0%d" % (number % 7, number), number) for number in range(50)])
    routed = listed(node, "routed", key="base64")
    assert len(routed) == 50
    assert [listed(node, "routed", key="base64", after=line["key"]) for line in routed] == [routed[n:] for n in range(1, 51)]


def test_entries_are_told_as_they_were(node: NodeProcess, client: blocking.Client) -> None:
    cache = client.create_cache("past", before=True)
    cache.put_many([(f"k{key}", 1) for key in range(20)])
    at = cache.log_ends().last_id
    cache.put_many([(f"k{key}", 2) for key in range(10)])
    cache.remove("k15")
    assert {line["key"]: line["value"] for line in listed(node, "past", at=at)} == {f"k{key}": 1 for key in range(20)}
    cache.put("short", 0, lifespan_ms=60_000)
    (line,) = listed(node, "past", prefix="short")
    assert line["expires_ms"] == cache.get("short").expires_ms


def test_caches_of_other_formats(node: NodeProcess, client: blocking.Client) -> None:
    client.create_cache("plain", format="bytes", key_format="bytes").put(b"\x00k", b"\xffv")
    assert refused(node, "plain")[0] == 400
    (line,) = listed(node, "plain", key="base64")
    assert line["key"] == urlsafe_b64encode(b"\x00k").rstrip(b"=").decode()
    assert line["value"] == {"base64": "/3Y="}
    assert listed(node, "plain", key="base64", prefix=line["key"]) == [line]
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]})
    client.create_cache("typed", format="avro", schema=schema).put("k", {"total": 1.5})
    assert [line["value"] for line in listed(node, "typed")] == [{"total": 1.5}]


def test_what_cannot_be_is_refused(node: NodeProcess, client: blocking.Client, orders: blocking.Cache) -> None:
    client.create_cache("stateless", state=False, before=False)
    for cache, query, status, code in (
        ("nowhere", {}, 404, "CACHE_NOT_FOUND"),
        ("orders", {"where": "value.n >"}, 400, "BAD_PREDICATE"),
        ("orders", {"where": "value.n = ?", "parameters": "[7"}, 400, "INVALID_ARGUMENT"),
        ("orders", {"where": "value.n = ?", "parameters": "7"}, 400, "INVALID_ARGUMENT"),
        ("orders", {"max": "0"}, 400, "INVALID_ARGUMENT"),
        ("orders", {"nothing": "1"}, 400, "INVALID_ARGUMENT"),
        ("orders", {"after": "x", "key": "base64"}, 400, "INVALID_ARGUMENT"),
        ("orders", {"after": "x" * 5_000}, 413, "TOO_LARGE"),
        ("orders", {"at": str(1 << 62)}, 400, "INVALID_ARGUMENT"),
        ("orders", {"at": str(id_before(time.time_ns() // 1_000_000 + 30_000))}, 503, "NOT_FINAL"),
        ("stateless", {}, 409, "NO_STATE"),
    ):
        found = refused(node, cache, **query)
        assert (found[0], found[1]["error"]) == (status, code), (cache, query, found)
    with urlopen(Request(f"http://{node.http}/v1/caches/orders/entries", method="HEAD")) as answer:
        assert (answer.status, answer.read()) == (200, b"")
