"""Values read as a `value_schema` in the table of an archive: beside the events, wider later, and no part of what is proved of them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from eventlog import blocking
from eventlog.errors import ArchiveDamaged, ArchiveRefused, ArchiveTaken, InvalidArgument
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.rounds import write_range
from eventlog.integrations.archive.table import ArchiveTable
from eventlog.integrations.archive.values import archived_struct, has_grown_from, struct_of, type_of
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

NARROW = "total DOUBLE, at STRUCT<shop: STRING>, lines ARRAY<STRUCT<sku: STRING>>"
WIDE = "lines ARRAY<STRUCT<n: INT, sku: STRING>>, at STRUCT<shop: STRING, desk: INT>, total DOUBLE, n BIGINT"
ORDER = {"total": 1.5, "n": 7, "at": {"shop": "a", "desk": 3}, "lines": [{"sku": "x", "n": 2}]}


@pytest.fixture
def cache(client: blocking.Client, request: pytest.FixtureRequest) -> blocking.Cache:
    return client.create_cache(f"v{abs(hash(request.node.name)) % 10**9}", before=True)


def rows_of(path: Path) -> list[tuple[str, Any, str | None]]:
    found = archives.open(path).history(columns=["key", "v", "_corrupt"])
    return [(row["key"], row["v"], row["_corrupt"]) for batch in found for row in batch.to_pylist()]


def test_a_field_that_does_not_fit_is_null_and_the_value_stands_beside_it(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    for key, value in {"fits": {"total": 1, "more": 2}, "lacks": {"who": "b"}, "unfit": {"who": "c", "total": "much"}, "none": [1]}.items():
        cache.put(key, value)
    cache.remove("fits")
    done = archives.archive(client, cache.name, tmp_path / "a", value_schema="who STRING, total DOUBLE")
    assert done.events == 5
    assert rows_of(tmp_path / "a") == [
        ("fits", {"who": None, "total": 1.0}, None),
        ("lacks", {"who": "b", "total": None}, None),
        ("unfit", {"who": "c", "total": None}, '{"who":"c","total":"much"}'),
        ("none", None, "[1]"),
        ("fits", None, None),
    ]
    found = archives.open(tmp_path / "a")
    assert [field.name for field in found.schema][-2:] == ["v", "_corrupt"]
    assert [row["key"] for row in found.dataset().to_table(columns=["key", "v"]).to_pylist() if (row["v"] or {}).get("who") == "b"] == [
        "lacks"
    ]


def test_avro_is_read_by_the_schema_of_its_cache(client: blocking.Client, tmp_path: Path) -> None:
    fields = [{"name": "total", "type": "double"}, {"name": "who", "type": ["null", "string"], "default": None}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    cache = client.create_cache("avro-values", format="avro", schema=schema)
    cache.put_many([("a", {"total": 1.5, "who": "x"}), ("b", {"total": 2.5, "who": None})])
    archives.archive(client, cache.name, tmp_path / "a", value_schema="who STRING, total INT")
    assert sorted(rows_of(tmp_path / "a")) == [
        ("a", {"who": "x", "total": None}, '{"total":1.5,"who":"x"}'),
        ("b", {"who": None, "total": None}, '{"total":2.5,"who":null}'),
    ]


def test_a_wider_schema_adds_fields_and_older_rows_have_null(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    path = tmp_path / "a"
    for number, schema in enumerate(["", NARROW, WIDE, "", WIDE]):
        cache.put(f"k{number}", ORDER)
        assert archives.archive(client, cache.name, path, value_schema=schema).events == 1
    narrow = {"total": 1.5, "at": {"shop": "a", "desk": None}, "lines": [{"sku": "x", "n": None}], "n": None}
    expected = [("k0", None, None), ("k1", narrow, None), *((f"k{number}", ORDER, None) for number in (2, 3, 4))]
    assert rows_of(path) == expected
    assert {row["key"]: row["v"] for row in archives.open(path).dataset().to_table().to_pylist()} == {key: v for key, v, _ in expected}
    merged = archives.compact(path, older_than_ms=-1_000)
    assert (merged.files_before, merged.files_after, rows_of(path)) == (5, 1, expected)
    assert archives.open(path).verify().rounds == 5
    assert archives.audit(client, cache.name, archives.open(path)).differing == 0


def test_with_values_a_round_has_the_digest_that_it_has_without(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    cache.put_many([(f"k{number}", ORDER) for number in range(100)])
    digests = []
    for name, schema in (("plain", ""), ("values", NARROW)):
        archives.archive(client, cache.name, tmp_path / name, value_schema=schema)
        digests.append([found.digest for found in ArchiveTable.open(place_of(tmp_path / name)).rounds()])
    assert digests[0] == digests[1]


@pytest.mark.parametrize("schema", ["total DOUBLE", NARROW.replace("DOUBLE", "STRING"), NARROW.replace("shop", "desk"), "n BIGINT"])
def test_a_schema_that_lacks_a_field_or_changes_one_is_refused(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path, schema: str
) -> None:
    cache.put("k", ORDER)
    archives.archive(client, cache.name, tmp_path / "a", value_schema=NARROW)
    cache.put("k", ORDER)
    with pytest.raises(ArchiveRefused, match="its values have the fields STRUCT<`total`: DOUBLE"):
        archives.archive(client, cache.name, tmp_path / "a", value_schema=schema)
    assert (len(rows_of(tmp_path / "a")), archives.archive(client, cache.name, tmp_path / "a").events) == (1, 1)


def test_what_no_table_can_have_is_refused_before_there_is_one(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    raw = client.create_cache("raw-values", format="bytes")
    for name, schema, why in (
        (cache.name, "`a b` INT", "field 'a b' cannot be in a table"),
        (cache.name, "a ARRAY<STRUCT<b: INT, B: INT>>", "two of them differ in case"),
        (cache.name, "m MAP<STRING, STRUCT<`x=`: INT>>", "field 'x='"),
        (cache.name, "a NUMBER", "'number' is not expected"),
        (raw.name, "a INT", "value_schema is for JSON and Avro values"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            archives.archive(client, name, tmp_path / "a", value_schema=schema)
        assert not (tmp_path / "a").exists()


def test_reads_over_both_and_a_cache_made_anew_are_as_without(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    cache.put_many([(f"k{number}", {"total": number}) for number in range(50)])
    archives.archive(client, cache.name, tmp_path / "a", value_schema=NARROW)
    cache.put_many([(f"k{number}", {"total": number + 100}) for number in range(20)])
    found = archives.open(tmp_path / "a")
    read = [
        (event.id, event.key, event.value)
        for batch in archives.event_batches(found, client, cache.name, where="value.total >= 40")
        for event in batch.events()
    ]
    assert read == [(event.id, event.key, event.value) for event in cache.events() if event.value["total"] >= 40]
    done = archives.rebuild(found, client, cache.name, into=f"{cache.name}-again", verify=True)
    assert (done.entries, done.compared, done.differences) == (50, 50, 0)


def test_damage_in_a_column_of_values_is_named(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    cache.put_many([(f"k{number}", {"total": number / 7}) for number in range(500)])
    archives.archive(client, cache.name, tmp_path / "a", value_schema="total DOUBLE")
    found = archives.open(tmp_path / "a")
    (path,) = (tmp_path / "a").rglob("*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    (column,) = (group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "v.total")
    data, at = path.read_bytes(), column.dictionary_page_offset + 200
    path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    with pytest.raises(ArchiveDamaged, match=path.name):
        found.verify()


def test_of_two_who_add_fields_at_once_one_is_told(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    cache.put("k", ORDER)
    archives.archive(client, cache.name, tmp_path / "a", value_schema=NARROW)
    one, other = (ArchiveTable.open(place_of(tmp_path / "a")) for _ in range(2))
    one.grow(struct_of(WIDE))
    with pytest.raises(ArchiveTaken):
        other.grow(struct_of(f"{NARROW}, x INT"))
    other.grow(struct_of(f"{WIDE}, x INT"))


def test_a_round_that_was_written_without_the_new_fields_is_in_no_table(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    cache.put("k", ORDER)

    def overtaken(ranges: Sequence[Any], values: str) -> list[Any]:
        ArchiveTable.open(place_of(tmp_path / "a")).grow(struct_of(NARROW))
        return [write_range(cache, one, place_of(tmp_path / "a"), values=values) for one in ranges]

    with pytest.raises(ArchiveTaken):
        archives.archive(client, cache.name, tmp_path / "a", run=overtaken)
    assert archives.archive(client, cache.name, tmp_path / "a").events == 1
    assert [v["total"] for _, v, _ in rows_of(tmp_path / "a")] == [1.5]


def test_the_command_takes_it(node: NodeProcess, client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    cache.put("k", ORDER)
    words = [sys.executable, "-m", "eventlog_cli", "pipeline", "archive", cache.name, "--to", str(tmp_path / "a"), "--server", node.address]
    subprocess.run([*words, "--value-schema", NARROW], check=True, timeout=60)
    assert rows_of(tmp_path / "a")[0][1]["total"] == 1.5
    refused = subprocess.run([*words, "--value-schema", "x INT"], capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, "its values have the fields" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("kind", "other", "has"),
    [
        ("STRUCT<a: INT, b: INT>", "STRUCT<b: INT>", True),
        ("STRUCT<b: INT>", "STRUCT<a: INT, b: INT>", False),
        ("MAP<STRING, STRUCT<a: INT, b: INT>>", "MAP<STRING, STRUCT<a: INT>>", True),
        ("ARRAY<STRUCT<a: INT>>", "ARRAY<STRUCT<a: INT, b: INT>>", False),
        ("BIGINT", "INT", False),
        ("DECIMAL(12, 2)", "DECIMAL(12, 2)", True),
    ],
)
def test_a_type_has_grown_where_fields_were_added_and_nothing_else(kind: str, other: str, has: bool) -> None:
    assert has_grown_from(type_of(kind), type_of(other)) is has


def test_every_type_comes_back_from_the_table(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    ddl = "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, j DATE, k TIMESTAMP, l TIMESTAMP_NTZ"
    ddl += ", m DECIMAL(38, 2), n ARRAY<DECIMAL(5, 1)>, o MAP<STRING, ARRAY<BIGINT>>, p STRUCT<q: MAP<STRING, DATE>>"
    cache.put("k", {"e": 2**63 - 1, "j": "2026-11-20", "m": 12.25, "n": [0.5], "o": {"x": [1]}, "p": {"q": {"y": "2026-11-21"}}})
    cache.put("empty", {})
    archives.archive(client, cache.name, tmp_path / "a", value_schema=ddl)
    archives.archive(client, cache.name, tmp_path / "a", value_schema=ddl)
    found = archives.open(tmp_path / "a")
    kind = found.schema.field("v").type
    assert has_grown_from(kind, archived_struct(ddl))
    assert has_grown_from(archived_struct(ddl), kind)
    (v, empty) = (row[1] for row in rows_of(tmp_path / "a"))
    assert (v["e"], str(v["j"]), str(v["m"]), [str(one) for one in v["n"]]) == (2**63 - 1, "2026-11-20", "12.25", ["0.5"])
    assert (v["o"], [(name, str(day)) for name, day in v["p"]["q"]]) == ([("x", [1])], [("y", "2026-11-21")])
    assert set(empty.values()) == {None}
    assert found.dataset().count_rows() == 2
