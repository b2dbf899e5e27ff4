"""Fields taken out of values when they are written."""

import json

from hypothesis import given
from hypothesis import strategies as st

from eventlog.write.stamp import promote

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)


def at(value, path):
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


@given(st.lists(JSON, max_size=6))
def test_a_field_is_its_json_or_empty(values):
    found = promote([json.dumps(value).encode() for value in values], ("value.a", "value.b.c"))
    for path, steps in (("value.a", ["a"]), ("value.b.c", ["b", "c"])):
        expected = [at(value, steps) for value in values]
        assert [None if item == b"" else json.loads(item) for item in found[path]] == expected


def test_the_json_is_in_its_shortest_form():
    assert promote([b'{ "a" : [ 1, 2.50 , "\\u0061" ] }', b"{}", b"", b"broken"], ("value.a",)) == {
        "value.a": [b'[1,2.5,"a"]', b"", b"", b""]
    }
