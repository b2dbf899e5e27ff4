"""What a rollup is of, in words: expressions told apart by commas, columns with names of their own, and what cannot be."""

import pyarrow as pa
import pytest

from eventlog.errors import InvalidArgument
from eventlog.integrations.rollup.definition import boundary_id, boundary_ms, definition_of, name_of, parts_of

HOUR = 3_600_000


def test_commas_within_brackets_and_quotes_do_not_end_an_expression():
    assert [one.strip() for one in parts_of("a, COALESCE(b, 'x,('), v['c,]'], d")] == ["a", "COALESCE(b, 'x,(')", "v['c,]']", "d"]


def test_columns_are_named_after_what_they_are_of_or_as_they_are_told():
    found = definition_of(
        window_ms=HOUR,
        by="kind, value.customer, LOWER(v.shop.country) as country",
        measures="count, Keys, sum(v.total), MAX( value.total ) AS most, first",
    )
    assert found.schema.names == ["window", "kind", "customer", "country", "count", "keys", "sum_total", "most", "first"]
    assert found.numbers == ("v.total", "value.total")
    assert [found.schema.field(name).type for name in ("window", "country", "keys", "most", "first")] == [
        pa.timestamp("us", "UTC"),
        pa.string(),
        pa.int64(),
        pa.float64(),
        pa.timestamp("us", "UTC"),
    ]
    assert (
        definition_of(window_ms=HOUR, by=["kind", "key"], measures=["count"]).by
        == definition_of(window_ms=HOUR, by="kind,key", measures="count").by
    )
    assert name_of("value.a['b c'][0]") == "a_b_c_0"


def test_a_figure_that_is_a_sketch_has_a_column_for_it():
    found = definition_of(window_ms=HOUR, by="kind", measures="keys, keys~, KEYS~ as visitors")
    assert found.schema.names == ["window", "kind", "keys", "keys_estimate", "keys_sketch", "visitors", "visitors_sketch"]
    assert [field.type for field in found.schema][-4:] == [pa.int64(), pa.binary()] * 2
    assert definition_of(window_ms=HOUR, by="", measures="keys").plain() != definition_of(window_ms=HOUR, by="", measures="keys~").plain()


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"window_ms": 0}, "1 ms to 366 days"),
        ({"window_ms": 400 * 24 * HOUR}, "1 ms to 366 days"),
        ({"measures": ""}, "name at least one"),
        ({"measures": "counts"}, "no measure 'counts'; there are count, bytes"),
        ({"measures": "sum()"}, "no measure"),
        ({"measures": "avg(v.a)"}, "no measure"),
        ({"by": "v.a, value.a"}, "two columns are called 'a'"),
        ({"by": "v.Count"}, "two columns are called 'count'"),
        ({"by": "v.keys_sketch", "measures": "keys~"}, "two columns are called 'keys_sketch'"),
        ({"by": "v.window"}, "two columns are called 'window'"),
        ({"by": "'?'"}, "makes no name"),
        ({"by": "1 + v.a"}, "makes no name"),
        ({"by": [f"v.f{n}" for n in range(100)]}, "at most 100 columns"),
    ],
)
def test_what_cannot_be_is_named(differs, why):
    with pytest.raises(InvalidArgument, match=why.replace("(", "[(]")):
        definition_of(**{"window_ms": HOUR, "by": "key", "measures": "count"} | differs)


def test_a_window_begins_behind_the_last_id_before_it():
    for ms in (1_600_000_000_000, 1_800_000_000_000):
        assert boundary_ms(boundary_id(ms)) == ms
        assert boundary_ms(boundary_id(ms) + 1) == ms
        assert boundary_ms(boundary_id(ms) - 1) == ms - 1
