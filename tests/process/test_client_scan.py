"""Reads as one table, against a real node."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import eventlog
import eventlog.blocking
from eventlog.errors import BadPredicate, BadValue, InvalidArgument, NotFinal
from tests.process.nodes import NodeProcess
from tests.process.one_node import using

NAMES = ["id", "time", "segment", "offset", "kind", "key", "value", "before", "headers"]
VALUE = pa.schema([("n", pa.int64()), ("city", pa.string())])


def filled(client: eventlog.blocking.Client, name: str) -> eventlog.blocking.Cache:
    cache = client.create_cache(name, before=True)
    cache.put_many([(f"k{number:02}", {"n": number, "city": "Köln"}) for number in range(50)], headers={"h": b"1"})
    cache.put("k00", {"n": 100})
    cache.remove("k01")
    return cache


def test_entries_are_a_table(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        scan = filled(client, "entries").scan(where="value.n > 9", value_schema=VALUE)
        assert scan.schema.names == NAMES
        table = scan.to_arrow()
        assert table.schema == scan.schema
        rows = {row["key"]: row for row in table.to_pylist(maps_as_pydicts="strict")}
        assert len(rows) == 41
        assert rows["k00"]["value"] == {"n": 100, "city": None}
        assert rows["k10"]["value"] == {"n": 10, "city": "Köln"}
        assert {(row["kind"], row["offset"], row["before"]) for row in rows.values()} == {("STATE", -1, None)}
        entry = client.cache("entries").get("k10")
        assert entry is not None
        assert rows["k10"]["id"] == entry.version


def test_entries_as_of_an_id_or_a_moment_are_the_same_table(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = filled(client, "as-of")
        at = cache.log_ends().last_id
        table = cache.scan(value_schema=VALUE).to_arrow()
        cache.put_many([(f"k{number:02}", {"n": -1}) for number in range(0, 50, 2)])
        past = cache.scan(as_of=at, value_schema=VALUE, parallel=4)
        assert past.schema == table.schema
        assert past.to_arrow() == table
        assert past.to_polars().equals(pl.from_arrow(table))
        assert past.to_pandas().equals(table.to_pandas())
        first = cache.scan(as_of=at, prefix="k1", limit=3, columns=["key", "value"], value_schema="infer").to_arrow()
        assert (first.num_rows, str(first.schema.field("value").type)) == (3, "struct<n: int64, city: string>")
        assert cache.scan(as_of=datetime.now(UTC) - timedelta(days=1)).to_arrow().num_rows == 0
        with pytest.raises(NotFinal):
            cache.scan(as_of=datetime.now(UTC) + timedelta(seconds=30)).to_arrow()
        with pytest.raises(InvalidArgument, match="lies ahead of every id that can have been issued"):
            cache.scan(as_of=datetime.now(UTC) + timedelta(days=1)).to_arrow()


def test_events_are_a_table(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = filled(client, "events")
        table = cache.scan_events(value_schema=VALUE).to_arrow()
        assert table.schema.names == NAMES
        assert table["id"].to_pylist() == sorted(event.id for event in cache.events())
        last, removed = table.slice(50).to_pylist(maps_as_pydicts="strict")
        assert (last["kind"], last["value"], last["before"]) == ("MODIFIED", {"n": 100, "city": None}, {"n": 0, "city": "Köln"})
        assert (removed["kind"], removed["value"], removed["before"]) == ("REMOVED", None, {"n": 1, "city": "Köln"})
        assert {bytes(row["h"]) for row in table.slice(0, 50)["headers"].to_pylist(maps_as_pydicts="strict")} == {b"1"}
        later = cache.scan_events(last["id"], columns=["kind", "key"]).to_arrow()
        assert later.to_pylist() == [{"kind": "REMOVED", "key": "k01"}]
        first = cache.scan_events(limit=7, include=["headers"]).to_arrow()
        assert (first.num_rows, first.schema.names) == (7, [*NAMES[:-2], "headers"])
        changes = cache.scan_events(where="value.n = 100", continuous=True, columns=["key", "change"])
        assert changes.to_arrow().to_pylist() == [{"key": "k00", "change": "JOINED"}]


def test_nothing_at_all_has_the_schema_too(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("nothing")
        for scan in (cache.scan(), cache.scan_events(), cache.scan(value_schema=VALUE), cache.scan_events(value_schema="infer")):
            assert pa.Table.from_batches(scan, schema=scan.schema).num_rows == 0
            assert scan.schema.names == NAMES
            assert scan.reader().schema == scan.to_arrow().schema == scan.schema
        assert cache.scan_events(where="value.n = 1", continuous=True).schema.names == [*NAMES, "change"]


def test_pandas_and_polars_have_the_same_rows(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        scan = filled(client, "frames").scan(value_schema=VALUE, include=())
        frame, other = scan.to_polars(), scan.to_pandas()
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(other, pd.DataFrame)
        assert frame["value"].struct.field("n").sum() == sum(row["n"] for row in other["value"]) == sum(range(2, 50)) + 100
        assert frame.schema["time"] == pl.Datetime("us", "UTC")
        # what knows the Arrow C stream takes a scan, or a batch, as it is
        assert pl.DataFrame(scan).height == 49
        assert pa.table(scan).num_rows == 49


def test_a_frame_goes_from_one_cache_into_another(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = filled(client, "source")
        other = client.create_cache("target")
        other.put_arrow(cache.scan(value_schema=VALUE).to_polars().select("key", "value"))
        other.put_arrow(cache.scan(value_schema=VALUE, where="key = 'k00'").reader())
        assert other.scan(value_schema=VALUE, columns=["key", "value"]).to_arrow().sort_by("key") == cache.scan(
            value_schema=VALUE, columns=["key", "value"]
        ).to_arrow().sort_by("key")


def test_a_type_is_inferred_once_and_kept(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("inferred")
        cache.put("a", {"n": 1, "none": None})
        scan = cache.scan_events(value_schema="infer")
        assert scan.schema.field("value").type == pa.struct([("n", pa.int64()), ("none", pa.null())])
        assert scan.to_arrow()["value"].to_pylist() == [{"n": 1, "none": None}]
        stored = cache.put("b", {"n": "one"})
        with pytest.raises(BadValue, match=rf"'b': value\.n: Expected int.*, got str.*of event {stored.id}"):
            scan.to_arrow()
        before = client.create_cache("inferred-of-nothing").scan_events(value_schema="infer")
        assert before.schema.field("value").type == pa.string()
        client.cache("inferred-of-nothing").put("a", {"n": 1})
        assert before.to_arrow()["value"].to_pylist() == ['{"n":1}'], "one scan has one schema"
        with pytest.raises(InvalidArgument, match="no type in common"):
            cache.scan_events(value_schema="infer").to_arrow()


def test_a_value_that_does_not_fit_is_refused_by_every_road(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("unfit", before=True)
        stored = cache.put("k", {"n": 1, "more": {"x": 1}})
        for scan in (cache.scan(value_schema=VALUE), cache.scan_events(value_schema=VALUE)):
            for ask in (
                scan.to_arrow,
                scan.to_polars,
                scan.to_pandas,
                lambda scan=scan: list(scan),
                lambda scan=scan: scan.reader().read_all(),
            ):
                with pytest.raises(
                    BadValue, match=rf"'k': value: .*unknown field more.*of event {stored.id}.*; the value_schema is struct<n"
                ):
                    ask()
        assert cache.scan(value_schema=VALUE, select=["value.n"], columns=["value"]).to_arrow()["value"].to_pylist() == [
            {"n": 1, "city": None}
        ]
        cache.put("k", {"n": 2})
        with pytest.raises(BadValue, match="of the before-image of event"):
            cache.scan_events(stored.id, value_schema=VALUE).to_arrow()
        (batch,) = cache.event_batches(stored.id)
        assert batch.arrow(value_schema=VALUE, columns=["value"])["value"].to_pylist() == [{"n": 2, "city": None}]
        with pytest.raises(InvalidArgument, match="scan_events"):
            batch.arrow(value_schema="infer")


def test_what_cannot_be_scanned_is_refused(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("refused")
        cache.put("k", 1)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"columns": ["kye"]}, "columns has 'kye': choose of id, time"),
            ({"columns": "key"}, "give a list"),
            ({"include": ["time"]}, "include has 'time': choose of before, headers"),
            ({"value_schema": "guess"}, "value_schema is 'guess'"),
            ({"limit": 0}, "limit is 0"),
        ]
        for options, why in wrong:
            for call in (cache.scan, cache.scan_events):
                with pytest.raises(InvalidArgument, match=why):
                    call(**options).to_arrow()
        for option in ("follow", "listener", "poll_interval_ms"):
            with pytest.raises(TypeError, match=f"scan_events takes no {option}"):
                cache.scan_events(**{option: 1})
        with pytest.raises(BadPredicate):
            cache.scan(where="value.n >").to_arrow()
        raw = client.create_cache("raw-values", format="bytes")
        for given in (VALUE, "infer"):
            with pytest.raises(InvalidArgument, match="values of this cache are bytes"):
                raw.scan(value_schema=given).to_arrow()


def test_values_of_avro_have_the_type_of_their_schema(node: NodeProcess) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": ["null", "string"]}]}
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("avro", format="avro", schema=json.dumps(schema), key_format="bytes")
        kind = pa.struct([("n", pa.int64()), ("t", pa.string())])
        for scan in (cache.scan(), cache.scan_events()):
            assert (scan.schema.field("value").type, scan.schema.field("key").type) == (kind, pa.binary())
        cache.put(b"\xff", {"n": 1, "t": "x"})
        for scan in (cache.scan(), cache.scan_events()):
            assert scan.to_arrow().select(["key", "value"]).to_pylist() == [{"key": b"\xff", "value": {"n": 1, "t": "x"}}]
            with pytest.raises(InvalidArgument, match="Avro, which has a schema"):
                cache.scan(value_schema=kind).to_arrow()
        only = cache.scan(select=["value.n"], value_schema=pa.schema([("n", pa.int32())]))
        assert only.to_arrow()["value"].to_pylist() == [{"n": 1}]


def test_batches_of_a_group_are_the_same_table(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = filled(client, "group")
        end = cache.log_ends().last_id
        with cache.consumer("readers") as consumer:
            tables = [batch.arrow() for batch in consumer.batches(until_id=end)]
        assert {table.schema for table in tables} == {cache.scan_events().schema}
        assert pa.Table.from_batches(tables).sort_by("id") == cache.scan_events().to_arrow()


def test_what_is_not_installed_is_said_with_what_to_do(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with eventlog.blocking.connect(node.address) as client:
        scan = client.create_cache("missing").scan()
        for name in ("pandas", "polars"):
            monkeypatch.setitem(sys.modules, name, None)
            with pytest.raises(InvalidArgument, match=f"pip install {name}"):
                getattr(scan, f"to_{name}")()


def test_the_asynchronous_client_has_the_same(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("waiting")
        await cache.put_many({"a": {"n": 1}, "b": {"n": 2}})
        scan = cache.scan(where="value.n > 1", value_schema="infer", columns=["key", "value"])
        assert (await scan.schema()).names == ["key", "value"]
        assert (await scan.to_arrow()).to_pylist() == [{"key": "b", "value": {"n": 2}}]
        assert (await scan.to_polars()).height == len(await scan.to_pandas()) == 1
        assert [batch.num_rows async for batch in scan] == [1]
        assert (await cache.scan_events(limit=1).to_arrow()).num_rows == 1

    using(node, test)
