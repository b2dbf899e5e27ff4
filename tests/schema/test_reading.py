"""The JSON of a schema is read within bounds."""

import json

import pytest

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_DEPTH_MAX, SCHEMA_ITEMS_MAX
from eventlog.schema.reading import read_schema_json


@pytest.mark.parametrize("tree", [None, 5, "a", {}, [], {"a": [1, {"b": 1.5}]}])
def test_what_is_json_is_read(tree: object):
    assert read_schema_json(json.dumps(tree), what="it") == tree


@pytest.mark.parametrize("text", ["", "{", "NaN", "-Infinity", "1e999", "[" * 100_000, "1" * 10_000, "{'a': 1}"])
def test_what_is_none_is_refused_by_its_name(text: str):
    with pytest.raises(InvalidArgument, match="a thing is JSON"):
        read_schema_json(text, what="a thing")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_depth_is_counted_from_the_top():
    read_schema_json(nested(SCHEMA_DEPTH_MAX + 1), what="it")  # the outermost is level 0
    with pytest.raises(InvalidArgument, match="levels deep"):
        read_schema_json(nested(SCHEMA_DEPTH_MAX + 2), what="it")


def test_everything_in_it_is_counted():
    read_schema_json(json.dumps([0] * (SCHEMA_ITEMS_MAX - 1)), what="it")
    with pytest.raises(InvalidArgument, match="items"):
        read_schema_json(json.dumps([0] * SCHEMA_ITEMS_MAX), what="it")
