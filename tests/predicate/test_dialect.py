"""Whatever text comes as a predicate: a typed error with its place, soon; never another exception, never long work."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventlog.errors import BadPredicate
from eventlog.limits import WHERE_CHARACTERS_MAX, WHERE_DEPTH_MAX, WHERE_TOKENS_MAX
from tests.examples import examples
from tests.predicate.rows import BYTES, JSON, compiled, events, matches

ROWS = events([{"key": "k", "value": {"a": 1, "b": ["x"]}}, {"key": "l", "value": None, "before": 5}, {"key": "m", "value": "text"}])
PIECES = [
    "value",
    "value.a",
    "before.x",
    "key",
    "kind",
    "id",
    "time",
    "segment",
    "offset",
    "headers['x']",
    "headers",
    "(",
    ")",
    "[",
    "]",
    ",",
    ".",
    "=",
    "<>",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "::",
    "?",
    ":x",
    ":",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "ESCAPE",
    "IS",
    "NULL",
    "TRUE",
    "UNKNOWN",
    "DISTINCT",
    "FROM",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "AS",
    "BIGINT",
    "TEXT",
    "TIMESTAMP",
    "LOWER(",
    "SUBSTRING(",
    "COALESCE(",
    "ROUND(",
    "CONCAT(",
    "1",
    "0.5",
    "1e999",
    "-1",
    "'a'",
    "'%'",
    "''",
    "x'00'",
    "x'0'",
    '"a b"',
    "--",
    "/*",
    "*/",
    ";",
    "SELECT",
    "int(",
    "array<",
    "struct<",
    "interval",
    "exists(",
    "{",
    "}",
    "@x",
    "$1",
    "\\",
    "\n",
    "é",
    "'",
    '"',
    "date '2026-01-01'",
    "over()",
]


def judged(where, context=JSON, parameters=None) -> None:
    try:
        found = compiled(where, context, parameters)
    except BadPredicate as error:
        refused = error
    else:
        found.mask(ROWS)
        found.changes(ROWS)
        return
    assert 1 <= refused.column <= len(where) + 1
    assert str(refused)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join), st.sampled_from([None, [], [1], ["a", [1, 2]], {"x": 1}]))
@settings(max_examples=examples(800), deadline=None)
@example("int(" * 30 + "1" + ")" * 30, None)
@example("cast(key as decimal(1,2)) = 1", None)
@example("value.a = ?", [[1]])
@example("key in ?", [[1, None]])
@example("not value", None)
@example("else", None)
@example("value", None)
@example("case when 1 then 2 end", None)
def test_any_words_are_a_predicate_or_refused(where, parameters):
    judged(where, parameters=parameters)
    judged(where, BYTES, parameters)


@given(st.text(max_size=60))
@settings(max_examples=examples(400), deadline=None)
def test_any_text_is_a_predicate_or_refused(where):
    judged(where)


@pytest.mark.parametrize(
    "where",
    [
        "(" * 10_000 + "value.a" + ")" * 10_000,
        "NOT " * 10_000 + "value.a",
        "- " * 10_000 + "1 = 1",
        "int(" * 40 + "1" + ")" * 40,
        "array<" * 200 + "int" + ">" * 200,
        "case when " * 60 + "value.a" + " then true end" * 60,
        "value.a" * 15_000,
        "value." * 2_000 + "a = 1",
        "value" + "[0]" * 400 + " = 1",
        " AND ".join(["value.a = 1"] * 9_000),
        "+".join(["1"] * 900) + " = 1",
        "key in (" * 200,
        "f(" * 5_000,
        "timestamp " * 300 + "'1'",
        "interval " * 300,
        "{" * 500,
        "'" * 9_999,
        "/*" * 5_000,
        "value.a between " * 200,
        "cast(" * 100 + "1" + " as int)" * 100,
        "a::int" + "::int" * 600,
        "x -> " * 400 + "x",
        "9" * 10_000 + " = id",
        "\x00" * 100,
        "x'" + "0" * 9_999 + "'",
    ],
    ids=lambda where: where[:20],
)
@pytest.mark.timeout(20)
def test_what_is_long_or_deep_is_refused_soon(where):
    with pytest.raises(BadPredicate):
        compiled(where)


def test_what_the_limits_allow_is_taken():
    depth = WHERE_DEPTH_MAX - 1
    for where in (
        "(" * depth + "value.a = 1" + ")" * depth,
        "NOT " * (depth // 2 * 2) + "value.a = 1",
        " AND ".join(["value.a=1"] * (WHERE_TOKENS_MAX // 6)),
        " OR ".join(["value.a=1"] * (WHERE_TOKENS_MAX // 6)),
        "value.a IN (" + ",".join(["1"] * (WHERE_TOKENS_MAX // 2 - 5)) + ")",
        "case when " * 15 + "value.a = 1" + " then true end" * 15,
        "ABS(" * depth + "value.a" + ")" * depth + " = 1",
    ):
        assert matches(where, {"a": 1}), where[:50]
    assert len("value.a = 1" + " " * WHERE_CHARACTERS_MAX) > WHERE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("where", "column", "words", "suggestion"),
    [
        ("total > 2", 1, "no column total", "value.total"),
        ("value.a = 1 AND kinds = 'CREATED'", 17, "no column kinds", "kind"),
        ("valu.total.x = 1", 1, "no column valu", "value.total.x"),
        ("LENGHT(key) = 1", 1, "no function LENGHT", "LENGTH"),
        ("1 = (value.a) AND\n  lenth(key) = 1", 21, "no function lenth", "LENGTH"),
        ("kind = 'DELETED'", 8, "no kind 'DELETED'", "'REMOVED'"),
        ("kind IN ('CREATED', 'modified')", 21, "no kind 'modified'", "'MODIFIED'"),
        ("time > 'yesterday'", 8, "is no time", ""),
        ("id = 'abc'", 6, "is no id", ""),
        ("key > 5", 7, "a number", ""),
        ("LOWER(5) = 'a'", 7, "LOWER takes a text", ""),
        ("value.a + 'x' = 1", 11, "+ takes a number", ""),
        ("value.a", 0, "", ""),
        ("key", 1, "a condition is needed here", "key IS NOT NULL"),
        ("value.a = 1 OR 5", 16, "a condition is needed", ""),
        ("value.a > time", 1, "a field is no time", "CAST(value.a AS TIMESTAMP)"),
        ("headers = 'x'", 1, "headers['name']", ""),
        ("offset.x = 1", 8, "no fields", "value.x"),
        ("value.a LIKE value.b", 14, "pattern of LIKE", ""),
        ("key LIKE 'a' ESCAPE 'ab'", 21, "ESCAPE takes one character", ""),
        ("key LIKE 'a!' ESCAPE '!'", 10, "ends with its escape", ""),
        ("SUBSTRING(key) = 'a'", 11, "SUBSTRING is given 1 arguments", ""),
        ("CAST(key AS BLOB) = 'a'", 6, "CAST makes", ""),
        ("CAST('x' AS BIGINT) = 1", 6, "is no", ""),
        ("value.a[-1] = 1", 10, "count from 0", ""),
        ("key = 'a'; DROP TABLE x", 10, "not part of a predicate", ""),
        ("SELECT 1", 1, "not part of a predicate", ""),
        ("key IN (SELECT 1)", 9, "not part of a predicate", ""),
        ("EXISTS(key)", 1, "no function EXISTS", ""),
        ("key = 'open", 11, "ends within", ""),
        ("value.a = ", 9, "no predicate", ""),
        ("key = 'a' 'b'", 11, "side by side", ""),
        ("value.size > > 3", 14, "> stands behind >", ""),
        ("value.size < < 3", 14, "< stands behind <", ""),
        ("value.size > = 3", 14, "= stands behind >", ""),
        ("value.a = ?", 11, "parameter 1 is missing", ""),
        ("value.a = 1e999", 11, "too large", ""),
        ("value.a = 1 = value.b", 1, "side by side", ""),
        ("value.a = NOT value.b", 15, "side by side", ""),
        ("COUNT(*) > 1", 1, "no function COUNT", "CONCAT"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_was_meant(where, column, words, suggestion):
    if not column:
        compiled(where)
        return
    with pytest.raises(BadPredicate) as caught:
        compiled(where)
    assert (caught.value.column, caught.value.suggestion) == (column, suggestion), str(caught.value)
    assert words in caught.value.why
    assert f"at column {column}" in str(caught.value)


@pytest.mark.parametrize(
    ("where", "parameters", "words"),
    [
        ("value.a = ?", b"nonsense", "not JSON"),
        ("value.a = ?", b"5", "neither a list nor an object"),
        ("value.a = ?", b'{"x": 1}', "by name"),
        ("value.a = :x", b"[1]", "without names"),
        ("value.a = :total", b'{"totale": 1}', "parameter :total is missing"),
        ("value.a = ?", b"[1, 2]", "not used"),
        ("value.a = :x", b'{"x": 1, "y": 2}', "parameter y is not used"),
        ("value.a = ?", b'[{"a": 1}]', "scalar"),
        ("value.a = ?", b"[[1]]", "IN only"),
        ("value.a = ?", b'[{"base64": "%"}]', "base64"),
        ("", b"[1]", "without a predicate"),
        ("value.a = ?", b"[" * 100_000, "at most"),
        ("value.a = ?", b"[" * 10_000, "not JSON"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(where, parameters, words):
    from eventlog.predicate.compile import compile_filter
    from eventlog.predicate.spec import FilterSpec

    with pytest.raises(BadPredicate, match=words):
        compile_filter(FilterSpec(where=where, parameters=parameters), JSON)


def test_parameters_are_values_never_text_of_the_predicate():
    evil = "x' OR 'a' = 'a"
    assert matches("value.a = ?", {"a": evil}, parameters=[evil])
    assert not matches("value.a = ?", {"a": "x"}, parameters=[evil])
    assert matches("value.a = :v AND key = :k AND value.a <> :k", {"a": evil}, parameters={"v": evil, "k": "k"})
    assert matches("value.a BETWEEN ? AND ? AND key IN (?) AND kind = ?", {"a": 2}, parameters=[1, 3, ["j", "k"], "CREATED"])
    assert matches("key IN ?", {}, parameters=[["j", "k"]])
    assert matches("key IN (:a, :b)", {}, parameters={"a": "k", "b": ["x", "y"]})
    assert matches("value.a IS NULL OR value.a = ?", {}, parameters=[None])
