"""Readers of every format: whole, in pieces, cut, with wrong types; and what the rows become."""

import csv
import io
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog_cli.loading.rows import RowShape
from eventlog_cli.loading.source import FORMATS, Damaged, format_of, open_source, reader_of
from tests.cli.loading import KEYED, WITH_OPERATION, Pieces, Row, items, read, refused
from tests.examples import examples


def to_jsonl(rows: list[Row]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def to_csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["k", "v"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def to_parquet(rows: list[Row]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": "string"}]}


def to_avro(rows: list[Row]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, rows, codec="deflate", sync_interval=200)
    return sink.getvalue()


WRITE = {"jsonl": to_jsonl, "csv": to_csv, "parquet": to_parquet, "avro": to_avro}
ROWS = [{"k": f"key-{number}", "v": f"value {number} äß"} for number in range(10)]


# ------------------------------------------------------------------ all formats


@pytest.mark.parametrize("format_name", FORMATS)
def test_rows_come_in_order_with_their_whole_row_as_value(format_name: str) -> None:
    batches = read(format_name, WRITE[format_name](ROWS), KEYED)
    assert items(batches) == [(row["k"].encode(), row) for row in ROWS]
    assert [len(batch.keys) for batch in batches] == [3, 3, 3, 1]
    assert refused(batches) == []


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("piece", [1, 7, 64])
def test_the_pieces_in_which_bytes_arrive_make_no_difference(format_name: str, piece: int) -> None:
    assert items(read(format_name, WRITE[format_name](ROWS), KEYED, piece=piece)) == [(row["k"].encode(), row) for row in ROWS]


@pytest.mark.parametrize("format_name", FORMATS)
@settings(deadline=None, max_examples=examples(40))
@given(data=st.data())
def test_a_cut_file_gives_a_beginning_and_at_most_one_rejection_after_it(format_name: str, data: st.DataObject) -> None:
    whole = WRITE[format_name](ROWS)
    cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    batches = read(format_name, whole[:cut], KEYED)
    found = items(batches)
    expected = [(row["k"].encode(), row) for row in ROWS]
    rejections = refused(batches)
    if format_name == "csv" and found and found != expected[: len(found)]:
        # csv cannot tell a cut last field from a short one
        assert found[:-1] == expected[: len(found) - 1]
    else:
        assert found == expected[: len(found)]
    assert len(rejections) <= 1
    assert all(line >= len(found) for line, _ in rejections)


@pytest.mark.parametrize("format_name", FORMATS)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_flipped_bits_make_rejections_and_no_other_end(format_name: str, data: st.DataObject) -> None:
    changed = bytearray(WRITE[format_name](ROWS))
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        changed[data.draw(st.integers(min_value=0, max_value=len(changed) - 1))] ^= 1 << data.draw(st.integers(min_value=0, max_value=7))
    batches = read(format_name, bytes(changed), KEYED)
    assert all(orjson.loads(value) is not None for batch in batches for value in batch.values)


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_unknown_key_field_is_refused_by_name(format_name: str) -> None:
    batches = read(format_name, WRITE[format_name](ROWS[:2]), RowShape(key="id"))
    assert items(batches) == []
    assert refused(batches)
    assert all("'id'" in why for _, why in refused(batches))


@pytest.mark.parametrize("format_name", FORMATS)
def test_keys_and_values_beyond_the_limits_are_refused_alone(format_name: str) -> None:
    rows = [{"k": "a", "v": "x"}, {"k": "k" * 20, "v": "x"}, {"k": "b", "v": "v" * 50}, {"k": "c", "v": "x"}]
    batches = read(format_name, WRITE[format_name](rows), RowShape(key="k", key_bytes_max=10, value_bytes_max=60), rows=10)
    assert [key for key, _ in items(batches)] == [b"a", b"c"]
    numbers = [line for line, _ in refused(batches)]
    first = 2 if format_name == "csv" else 1  # the line of names counts
    assert numbers == [first + 1, first + 2]


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_empty_key_is_a_key(format_name: str) -> None:
    rows = [{"k": "a", "v": "x"}, {"k": "", "v": "y"}]
    batches = read(format_name, WRITE[format_name](rows), KEYED)
    assert (items(batches), refused(batches)) == ([(b"a", rows[0]), (b"", rows[1])], [])


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_batch_ends_at_its_bytes_before_it_ends_at_its_rows(format_name: str) -> None:
    rows = [{"k": str(number), "v": "v" * 1_000} for number in range(8)]
    batches = read(format_name, WRITE[format_name](rows), replace(KEYED, batch_bytes=2_000), rows=1_000)
    assert len(items(batches)) == 8
    assert max(len(batch.keys) for batch in batches) <= 3


# ------------------------------------------------------------------ csv


def test_a_record_over_several_lines_is_known_by_its_first() -> None:
    data = b'k,v\na,"one\ntwo"\nb,x,y\n\nc,z\n'
    batches = read("csv", data, KEYED, rows=10)
    assert items(batches) == [(b"a", {"k": "a", "v": "one\ntwo"}), (b"c", {"k": "c", "v": "z"})]
    assert refused(batches) == [(4, "the record has 3 fields, the first line names 2")]


def test_quotes_in_the_wrong_place_and_bytes_that_are_no_text_are_refused() -> None:
    batches = read("csv", b'k,v\na,"x"y\nb,\xff\nc,ok\nd,"open\n', KEYED, rows=10)
    assert items(batches) == [(b"c", {"k": "c", "v": "ok"})]
    assert [line for line, _ in refused(batches)] == [2, 3, 5]


@pytest.mark.parametrize("piece", [7, 1 << 20])
@pytest.mark.parametrize("long", ['bad,"%s"', '"bad",%s"', 'bad,"x\n%s"', 'bad,"%s"\r'])
def test_a_csv_line_beyond_the_limit_takes_no_row_after_it_along(long: str, piece: int) -> None:
    data = "k,v\na,1\n" + long % ("x" * 100) + "\nb,2\nc,3\n"
    batches = read("csv", data.encode(), RowShape(key="k", value_bytes_max=60), rows=10, piece=piece)
    assert items(batches) == [(b"a", {"k": "a", "v": "1"}), (b"b", {"k": "b", "v": "2"}), (b"c", {"k": "c", "v": "3"})]
    assert refused(batches) == [(3, "the line has more than 60 bytes")]
    assert batches[-1].last_line == data.count("\n")


def test_a_csv_without_the_key_among_its_names_ends_there() -> None:
    [batch] = read("csv", b"a,b\n1,2\n3,4\n", KEYED)
    assert batch.keys == []
    assert batch.rejections[0].is_last


def test_an_operation_in_a_csv() -> None:
    batches = read("csv", b"k,op,v\na,A,1\na,D,2\n", WITH_OPERATION)
    assert items(batches) == [(b"a", {"k": "a", "v": "1"}), (b"a", None)]


# ------------------------------------------------------------------ parquet and avro


def test_types_that_json_lacks_become_text() -> None:
    table = pa.table(
        {
            "k": pa.array([b"bytes", b"\xff\x00"]),
            "time": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC")),
            "fine": pa.array([1_700_000_000_123_456_789] * 2, pa.timestamp("ns")),
            "of_day": pa.array([time(1, 2, 3, 10_000)] * 2),
            "money": pa.array([Decimal("1.50")] * 2),
            "raw": pa.array([b"\xff", b"ok"]),
            "list": pa.array([[1, 2], None]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    [(first_key, first), (second_key, second)] = items(read("parquet", sink.getvalue(), RowShape(key="k", text_keys=False)))
    assert (first_key, second_key) == (b"bytes", b"\xff\x00")
    assert first is not None
    assert second is not None
    assert first["time"] == "2026-01-02T03:04:05.006000+00:00"
    assert first["fine"] == "2023-11-14T22:13:20.123456789"
    assert first["of_day"] == "01:02:03.010000"
    assert first["money"] == "1.50"
    assert (first["raw"], second["raw"]) == ({"base64": "/w=="}, "ok")
    assert (first["list"], second["list"]) == ([1, 2], None)


@pytest.mark.parametrize("format_name", ["parquet", "avro"])
def test_a_key_of_bytes_is_refused_alone_where_the_cache_takes_text_and_it_is_none(format_name: str) -> None:
    sink = io.BytesIO()
    rows = [{"k": key} for key in (b"a", b"\xff\x00", "\u00e4".encode(), b"\xc3", b"")]
    if format_name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), sink)
    else:
        fastavro.writer(sink, {"type": "record", "name": "row", "fields": [{"name": "k", "type": "bytes"}]}, rows)
    text = read(format_name, sink.getvalue(), KEYED, rows=10)
    assert [key for batch in text for key in batch.keys] == [b"a", "\u00e4".encode(), b""]
    why = "field 'k' for the key holds bytes that are not UTF-8, and the cache's keys are text"
    assert refused(text) == [(2, why), (4, why)]
    every = read(format_name, sink.getvalue(), RowShape(key="k", text_keys=False), rows=10)
    assert [key for batch in every for key in batch.keys] == [row["k"] for row in rows]
    assert refused(every) == []


def test_a_row_that_python_cannot_hold_is_refused_alone() -> None:
    text = pa.array([b"ok", b"\xff", b"ok"], pa.binary()).view(pa.string())
    far = pa.array([0, 0, 10**18], pa.timestamp("us"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": ["a", "b", "c"], "text": text, "far": far}), sink)
    batches = read("parquet", sink.getvalue(), KEYED)
    assert [key for key, _ in items(batches)] == [b"a"]
    assert [line for line, _ in refused(batches)] == [2, 3]


def test_maps_of_a_parquet_file_are_objects() -> None:
    words = pa.array([[("x", 1), ("y", None)], [("x", 1), ("x", 2)], None], pa.map_(pa.string(), pa.int64()))
    numbers = pa.array([[(7, [("z", True)])], [], []], pa.map_(pa.int32(), pa.map_(pa.string(), pa.bool_())))
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": ["a", "b", "c"], "words": words, "numbers": numbers}), sink)
    batches = read("parquet", sink.getvalue(), KEYED)
    assert items(batches) == [
        (b"a", {"k": "a", "words": {"x": 1, "y": None}, "numbers": {"7": {"z": True}}}),
        (b"c", {"k": "c", "words": None, "numbers": {}}),
    ]
    [(line, why)] = refused(batches)
    assert line == 2
    assert "duplicate" in why.lower()


def test_a_parquet_file_whose_names_are_no_text_is_damaged() -> None:
    changed = to_parquet([{"k": "a", "name": 1}]).replace(b"name", b"\xebame")
    batches = read("parquet", changed, KEYED)
    assert items(batches) == []
    assert [(line, why.partition(":")[0]) for line, why in refused(batches)] == [(1, "the file is cut short or damaged")]


@pytest.mark.parametrize("repeats", [False, True])  # where values repeat, the file says little of their size
def test_large_rows_of_a_parquet_file_are_read_a_few_at_a_time(tmp_path: Path, *, repeats: bool) -> None:
    values = [chr(97 + (0 if repeats else number % 26)) * 900_000 for number in range(150)]
    table = pa.table({"k": list(map(str, range(150))), "v": values})
    pq.write_table(table, tmp_path / "large.parquet", compression="none", use_dictionary=repeats, write_batch_size=1)
    del table, values
    with open_source(str(tmp_path / "large.parquet")) as source:
        batches = reader_of(source, KEYED, format_name="parquet", rows=1_000).batches()
        tracemalloc.start()
        read_ = [key for batch in batches for key in batch.keys]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert read_ == [str(number).encode() for number in range(150)]
    assert peak < 100 << 20  # the JSON writer is said to hold eight times the size of some values


def test_columns_of_one_name_are_refused_as_in_csv() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["k", "k"]), file)
    assert refused(read("parquet", file.getvalue(), KEYED)) == [(1, "two columns have the same name")]
    assert refused(read("csv", b"k,k\na,b\n", KEYED)) == [(1, "the first line names a field twice")]


def test_what_else_the_process_reads_of_avro_is_read_as_ever() -> None:
    items(read("avro", to_avro(ROWS), KEYED))
    schema = fastavro.parse_schema({"type": "long", "logicalType": "timestamp-millis"})
    stored = io.BytesIO()
    fastavro.schemaless_writer(stored, "long", 1 << 60)
    with pytest.raises(OverflowError):
        fastavro.schemaless_reader(io.BytesIO(stored.getvalue()), schema, None)


def test_avro_records_that_are_no_objects_are_refused() -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "array", "items": "int"}, [[1], [2]])
    batches = read("avro", sink.getvalue(), KEYED)
    assert refused(batches) == [(1, "the record is a list, not an object"), (2, "the record is a list, not an object")]


def test_avro_in_zstandard_is_read() -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, ROWS, codec="null")
    head, block, _ = sink.getvalue().split(sync := sink.getvalue()[-16:])
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as out:
        out.write(block[3:])  # behind the number of rows and the size, below 64 and above
    data = packed.getvalue().to_pybytes()
    size = len(data) << 1
    head = head.replace(b"\x08null", b"\x12zstandard")
    whole = b"".join([head, sync, block[:1], bytes([size & 0x7F | 0x80, size >> 7]), data, sync])
    assert items(read("avro", whole, KEYED)) == items(read("avro", to_avro(ROWS), KEYED))
    assert "cut short or damaged" in refused(read("avro", whole[:-30], KEYED))[0][1]


def to_avro_of(kind: Row, values: list[Any]) -> bytes:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "k", "type": "string"}, {"name": "t", "type": kind}]}
    fastavro.writer(sink, schema, [{"k": key, "t": value} for key, value in zip("abc", values, strict=False)])
    return sink.getvalue()


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ({"type": "long", "logicalType": "timestamp-micros"}, 1, 1 << 60),
        ({"type": "int", "logicalType": "date"}, 1, -800_000),
        ({"type": "string", "logicalType": "uuid"}, str(UUID(int=1)), "none"),
    ],
)
def test_an_avro_record_that_python_cannot_hold_is_refused_alone(kind: Row, good: Any, bad: Any) -> None:
    batches = read("avro", to_avro_of(kind, [good, bad, good]), KEYED)
    assert [key for key, _ in items(batches)] == [b"a", b"c"]
    [(line, why)] = refused(batches)
    assert line == 2
    assert why.startswith("a field cannot be read: ")


@pytest.mark.parametrize("format_name", ["parquet", "avro"])
def test_a_uuid_is_a_key(format_name: str) -> None:
    found = UUID(int=7)
    if format_name == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table({"t": pa.array([found.bytes], pa.uuid())}), sink)
        data = sink.getvalue()
    else:
        data = to_avro_of({"type": "string", "logicalType": "uuid"}, [str(found)])
    [batch] = read(format_name, data, RowShape(key="t"))
    assert batch.keys == [str(found).encode()]
    assert batch.rejections == []


def test_an_avro_block_that_claims_to_be_huge_is_damage_not_memory() -> None:
    whole = to_avro([])
    batches = read("avro", whole + b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"xx", KEYED)
    [(line, why)] = refused(batches)
    assert line == 1
    assert "damaged" in why


# ------------------------------------------------------------------ which format


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"{}", "jsonl"),
        ("a.ndjson.gz", b"{}", "jsonl"),
        ("a.csv.xz", b"a,b", "csv"),
        ("a.csv", b"PAR1....", "parquet"),
        ("a", b"Obj\x01...", "avro"),
        ("a", b"  \n{", "jsonl"),
        ("a.parquet", b"", "parquet"),
        ("stdin", b'{"k":1}', "jsonl"),
    ],
)
def test_the_format_is_told_by_bytes_then_by_name(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with open_source(str(path)) as source:
        assert format_of(source) == expected


def test_a_format_that_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(b"k,v\n")
    with open_source(str(tmp_path / "rows.txt")) as source, pytest.raises(InvalidArgument, match="--format"):
        format_of(source)


# ------------------------------------------------------------------ damaged sources


@pytest.mark.parametrize(("format_name", "line"), [("jsonl", 8), ("csv", 9), ("avro", None), ("parquet", 1)])
def test_damage_of_the_packing_is_the_last_rejection(format_name: str, line: int | None) -> None:
    whole = WRITE[format_name](ROWS)
    cut = whole.find(b"key-7") if format_name in ("jsonl", "csv") else len(whole) - 30  # in the middle of the eighth row, or near the end

    class Broken(Pieces):
        def read(self, size: int = -1, /) -> bytes:
            data = super().read(size)
            if not data:
                raise Damaged("the file is cut short")
            return data

    class AnySource:
        stream = Broken(whole[:cut])

    batches = list(reader_of(AnySource, KEYED, format_name=format_name, rows=3).batches())  # type: ignore[arg-type]  # reads the stream alone
    rejections = [rejection for batch in batches for rejection in batch.rejections]
    assert [rejection.is_last for rejection in rejections] == [True]
    assert "cut short" in rejections[0].why
    found = items(batches)
    assert found == [(row["k"].encode(), row) for row in ROWS[: len(found)]]
    if line is not None:
        assert rejections[0].line == line
        assert len(found) == (7 if format_name != "parquet" else 0)
