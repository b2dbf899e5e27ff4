"""Many writes of one call."""

from collections.abc import Iterator
from itertools import pairwise

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.formats import REMOVE, CacheFormat
from eventlog.client.writing.bulk import arrow_columns, pair_columns, parts_of
from eventlog.client.writing.calls import Changes
from eventlog.errors import BadValue, InvalidArgument
from tests.client.test_formats import BYTES, JSON


def test_pairs_become_columns_and_removals_are_marked() -> None:
    assert pair_columns([("a", 1), ("b", None)], JSON) == ([b"a", b"b"], [b"1", b"null"], None)
    assert pair_columns({"a": 1, "b": REMOVE}, JSON) == ([b"a", b"b"], [b"1", b""], [False, True])
    assert pair_columns(((key, key) for key in (b"a",)), BYTES) == ([b"a"], [b"a"], None)
    assert pair_columns([], JSON) == ([], [], None)


def test_what_a_generator_of_pairs_raises_is_raised_as_it_is() -> None:
    def pairs() -> Iterator[tuple[str, int]]:
        yield "a", 1
        raise ValueError("a line of the caller's file")

    with pytest.raises(ValueError, match="a line of the caller's file"):
        pair_columns(pairs(), JSON)


@pytest.mark.parametrize("pairs", [["ab", "c"], [("a",)], [("a", 1, 2)], [1], ["abc"]])
def test_what_is_no_pair_is_refused(pairs: list[object]) -> None:
    with pytest.raises(InvalidArgument):
        pair_columns(pairs, JSON)  # type: ignore[arg-type]


class OnlyStream:
    """What knows the Arrow C stream interface, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    """What knows the Arrow C interface of one batch, and nothing else."""

    def __init__(self, batch: object) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)  # type: ignore[attr-defined]


ROWS = {"key": ["a", "b"], "value": [{"n": 1, "s": "x"}, {"n": 2, "s": None}]}


@pytest.mark.parametrize(
    "given",
    [
        pa.table(ROWS),
        pa.record_batch(ROWS),
        pa.table(ROWS).to_reader(),
        OnlyStream(pa.table(ROWS)),
        OnlyArray(pa.record_batch(ROWS)),
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS),
    ],
    ids=lambda given: type(given).__name__ + "/" + type(given).__module__.partition(".")[0],
)
def test_whatever_has_the_arrow_interface_is_taken(given: object) -> None:
    found = arrow_columns(given, JSON, key="key", value="value")
    assert found == ([b"a", b"b"], [b'{"n":1,"s":"x"}', b'{"n":2,"s":null}'], None)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ROWS, "dict is no table"),
        (5, "int is no table"),
        (OnlyStream(pa.chunked_array([[1, 2]])), "OnlyStream gives no table"),
        (OnlyArray(pa.array([1, 2])), "OnlyArray gives no table"),
        (pd.DataFrame({"key": ["a", "b"], "value": [1, "x"]}), "DataFrame gives no table: .*value"),
    ],
)
def test_what_gives_no_table_is_refused(given: object, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        arrow_columns(given, JSON, key="key", value="value")


@pytest.mark.parametrize(
    ("kind", "items", "stored"),
    [
        (pa.uint64(), [(1 << 64) - 1], b"18446744073709551615"),
        (pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]), [{"a": "x"}], b'{"a":"x"}'),
        (pa.large_list(pa.large_string()), [["x"]], b'["x"]'),
        (pa.struct([("a", pa.string_view())]), [{"a": "x"}], b'{"a":"x"}'),
        (pa.timestamp("ns", "UTC"), [1_000], b'"1970-01-01T00:00:00.000001Z"'),
        (pa.struct([("a", pa.list_(pa.timestamp("ns", "UTC")))]), [{"a": [1_000]}], b'{"a":["1970-01-01T00:00:00.000001Z"]}'),
        (pa.time64("ns"), [1_000], b'"00:00:00.000001"'),
        (pa.map_(pa.string(), pa.timestamp("ns")), [[("a", 1_000), ("b", None)]], b'{"a":"1970-01-01T00:00:00.000001","b":null}'),
        (pa.list_(pa.map_(pa.int32(), pa.map_(pa.string(), pa.int8()))), [[[(7, [("x", 1)])]]], b'[{"7":{"x":1}}]'),
        (pa.json_(), ['{"x": 1}'], b'{"x": 1}'),
        (pa.string_view(), ['{"x": 1}'], b'{"x": 1}'),
        (pa.binary_view(), [b"5"], b"5"),
    ],
)
def test_arrow_columns_of_every_kind_become_what_they_say(kind: pa.DataType, items: list[object], stored: bytes) -> None:
    column = pa.array(items, kind) if not isinstance(kind, pa.BaseExtensionType) else pa.array(items, kind.storage_type).cast(kind)
    found = arrow_columns(pa.table({"key": pa.array(["k"], pa.string_view()), "value": column}), JSON, key="key", value="value")
    assert found == ([b"k"], [stored], None)


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns"),
        pa.time64("ns"),
        pa.duration("ns"),
        pa.struct([("a", pa.timestamp("ns"))]),
        pa.map_(pa.string(), pa.duration("ns")),
    ],
)
def test_nanoseconds_that_would_be_lost_are_refused_by_name(kind: pa.DataType) -> None:
    item = [("a", 1)] if pa.types.is_map(kind) else {"a": 1} if pa.types.is_struct(kind) else 1
    with pytest.raises(InvalidArgument, match=r"column 'value' holds what Python has no value for: .*lose data"):
        arrow_columns(pa.table({"key": ["k"], "value": pa.array([item], kind)}), JSON, key="key", value="value")


def test_a_map_with_a_key_twice_is_refused_by_name() -> None:
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))
    with pytest.raises(InvalidArgument, match=r"column 'value' holds .*duplicate key was 'a'"):
        arrow_columns(pa.table({"key": ["k"], "value": twice}), JSON, key="key", value="value")


def test_a_binary_key_that_is_no_text_is_refused_where_keys_are_text() -> None:
    table = pa.table({"key": [b"a", b"\xff"], "value": ["1", "2"]})
    with pytest.raises(InvalidArgument, match=r"column 'key' has b'\\xff' in row 1"):
        arrow_columns(table, JSON, key="key", value="value")
    assert arrow_columns(table, BYTES, key="key", value="value")[0] == [b"a", b"\xff"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())])
def test_arrow_columns_of_text_and_bytes_are_taken_as_they_are(kind: pa.DataType) -> None:
    batch = pa.record_batch([pa.array(["a", "b"]).cast(kind), pa.array(["1", None]).cast(kind)], names=["key", "value"])
    assert arrow_columns(batch, JSON, key="key", value="value") == ([b"a", b"b"], [b"1", b""], [False, True])
    assert arrow_columns(batch, BYTES, key="value" if kind is None else "key", value="key")[1] == [b"a", b"b"]


def test_other_arrow_columns_become_json() -> None:
    batch = pa.record_batch([pa.array(["a", "b"]), pa.array([{"x": 1}, None])], names=["k", "v"])
    assert arrow_columns(batch, JSON, key="k", value="v") == ([b"a", b"b"], [b'{"x":1}', b""], [False, True])
    with pytest.raises(InvalidArgument, match="bytes"):
        arrow_columns(batch, BYTES, key="k", value="v")


@pytest.mark.parametrize("far", [pa.array([1 << 60], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))])
def test_an_arrow_column_of_times_that_python_cannot_hold_is_refused_by_name(far: pa.Array) -> None:
    with pytest.raises(InvalidArgument, match="column 'value' holds"):
        arrow_columns(pa.record_batch([pa.array(["a"]), far], names=["key", "value"]), JSON, key="key", value="value")


@pytest.mark.parametrize("form", [JSON, BYTES])
def test_arrow_columns_without_a_type_hold_removals_or_nothing(form: CacheFormat) -> None:
    removals = pa.record_batch([pa.array(["a", "b"]), pa.array([None, None])], names=["key", "value"])
    assert arrow_columns(removals, form, key="key", value="value") == ([b"a", b"b"], [b"", b""], [True, True])
    nothing = pa.record_batch([pa.array([]), pa.array([])], names=["key", "value"])
    assert arrow_columns(nothing, form, key="key", value="value") == ([], [], None)


def test_an_arrow_column_that_is_there_twice_is_refused() -> None:
    batch = pa.record_batch([pa.array(["a"]), pa.array(["b"]), pa.array(["1"])], names=["key", "key", "value"])
    with pytest.raises(InvalidArgument, match="several columns 'key'"):
        arrow_columns(batch, JSON, key="key", value="value")


def test_tables_of_several_chunks_are_taken() -> None:
    batch = pa.record_batch([pa.array(["a"]), pa.array(["1"])], names=["key", "value"])
    assert arrow_columns(pa.Table.from_batches([batch, batch]), JSON, key="key", value="value") == ([b"a", b"a"], [b"1", b"1"], None)


def test_odd_arrow_columns_are_refused() -> None:
    batch = pa.record_batch([pa.array(["a", None]), pa.array([1, 2]), pa.array(["{", "1"])], names=["nulls", "numbers", "broken"])
    for key, value in (("nulls", "numbers"), ("numbers", "numbers"), ("none", "numbers"), ("broken", "none")):
        with pytest.raises(InvalidArgument):
            arrow_columns(batch, JSON, key=key, value=value)
    with pytest.raises(BadValue, match="not JSON"):
        arrow_columns(batch, JSON, key="broken", value="broken")


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(100, 500))
def test_parts_hold_everything_in_order_and_fit_where_one_item_does(sizes: list[int], bytes_max: int) -> None:
    changes = Changes(
        cache_id=1,
        by_prefix=False,
        keys=[b"%d" % n for n in range(len(sizes))],
        values=[bytes(size) for size in sizes],
        removed=[n % 2 == 0 for n in range(len(sizes))],
        headers=[b"h"] * len(sizes),
    )
    parts = list(parts_of(changes, bytes_max=bytes_max))
    assert [key for part in parts for key in part.keys] == changes.keys
    assert [value for part in parts for value in part.values] == changes.values
    assert [mark for part in parts for mark in part.removed or ()] == changes.removed
    assert all(part.nbytes <= bytes_max or len(part) == 1 for part in parts)
    assert all(first.nbytes + second.nbytes > bytes_max for first, second in pairwise(parts) if len(second) == 1)
