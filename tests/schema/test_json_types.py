"""JSON Schemas: what is none is refused, references lead somewhere, and nothing leads back to itself."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_DEPTH_MAX
from eventlog.schema.json_types import JsonTypes, read_json_schema


def read(tree: object, **others: JsonTypes) -> JsonTypes:
    return read_json_schema(json.dumps(tree), others)


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (5, "an object, true or false"), ([], "an object, true or false"), ({"type": "text"}, "#/type"), ({"type": []}, "#/type"),
        ({"type": ["string", 5]}, "#/type"), ({"properties": []}, "#/properties"), ({"properties": {"a": 5}}, "#/properties/a"),
        ({"items": 5}, "#/items"), ({"items": [5]}, "#/items/0"), ({"allOf": []}, "#/allOf"), ({"anyOf": {}}, "#/anyOf"),
        ({"maxLength": -1}, "#/maxLength"), ({"maxLength": 1.5}, "#/maxLength"), ({"maxItems": True}, "#/maxItems"),
        ({"minimum": "1"}, "#/minimum"), ({"multipleOf": 0}, "#/multipleOf"), ({"required": "a"}, "#/required"),
        ({"required": [1]}, "#/required"), ({"enum": "a"}, "#/enum"), ({"pattern": 5}, "#/pattern"), ({"uniqueItems": 1}, "#/uniqueItems"),
        ({"$ref": 5}, "#/\\$ref"), ({"not": []}, "#/not"), ({"additionalProperties": "no"}, "#/additionalProperties"),
        ({"dependencies": {"a": 5}}, "#/dependencies/a"),
        ({"properties": {"a": {"$id": "http://x/y"}}}, "below the top"), ({"$id": 5}, "#/\\$id"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [True]}, "prefixItems"),
        ({"$ref": "#/definitions/none"}, "leads to no schema"), ({"$ref": "#none"}, "no anchor"), ({"$ref": "other.json"}, "name it"),
        ({"enum": [1], "$ref": "#/enum/0"}, "leads to no schema"), ({"enum": [1], "$ref": "#/enum/7"}, "leads to no schema"),
        ({"x": {"type": 5}, "$ref": "#/x"}, "#/x/type"),
        ({"$ref": "#"}, "leads back"), ({"allOf": [{"$ref": "#"}]}, "leads back"), ({"not": {"$ref": "#"}}, "leads back"),
        ({"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"anyOf": [{"$ref": "#/definitions/a"}]}}}, "leads back"),
        ({"dependencies": {"a": {"$ref": "#"}}}, "leads back"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_with_its_place(tree: object, why: str):
    with pytest.raises(InvalidArgument, match=why):
        read(tree)


@pytest.mark.parametrize("text", ["", "{", '{"minimum": NaN}', "[" * 5_000, '{"maximum": 1e999}'])
def test_what_is_no_json_is_refused(text: str):
    with pytest.raises(InvalidArgument):
        read_json_schema(text)


def test_a_schema_is_bounded_in_depth():
    tree: object = True
    for _ in range(SCHEMA_DEPTH_MAX):
        tree = {"not": tree}
    read(tree)
    with pytest.raises(InvalidArgument, match="levels deep"):
        read({"not": tree})


def target(tree: dict[str, object], **others: JsonTypes) -> object:
    found = read(tree, **others)
    node = found.top.target
    assert node is not None
    return node.tree


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "tree",
    [
        {"$ref": "#/definitions/a", "definitions": {"a": TEXT}}, {"$ref": "#/definitions/a~1b~0c%20d", "definitions": {"a/b~c d": TEXT}},
        {"$ref": "#/allOf/1", "allOf": [True, TEXT]}, {"$ref": "#/own/place", "own": {"place": TEXT}},
        {"$ref": "http://x/y#/definitions/a", "$id": "http://x/y", "definitions": {"a": TEXT}},
    ],
)  # fmt: skip
def test_a_ref_leads_to_a_place_of_its_document(tree: dict[str, object]):
    assert target(tree) == TEXT


def test_a_ref_leads_to_an_anchor():
    assert target({"$ref": "#here", "definitions": {"a": {**TEXT, "$anchor": "here"}}}) == {**TEXT, "$anchor": "here"}
    assert target({"$ref": "#here", "definitions": {"a": {**TEXT, "$id": "#here"}}}) == {**TEXT, "$id": "#here"}
    draft = {"$schema": "http://json-schema.org/draft-04/schema#"}
    assert target({**draft, "$ref": "#here", "definitions": {"a": {**TEXT, "id": "#here"}}}) == {**TEXT, "id": "#here"}


def test_a_ref_leads_into_a_schema_that_is_named():
    other = read({"definitions": {"a": TEXT}, "own": {"place": {"$ref": "#/nowhere"}}})
    assert target({"$ref": "other"}, other=other) == other.root
    assert target({"$ref": "other#/definitions/a"}, other=other) == TEXT
    with pytest.raises(InvalidArgument, match="leads to what is no schema there"):
        read({"$ref": "other#/own/place"}, other=other)


def test_recursion_through_a_property_or_an_item_is_taken():
    read({"properties": {"next": {"$ref": "#"}}})
    read({"items": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "additionalProperties": {"$ref": "#"}})


def test_spellings_of_one_schema_are_one():
    assert read({"type": "object", "title": "x"}).normal == read_json_schema('{"title":   "x",\n"type": "object"}').normal
    assert read({"title": "x"}).normal != read({"title": "y"}).normal


WORDS = st.sampled_from(["string", "object", "#", "#/definitions/a", "a"])
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "$ref",
        "definitions",
        "a",
        "allOf",
        "anyOf",
        "not",
        "required",
        "enum",
        "$id",
        "dependencies",
        "maxItems",
    ]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=5),
)


@given(TREES)
def test_any_json_is_a_schema_or_refused(tree: object):
    with suppress(InvalidArgument):
        read(tree)
