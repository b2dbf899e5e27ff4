"""Random predicates over random events say what SQLite says of the same rows, NULL included."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eventlog.batch.columns import EventColumns
from eventlog.batch.texts import ColumnCuts
from eventlog.ids import time_of
from eventlog.write.stamp import promote
from tests.batch.test_column_file import file_of
from tests.batch.test_texts import texts_of
from tests.examples import examples
from tests.predicate.rows import BASE, JSON, compiled, events, kind_of

# Each expression is a pair: as a predicate, and as SQLite has it. Fields are typed, since what SQLite does with others is its own.
NUMBERS = {
    "value.n": "n",
    "value.f": "f",
    "value.o.x": "ox",
    "before.n": "bn",
    "id": "id",
    "segment": "segment",
    '"offset"': "place",
    "value.l[1]": "l1",
}
TEXTS = {"key": "key", "value.s": "s", "value.o.s": "os", "kind": "kind", "value['t']": "t"}
BOOLEANS = {"value.b": "b"}
WORDS = ["", "a", "b", "ab", "aB", "abc", "b%", "a_c", "a'b", "k1", "k2", "k", 'q"', "back\\slash", "line\nend", "é"]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def pairs(names: dict[str, str]):
    return st.sampled_from(sorted(names.items()))


def literal(value) -> tuple[str, str]:
    text = f"({value})" if isinstance(value, (int, float)) else quoted(value)
    return text, text


def combined(template: str, *parts: tuple[str, str], theirs: str = "") -> tuple[str, str]:
    return template.format(*(one for one, _ in parts)), (theirs or template).format(*(other for _, other in parts))


number_literals = st.one_of(st.integers(-5, 12), st.sampled_from([0.5, 2.0, -1.25, 1e3, BASE, 9007199254740993])).map(literal)
ascii_words = st.sampled_from([word for word in WORDS if word.isascii()]).map(literal)
null = st.just(("NULL", "NULL"))


def numbers(conditions):
    def more(inner):
        word = texts_only
        return st.one_of(
            st.tuples(st.sampled_from("+-*"), inner, inner).map(lambda it: combined(f"({{}} {it[0]} {{}})", *it[1:])),
            st.tuples(inner, inner).map(lambda it: combined("({} / {})", *it, theirs="(1.0 * {} / {})")),
            st.tuples(integers_only, integers_only).map(lambda it: combined("({} % {})", *it)),
            inner.map(lambda one: combined("(- {})", one)),
            inner.map(lambda one: combined("ABS({})", one)),
            st.tuples(inner, inner).map(lambda it: combined("COALESCE({}, {})", *it)),
            st.tuples(inner, inner).map(lambda it: combined("NULLIF({}, {})", *it)),
            st.tuples(inner, inner).map(lambda it: combined("GREATEST({}, {})", *it, theirs="max({}, {})")),
            st.tuples(inner, inner).map(lambda it: combined("LEAST({}, {})", *it, theirs="min({}, {})")),
            word.map(lambda one: combined("LENGTH({})", one)),
            st.tuples(word, word).map(lambda it: combined("INSTR({}, {})", *it)),
            inner.map(lambda one: combined("CAST({} AS BIGINT)", one, theirs="CAST({} AS INTEGER)")),
            st.tuples(conditions, inner, inner).map(lambda it: combined("CASE WHEN {} THEN {} ELSE {} END", *it)),
            st.tuples(inner, inner, inner).map(lambda it: combined("CASE {} WHEN {} THEN {} END", *it)),
        )

    return st.recursive(st.one_of(pairs(NUMBERS), number_literals), more, max_leaves=4)


integers_only = st.one_of(st.sampled_from([("value.n", "n"), ("segment", "segment"), ("value.o.x", "ox")]), st.integers(-5, 5).map(literal))
texts_only = st.recursive(
    st.one_of(pairs(TEXTS), ascii_words),
    lambda inner: st.one_of(
        inner.map(lambda one: combined("LOWER({})", one)),
        inner.map(lambda one: combined("UPPER({})", one)),
        inner.map(lambda one: combined("TRIM({})", one)),
        st.tuples(inner, inner).map(lambda it: combined("({} || {})", *it)),
        st.tuples(inner, st.integers(1, 3), st.integers(0, 3)).map(lambda it: combined(f"SUBSTRING({{}}, {it[1]}, {it[2]})", it[0])),
        st.tuples(inner, st.integers(1, 3)).map(lambda it: combined(f"SUBSTR({{}}, {it[1]})", it[0])),
        st.tuples(inner, inner).map(lambda it: combined("IFNULL({}, {})", *it)),
        st.tuples(inner, inner).map(lambda it: combined("NULLIF({}, {})", *it)),
        integers_only.map(lambda one: combined("CAST({} AS TEXT)", one)),
    ),
    max_leaves=3,
)
LIKES = ["%", "a%", "%b", "_b%", "a_c", "%a%b%", "k1", "a!%%", "!_", "A%", "", "%%", "_"]


def leaves(conditions):
    number, operators = numbers(conditions), st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    likes = st.tuples(texts_only, st.sampled_from(LIKES))
    kinds = st.sampled_from(["CREATED", "MODIFIED", "REMOVED"]).map(literal)
    return st.one_of(
        st.tuples(operators, number, number).map(lambda it: combined(f"({{}} {it[0]} {{}})", *it[1:])),
        st.tuples(operators, st.just(("key", "key")), ascii_words).map(lambda it: combined(f"({{}} {it[0]} {{}})", *it[1:])),
        st.tuples(operators, st.just(("kind", "kind")), kinds).map(lambda it: combined(f"({{}} {it[0]} {{}})", *it[1:])),
        st.tuples(operators, st.sampled_from([("value.s", "s"), ("value.t", "t"), ("value.o.s", "os")]), texts_only).map(
            lambda it: combined(f"({{}} {it[0]} {{}})", *it[1:])
        ),
        st.tuples(st.sampled_from(["=", "<>"]), pairs({"value.s": "s", "value.t": "t"}), st.sampled_from(WORDS).map(literal)).map(
            lambda it: combined(f"({{}} {it[0]} {{}})", *it[1:])
        ),
        st.tuples(
            pairs({"value.s": "s", "value.t": "t", "key": "key"}), st.lists(st.one_of(ascii_words, null), min_size=1, max_size=4)
        ).map(lambda it: combined("({} IN (" + ", ".join(["{}"] * len(it[1])) + "))", it[0], *it[1])),
        st.tuples(number, st.lists(st.one_of(number, null), min_size=1, max_size=3)).map(
            lambda it: combined("({} IN (" + ", ".join(["{}"] * len(it[1])) + "))", it[0], *it[1])
        ),
        st.tuples(number, number, number).map(lambda it: combined("({} BETWEEN {} AND {})", *it)),
        likes.map(lambda it: combined(f"({{}} LIKE {quoted(it[1])} ESCAPE '!')", it[0])),
        likes.map(lambda it: combined(f"({{}} NOT LIKE {quoted(it[1])} ESCAPE '!')", it[0])),
        likes.map(lambda it: combined(f"({{}} NOT LIKE {quoted(it[1])})", it[0])),
        st.tuples(number, number, number).map(lambda it: combined("({} NOT BETWEEN {} AND {})", *it)),
        st.tuples(number, st.lists(number, min_size=1, max_size=2)).map(
            lambda it: combined("({} NOT IN (" + ", ".join(["{}"] * len(it[1])) + "))", it[0], *it[1])
        ),
        number.map(lambda one: combined("({} IS NOT NULL)", one)),
        likes.map(
            lambda it: combined(
                f"({{}} ILIKE {quoted(it[1])} ESCAPE '!')", it[0], theirs=f"(lower({{}}) LIKE {quoted(it[1].lower())} ESCAPE '!')"
            )
        ),
        st.tuples(texts_only, ascii_words).map(
            lambda it: combined(
                "STARTS_WITH({}, {})", *it, theirs=f"(substr({{0}}, 1, {len(it[1][0].replace(chr(39) * 2, 'x')) - 2}) = {{1}})"
            )
        ),
        st.one_of(number, texts_only).map(lambda one: combined("({} IS NULL)", one)),
        st.tuples(number, number).map(lambda it: combined("({} IS DISTINCT FROM {})", *it, theirs="({} IS NOT {})")),
        st.tuples(number, number).map(lambda it: combined("({} IS NOT DISTINCT FROM {})", *it, theirs="({} IS {})")),
        pairs(BOOLEANS),
        st.sampled_from(
            [("(value.b = TRUE)", "(b = 1)"), ("(value.b <> FALSE)", "(b <> 0)"), ("TRUE", "1"), ("FALSE", "0"), ("NULL", "NULL")]
        ),
        st.sampled_from(["2025-01-01", "2026-11-21T10:00:00Z", "2028-01-01T00:00:00.5+02:00"]).map(
            lambda time: (f"(time >= '{time}')", f"(time >= {milliseconds(time)})")
        ),
    )


def milliseconds(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000


CONDITIONS = st.deferred(
    lambda: st.recursive(
        leaves(st.deferred(lambda: SIMPLE)),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=4)).map(
                lambda it: combined("(" + f" {it[0]} ".join(["{}"] * len(it[1])) + ")", *it[1])
            ),
            inner.map(lambda one: combined("(NOT {})", one)),
            inner.map(lambda one: combined("({} IS TRUE)", one)),
            inner.map(lambda one: combined("({} IS NOT FALSE)", one)),
            inner.map(lambda one: combined("({} IS NULL)", one)),
        ),
        max_leaves=5,
    )
)
SIMPLE = st.one_of(pairs(BOOLEANS), st.just(("(value.n > 2)", "(n > 2)")), st.just(("(kind = 'REMOVED')", "(kind = 'REMOVED')")))

small = st.one_of(st.none(), st.integers(-4, 10), st.just(9007199254740993))
word = st.one_of(st.none(), st.sampled_from(WORDS))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(
                ["a", "ab", "abc", "b", "k1", "k2", "k", "a long key, more than eight bytes", "a long key, more than nine bytes"]
            )
        },
        optional={
            "removed": st.booleans(),
            "before": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"n": small})),
            "n": small,
            "f": st.one_of(st.none(), st.floats(-4, 4, width=16)),
            "s": word,
            "t": word,
            "b": st.one_of(st.none(), st.booleans()),
            "o": st.one_of(st.none(), st.just("no object"), st.fixed_dictionaries({}, optional={"x": small, "s": word, "y": small})),
            "l": st.lists(small, max_size=3),
        },
    ),
    min_size=1,
    max_size=14,
)


@contextmanager
def table(rows) -> Iterator[tuple[sqlite3.Connection, EventColumns]]:
    made = []
    for given_row in rows:
        row = dict(given_row)
        key, removed, before = row.pop("key"), row.pop("removed", False), row.pop("before", None)
        made.append({"key": key, "value": None if removed else row, **({} if before is None else {"before": before})})
    columns = events(made)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA case_sensitive_like = ON")
        connection.execute("CREATE TABLE rows (row INTEGER, key, kind, id, segment, place, time, n, f, ox, os, s, t, b, bn, l1)")
        placed = zip(made, columns.ids.tolist(), columns.segments.tolist(), columns.offsets.tolist(), strict=True)
        for index, (row, event_id, segment, offset) in enumerate(placed):
            value, before = row["value"] or {}, row.get("before") or {}
            inner = value.get("o") if isinstance(value.get("o"), dict) else {}
            before = before if kind_of(row).name in {"MODIFIED", "REMOVED"} else {}
            fields = [value.get(name) for name in ("n", "f")] + [
                inner.get("x"),
                inner.get("s"),
                value.get("s"),
                value.get("t"),
                value.get("b"),
            ]
            items = value.get("l") or []
            connection.execute(
                f"INSERT INTO rows VALUES ({', '.join('?' * 16)})",
                [
                    index,
                    row["key"],
                    kind_of(row).name,
                    event_id,
                    segment,
                    offset,
                    time_of(event_id),
                    *fields,
                    before.get("n"),
                    items[1] if len(items) > 1 else None,
                ],
            )
        yield connection, columns


def chosen(connection, condition: str) -> list[int]:
    return [row for (row,) in connection.execute(f"SELECT row FROM rows WHERE {condition} ORDER BY row")]


@given(ROWS, CONDITIONS)
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example([{"key": "a", "n": 3}], ("(value.n IN (1, NULL))", "(n IN (1, NULL))"))
def test_a_predicate_is_true_where_sqlite_says_so_and_null_where_it_says_so(rows, condition):
    ours, theirs = condition
    with table(rows) as (connection, columns):
        assert np.flatnonzero(compiled(ours).mask(columns)).tolist() == chosen(connection, theirs), ours
        assert np.flatnonzero(compiled(f"({ours}) IS NULL").mask(columns)).tolist() == chosen(connection, f"({theirs}) IS NULL"), ours
        assert np.flatnonzero(compiled(f"NOT ({ours})").mask(columns)).tolist() == chosen(connection, f"NOT ({theirs})"), ours


PROMOTED = ("value.n", "value.s", "value.o.x")


def filed(columns: EventColumns) -> EventColumns:
    """Return the same events in a file of columns, in which keys and promoted fields have an index."""
    fields = promote(columns.values.to_list(), PROMOTED)
    columns.promoted = lambda path: texts_of(fields[path])
    return file_of(columns, fields=PROMOTED, cuts=ColumnCuts(unsure_share=1))[0].events()


@given(ROWS, CONDITIONS)
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example([{"key": "a", "n": 3}, {"key": "ab", "n": 0}], ("(value.n IN (0, 3) AND key LIKE 'a%')", "(n IN (0, 3) AND key LIKE 'a%')"))
@example([{"key": "a long key, more than eight bytes"}], ("(key = 'a long key, mind')", "(key = 'a long key, mind')"))
def test_a_predicate_says_the_same_of_events_in_a_file_of_columns(rows, condition):
    ours, theirs = condition
    context = replace(JSON, promoted=frozenset(PROMOTED))
    with table(rows) as (connection, columns):
        for own, their in ((ours, theirs), (f"({ours}) IS NULL", f"({theirs}) IS NULL"), (f"NOT ({ours})", f"NOT ({theirs})")):
            assert np.flatnonzero(compiled(own, context).mask(filed(columns))).tolist() == chosen(connection, their), own


@given(ROWS, CONDITIONS)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_bounds_hold_every_event_that_matches(rows, condition):
    found = compiled(condition[0])
    with table(rows) as (_, columns):
        matched = columns.take(np.flatnonzero(found.mask(columns)))
    bounds = found.bounds
    assert all(bounds.kinds >> kind & 1 for kind in matched.kinds.tolist())
    assert all(bounds.id_low <= event_id <= bounds.id_high for event_id in matched.ids.tolist())
    assert bounds.segments is None or set(matched.segments.tolist()) <= bounds.segments
    assert bounds.keys is None or set(matched.keys.to_list()) <= bounds.keys
    assert all(key.startswith(bounds.key_prefix) for key in matched.keys.to_list())


@given(ROWS)
@settings(max_examples=examples(30), deadline=None)
def test_operators_bind_as_in_sqlite(rows):
    with table(rows) as (connection, columns):
        for where in (
            "NOT value.n = 1 AND value.b",
            "value.b OR value.n > 2 AND value.f < 1",
            "NOT value.n IS NULL",
            "NOT value.n IS NULL OR value.b",
            "value.n + value.f * 2 - 1 > 3",
            "- value.n * 2 < 3",
            "value.n - 1 - 2 = 0",
            "value.s || 'b' = 'ab'",
            "value.n + 1 = 2 OR NOT value.b AND value.n < 2",
            "value.n BETWEEN 0 AND 2 AND value.b",
            "NOT value.n BETWEEN 0 AND 2",
            "value.s LIKE 'a%' AND NOT value.s LIKE '%b'",
            "value.n % 3 * 2 = 2",
            "NOT NOT value.b",
            "value.n IN (1, 2) AND value.b OR value.n = 3",
            "value.n > 1 AND value.n < 5 OR value.f > 0 AND value.f < 2",
            "value.n NOT IN (1, 2) AND value.n IS NOT NULL",
            "value.n * -1 < 2",
            "value.n > 1 IS TRUE",
            "value.n = value.f IS NULL",
            "value.n > 1 IS NOT NULL AND value.b IS NOT TRUE",
            "value.n IS NULL = value.b",
            "NOT value.n = 1 IS NULL",
            "value.s LIKE 'a%' IS NULL",
        ):
            theirs = where
            for ours, column in (NUMBERS | TEXTS | BOOLEANS).items():
                theirs = theirs.replace(ours, column)
            assert np.flatnonzero(compiled(where).mask(columns)).tolist() == chosen(connection, theirs), where


@pytest.mark.parametrize("name", ["value.n", "value.o.x"])
def test_the_oracle_tells_null_from_false(name):
    with table([{"key": "a"}]) as (connection, columns):
        assert not compiled(f"NOT ({name} > 1)").mask(columns).any()
        assert chosen(connection, "NOT (n > 1)") == []
