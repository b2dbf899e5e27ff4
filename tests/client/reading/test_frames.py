"""Frames: one schema for every batch of a read, whatever it holds."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.views import Strings
from eventlog.client.formats import avro_format
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.following import to_batches
from eventlog.client.reading.frames import HEADERS, headers_array
from eventlog.client.reading.pieces import NO_EVENTS
from eventlog.errors import CorruptData, InvalidArgument, UnreadableValue
from eventlog.events import EventSource, Kind, encode_headers
from eventlog.ids import ID_STEP, make_id
from tests.client.answers import CACHE, SOURCE, Row, make

JSON = EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=True)
SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}, {"name": "on", "type": ["null", "string"]}]}
AVRO = EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=False, json_values=False, values=avro_format(json.dumps(SCHEMA)))
NAMES = ["id", "time", "segment", "offset", "kind", "key", "value", "before", "headers"]
ROWS = [
    Row(1 << 30, 2, 7, 0, b"a", b"1"),
    Row((1 << 30) + ID_STEP, 0, 3, 1, b"b", b"22", b"3"),
    Row((1 << 30) + 2 * ID_STEP, 0, 4, 2, b"a", b"", b"1", encode_headers({"h": b"x", "i": b""})),
    Row((1 << 30) + 3 * ID_STEP, 1, 0, 3, b"c", b"", b"2"),
]


def batch(rows: list[Row] = ROWS, *, source: EventSource = JSON) -> EventBatch:
    answer, body = make(("joined", rows))
    (found,) = to_batches(answer, body, source)
    return found


def plain(kind: pa.DataType) -> bool:
    """Whether a type has nothing at any depth that some reader of tables does not know."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_unsigned_integer(kind) or str(kind).startswith(("large_", "string_view", "binary_view")):
        return False
    return all(plain(kind.field(index).type) for index in range(kind.num_fields))


@pytest.mark.parametrize("source", [SOURCE, JSON, AVRO])
def test_the_schema_is_one_whatever_the_events_hold(source: EventSource) -> None:
    value = source.values.encode({"n": 1, "on": None}) if source is AVRO else b"1"  # type: ignore[union-attr]
    bare = [Row(1 << 30, 0, 0, 0, b"a", value)]
    full = [Row(1 << 31, 0, 1, 1, b"a", value, value, encode_headers({"h": b"x"}))]
    found = [batch(bare, source=source), batch(full, source=source), EventBatch(NO_EVENTS, source, last_id=9)]
    tables = [one.arrow() for one in found]
    assert tables[0].schema.equals(tables[1].schema)
    assert tables[0].schema.equals(tables[2].schema)
    assert tables[0].schema.names == NAMES
    assert all(plain(field.type) for field in tables[0].schema)
    assert pa.Table.from_batches(tables).num_rows == 2


def test_columns_have_the_types_that_are_documented() -> None:
    types = {field.name: str(field.type) for field in batch().arrow().schema}
    assert types == {
        "id": "int64",
        "time": "timestamp[us, tz=UTC]",
        "segment": "int32",
        "offset": "int64",
        "kind": "string",
        "key": "string",
        "value": "string",
        "before": "string",
        "headers": "map<string, binary>",
    }
    assert str(batch(source=SOURCE).arrow().schema.field("value").type) == "binary"
    avro = batch([Row(1 << 30, 0, 0, 2, b"\xff", b"")], source=AVRO).arrow()
    assert str(avro.schema.field("key").type) == "binary"
    assert avro.schema.field("value").type == pa.struct([("n", pa.int64()), ("on", pa.string())])
    assert avro.schema.field("before").type == avro.schema.field("value").type


def test_rows_are_what_the_events_are() -> None:
    rows = batch().arrow().to_pylist(maps_as_pydicts="strict")
    assert [row["id"] for row in rows] == [row.id for row in ROWS]
    assert [row["segment"] for row in rows] == [2, 0, 0, 1]
    assert [row["offset"] for row in rows] == [7, 3, 4, 0]
    assert [row["kind"] for row in rows] == ["CREATED", "MODIFIED", "REMOVED", "EXPIRED"]
    assert [row["key"] for row in rows] == ["a", "b", "a", "c"]
    assert [row["value"] for row in rows] == ["1", "22", None, None]
    assert [row["before"] for row in rows] == [None, "3", "1", "2"]
    assert [row["headers"] for row in rows] == [{}, {}, {"h": b"x", "i": b""}, {}]


def test_a_value_that_is_not_of_the_avro_schema_is_refused_with_its_key_and_id() -> None:
    good = AVRO.values.encode({"n": 1, "on": None})  # type: ignore[union-attr]
    for value, before, which in ((b"\xff", good, "value"), (good, b"\xff", "before-image")):
        rows = [Row(1 << 30, 0, 0, 1, b"a", good, good), Row(1 << 31, 0, 1, 1, b"\xfe", value, before)]
        with pytest.raises(UnreadableValue, match=rf"the {which} of event {1 << 31}, of key '.*xfe'"):
            batch(rows, source=AVRO).arrow()


def test_the_time_is_that_of_the_id() -> None:
    moment = datetime(2026, 11, 24, 12, 30, 15, 123_000, tzinfo=UTC)
    made = make_id(int(moment.timestamp() * 1000), sequence=5, node=7)
    assert batch([Row(made, 0, 0, 0, b"a", b"1")]).arrow()["time"].to_pylist() == [moment]


def test_columns_that_need_no_moving_are_the_same_memory() -> None:
    found = batch(sorted(ROWS[1:3], key=lambda row: row.id))
    table = found.arrow()
    _, offsets, data = table.column("key").buffers()
    assert offsets.address == found.keys.offsets.ctypes.data
    assert data.size == len(found.keys.data)
    _, numbers = table.column("id").buffers()
    assert numbers.address == found.ids.ctypes.data


@pytest.mark.parametrize("kinds", [[0], [4, 4, 4], [1, 1], [2, 3, 2]])
def test_kinds_that_are_all_the_same_have_their_names_too(kinds: list[int]) -> None:
    rows = [Row((1 << 30) + number * ID_STEP, 0, number, kind, b"k", b"1") for number, kind in enumerate(kinds)]
    column = batch(rows).arrow()["kind"]
    column.validate(full=True)
    assert column.to_pylist() == [Kind(kind).name for kind in kinds]


def test_a_continuous_query_has_the_change_before_there_is_any() -> None:
    source = EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=True, has_changes=True)
    assert EventBatch(NO_EVENTS, source, last_id=9).arrow().schema.names == [*NAMES, "change"]
    assert batch(source=source).arrow(columns=["change"])["change"].to_pylist() == [None] * 4


def test_an_event_written_while_no_images_were_kept_has_none_beside_one_that_has() -> None:
    rows = [Row(1 << 30, 0, 3, 1, b"a", b"1"), Row((1 << 30) + ID_STEP, 0, 4, 1, b"a", b"2", b"1")]
    assert [event.before for event in batch(rows).events()] == [None, 1]
    assert batch(rows).arrow()["before"].to_pylist() == [None, "1"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"include": []}, NAMES[:-2]),
        ({"include": ["headers"]}, [*NAMES[:-2], "headers"]),
        ({"include": ["headers", "before"]}, NAMES),
        ({"columns": ["value", "key"]}, ["value", "key"]),
        ({"columns": NAMES}, NAMES),
    ],
)
def test_columns_can_be_chosen(choice: dict[str, Any], names: list[str]) -> None:
    assert batch().arrow(**choice).schema.names == names
    assert EventBatch(NO_EVENTS, JSON, last_id=9).arrow(**choice).schema.names == names


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"include": ["befor"]}, "include has 'befor': choose of before, headers"),
        ({"columns": ["key", "vlaue"]}, "columns has 'vlaue': choose of id, time, .*, headers"),
        ({"columns": ["change"]}, "columns has 'change'"),
        ({"columns": ["key", "key"]}, "twice"),
        ({"columns": []}, "columns is empty"),
        ({"columns": "key"}, "give a list"),
        ({"include": "before"}, "give a list"),
        ({"columns": ["key"], "include": ["before"]}, "give include"),
    ],
)
def test_columns_that_there_are_not_are_refused_with_those_that_there_are(choice: dict[str, Sequence[str]], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        batch().arrow(**choice)


def test_a_batch_is_taken_by_whoever_takes_arrow() -> None:
    assert pa.record_batch(batch()).equals(batch().arrow())
    assert pa.RecordBatchReader.from_stream(batch()).read_all().to_pylist() == batch().arrow().to_pylist()


# ---------------------------------------------------------------- headers


def strings(items: list[bytes]) -> Strings:
    offsets = np.zeros(len(items) + 1, np.int32)
    offsets[1:] = np.cumsum([len(item) for item in items])
    return Strings(offsets, memoryview(b"".join(items)))


@given(st.lists(st.dictionaries(st.text(max_size=300), st.binary(max_size=300), max_size=4), max_size=12))
def test_headers_become_maps(given_headers: list[dict[str, bytes]]) -> None:
    found = headers_array(strings([encode_headers(one) for one in given_headers]), count=len(given_headers))
    found.validate(full=True)
    assert found.type == HEADERS
    assert found.to_pylist(maps_as_pydicts="strict") == given_headers


@pytest.mark.parametrize("cut", range(1, 12))
def test_headers_that_end_in_the_middle_are_refused(cut: int) -> None:
    whole = encode_headers({"name": b"xy"})
    with pytest.raises(CorruptData, match="middle"):
        headers_array(strings([whole[:cut], whole]), count=2)


def test_names_of_headers_that_are_no_text_are_refused() -> None:
    with pytest.raises(CorruptData, match="headers"):
        headers_array(strings([b"\0\1\0\0\0\0\xff"]), count=1)
