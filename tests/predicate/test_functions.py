"""Every function, by what it says of one event; and every type that it may meet without an error."""

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import BadPredicate
from eventlog.limits import TEXT_RESULT_CHARACTERS_MAX
from eventlog.predicate.functions import FUNCTIONS, ROWS, like
from tests.examples import examples
from tests.predicate.rows import compiled, events, matches

VALUE = {
    "s": "aBc",
    "e": "é",
    "n": -7,
    "f": 2.5,
    "t": True,
    "z": None,
    "l": [1, "x", True, None, [2]],
    "o": {"a": 1},
    "sp": "  x ",
    "d": "2026-11-21",
}
TRUE = [
    "LOWER(value.s) = 'abc'",
    "UPPER(value.s) = 'ABC'",
    "LOWER(value.n) IS NULL",
    "LENGTH(value.s) = 3",
    "LENGTH(value.e) = 1",
    "LEN(value.s) = 3",
    "OCTET_LENGTH(value.e) = 2",
    "OCTET_LENGTH(key) = 1",
    "OCTET_LENGTH(value.n) IS NULL",
    "LENGTH(value.l) IS NULL",
    "SUBSTRING(value.s, 2) = 'Bc'",
    "SUBSTR(value.s, 1, 2) = 'aB'",
    "SUBSTRING(value.s FROM 2 FOR 1) = 'B'",
    "SUBSTRING(value.s, 0, 2) = 'a'",
    "SUBSTRING(value.s, 1, -1) IS NULL",
    "SUBSTRING(value.s, 2.5) IS NULL",
    "SUBSTRING(value.s, 9) = ''",
    "STARTS_WITH(value.s, 'aB')",
    "NOT STARTS_WITH(value.s, 'x')",
    "STARTS_WITH(value.n, 'x') IS NULL",
    "STARTS_WITH(key, 'k')",
    "STARTS_WITH(key, value.z) IS NULL",
    "STARTSWITH(value.s, 'a')",
    "ENDS_WITH(value.s, 'Bc')",
    "ENDSWITH(value.s, 'c')",
    "CONTAINS(value.s, 'B')",
    "NOT CONTAINS(value.s, 'b')",
    "CONTAINS(value.s, 'a') AND CONTAINS(key, 'k')",
    "INSTR(value.s, 'c') = 3",
    "STRPOS(value.s, 'x') = 0",
    "TRIM(value.sp) = 'x'",
    "LTRIM(value.sp) = 'x '",
    "RTRIM(value.sp) = '  x'",
    "CONCAT(value.s, '-', key) = 'aBc-k'",
    "CONCAT(value.s, value.z) IS NULL",
    "value.s || value.n IS NULL",
    "key || 'x' || value.s = 'kxaBc'",
    "ABS(value.n) = 7",
    "ABS(value.s) IS NULL",
    "ABS(value.t) IS NULL",
    "SIGN(value.n) = -1",
    "SIGN(0) = 0",
    "FLOOR(value.f) = 2",
    "CEIL(value.f) = 3",
    "CEILING(-2.5) = -2",
    "ROUND(value.f) = 3",
    "ROUND(-2.5) = -3",
    "ROUND(1.25, 1) = 1.3",
    "ROUND(value.n) = -7",
    "ROUND(1234.5, -2) = 1200",
    "ROUND(1.5, 99) IS NULL",
    "MOD(value.n, 4) = -3",
    "MOD(7, -4) = 3",
    "MOD(1, 0) IS NULL",
    "value.n % 0 IS NULL",
    "MOD(5.5, 2) = 1.5",
    "GREATEST(1, value.f, 2) = 2.5",
    "LEAST(1, value.n) = -7",
    "GREATEST(1, value.z) IS NULL",
    "COALESCE(value.z, value.missing, 5) = 5",
    "COALESCE(value.z) IS NULL",
    "IFNULL(value.s, 'x') = 'aBc'",
    "COALESCE(value.z, value.t)",
    "NULLIF(value.n, -7) IS NULL",
    "NULLIF(value.n, 7) = -7",
    "NULLIF(value.t, 1) = TRUE",
    "CARDINALITY(value.l) = 5",
    "ARRAY_LENGTH(value.l) = 5",
    "CARDINALITY(value.s) IS NULL",
    "ARRAY_CONTAINS(value.l, 'x')",
    "ARRAY_CONTAINS(value.l, 1)",
    "NOT ARRAY_CONTAINS(value.l, 2)",
    "NOT ARRAY_CONTAINS(value.l, 'y')",
    "ARRAY_CONTAINS(value.l, TRUE)",
    "ARRAY_CONTAINS(value.o, 1) IS NULL",
    "ARRAY_CONTAINS(value.l, value.z) IS NULL",
    "CAST(value.f AS BIGINT) = 2",
    "CAST(value.f AS INT) = 2",
    "CAST('12' AS BIGINT) = 12",
    "CAST(value.s AS BIGINT) IS NULL",
    "CAST(value.n AS TEXT) = '-7'",
    "CAST(value.t AS TEXT) = 'true'",
    "CAST(value.t AS BIGINT) = 1",
    "CAST('1.5' AS DOUBLE) = 1.5",
    "CAST(value.d AS TIMESTAMP) <> time",
    "CAST(value.d AS TIMESTAMP) = TIMESTAMP '2026-11-21T00:00:00Z'",
    "value.n::text = '-7'",
    "CAST(1 AS BOOLEAN)",
    "CAST('false' AS BOOLEAN) = FALSE",
    "CAST(value.l AS TEXT) IS NULL",
    "CAST(value.s AS TIMESTAMP) IS NULL",
    "CAST(time AS BIGINT) > 0",
    "CAST(value.s AS BOOLEAN) IS NULL",
]


@pytest.mark.parametrize("where", TRUE)
def test_a_function_says_what_its_row_says(where):
    assert matches(where, VALUE, before={})


def test_every_function_has_a_case():
    for name in [*FUNCTIONS, "CAST"]:
        assert any(f"{name}(" in where for where in TRUE) or name in {"CHAR_LENGTH", "CHARACTER_LENGTH"}, name
    assert all(row.shown.startswith(name) for name, row in ROWS.items())


def test_a_result_stays_small():
    half = "x" * (TEXT_RESULT_CHARACTERS_MAX // 2 + 1)
    assert matches("value.a || value.a IS NULL", {"a": half})
    assert matches("LENGTH(value.a || 'x') > 5", {"a": half})


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 70), 1 << 70),
        st.integers(-3, 3),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=5,
)
FIELDS = ["value.a", "value.b", "value", "value.c.a", "value.c[1]", "key", "NULL", "1", "'x'", "0.5"]


@st.composite
def calls(draw):
    row = draw(st.sampled_from(sorted(ROWS.values(), key=lambda row: row.name)))
    count = draw(st.integers(row.arguments_min, row.arguments_max or 3))
    arguments = [draw(st.sampled_from(FIELDS[:5] if row.argument(index) in {"any", "list"} else FIELDS)) for index in range(count)]
    return f"{row.name}({', '.join(arguments)})"


OPERATIONS = [
    "{0} = {1}",
    "{0} < {1}",
    "{0} IS NOT DISTINCT FROM {1}",
    "value.a + value.b * value.c.a - {2} > {2}",
    "value.a / value.b = {2}",
    "-value.a < value.b",
    "{0} IN (value.a, value.b, 'x', 1, TRUE, 1.0)",
    "value.a % value.b = value.c.a",
    "CAST(value.a AS TEXT) LIKE '%1%'",
    "value.b ILIKE '_'",
    "CAST(value.a AS BIGINT) = value.b",
    "CAST(value.c AS DOUBLE) < 1",
    "CASE value.a WHEN value.b THEN {0} ELSE {1} END IS NULL",
    "value IS TRUE",
    "value.a AND value.b OR NOT value.c",
    "CAST(value.a AS TIMESTAMP) < time",
]


@given(st.lists(json_values, max_size=6), calls(), calls(), st.sampled_from(OPERATIONS))
@settings(max_examples=examples(500), deadline=None)
def test_no_value_is_an_error(values, one, other, operation):
    from eventlog.errors import BadPredicate

    rows = events(
        [{"key": "k", "value": {"a": value, "b": values[-1], "c": value} if index % 2 else value} for index, value in enumerate(values)]
    )
    try:
        found = compiled(operation.format(one, other, "value.c[1]"))
    except BadPredicate:  # types that never go together
        return
    found.mask(rows)


@given(st.lists(st.binary(max_size=30), max_size=5), st.sampled_from(["value.a = 'x'", "value.a.b > 3", "value[0] IS NULL", "value = 1"]))
def test_bytes_that_are_no_json_are_null(values, where):
    rows = [
        {"key": "k", "value": value, "kind": "CREATED"} for value in (*values, b'{"a":', b'"\xff"', b"[" * 5_000, b'{"a":1}x', b"9" * 5_000)
    ]
    compiled(where).mask(events(rows))
    assert compiled("value.a IS NULL").mask(events(rows[-4:])).all()


@pytest.mark.source
def test_every_function_stands_in_the_page_for_consumers():
    page = (Path(__file__).parents[2] / "docs/consuming.md").read_text()
    for row in ROWS.values():
        call, _, says = row.shown.partition(": ")
        assert f"| `{call}` | {says} |" in page
    assert all(f"`{name}`" in page for name in FUNCTIONS if name not in ROWS)


def expression(pattern: str, escape: str) -> str:
    made, characters = "", iter(pattern)
    for character in characters:
        if escape and character == escape:
            made += re.escape(next(characters, escape))
        else:
            made += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return made


@given(st.text("ab%_!\n", max_size=9), st.lists(st.text("ab%_!\n", max_size=9), max_size=6), st.sampled_from(["", "!"]))
def test_a_pattern_matches_what_its_expression_does(pattern, texts, escape):
    found = like(pattern, escape=escape, ignore_case=False)
    wanted = re.compile(expression(pattern, escape), re.DOTALL)
    for text in [*texts, pattern, pattern.replace("%", "ab").replace("_", "a")]:
        assert found.matches(text) == (wanted.fullmatch(text) is not None)
        if found.matches(text):
            assert text.startswith(found.prefix)
            assert found.longest in text
            assert not found.is_exact or text == found.prefix
        assert not (found.is_prefix and text.startswith(found.prefix)) or found.matches(text)


def test_case_is_ignored_where_it_is_asked_for():
    found = like("AB%c_", escape="", ignore_case=True)
    assert found.matches("abxxCd")
    assert found.prefix == found.longest == ""
    assert not found.matches("abxxd")


DOTTED, ALPHA, SIGMA, SMALL, LAST = "\u0130", "\u0391", "\u03a3", "\u03c3", "\u03c2"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *(("_", DOTTED), (DOTTED, DOTTED), ("a_b", f"A{DOTTED}B")),
        *((f"%{SMALL}", ALPHA + SIGMA), (f"_{LAST}", ALPHA + SIGMA), (f"{ALPHA}{SIGMA}%", f"{ALPHA}{LAST} x")),
    ],
)
def test_a_character_is_one_character_in_any_case(pattern, text):
    assert like(pattern, escape="", ignore_case=True).matches(text)


def test_no_character_becomes_several():
    found = like("_", escape="", ignore_case=True)
    assert all(found.matches(chr(number)) for number in range(sys.maxunicode + 1))


def test_a_pattern_that_would_take_long_is_refused():
    with pytest.raises(BadPredicate, match="between two %"):
        compiled("value.a LIKE ?", parameters=["%" + "a_" * 40 + "%"])
    compiled("value.a LIKE ?", parameters=["a_" * 400 + "%" + "a_" * 20 + "%" + "b" * 400 + "%"])


@pytest.mark.parametrize("pattern", ["%a" * 100 + "b", "%_a%_a" * 50 + "b", "a%" * 300, "_%" * 300])
@pytest.mark.timeout(20)
def test_no_pattern_takes_long(pattern):
    like(pattern, escape="", ignore_case=False).matches("a" * 20_000)
