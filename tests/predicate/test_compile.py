"""What a compiled filter does with formats, images, selections and promoted fields."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.texts import Texts
from eventlog.errors import BadPredicate
from eventlog.predicate.bounds import bounds_of
from eventlog.predicate.compile import JOINED, LEFT, UPDATED, compile_expressions
from eventlog.predicate.spec import FilterContext, FilterSpec
from tests.examples import examples
from tests.predicate.rows import BASE, BYTES, JSON, compiled, events, matches, matching

WITHOUT_BEFORE = FilterContext(format="json", text_keys=True, before=False)


# ---------------------------------------------------------------- bytes


def test_values_and_keys_of_bytes_are_compared_as_bytes_and_as_text():
    rows = [
        {"key": b"\xff\x00a", "value": b"\x00\xfe"},
        {"key": b"abc", "value": b"abc"},
        {"key": b"abd", "value": "é".encode()},
        {"key": b"x", "value": None, "before": b"abc"},
        {"key": b"y", "value": b""},
    ]
    for where, expected in {
        "value = 'abc'": [1],
        "value = x'00fe'": [0],
        "key = x'ff0061'": [0],
        "key LIKE 'ab%'": [1, 2],
        "key LIKE 'ab_'": [1, 2],
        "key > 'abc'": [0, 2, 3, 4],
        "LENGTH(value) = 1": [2],
        "OCTET_LENGTH(value) = 2": [0, 2],
        "value IS NULL": [3],
        "value = ''": [4],
        "value <> 'abc'": [0, 2, 4],
        "NOT (value = 'abc')": [0, 2, 4],
        "value IN ('abc', x'00fe')": [0, 1],
        "before = 'abc'": [3],
        "before IS NOT NULL": [3],
        "UPPER(value) = 'ABC'": [1],
        "STARTS_WITH(value, 'ab')": [1],
        "value || key = 'abcabc'": [1],
        "value = key": [1],
        "key IN ('abc')": [1],
        "SUBSTRING(key, 2, 1) = 'b'": [1, 2],
    }.items():
        assert matching(where, rows, BYTES) == expected, where
    assert matching("key = ?", rows, BYTES, [{"base64": "/wBh"}]) == [0]
    with pytest.raises(BadPredicate, match="no fields"):
        compiled("value.a = 1", BYTES)
    with pytest.raises(BadPredicate, match="never compared"):
        compiled("value = 1", BYTES)


def test_headers_are_bytes_that_compare_with_text():
    rows = [
        {"key": "a", "value": 1, "headers": {"x": b"abc", "y": b"\xff"}},
        {"key": "b", "value": 2, "headers": {"x": b""}},
        {"key": "c", "value": 3},
    ]
    assert matching("headers['x'] = 'abc'", rows) == [0]
    assert matching("headers.x = ''", rows) == [1]
    assert matching("headers['x'] IS NULL", rows) == [2]
    assert matching("headers['y'] = x'ff'", rows) == [0]
    assert matching("UPPER(headers['x']) LIKE 'A%'", rows) == [0]
    assert matching("headers['x'] IN ('', 'q')", rows) == [1]
    assert matching("headers['x'] <> 'abc'", rows) == [1]
    assert matching("headers['none'] = 'abc'", rows[2:]) == []


# ---------------------------------------------------------------- json


def test_types_that_differ_are_unequal_and_have_no_order():
    value = {"n": 1, "t": True, "s": "1", "l": [1], "b": [True], "o": {"a": 1}}
    for where in (
        "value.t <> 1",
        "value.s <> 1",
        "value.n = 1.0",
        "NOT (value.t = 1)",
        "value.t = TRUE",
        "(value.s < 5) IS NULL",
        "(value.t < 5) IS NULL",
        "value.l <> 1",
        "(value.l < 1) IS NULL",
        "(value.n < value.s) IS NULL",
        "value.n <> value.t",
        "value.t IN (TRUE)",
        "(value.t IN (1)) = FALSE",
        "value.l IS NOT NULL",
        "value.o.a = 1",
        "value.l[0] = 1",
        "value.l[7] IS NULL",
        "value.s.x IS NULL",
        "value.o.a.b IS NULL",
        "value.o[0] IS NULL",
        "value['o']['a'] = 1",
        "(value.n AND TRUE) IS NULL",
        "value.missing IS NULL",
        "(value.missing = 1) IS NULL",
        "value.l = value.l",
        "value.l <> value.b",
        "value.l IS DISTINCT FROM value.b",
        "value.b IS NOT DISTINCT FROM value.b",
    ):
        assert matches(where, value), where


def test_the_whole_value_can_be_asked_for():
    assert matches("value = 5", 5)
    assert matches("value = 'x' AND value.a IS NULL", "x")
    assert matches("value[1] = 2", [1, 2])
    assert matches("value IS NULL", b"null")
    assert matches("value IS NULL AND kind = 'REMOVED'", None)
    assert not matches("value.a = 1", None, before={"a": 1})
    assert matches("before.a = 1 AND before IS NOT NULL", None, before={"a": 1})
    assert matches('value."odd name".x = 1', {"odd name": {"x": 1}})
    assert matches("value.value.key.offset = 1", {"value": {"key": {"offset": 1}}})


def test_items_of_arrays_are_asked_for():
    value = {"l": [{"n": 1, "m": [5, 6]}, {"n": 2}, "text", None], "m": [[1, 2], [3]], "o": {"l": [7]}}
    for where in (
        "value.l[0].n = 1 AND value.l[1].n = 2",
        "value.l[0].m[1] = 6",
        "value.l[2].n IS NULL AND value.l[0].n = 1",
        "value.l[3].n IS NULL AND value.l[9].n IS NULL",
        "value.l[2] = 'text'",
        "value.l[0].n = 1 AND value.l IS NOT NULL",
        "value.m[0][1] = 2 AND value.m[1][0] = 3 AND value.m[1][1] IS NULL",
        "value.o.l[0] = 7 AND value.o.x IS NULL",
        "value.o[0] IS NULL AND value.o.l[0] = 7",
        "value.l.n IS NULL AND value.m[0].x IS NULL",
    ):
        assert matches(where, value), where
    assert matches("value[1].a = 2 AND value[0].a IS NULL", [1, {"a": 2}])
    assert matches("value[0] IS NULL", {"a": 2})


def test_numbers_are_compared_exactly():
    assert matches("value.n = 9007199254740993", {"n": 9007199254740993})
    assert not matches("value.n = 9007199254740993", {"n": 9007199254740992})
    assert matches("id = ?", {}, parameters=[BASE])
    assert matches("id = ? AND id > ?", {}, parameters=[str(BASE), BASE - 1])
    assert not matches("id < 0.5", {})
    assert matches("id > -1e300 AND id < 1e300 AND id <> 1.5 AND segment >= -0.5", {})
    assert matches("id < 99999999999999999999999", {})
    assert matches("offset IN (0, 99999999999999999999999)", {})
    assert matches("value.n * value.n > 8e37", {"n": 9223372036854775807})


TEXTS = ["", "a", "ab", 'q"q', "back\\slash", "line\n", "é", "\u2028", "/", "\x7f", "\x01", "c1", "c12", "aa", "aaa", "null"]
ESCAPED = {"c1": b'"\\u0063\\u0031"', "/": b'"\\/"', "é": b'"\\u00e9"'}


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.booleans()), max_size=20), st.sampled_from(TEXTS), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_looking_at_bytes_first_never_loses_a_value(pairs, wanted, data):
    """A condition that is judged by decoding alone says the same."""
    rows = []
    for field, other, is_escaped in pairs:
        text = ESCAPED.get(field, msgspec.json.encode(field)) if is_escaped else msgspec.json.encode(field)
        rows.append({"key": "k", "value": b'{"o": ' + msgspec.json.encode([other]) + b', "f" :' + text + b"}"})
    template = data.draw(
        st.sampled_from(
            [
                "value.f = {}",
                "value.f IN ({}, 'c1')",
                "STARTS_WITH(value.f, {})",
                "CONTAINS(value.f, {})",
                "ENDS_WITH(value.f, {})",
                "value.f LIKE {}",
                "value.f = {} OR value.f = 'aa'",
                "value.f = {} AND value.o[0] = 'a'",
                "{} = value.f",
            ]
        )
    )
    columns = events(rows)
    quickly = compiled(template.format("?"), parameters=[wanted])
    slowly = compiled(f"({template.format('?')}) IS TRUE", parameters=[wanted])
    assert slowly.needles == ()
    assert quickly.mask(columns).tolist() == slowly.mask(columns).tolist()
    few = np.arange(0, len(rows), 7)
    assert quickly.mask(columns.take(few)).tolist() == slowly.mask(columns.take(few)).tolist()


SPELLED = ["42", "42.0", "4.2e1", "420E-1", "-42", "4", "421", "142", "0", "-0", "0.0", "1.5", "9007199254740993"]
SPELLED += ['"42"', "true", "null", "[42]", '{"n": 42}']
SPACES = ["", " ", "\n\t "]


@given(
    st.lists(st.tuples(st.sampled_from(SPELLED), st.sampled_from(SPELLED), st.sampled_from(SPACES), st.booleans()), max_size=20),
    st.sampled_from([[42], [0], [1.5], [42, 0], [9007199254740993], [-42.0], [42, 1.5]]),
)
@settings(max_examples=examples(200), deadline=None)
def test_looking_for_numbers_first_never_loses_a_value(rows, wanted):
    escaped = '{{"o": {{"n": {other}}}, "\\u006e" : {number}}}'
    plain = '{{"x": {{"n":{other}}},"n"{space}:{space}{number}{space}, "o":{{"n":{other}}}}}'
    texts = [
        (escaped if is_escaped else plain).format(number=number, other=other, space=space) for number, other, space, is_escaped in rows
    ]
    columns = events([{"key": "k", "value": text.encode()} for text in texts])
    for path in ("value.n", "value.o.n", "value['n']"):
        where = f"{path} = ?" if len(wanted) == 1 else f"{path} IN (?, ?)"
        quickly, slowly = compiled(where, parameters=wanted), compiled(f"({where}) IS TRUE", parameters=wanted)
        assert quickly.needles
        assert not slowly.needles
        assert quickly.mask(columns).tolist() == slowly.mask(columns).tolist()
        few = np.arange(0, len(rows), 7)
        assert quickly.mask(columns.take(few)).tolist() == slowly.mask(columns.take(few)).tolist()


def test_escapes_are_found():
    rows = [{"key": "k", "value": b'{"f":"\\u0063\\u0031"}'}, {"key": "k", "value": {"f": "c1"}}, {"key": "k", "value": {"f": "c2"}}]
    assert compiled("value.f = 'c1'").needles
    assert matching("value.f = 'c1'", rows) == [0, 1]


# ---------------------------------------------------------------- images


CHANGES = [
    {"key": "a", "value": {"n": 5}},
    {"key": "b", "value": {"n": 1}},
    {"key": "c", "value": {"n": 5}, "before": {"n": 6}},
    {"key": "d", "value": {"n": 5}, "before": {"n": 1}},
    {"key": "e", "value": {"n": 1}, "before": {"n": 5}},
    {"key": "f", "value": {"n": 1}, "before": {"n": 1}},
    {"key": "g", "value": None, "before": {"n": 5}},
    {"key": "h", "value": None, "before": {"n": 1}, "kind": "EXPIRED"},
]


def test_a_continuous_query_knows_what_enters_changes_and_leaves():
    found = compiled("value.n > 2", continuous=True)
    expected = [JOINED, 0, UPDATED, JOINED, LEFT, 0, LEFT, 0]
    assert found.changes(events(CHANGES)).tolist() == expected
    everything = compiled("", continuous=True)
    assert everything.changes(events(CHANGES)).tolist() == [JOINED, JOINED, UPDATED, UPDATED, UPDATED, UPDATED, LEFT, LEFT]
    by_key = compiled("key = 'g'", continuous=True)
    assert by_key.changes(events(CHANGES)).tolist() == [0] * 6 + [LEFT, 0]
    nulls = compiled("value.n IS NULL OR value.n <> 5", continuous=True)
    assert nulls.changes(events(CHANGES)).tolist() == [0, JOINED, LEFT, LEFT, JOINED, UPDATED, 0, LEFT]
    assert found.kinds == 0xFF


def test_old_and_new_images_are_judged_apart():
    found = compiled("value.n > 2")
    assert np.flatnonzero(found.mask(events(CHANGES))).tolist() == [0, 2, 3]
    assert np.flatnonzero(found.mask(events(CHANGES), image="before")).tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    "where", ["kind = 'CREATED'", "value.n > 1 AND id > 5", "before.n = 1", "headers['x'] = 'y'", "time > 0", "offset = 1"]
)
def test_a_continuous_query_is_about_entries_not_changes(where):
    with pytest.raises(BadPredicate, match="continuous"):
        compiled(where, continuous=True)


def test_before_images_that_are_not_kept_are_refused():
    with pytest.raises(BadPredicate, match="no before-images"):
        compiled("before.n = 1", WITHOUT_BEFORE)
    with pytest.raises(BadPredicate, match="needs before-images"):
        compiled("value.n = 1", WITHOUT_BEFORE, continuous=True)
    assert matching("value.n = 1", [{"key": "a", "value": {"n": 1}}], WITHOUT_BEFORE) == [0]
    assert compiled("before.n IS NULL").mask(events([{"key": "a", "value": 1}])).all()


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("where", "kinds"),
    [
        ("kind = 'REMOVED'", 0b100),
        ("kind <> 'REMOVED' AND kind <> 'STATE'", 0b1011),
        ("kind IN ('CREATED', 'MODIFIED') OR kind = 'EXPIRED'", 0b1011),
        ("NOT kind IN ('CREATED', 'MODIFIED', 'STATE')", 0b1100),
        ("value.n > 1", 0b10011),
        ("before.n > 1", 0b1110),
        ("value.n > before.n", 0b0010),
        ("value.n IS NULL", 0b11111),
        ("COALESCE(value.n, 1) = 1", 0b11111),
        ("kind = 'REMOVED' OR value.n = 1", 0b10111),
        ("LOWER(value.s) LIKE 'x%'", 0b10011),
        ("kind = 'REMOVED' AND value.n = 1", 0),
        ("CASE kind WHEN 'REMOVED' THEN TRUE END", 0b100),
    ],
)
def test_kinds_that_cannot_match_are_known_beforehand(where, kinds):
    assert compiled(where).kinds & 0b11111 == kinds


def test_ids_segments_and_keys_that_cannot_match_are_known_beforehand():
    bounds = compiled("id > 5 AND id <= 100 AND segment IN (1, 3) AND (key = 'a' OR key IN ('b', 'c'))").bounds
    assert (bounds.id_low, bounds.id_high, bounds.segments, bounds.keys) == (6, 100, frozenset({1, 3}), frozenset({b"a", b"b", b"c"}))
    assert compiled("key LIKE 'user:%' AND STARTS_WITH(key, 'user:1')").bounds.key_prefix == b"user:1"
    assert compiled("key LIKE 'ab%' OR key LIKE 'ac%'").bounds.key_prefix == b"a"
    assert compiled("key LIKE 'ab%' AND key LIKE 'x%'").bounds.is_empty
    assert compiled("id > 5 AND id < 4").bounds.is_empty
    assert compiled("segment = 1 AND segment = 2").bounds.is_empty
    assert compiled("NULL").bounds.is_empty
    assert not compiled("").bounds.is_empty
    one_second = compiled("time >= '2026-01-01' AND time < '2026-01-01T00:00:01Z'").bounds
    assert one_second.id_high - one_second.id_low == (1000 << 22) - 1
    assert compiled("id >= 3 OR key = 'x'").bounds.id_low == 0
    assert bounds_of is not None


def test_stored_values_that_cannot_match_are_told_by_their_headers():
    heads = {
        "kinds": np.array([0b001, 0b110, 0b111, 0b100], np.uint8),
        "segments": np.array([0, 1, 2, 1]),
        "bases": np.array([0, 10, 20, 30]) << 10,
        "lasts": np.array([9, 19, 29, 39]) << 10,
    }

    def chosen(where: str, **spec) -> list[bool]:
        return compiled(where, **spec).may_match(**heads).tolist()

    assert chosen("kind = 'REMOVED'") == [False, True, True, True]
    assert chosen(f"id > {19 << 10} AND id <= {30 << 10}") == [False, False, True, True]
    assert chosen("segment IN (1, 7)") == [False, True, False, True]
    assert chosen("value.n = 1 AND segment < 2") == [True, True, False, False]
    assert chosen("") == chosen("value.n IS NULL") == chosen("value.n = 1", continuous=True) == [True] * 4


# ---------------------------------------------------------------- select


def selected(value, *select, context=JSON):
    found = compiled("", context, select=select)
    columns = events([{"key": "k", "value": value}])
    projected = found.project(columns)
    return None if projected is None else projected[1]


def test_a_selection_keeps_nesting_and_bytes_and_leaves_out_what_is_not_there():
    value = b'{"a": {"b": 1e2, "c" : "\\u00e9"}, "n":12345678901234567890123, "l": [{"x": 1, "y": 2}, 5], "z": null}'
    assert selected(value, "value.a.b", "value.n") == b'{"a":{"b":1e2},"n":12345678901234567890123}'
    assert selected(value, "value.a") == b'{"a":{"b": 1e2, "c" : "\\u00e9"}}'
    assert selected(value, "value.a", "value.a.b") == selected(value, "value.a")
    assert selected(value, "value.z", "value.missing") == b'{"z":null}'
    assert selected(value, "value.missing") == b"{}"
    assert selected(value, "value.n.x") == b"{}"
    assert selected(value, "value.l[0].y", "value.z") == b'{"l":[{"y":2}],"z":null}'
    assert selected(value, "value") is None
    assert selected(value) is None
    assert selected(value, "key", "id") == b"null"
    assert selected(b"[1,2]", "value.a") == b"{}"
    assert selected("text", "value.a.b") == b"{}"
    assert selected(b"x", "value", context=BYTES) is None
    assert selected(b"x", "key", context=BYTES) == b""


def test_a_selection_keeps_the_digits_of_numbers_whatever_shape_they_and_others_are_of():
    found = compiled("", JSON, select=("value.a.n", "value.b"))
    values = [b'{"a": {"n": 12345678901234567.89}, "b": 10.00}', b'{"a": 5, "b": 10.00}', b" [1, 2]", b'{"a": {"n": 1e999}}', b"{}"]
    _, data = found.project(events([{"key": "k", "value": value} for value in values]))
    assert data == b'{"a":{"n":12345678901234567.89},"b":10.00}{"b":10.00}{}{"a":{"n":1e999}}{}'
    value = b'{"l": [{"x": 10.00}, [2.50, {"y": 12345678901234567.89}]], "n": 1.0}'
    assert selected(value, "value.l[0].x", "value.n") == b'{"l":[{"x":10.00}],"n":1.0}'
    assert selected(value, "value.l[1][1].y", "value.l[1][0]") == b'{"l":[[{"y":12345678901234567.89},2.50]]}'
    assert selected(value, "value.l[1]", "value.l[7]") == b'{"l":[[2.50, {"y": 12345678901234567.89}]]}'
    assert selected(value, "value.n[0]", "value.l.x") == b"{}"


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\x01b", '"'])
def test_a_field_may_have_any_name(name):
    path = f"value['{name}']"
    rows = [{"key": "k", "value": value} for value in ({name: {"n": 1, "m": 2}, "z": 3}, {"z": 3}, {name: 4}, {"x": {name: 5}})]
    found = [compiled(f"{one} = {number}").mask(events(rows)).tolist() for one, number in ((f"{path}.n", 1), (path, 4), ("value.z", 3))]
    assert found == [[True, False, False, False], [False, False, True, False], [True, True, False, False]]
    assert (
        compiled(f"{path}.n = 1 AND value.z = 3 OR value.x{path.removeprefix('value')} = 5").mask(events(rows)).tolist()[::3] == [True] * 2
    )
    for row, chosen in zip(rows[:2], ({name: {"n": 1}, "z": 3}, {"z": 3}), strict=True):
        text = selected(row["value"], f"{path}.n", "value.z")
        assert msgspec.json.decode(text) == chosen


def test_of_what_is_no_json_a_selection_is_all():
    for value in (b"5 x", b'{"a": 1', b"[1, ", b'{"a": 1} x'):
        assert selected(value, "value.a.b") == selected(value, "value.a[0]") == value
    assert selected(b"5", "value.a") == selected(b"5", "value.a[0]") == b"{}"


def test_removals_stay_without_a_value_and_images_are_selected_apart():
    rows = [{"key": "a", "value": {"n": 1, "m": 2}}, {"key": "b", "value": None, "before": {"n": 3, "m": 4}}]
    found = compiled("", select=("value.n",))
    assert not found.keeps_before
    offsets, data = found.project(events(rows))
    assert (np.frombuffer(offsets, "<i4").tolist(), data) == ([0, 7, 7], b'{"n":1}')
    both = compiled("", select=("value.n", "before.m"))
    assert both.keeps_before
    assert both.project(events(rows), image="before")[1] == b'{"m":4}'
    assert compiled("").keeps_before
    assert compiled("", select=("before",)).project(events(rows))[1] == b"null"


@pytest.mark.parametrize("field", ["total", "value.", "LOWER(key)", "value.a = 1", "", "headers['x']", "value.a; x", "?", "'x'"])
def test_a_selection_that_is_no_field_is_refused(field):
    with pytest.raises(BadPredicate, match="select"):
        compiled("", select=(field,))


def test_a_selection_has_a_limit():
    with pytest.raises(BadPredicate, match="at most"):
        compiled("", select=tuple(f"value.f{number}" for number in range(200)))


# ---------------------------------------------------------------- promoted


class Promoted:
    """Columns with a field beside the values, and values that nobody may look at."""

    def __init__(self, columns, items):
        self._columns, self._items = columns, items
        self.kinds = columns.kinds

    def __len__(self):
        return len(self._columns)

    def take(self, rows):
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return Promoted(self._columns.take(rows), [self._items[row] for row in rows.tolist()])

    def promoted(self, field):
        assert field == "value.o.customer"
        sizes = np.array([len(item) for item in self._items], np.int64)
        return Texts(data=b"".join(self._items), starts=np.cumsum(sizes) - sizes, sizes=sizes)

    @property
    def values(self):
        raise AssertionError("a value was looked at")


@pytest.mark.parametrize(
    "where",
    [
        "value.o.customer = 'c1'",
        "value.o.customer <> 'c1'",
        "value.o.customer IN ('c1', 'c2', 5)",
        "value.o.customer = 5",
        "value.o.customer LIKE 'c%'",
        "value.o.customer IS NULL",
        "value.o.customer > 3",
        "NOT (value.o.customer = 'c1')",
        "NOT (value.o.customer IN ('c1', NULL))",
        "value.o.customer = TRUE",
        "value.o.customer = 'c1' OR kind = 'REMOVED'",
        "value.o.customer = 1e2",
        "value.o.customer = 0",
        "value.o.customer <> -0.0",
        "value.o.customer IN (TRUE, -0.0, FALSE)",
    ],
)
def test_promoted_fields_say_the_same_without_the_values(where):
    rows = [{"key": "k", "value": {"o": {"customer": one}}} for one in ("c1", "c2", 5, 5.0, True, None, 'q"', [1], 100, 0, 0.0, -0.0)]
    rows += [{"key": "k", "value": {}}, {"key": "k", "value": None}]
    items = [msgspec.json.encode(row["value"]["o"]["customer"]) for row in rows[:-2]] + [b"", b""]
    columns = events(rows)
    context = FilterContext(format="json", text_keys=True, before=True, promoted=frozenset({"value.o.customer"}))
    assert compiled(where, context).mask(Promoted(columns, items)).tolist() == compiled(where).mask(columns).tolist()
    assert compiled(where, context).mask(columns).tolist() == compiled(where).mask(columns).tolist()


def test_specifications_that_differ_have_other_digests():
    specs = [
        FilterSpec(),
        FilterSpec(where="a"),
        FilterSpec(name="a"),
        FilterSpec(select=("a",)),
        FilterSpec(select=("a", "b")),
        FilterSpec(select=("ab",)),
        FilterSpec(parameters=b"a"),
        FilterSpec(arguments=b"a"),
        FilterSpec(version=1),
        FilterSpec(continuous=True),
    ]
    assert len({spec.digest for spec in specs}) == len(specs)


def test_expressions_have_values_of_whatever_type():
    rows = events([{"key": "a", "value": {"n": 2, "s": "X"}}, {"key": "b", "value": None}, {"key": "c", "value": {"n": "text"}}])
    found = compile_expressions(["key", "v.n", "value.n * 1.5", "LOWER(v.s)", "value.n > 1", "kind = 'REMOVED'", "value"], JSON)
    assert found.lists(rows) == [
        ["a", "b", "c"],
        [2, None, "text"],
        [3.0, None, None],
        ["x", None, None],
        [True, None, None],
        [False, True, False],
        [{"n": 2, "s": "X"}, None, {"n": "text"}],
    ]


@pytest.mark.parametrize(
    ("text", "why"), [("v", "no column v"), ("n", "value.n"), ("key, kind", "near ','"), ("?", "parameter 1"), ("SUM(v.n)", "function SUM")]
)
def test_what_is_no_expression_is_named(text, why):
    with pytest.raises(BadPredicate, match=why) as refused:
        compile_expressions([text], JSON)
    assert f"expression {text!r}" in str(refused.value)


def test_conditions_do_not_know_the_short_name():
    with pytest.raises(BadPredicate, match="no column v"):
        compiled("v.n = 1")
