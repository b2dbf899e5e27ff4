"""The changes of a continuous query, taken one after the other, are the set of what matches at every moment."""

from hypothesis import given
from hypothesis import strategies as st

from eventlog.events import Change
from eventlog.predicate.compile import compile_filter
from eventlog.predicate.spec import FilterSpec
from tests.predicate.rows import JSON, events

VALUES = st.none() | st.fixed_dictionaries({}, optional={"n": st.none() | st.integers(0, 4), "s": st.sampled_from(["a", "b"])})
WRITES = st.lists(st.tuples(st.sampled_from(["k1", "k2", "k3"]), VALUES), max_size=40)
QUERIES = {
    "": lambda _, __: True,
    "value.n > 1": lambda n, _: n is not None and n > 1,
    "value.n IS NULL": lambda n, _: n is None,
    "value.n <> 2 OR key = 'k1'": lambda n, row: row["key"] == "k1" or (n is not None and n != 2),
    "NOT value.n > 1 AND value.s = 'a'": lambda n, row: n is not None and n <= 1 and row.get("s") == "a",
}


def matches(where: str, key: str, value: dict[str, object]) -> bool:
    return QUERIES[where](value.get("n"), {"key": key} | value)


@given(writes=WRITES, where=st.sampled_from(sorted(QUERIES)), a_value=st.integers(1, 8))
def test_changes_are_what_happens_to_the_set_of_matching_entries(writes, where, a_value):
    state, rows, expected = {}, [], []
    for key, value in writes:
        old = state.get(key)
        if value is None and old is None:
            continue  # removing nothing is no event
        rows.append({"key": key, "value": value} | ({} if old is None else {"before": old}))
        was, is_now = old is not None and matches(where, key, old), value is not None and matches(where, key, value)
        expected.append(Change.UPDATED if was and is_now else Change.JOINED if is_now else Change.LEFT if was else 0)
        state[key] = value
    if rows:
        query = compile_filter(FilterSpec(where=where, continuous=True), JSON)
        assert query.changes(events(rows, a_value=a_value)).tolist() == expected
