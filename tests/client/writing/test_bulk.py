"""Many writes of one call."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.formats import REMOVE, CacheFormat
from eventlog.client.writing.bulk import arrow_columns, pair_columns, parts_of
from eventlog.client.writing.changes import Changes
from eventlog.errors import BadValue, InvalidArgument
from tests.client.test_formats import BYTES, JSON


def test_pairs_become_columns_and_removals_are_marked() -> None:
    assert pair_columns([("a", 1), ("b", None)], JSON) == ([b"a", b"b"], [b"1", b"null"], None)
    assert pair_columns({"a": 1, "b": REMOVE}, JSON) == ([b"a", b"b"], [b"1", b""], [False, True])
    assert pair_columns(((key, key) for key in (b"a",)), BYTES) == ([b"a"], [b"a"], None)
    assert pair_columns([], JSON) == ([], [], None)


@pytest.mark.parametrize("pairs", [["ab", "c"], [("a",)], [("a", 1, 2)], [1], ["abc"]])
def test_what_is_no_pair_is_refused(pairs: list[object]) -> None:
    with pytest.raises(InvalidArgument):
        pair_columns(pairs, JSON)  # type: ignore[arg-type]


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
