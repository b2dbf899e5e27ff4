"""Avro caches on the command line, and through both clients, against a real node."""

import asyncio
import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eventlog
from eventlog import blocking
from eventlog.errors import BadValue, CacheDiffers
from tests.process.cli_ends import Shell, running_node

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "paid", "type": "boolean", "default": False},
    ],
}
TEXT = json.dumps(SCHEMA)
AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
FULL = {"id": 7, "note": "n", "at": AT, "price": Decimal("12.50"), "tags": ["a"], "paid": True}
SHOWN = {"id": 7, "note": "n", "at": "2026-11-20T10:00:00Z", "price": "12.50", "tags": ["a"], "paid": True}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node")) as found:
        path = tmp_path_factory.mktemp("schema") / "order.avsc"
        path.write_text(TEXT)
        for name in ("av", "other", "loaded"):
            found.ok("cache", "create", name, "--format", "avro", "--schema", str(path))
        yield found


def test_what_is_no_record_is_refused_and_a_record_comes_back(shell: Shell) -> None:
    refused = shell.run("put", "av", "a", "total nonsense")
    assert (refused.code, refused.err.startswith("error: BAD_VALUE: value of key 'a': not JSON")) == (1, True)
    refused = shell.run("put", "av", "a", '{"id": "7"}')
    assert (refused.code, refused.err) == (1, "error: BAD_VALUE: value of key 'a': value.id is text, '7': the schema wants long\n")
    assert shell.run("get", "av", "a").code == 1
    shell.ok("put", "av", "a", json.dumps(SHOWN))
    assert json.loads(shell.ok("get", "av", "a").out) == SHOWN
    assert shell.ok("get", "av", "a", "--json").row["value"] == SHOWN
    assert shell.ok("entries", "av").row["value"] == SHOWN
    shell.ok("put", "av", "a", '{"id": 8}')
    events = shell.ok("consume", "av").rows
    assert [event["value"]["id"] for event in events] == [7, 8]
    assert events[1]["before"] == SHOWN
    assert [row["value"] for row in shell.ok("consume", "av", "--select", "value.id", "--where", "value.id = 7").rows] == [{"id": 7}]
    assert shell.ok("entries", "av", "--select", "value.id").row["value"] == {"id": 8}
    [line] = csv.DictReader(io.StringIO(shell.ok("consume", "av", "--format", "csv", "--max", "1").out))
    assert json.loads(line["value"]) == SHOWN
    described = shell.ok("cache", "describe", "av", "--json").row
    assert (described["format"], described["schema"]) == ("avro", SCHEMA)
    assert "avro, Order with 6 fields" in shell.ok("cache", "describe", "av").out
    assert shell.run("cache", "create", "av", "--if-not-exists", "--format", "json").err.startswith("error: CACHE_DIFFERS: ")


def rows() -> list[dict[str, Any]]:
    return [{"key": f"k{number}", **SHOWN, "id": number} for number in range(5)]


def as_csv(given: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(given[0]))
    writer.writeheader()
    writer.writerows([row | {"tags": json.dumps(row["tags"]), "paid": "true", "note": ""} for row in given])
    return out.getvalue().encode()


def as_parquet(given: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row | {"at": AT, "price": Decimal("12.5")} for row in given]), out)
    return out.getvalue()


def as_avro(given: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    schema = {**SCHEMA, "fields": [{"name": "key", "type": "string"}, *SCHEMA["fields"]]}  # type: ignore[misc]  # a list
    fastavro.writer(out, fastavro.parse_schema(schema), [row | {"at": AT, "price": Decimal("12.5")} for row in given])
    return out.getvalue()


def as_lines(given: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in given)


@pytest.mark.parametrize(("name", "pack"), [("jsonl", as_lines), ("csv", as_csv), ("parquet", as_parquet), ("avro", as_avro)])
def test_files_are_loaded_as_records(shell: Shell, tmp_path: Path, name: str, pack: Any) -> None:
    path = tmp_path / f"rows.{name}"
    path.write_bytes(pack(rows()))
    loaded = shell.ok("load", "loaded", str(path), "--key", "key", "--create", "--json").row
    assert (loaded["loaded"], loaded["rejected"]) == (5, 0)
    found = {row["key"]: row["value"] for row in shell.ok("entries", "loaded").rows}
    note = None if name == "csv" else "n"
    assert found == {f"k{number}": SHOWN | {"id": number, "note": note} for number in range(5)}
    shell.ok("clear", "loaded", "--yes")


def test_a_row_that_does_not_fit_is_reported_with_its_line_and_field(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,id,note\nk1,1,a\nk2,two,b\nk3,3,c\nk4,4_0,d\n")
    done = shell.run("load", "loaded", str(path), "--key", "key", "--max-errors", "2")
    assert done.code == 0, done.err
    assert "rows.csv line 3: value.id is text, 'two': the schema wants long" in done.err
    assert "rows.csv line 5: value.id is text, '4_0'" in done.err
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "k5", "id": 5, "nota": 1}\n')
    done = shell.run("load", "loaded", str(path), "--key", "key")
    assert (done.code, "line 1: value.nota is unknown: the schema has no such field, did you mean note?" in done.err) == (1, True)
    assert sorted(row["key"] for row in shell.ok("keys", "loaded", "--json").rows) == ["k1", "k3"]


def test_clients_encode_and_decode_wherever_values_are_read(shell: Shell) -> None:
    async def story() -> None:
        async with eventlog.connect(shell.node.address) as client:
            cache = await client.create_cache("typed", format="avro", schema=TEXT, if_exists="use")
            with pytest.raises(CacheDiffers):
                await client.create_cache("typed", format="avro", schema='"string"', if_exists="use")
            for wrong in ("text", {"id": "7"}, b"raw", {"id": 7, "x": 1}):
                with pytest.raises(BadValue):
                    await cache.put("k", wrong)
                with pytest.raises(BadValue):
                    await cache.put_many([("k", wrong)])
            listener = await cache.register(select="value.id")
            stored = await cache.put("k", FULL)
            assert (await cache.put("k", {"id": 8}, previous=True)).previous == FULL
            await cache.put_many({"l": FULL})
            await cache.put_arrow(pa.table({"key": ["m"], "value": [{"id": 9, "price": Decimal("1.00")}]}))
            entry = await cache.get("l")
            assert entry is not None
            assert entry.value == FULL
            assert [found and found.value["id"] for found in await cache.get_many(["k", "l", "none"])] == [8, 7, None]
            assert {key: found.value["id"] async for key, found in cache.entries()} == {"k": 8, "l": 7, "m": 9}
            assert {key: found.value async for key, found in cache.entries(select="value.id")}["k"] == {"id": 8}
            events = [event async for event in cache.events()]
            assert [event.value["id"] for event in events] == [7, 8, 7, 9]
            assert events[1].before == FULL
            assert [event.value async for event in cache.events(select=["value.id"], where="value.paid")] == [{"id": 7}] * 2
            assert [event.value["id"] for event in (await cache.poll(listener=listener.id, after=stored.id - 1)).events] == [7, 8, 7, 9]
            assert (await cache.poll(listener=listener.id, after=stored.id - 1)).events[0].value == {"id": 7}
            await in_groups(cache)
            await in_columns(cache)
            await beside(cache)

    asyncio.run(story())


async def in_groups(cache: Any) -> None:
    async with cache.consumer("readers") as consumer:
        assert (await anext(aiter(consumer))).value == FULL
    async with cache.consumer("workers", mode="work") as worker:
        task = await anext(aiter(worker))
        assert task.value["id"] in {7, 9}
        await task.ack()


async def in_columns(cache: Any) -> None:
    [batch] = [batch async for batch in cache.event_batches() if len(batch)]
    table = batch.arrow()
    assert table.column("value").type.field("price").type == pa.decimal128(9, 2)
    assert table.column("value").to_pylist()[0] == FULL
    assert table.column("before").to_pylist()[:2] == [None, FULL]
    async with cache.entries() as entries:
        found = [row["id"] async for part in entries.batches() for row in part.arrow().column("value").to_pylist()]
    assert sorted(found) == [7, 8, 9]


async def beside(cache: Any) -> None:
    async with cache.near() as near:
        assert (await near.get("l")).value == FULL
        await near.put("l", FULL | {"id": 10})
        assert (await near.get("l")).value["id"] == 10
    async with cache.continuous_query("value.id = 10") as changes:
        change = await anext(changes)
        assert (change.change, change.value["id"]) == ("JOINED", 10)


def test_the_blocking_client_does_the_same(shell: Shell) -> None:
    with blocking.connect(shell.node.address) as client:
        cache = client.cache("other")
        with pytest.raises(BadValue, match=r"value\.id is missing"):
            cache.put("k", {})
        cache.put("k", FULL)
        found = cache.get("k")
        assert found is not None
        assert found.value == FULL
        assert [event.value for event in cache.events()] == [FULL]


def test_columns_of_bytes_are_checked_before_they_are_sent(shell: Shell) -> None:
    async def story() -> None:
        async with eventlog.connect(shell.node.address) as client:
            cache = client.cache("other")
            for value in (b"total nonsense", b"", b"\x0e\xff"):
                with pytest.raises(BadValue, match="not of the cache's Avro schema") as caught:
                    await cache.send_columns([b"gone", b"raw"], [b"", value], removed=[True, False])
                assert caught.value.key == "raw"
            assert await cache.get("raw") is None

    asyncio.run(story())
