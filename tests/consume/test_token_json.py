"""The JSON token of a position."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.consume.token_json import from_json, to_json
from eventlog.errors import BadMessage
from tests.consume.positions import positions
from tests.consume.test_token import FULL, SCALAR


@given(positions())
def test_a_token_gives_back_its_position(position):
    assert from_json(to_json(position)) == position


def test_the_objects_are_these():
    assert json.loads(to_json(SCALAR)) == {"v": 1, "cluster": "c", "cache": 3, "segments": 256, "id": str((7 << 22) + 5)}
    assert json.loads(to_json(FULL)) == {
        "v": 1,
        "cluster": "demo",
        "cache": 1,
        "segments": 8,
        "of": [2, 5],
        "ids": ["9", "8"],
        "offsets": [-1, 4],
        "epochs": [0, 6],
        "steps": [[2, "aw==", "7"]],
        "acknowledged": [[5, "10", "12"]],
    }


values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 1 << 70), st.floats(), st.text(max_size=3), st.lists(st.integers(-1, 9), max_size=3),
    st.just({}), st.just([[1, 2, 3]]), st.just("٣"), st.just("0" * 5000), st.just({"abc": 1}),
)  # fmt: skip


@given(st.sampled_from([SCALAR, FULL]), st.data())
def test_a_field_that_is_wrong_unknown_or_missing_is_refused(position, data):
    found = json.loads(to_json(position))
    name = data.draw(st.sampled_from([*found, "more"]))
    value = data.draw(values)
    changed = found | {name: value}
    assert_refused_or_right(changed)
    if name in found and name not in {"steps", "acknowledged"}:
        with pytest.raises(BadMessage):
            from_json(json.dumps({key: value for key, value in found.items() if key != name}))


def assert_refused_or_right(changed):
    try:
        position = from_json(json.dumps(changed))
    except BadMessage:
        return
    assert json.loads(to_json(position)) == changed


@given(st.one_of(st.binary(max_size=30), st.text(max_size=30), st.recursive(values, st.lists).map(json.dumps)))
def test_what_is_no_token_is_refused(data):
    with pytest.raises(BadMessage):
        from_json(data)


def test_deep_nesting_is_refused():
    with pytest.raises(BadMessage):
        from_json("[" * 100_000)
