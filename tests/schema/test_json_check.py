"""Whether a value is what a JSON Schema takes: another validator is the judge, keyword by keyword and of random schemas."""

import json
from contextlib import nullcontext
from itertools import islice, product
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from jsonschema import validators

from eventlog.errors import InvalidArgument
from eventlog.schema.json_check import JsonCheck
from eventlog.schema.meter import Meter, OutOfSteps, steps_of
from eventlog.schema.strict_json import Misfit
from tests.schema.json_pairs import VALUES_MAX, likely, pairs, values

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
PLENTY = 1_000_000


def refusal(check: JsonCheck, value: Any) -> str:
    """Return the sentence with which a value is refused, an empty one if it is taken."""
    try:
        check.check(json.dumps(value).encode(), Meter(PLENTY))
    except Misfit as misfit:
        return misfit.sentence
    return ""


def why(schema: Any, value: Any) -> str:
    return refusal(JsonCheck(json.dumps(schema)), value)


def is_judged_valid(schema: Any, value: Any) -> bool:
    return bool(validators.validator_for(schema, validators.Draft7Validator)(schema).is_valid(value))


@given(pairs, st.lists(values, max_size=5))
def test_random_schemas_take_what_another_validator_takes(two: tuple[Any, Any], more: list[Any]) -> None:
    for schema in two:
        try:
            check = JsonCheck(json.dumps(schema))
        except InvalidArgument as error:
            assume("leads back to itself" not in error.why)
            raise
        for value in [*more, *islice(likely(schema), VALUES_MAX)]:
            is_valid = is_judged_valid(schema, value)
            event(f"valid: {is_valid}")
            assert (refusal(check, value) == "") == is_valid, (schema, value)


KEYWORDS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": ["string", "null"]},
    {"type": "number"},
    {"enum": [1, "a", [1], {"a": 1.0}, True]},
    {"const": {"a": [1, False]}},
    {"const": 0},
    {"minimum": 1, "maximum": 2},
    {"exclusiveMinimum": 1, "exclusiveMaximum": 2.5},
    {"multipleOf": 0.1},
    {"multipleOf": 3},
    {"minLength": 1, "maxLength": 2},
    {"pattern": "^a.?$"},
    {"minItems": 1, "maxItems": 2},
    {"uniqueItems": True},
    {"items": {"type": "integer"}},
    {"items": [{"type": "integer"}], "additionalItems": {"type": "string"}},
    {"items": [{"type": "integer"}], "additionalItems": False},
    {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    {"contains": {"type": "integer"}},
    {"contains": {"type": "integer"}, "minContains": 2, "maxContains": 2},
    {"contains": {"type": "integer"}, "minContains": 0},
    {"minProperties": 1, "maxProperties": 1},
    {"required": ["a"]},
    {"properties": {"a": {"type": "integer"}, "b": False}},
    {"properties": {"a": True}, "patternProperties": {"^b": {"type": "string"}}, "additionalProperties": False},
    {"properties": {"a": True}, "additionalProperties": {"type": "integer"}},
    {"propertyNames": {"maxLength": 1}},
    {"dependencies": {"a": ["b"], "b": {"required": ["c"]}}},
    {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}},
    {"allOf": [{"type": "object"}, {"required": ["a"]}]},
    {"anyOf": [{"type": "integer"}, {"required": ["a"], "type": "object"}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"not": {"type": "integer"}},
    {"if": {"type": "integer"}, "then": {"minimum": 2}, "else": {"type": "string"}},
    {"if": {"type": "integer"}, "else": {"type": "string"}},
    {"$ref": "#/definitions/n", "maximum": 1, "definitions": {"n": {"type": "integer"}}},
    {"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"type": "integer"}, "type": ["object", "integer"]},
    {"format": "date-time"},
    {"x-own": 5, "unheard": {"of": 1}},
    {},
]
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, 1.0, 1.5, 2.5, 0.3, 1e300, 10**30, "", "a", "ab", "abc", "é",
    [], [1], [1, 1.0], [1, True], ["a"], [1, "a"], [1, "a", 2], [[1], [1]], [{"a": 1}, {"a": 1.0}],
    {}, {"a": 1}, {"a": 1.0}, {"a": [1, False]}, {"a": [1, 0]}, {"a": 1, "b": "x"}, {"a": 1, "b": 2}, {"b": 1, "c": 2}, {"bb": "x"},
    {"c": 1}, {"a": {"a": {"a": 5}}}, {"a": {"a": {"a": "x"}}}, {"a": 1, "b": "x", "c": 3},
]  # fmt: skip


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_keyword_means_in_each_draft_what_it_means_to_another_validator(draft: int) -> None:
    for schema, value in product(KEYWORDS, VALUES):
        if draft == 2020 and isinstance(schema.get("items"), list):
            continue
        said = {"$schema": DRAFTS[draft], **schema}
        if draft == 4 and any(isinstance(schema.get(name), float) for name in ("exclusiveMinimum", "exclusiveMaximum")):
            said |= {"minimum": 1, "maximum": 2.5, "exclusiveMinimum": True, "exclusiveMaximum": True}
        if "multipleOf" in schema and isinstance(value, float):
            continue  # which the other takes by division: 0.3 is no multiple of 0.1 to it
        assert (why(said, value) == "") == is_judged_valid(said, value), (said, value)


def test_numbers_are_multiples_as_they_are_written() -> None:
    cents = {"multipleOf": 0.01}
    assert not why(cents, 19.99)
    assert not why(cents, 5)
    assert not why(cents, 1e300)
    assert why(cents, 19.995) == "value is no multiple of 0.01"
    assert why({"multipleOf": 1e-300}, 1e300) == ""
    assert why({"multipleOf": 7e-300}, 1e300) == "value is no multiple of 7e-300"


ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "code": {"type": "string", "pattern": "^[A-Z]{3}$", "maxLength": 5},
        "state": {"enum": ["new", "paid"]},
        "note": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"by": {"type": "string"}}}]},
        "lines": {"type": "array", "maxItems": 2, "uniqueItems": True, "items": {"type": "object", "required": ["sku"]}},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "value is an array, not an object"),
        ({"id": 1}, "value is without 'lines'"),
        ({"id": 0, "lines": []}, "value.id is less than 1"),
        ({"id": True, "lines": []}, "value.id is a boolean, not an integer"),
        ({"id": 1.5, "lines": []}, "value.id is a number, not an integer"),
        ({"id": 1, "lines": [], "code": "eur"}, "value.code is not of the pattern ^[A-Z]{3}$"),
        ({"id": 1, "lines": [], "code": "EUROPE"}, "value.code is of 6 characters, more than 5"),
        ({"id": 1, "lines": [], "state": "sent"}, "value.state is none of the 2 values that the schema lists"),
        ({"id": 1, "lines": [], "note": 5}, "value.note is of none of the 2 kinds that the schema takes"),
        ({"id": 1, "lines": [], "note": {"by": 5}}, "value.note.by is an integer, not a string"),
        ({"id": 1, "lines": [{"sku": 1}, {}]}, "value.lines[1] is without 'sku'"),
        ({"id": 1, "lines": [{"sku": 1}, {"sku": 1.0}]}, "value.lines[1] is equal to an item before it"),
        ({"id": 1, "lines": [], "more": 1}, "value.more is a property that the schema does not have"),
    ],
)
def test_a_value_is_refused_with_the_place_that_does_not_fit(value: Any, said: str) -> None:
    assert why(ORDER, value) == said


def test_what_is_no_json_is_left_to_others() -> None:
    JsonCheck(json.dumps(ORDER)).check(b"{", Meter(PLENTY))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "https://example.org/other.json"}, "there is no schema"),
        ({"$ref": "file:///etc/passwd"}, "there is no schema"),
        ({"allOf": [{"$ref": "#"}]}, "leads back to itself"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "not one that RE2 takes"),
        ({"patternProperties": {"(a)\\1": True}}, "not one that RE2 takes"),
        ({"pattern": "[^a]{900}"}, "instructions: at most"),
        ({"$schema": DRAFTS[2020], "unevaluatedProperties": False}, "cannot be checked by `unevaluatedProperties`"),
        ({"$schema": DRAFTS[2020], "$dynamicRef": "#x"}, "cannot be checked by"),
        ({"type": "record"}, "this is no JSON Schema"),
    ],
)
def test_what_cannot_be_checked_is_said_when_the_schema_is_given(schema: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        JsonCheck(json.dumps(schema))


def test_a_keyword_that_is_of_no_draft_of_the_schema_is_not_refused() -> None:
    assert not why({"$schema": DRAFTS[7], "unevaluatedProperties": False}, {"a": 1})


def doubling(levels: int) -> dict[str, Any]:
    """Return a schema that looks at a value in 2 ** levels ways."""
    both = {f"d{level}": {"anyOf": [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(levels)}
    return {"allOf": [{"$ref": "#/definitions/d0"}], "definitions": {**both, f"d{levels}": {"type": "string"}}}


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"left": found}
    return found


TREE = {"oneOf": [{"type": "integer"}, *({"properties": {"op": {"const": op}, "left": {"$ref": "#"}}} for op in ("add", "mul"))]}


@pytest.mark.timeout(30)  # what is not counted takes minutes
@pytest.mark.parametrize(
    ("schema", "value", "ends"),
    [
        (doubling(60), 1, OutOfSteps),
        (TREE, nested(100), OutOfSteps),
        ({"items": {"not": {"anyOf": [False] * 50_000}}}, [1] * 1_000, OutOfSteps),
        ({"items": {"not": {"oneOf": [False] * 50_000}}}, [1] * 1_000, OutOfSteps),
        (
            {"items": {"required": [f"n{number}" for number in range(20_000)]}},
            [{f"n{number}": 1 for number in range(19_999)}] * 2 + [{}] * 10,
            Misfit,
        ),
        ({"items": {"pattern": "[ab]{0,400}a[ab]{0,400}$"}}, ["ab" * 10_000], None),
    ],
)
def test_no_schema_and_no_value_take_more_than_their_steps(schema: Any, value: Any, ends: type[Exception] | None) -> None:
    check, data = JsonCheck(json.dumps(schema)), json.dumps(value).encode()
    with nullcontext() if ends is None else pytest.raises(ends):
        check.check(data, Meter(steps_of(data)))


def test_what_would_double_with_every_level_is_ended() -> None:
    with pytest.raises(OutOfSteps):
        JsonCheck(json.dumps(doubling(60))).check(b"1", Meter(steps_of(b"1")))


def test_what_nests_as_deep_as_a_value_may_is_checked() -> None:
    schema = {"type": ["object", "integer"], "required": ["left"], "minProperties": 1, "properties": {"left": {"$ref": "#"}}}
    assert not why(schema, nested(256))
    assert why({**schema, "type": "object"}, nested(256)).endswith(".left is an integer, not an object")
