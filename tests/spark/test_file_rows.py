"""Rows of files as tasks read them: every row once, in its order, however a file is cut; and a bad file is named."""

import codecs
import gzip
import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.integrations.spark.loading import LoadFile, LoadShape, load_files, pieces_of, writes_of
from tests.examples import examples

SHAPE = LoadShape(key="id")
LINES = st.lists(st.tuples(st.integers(0, 99), st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)), max_size=20)


def values_of(file: LoadFile, *, nbytes: int = 1 << 62, shape: LoadShape = SHAPE) -> list[Any]:
    values = [row["value"] for piece in pieces_of(file, nbytes=nbytes) for batch in writes_of(piece, shape) for row in batch.to_pylist()]
    return [json.loads(value) if isinstance(value, str) else value for value in values]


def file_at(path: Path, form: str = "") -> LoadFile:
    return load_files([path], form=form)[0]


@settings(max_examples=examples(200), deadline=None)
@given(LINES, st.integers(1, 60), st.sampled_from(["\n", "\r\n", "\n\n"]), st.sampled_from(["", "\n"]))
def test_a_line_is_read_once_however_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: Sequence[tuple[int, str]], nbytes: int, ends: str, end: str
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    told = [{"id": key, "text": text} for key, text in rows]
    text = ends.join(json.dumps(row, ensure_ascii=False) for row in told)
    path.write_bytes((text + end).encode())
    assert values_of(file_at(path), nbytes=nbytes) == told


def test_lines_longer_than_what_is_read_at_once_are_whole(tmp_path: Path) -> None:
    told = [{"id": str(n), "text": chr(97 + n % 26) * (n * 300_000)} for n in range(1, 25, 4)]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, told)))
    assert values_of(file_at(tmp_path / "a.json"), nbytes=5_000_000) == told
    (tmp_path / "b.json.gz").write_bytes(gzip.compress((tmp_path / "a.json").read_bytes(), 1))
    assert values_of(file_at(tmp_path / "b.json.gz"), nbytes=5_000_000) == told


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 3_000))
def test_row_groups_are_read_once_however_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, nbytes: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.parquet"
    table = pa.table({"id": pa.array(range(rows), pa.int64())})
    pq.write_table(table, path, row_group_size=group)
    assert [value["id"] for value in values_of(file_at(path), nbytes=nbytes)] == list(range(rows))


def test_csv_is_text_with_whatever_stands_between_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffid,"a ""b""",c\r\n1,"x, ""y""\nz",\r\n\r\n007,NULL,"ä"\r\n'.encode())
    assert values_of(file_at(path)) == [{"id": "1", 'a "b"': 'x, "y"\nz', "c": ""}, {"id": "007", 'a "b"': "NULL", "c": "ä"}]
    big = [{"id": str(n), "text": "\n".join("ab" for _ in range(200_000))} for n in range(12)]  # more than is read at once
    path.write_text("id,text\n" + "".join(f'{row["id"]},"{row["text"]}"\n' for row in big))
    assert values_of(file_at(path)) == big


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_avro_is_read_with_its_types(tmp_path: Path, codec: str) -> None:
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "maybe", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
            {
                "name": "inner",
                "type": {"type": "record", "name": "Inner", "fields": [{"name": "list", "type": {"type": "array", "items": "float"}}]},
            },
        ],
    }
    rows = [{"id": n, "maybe": None if n % 3 else "x", "tags": {"a": n}, "inner": {"list": [0.5] * (n % 4)}} for n in range(25_000)]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, rows, codec=codec)
    found = values_of(file_at(tmp_path / "a.avro"))
    assert [row | {"tags": dict(row["tags"])} for row in found] == rows, "a map is pairs in Arrow"


@pytest.mark.parametrize("text", ['{"id": "a"}\r\n{"id": "b"}\r\n', '{"id": "a"}', "\n", ""])
@pytest.mark.parametrize("nbytes", [1, 5, 1 << 62])
def test_a_mark_before_lines_is_none_of_the_first(tmp_path: Path, text: str, nbytes: int) -> None:
    for name, packed in (("a.jsonl", bytes), ("a.jsonl.gz", gzip.compress)):
        for mark in (b"", codecs.BOM_UTF8):
            (tmp_path / name).write_bytes(packed(mark + text.encode()))
            assert values_of(file_at(tmp_path / name), nbytes=nbytes) == [json.loads(line) for line in text.splitlines() if line]


def test_what_arrow_has_no_type_for_is_in_avro_rows_as_it_is(tmp_path: Path) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}]}
    fields = [
        {"name": "id", "type": "string"},
        {"name": "op", "type": "string"},
        {"name": "any", "type": ["null", "long", "string", "double"]},
        {"name": "list", "type": {"type": "array", "items": ["int", "string"]}},
        {"name": "node", "type": node},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
    ]
    same = {"list": [1, "1"], "node": {"n": 1, "next": {"n": 2, "next": None}}, "price": Decimal("1.50"), "on": date(2026, 11, 29)}
    rows = [{"id": f"k{n}", "op": "D" if n else "U", "any": value} | same for n, value in enumerate(("x", "5", 5, 2.5, None))]
    (tmp_path / "shop=north").mkdir()
    with (tmp_path / "shop=north" / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "Row", "fields": fields}, rows)
    shape = LoadShape(key="id", operation="op", removals=("D",))
    wanted = [
        {name: value for name, value in row.items() if name != "op"} | {"price": "1.50", "on": "2026-11-29", "shop": "north"}
        for row in rows
    ]
    source = load_files([tmp_path])[0]
    assert values_of(source, shape=shape) == wanted
    (found,) = writes_of(pieces_of(source)[0], shape)
    assert (found["key"].to_pylist(), found["removes"].to_pylist()) == ([row["id"] for row in rows], [False, True, True, True, True])


def test_columns_of_folders_and_of_tables(tmp_path: Path) -> None:
    for folder in ("shop=a b%2Fc/n=7", "shop=__HIVE_DEFAULT_PARTITION__/n=007"):
        (tmp_path / "plain" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1], "n": [5]}), tmp_path / "plain" / folder / "x.parquet")
    found = [row for file in load_files([tmp_path / "plain"]) for row in values_of(file)]
    assert found == [{"id": 1, "shop": None, "n": "007"}, {"id": 1, "shop": "a b/c", "n": 7}]
    table = tmp_path / "table with a space"
    rows = [{"id": "1", "shop": "x y/ä", "n": 1}, {"id": "2", "shop": None, "n": 2}]
    deltalake.write_deltalake(table, pa.Table.from_pylist(rows), partition_by=["shop", "n"])
    assert sorted((row for file in load_files([table]) for row in values_of(file)), key=lambda row: str(row["id"])) == rows


def test_a_table_whose_files_alone_do_not_show_it_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"id": [1]}))
    log = tmp_path / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InvalidArgument, match="maps the names of its columns"):
        load_files([tmp_path])


def test_a_file_that_cannot_be_read_is_named_and_why(tmp_path: Path) -> None:
    whole = tmp_path / "whole.avro"
    with whole.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}, [{"id": "x" * 99}] * 99)
    texts = tmp_path / "texts.avro"
    with texts.open("wb") as file:
        fastavro.writer(file, "string", ["x"])
    cases: list[tuple[str, bytes, str]] = [
        ("a.parquet", b"PAR1 no", "cannot be read"),
        ("a.avro", b"no", "cut short or damaged"),
        ("b.avro", whole.read_bytes()[:-30], "cut short or damaged"),
        ("c.avro", texts.read_bytes(), "no records"),
        ("a.csv", b"id,x\n1\n", "cannot be read"),
        ("b.csv", b"id,id\n1,2\n", "two columns are called 'id'"),
        ("c.csv", b"", "cannot be read"),
        ("d.csv", b"id,x\n1,\xff\n", "cannot be read"),
        ("e.csv.gz", gzip.compress(b"id,x\n" * 9_999)[:-20], "cannot be read"),
        ("a.json", b'{"id": "\xff"}\n', "cannot be read"),
        ("b.json", b"{}\n", "the field 'id' is no text"),
        ("f.csv", b"x\n1\n", "there is no column 'id' among x"),
    ]
    for name, data, why in cases:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidArgument, match=why):
            values_of(file_at(tmp_path / name))
    with pytest.raises(InvalidArgument, match=rf"{tmp_path}/a.parquet: it cannot be read"):
        pieces_of(file_at(tmp_path / "a.parquet"))
