"""Which JSON Schema takes all that another does: content models case by case, and a validator as the judge of random pairs."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_STEPS_MAX
from eventlog.schema.json_reading import why_json_not_read
from eventlog.schema.json_types import read_json_schema
from tests.schema.json_pairs import likely, pairs, values


def why(writer: object, reader: object) -> str:
    return why_json_not_read(reader=read_json_schema(json.dumps(reader)), writer=read_json_schema(json.dumps(writer)))


def both(one: object, other: object) -> tuple[bool, bool]:
    """Return whether `other` reads what `one` writes, and the other way round."""
    return why(one, other) == "", why(other, one) == ""


TEXT, NUMBER, WHOLE, NULL = ({"type": name} for name in ("string", "number", "integer", "null"))


def thing(properties: dict[str, object] | None = None, /, **more: object) -> dict[str, object]:
    return {"type": "object", "properties": properties or {}, **more}


def closed(properties: dict[str, object] | None = None, /, **more: object) -> dict[str, object]:
    return thing(properties, additionalProperties=False, **more)


A, AB = {"a": TEXT}, {"a": TEXT, "b": TEXT}
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"

CASES: dict[str, tuple[object, object, bool, bool]] = {
    "the same": (thing(A), thing(A), True, True),
    "what describes says nothing": (thing(A, title="x", description="y"), thing(A, **{"connect.index": 1, "x-own": 2}), True, True),
    "everything is taken by {}": (TEXT, {}, True, False),
    "everything is taken by true": (TEXT, True, True, False),
    "nothing is written by false": (False, TEXT, True, False),
    "nothing is written by allOf with false": ({"allOf": [False, TEXT]}, NULL, True, False),
    # types
    "a type more": (TEXT, {"type": ["string", "null"]}, True, False),
    "integers are numbers": (WHOLE, NUMBER, True, False),
    "another type": (TEXT, NUMBER, False, False),
    "all types are no condition": ({"type": ["null", "boolean", "object", "array", "number", "string"]}, {}, True, True),
    # numbers
    "maximum raised": ({**NUMBER, "maximum": 5}, {**NUMBER, "maximum": 6}, True, False),
    "maximum removed": ({**NUMBER, "maximum": 5}, NUMBER, True, False),
    "minimum lowered": ({**NUMBER, "minimum": 5}, {**NUMBER, "minimum": 4}, True, False),
    "an exclusive bound is tighter": ({**NUMBER, "exclusiveMaximum": 5}, {**NUMBER, "maximum": 5}, True, False),
    "an exclusive lower bound is tighter": ({**NUMBER, "exclusiveMinimum": 5}, {**NUMBER, "minimum": 5}, True, False),
    "bounds of numbers say nothing of texts": (TEXT, {"maximum": 5}, True, False),
    "multipleOf divided": ({**NUMBER, "multipleOf": 10}, {**NUMBER, "multipleOf": 5}, True, False),
    "multipleOf of decimals": ({**NUMBER, "multipleOf": 0.3}, {**NUMBER, "multipleOf": 0.1}, True, False),
    "integers are multiples of 1": (WHOLE, {**NUMBER, "multipleOf": 1}, True, False),
    "a draft 4 bound that is left out": (
        {"$schema": "http://json-schema.org/draft-04/schema#", **NUMBER, "maximum": 5, "exclusiveMaximum": True},
        {"$schema": "http://json-schema.org/draft-04/schema#", **NUMBER, "maximum": 5},
        True,
        False,
    ),
    "a lower draft 4 bound that is left out": (
        {"$schema": "http://json-schema.org/draft-04/schema#", **NUMBER, "minimum": 5, "exclusiveMinimum": True},
        {"$schema": "http://json-schema.org/draft-04/schema#", **NUMBER, "minimum": 5},
        True,
        False,
    ),
    # texts
    "maxLength raised": ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}, True, False),
    "minLength lowered": ({**TEXT, "minLength": 5}, {**TEXT, "minLength": 4}, True, False),
    "minLength of 0 is none": (TEXT, {**TEXT, "minLength": 0}, True, True),
    "pattern removed": ({**TEXT, "pattern": "a"}, TEXT, True, False),
    "pattern changed": ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, False, False),
    "format is a description": ({**TEXT, "format": "date"}, {**TEXT, "format": "time"}, True, True),
    # enums
    "enum extended": ({"enum": ["a"]}, {"enum": ["a", "b"]}, True, False),
    "a const is an enum of one": ({"const": "a"}, {"enum": ["a"]}, True, True),
    "enum of a type": ({"enum": ["a", "b"]}, TEXT, True, False),
    "1 is 1.0 and not true": ({"enum": [1]}, {"enum": [1.0]}, True, True),
    "true is not 1": ({"enum": [1]}, {"enum": [True]}, False, False),
    "all booleans": ({"type": "boolean"}, {"enum": [True, False]}, True, True),
    "listed values are within bounds": ({"enum": ["a", "bcd", 5]}, {"maxLength": 3, "maximum": 5, "minimum": 5}, True, False),
    "listed values outside of a type are none": ({**TEXT, "enum": ["a", 5]}, {"enum": ["a"]}, True, True),
    # content models
    "a property more in an open model": (thing(A), thing(AB), False, True),
    "a property without condition more in an open model": (thing(A), thing({**A, "b": True}), True, True),
    "a property more in a closed model": (closed(A), closed(AB), True, False),
    "a property more, as wide as the partly open model": (
        thing(A, additionalProperties=TEXT), thing(AB, additionalProperties=TEXT), True, True,
    ),
    "a property more, wider than the partly open model": (
        thing(A, additionalProperties=WHOLE), thing({**A, "b": NUMBER}, additionalProperties=WHOLE), True, False,
    ),
    "a model that opens": (closed(A), thing(A), True, False),
    "a model that opens a little": (closed(A), thing(A, additionalProperties=TEXT), True, False),
    "a partly open model that widens": (thing(A, additionalProperties=WHOLE), thing(A, additionalProperties=NUMBER), True, False),
    "a property wider": (closed({"a": WHOLE}), closed({"a": NUMBER}), True, False),
    "required removed": (thing(A, required=["a"]), thing(A), True, False),
    "required with a default": (closed(), closed({"a": {**TEXT, "default": ""}}, required=["a"]), True, False),
    "required without a default": (closed(), closed(A, required=["a"]), False, False),
    "what is required already": (thing(A, required=["a"], minProperties=1), thing(A, required=["a"]), True, True),
    "maxProperties raised": (thing(maxProperties=1), thing(maxProperties=2), True, False),
    "a closed model has no more than its properties": (closed(A), closed(A, maxProperties=1), True, True),
    "a pattern that names match is as good as the names": (
        closed(patternProperties={"^x-": TEXT}), closed({"x-a": TEXT}, patternProperties={"^x-": TEXT}), True, True,
    ),
    "a pattern that is not plain may match or not": (
        closed({"a": TEXT}), closed(patternProperties={"^[a]$": TEXT}), False, False,
    ),
    "a pattern that all names match": (closed(A), closed(patternProperties={".*": TEXT}), True, False),
    "a pattern that one name matches": (closed(A), closed(patternProperties={"^a$": TEXT}), True, False),
    "a pattern that names end with": (closed({"ab": TEXT}), closed(patternProperties={"b$": TEXT}), True, False),
    "a pattern that refuses what was open": (thing(A), thing(A, patternProperties={"^x-": TEXT}), False, True),
    "a dependency widened": (thing(AB, dependencies={"a": ["b", "c"]}), thing(AB, dependencies={"a": ["b"]}), True, False),
    "a dependent schema widened": (
        thing(dependencies={"a": {"required": ["b", "c"]}}),
        thing(dependencies={"a": {"required": ["b"]}}),
        True,
        False,
    ),
    "a pattern more in a closed model": (closed(A), closed(A, patternProperties={"^x-": TEXT}), True, False),
    "a dependency removed": (thing(AB, dependencies={"a": ["b"]}), thing(AB), True, False),
    "a dependency on what is required": (thing(AB, required=["b"]), thing(AB, dependencies={"a": ["b"]}), True, False),
    "a dependent schema": (thing(AB, dependencies={"a": thing(required=["b"])}), thing(AB), True, False),
    "the heirs of dependencies": (
        {"$schema": DRAFT_2020, **thing(AB, dependentRequired={"a": ["b"]})},
        {"$schema": DRAFT_2020, **thing(AB, dependentSchemas={"a": {"required": ["b"]}}, dependentRequired={"b": []})},
        False, False,
    ),
    # arrays
    "items wider": ({"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}, True, False),
    "maxItems raised": ({"type": "array", "maxItems": 1}, {"type": "array", "maxItems": 2}, True, False),
    "uniqueItems removed": ({"type": "array", "uniqueItems": True}, {"type": "array"}, True, False),
    "one item is unique": ({"type": "array", "maxItems": 1}, {"type": "array", "maxItems": 1, "uniqueItems": True}, True, True),
    "an item more in a closed list": (
        {"type": "array", "items": [TEXT], "additionalItems": False}, {"type": "array", "items": [TEXT, TEXT], "additionalItems": False},
        True, False,
    ),
    "an item more in an open list": ({"type": "array", "items": [TEXT]}, {"type": "array", "items": [TEXT, TEXT]}, False, True),
    "prefixItems": (
        {"$schema": DRAFT_2020, "type": "array", "prefixItems": [WHOLE], "items": False},
        {"$schema": DRAFT_2020, "type": "array", "prefixItems": [NUMBER], "items": TEXT},
        True, False,
    ),
    "prefixItems means nothing in draft 7": ({"type": "array", "prefixItems": [WHOLE]}, {"type": "array"}, False, False),
    # combinations
    "a branch more of anyOf": ({"anyOf": [TEXT]}, {"anyOf": [TEXT, NULL]}, True, False),
    "a branch more of oneOf": ({"oneOf": [TEXT]}, {"oneOf": [TEXT, NULL]}, True, False),
    "oneOf becomes anyOf": ({"oneOf": [TEXT, NULL]}, {"anyOf": [NULL, TEXT]}, True, True),
    "types are a union": ({"type": ["string", "null"]}, {"anyOf": [TEXT, NULL]}, True, True),
    "a schema becomes a branch": (thing(A), {"oneOf": [NULL, thing(A)]}, True, False),
    "listed values, one a branch": ({"enum": ["a", "b"]}, {"oneOf": [{"const": "a"}, {"const": "b"}]}, True, True),
    "a part less of allOf": ({"allOf": [thing(A), {"required": ["a"]}]}, {"allOf": [thing(A)]}, True, False),
    "allOf is the same as one": ({"allOf": [thing(A), {"required": ["a"]}]}, thing(A, required=["a"]), True, True),
    "a union beside a base": ({**thing(AB), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, thing(AB), True, False),
    "not narrowed": ({"not": {"type": ["string", "null"]}}, {"not": NULL}, True, False),
    "not of another type": (TEXT, {"not": NULL}, True, False),
    "not of other types": ({"anyOf": [TEXT, WHOLE]}, {"not": NULL}, True, False),
    "not of one of the types": ({"anyOf": [TEXT, NULL]}, {"not": NULL}, False, False),
    # what is not covered
    "the same, uncovered": ({**TEXT, "contentFoo": 1}, {**TEXT, "contentFoo": 1}, True, True),
    "changed, uncovered": ({**TEXT, "nullable": True}, {**TEXT, "nullable": False}, False, False),
    "a condition removed": ({**TEXT, "if": {"maxLength": 1}, "then": False}, TEXT, True, False),
    "unevaluatedProperties": (
        {"$schema": DRAFT_2020, **thing(AB, unevaluatedProperties=False)}, {"$schema": DRAFT_2020, **thing(A, unevaluatedProperties=False)},
        False, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_reads_the_other(case: str):
    one, other, *expected = CASES[case]
    assert both(one, other) == tuple(expected), (why(one, other), why(other, one))


def list_of(item: object) -> dict[str, object]:
    rest = {"anyOf": [NULL, {"$ref": "#/definitions/list"}]}
    return {"definitions": {"list": closed({"item": item, "next": rest})}, "$ref": "#/definitions/list"}


def test_recursive_schemas_are_compared_at_each_place_once():
    assert both(list_of(WHOLE), list_of(NUMBER)) == (True, False)
    assert "item" in why(list_of(NUMBER), list_of(WHOLE))


def test_what_stands_beside_a_ref_counts_from_draft_2019_on():
    old = {"definitions": {"t": TEXT}, "$ref": "#/definitions/t", "maxLength": 5}
    assert both(old, TEXT) == (True, True)
    new = {"$schema": DRAFT_2020, "$defs": {"t": TEXT}, "$ref": "#/$defs/t", "maxLength": 5}
    assert both(new, {"$schema": DRAFT_2020, **TEXT}) == (True, False)


def test_schemas_that_are_referred_to_are_compared_by_what_they_say():
    old, new = (read_json_schema(json.dumps({"type": name})) for name in ("integer", "number"))
    text = json.dumps(thing({"a": {"$ref": "other.json"}}))
    one, other = (read_json_schema(text, {"other.json": part}) for part in (old, new))
    assert one.normal == other.normal
    assert why_json_not_read(reader=other, writer=one) == ""
    assert why_json_not_read(reader=one, writer=other)


def test_the_same_word_that_refers_to_something_else_is_no_equality():
    def schema(kind: str) -> dict[str, object]:
        return {"definitions": {"t": {"type": kind}}, "contains": {"$ref": "#/definitions/t"}}

    assert both(schema("string"), schema("string")) == (True, True)
    assert both(schema("string"), schema("null")) == (False, False)


def test_what_would_take_too_long_is_taken_for_incompatible():
    def many(letter: str) -> list[object]:
        return [closed({f"{letter}{number}": TEXT}, required=[f"{letter}{number}"]) for number in range(300)]

    assert str(SCHEMA_STEPS_MAX) in why({"anyOf": many("a")}, {"anyOf": many("b") + many("a")})
    chain = {f"d{number}": closed({"a": {"$ref": f"#/definitions/d{number + 1}"}}) for number in range(500)}
    deep = {"definitions": chain | {"d500": TEXT}, "$ref": "#/definitions/d0"}
    assert why(deep, {**deep, "title": "changed"})


def test_a_pattern_of_somebodys_is_not_run():
    names = {"a" * 40 + "!": TEXT}
    assert why(closed(names), closed(names, patternProperties={"^(a+)+$": TEXT})) == ""
    assert why(closed(names), closed(patternProperties={"^(a+)+$": TEXT}))


@given(pairs, st.lists(values, max_size=20))
def test_what_is_called_compatible_is_by_a_validator(pair: tuple[Any, Any], more: list[Any]):
    writer, reader = pair
    try:
        found = why(writer, reader)
    except InvalidArgument:  # it refers to itself with nothing between
        assume(False)
    event("compatible" if found == "" else "not compatible")
    if found == "":
        written = Draft7Validator(writer)
        reading = Draft7Validator(reader)
        for value in [*likely(writer), *likely(reader), *more]:
            if written.is_valid(value):
                assert reading.is_valid(value), value


@given(pairs)
def test_a_schema_reads_what_it_wrote(pair: tuple[Any, Any]):
    for schema in pair:
        named = {"title": "x", **schema} if isinstance(schema, dict) else {"allOf": [schema]}
        with suppress(InvalidArgument):
            assert why(schema, schema) == ""
            assert why(schema, named) == "", "compared part by part"
