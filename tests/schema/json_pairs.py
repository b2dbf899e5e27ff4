"""Pairs of JSON Schemas that are alike, and values of one, for a validator that judges what is said of them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from hypothesis import strategies as st

DEPTH_MAX = 3
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
NAMES = ("a", "b", "x-c")
SCALARS = (None, True, False, 0, 1, 2, 5, 1.5, -3, "", "a", "ab", "abc", "xyzw")

values = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


class JsonPairs:
    """Draws the writer's and the reader's schema side by side: most keywords are the same in both, or differ a little."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._refers = False

    def whole(self) -> tuple[Any, Any]:
        """Return the two schemas, at times with a definition that they and it refer to."""
        self._refers = self.chance(40)
        writer, reader = self.pair()
        if self._refers and isinstance(writer, dict) and isinstance(reader, dict):
            old, new = self.pair()
            return {**writer, "definitions": {"d": old}}, {**reader, "definitions": {"d": new}}
        return (writer, reader) if not self._refers else ({}, {})

    def one_of(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) < percent

    def pair(self, depth: int = 0) -> tuple[Any, Any]:
        if self.chance(5):
            return self.one_of(True, False, {}), self.one_of(True, False, {})
        if self._refers and depth and self.chance(25):
            return {"$ref": "#/definitions/d"}, {"$ref": "#/definitions/d"} if self.chance(80) else {}
        if self.chance(20) and depth < DEPTH_MAX:
            return self._combined(depth)
        kind = self.one_of(*(KINDS if depth < DEPTH_MAX else KINDS[:5]))
        writer, reader = getattr(self, f"_{kind}", self._plain)(depth)
        writer["type"] = kind
        if self.chance(90):
            reader["type"] = self.one_of(kind, kind, kind, [kind, "null"], "number" if kind == "integer" else kind, self.one_of(*KINDS))
        if self.chance(10):
            writer["enum"] = self._draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3))
            if self.chance(60):
                reader["enum"] = writer["enum"] + self._draw(st.lists(st.sampled_from(SCALARS), max_size=1))
        if self.chance(5):
            writer["const"] = self.one_of(*SCALARS)
        return writer, reader

    def either(self, keyword: str, *choices: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a keyword for both sides, absent on one or both of them at times."""
        first = self.one_of(*choices)
        second = first if self.chance(60) else self.one_of(*choices)
        return {keyword: first} if self.chance(35) else {}, {keyword: second} if self.chance(25) else {}

    def _both(self, *parts: tuple[dict[str, Any], dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
        writer: dict[str, Any] = {}
        reader: dict[str, Any] = {}
        for one, other in parts:
            writer |= one
            reader |= other
        return writer, reader

    def _plain(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}

    def _number(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._both(
            *(self.either(name, 0, 1, 2, 5) for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")),
            self.either("multipleOf", 1, 2, 0.5),
        )

    _integer = _number

    def _string(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._both(self.either("minLength", 0, 1, 2), self.either("maxLength", 1, 2, 3), self.either("pattern", "^a", "b"))

    def _array(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        writer, reader = self._both(
            self.either("minItems", 0, 1, 2), self.either("maxItems", 1, 2, 3), self.either("uniqueItems", True, False)
        )
        for side, inner in zip((writer, reader), self.pair(depth + 1), strict=True):
            if self.chance(70):
                side["items"] = inner
        first = [self.pair(depth + 1) for _ in range(self.one_of(0, 0, 1, 2))]
        for side, index in ((writer, 0), (reader, 1)):
            if first and self.chance(70):
                if "items" in side:
                    side["additionalItems"] = side["items"]
                side["items"] = [pair[index] for pair in first]
        return writer, reader

    def _object(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        pairs = {name: self.pair(depth + 1) for name in self._draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))}
        writer: dict[str, Any] = {"properties": {name: pair[0] for name, pair in pairs.items() if self.chance(85)}}
        reader: dict[str, Any] = {"properties": {name: pair[1] for name, pair in pairs.items() if self.chance(85)}}
        more = self.pair(depth + 1)
        for side, index in ((writer, 0), (reader, 1)):
            if self.chance(60):
                side["additionalProperties"] = self.one_of(False, False, True, more[index])
            if self.chance(25):
                side["patternProperties"] = {self.one_of("^x-", "a", "^[ab]$", "^[ab]$"): more[index]}
        writer |= {"required": self._draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))} if self.chance(40) else {}
        reader |= {"required": self._draw(st.lists(st.sampled_from(NAMES), max_size=1))} if self.chance(30) else {}
        return self._both(
            (writer, reader),
            self.either("minProperties", 0, 1, 2),
            self.either("maxProperties", 1, 2, 3),
            self.either("dependencies", {"a": ["b"]}, {"b": ["a"]}, {"a": {"required": ["b"]}}),
        )

    def _combined(self, depth: int) -> tuple[Any, Any]:
        """Draw one of many: a `oneOf` has branches of different types, as those that exclude each other."""
        word = self.one_of("anyOf", "allOf", "oneOf", "not", "$ref")
        if word == "not":
            writer, reader = self.pair(depth + 1)
            return {"not": writer}, {"not": reader} if self.chance(80) else {}
        if word == "oneOf":
            kinds = self._draw(st.lists(st.sampled_from(("null", "boolean", "integer", "string")), min_size=1, max_size=3, unique=True))
            found = [{"type": kind} for kind in kinds]
            return {word: found[: self.one_of(1, 2, 3)]}, {word: found}
        pairs = [self.pair(depth + 1) for _ in range(self.one_of(1, 2))]
        if word == "$ref":
            return pairs[0]
        writer, reader = {word: [pair[0] for pair in pairs]}, {word: [pair[1] for pair in pairs]}
        if self.chance(20):
            return pairs[0][0], reader
        return (writer, pairs[0][1]) if self.chance(15) else (writer, reader)


pairs = st.composite(lambda draw: JsonPairs(draw).whole())()


VALUES_MAX = 60  # of a part of a schema


def likely(schema: Any, depth: int = 0) -> Iterator[Any]:
    """Yield values that may be of a schema: what a keyword speaks of is in one of them."""
    yield from _likely(schema, depth)
    yield from SCALARS


def _likely(schema: Any, depth: int) -> Iterator[Any]:
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return
    yield from schema.get("enum", ())
    for word in ("anyOf", "allOf", "oneOf"):
        for inner in schema.get(word, ()):
            yield from some(inner, depth)
    properties = schema.get("properties", {})
    columns = {name: some(properties.get(name, schema.get("additionalProperties")), depth) for name in NAMES}
    for names in ((), NAMES[:1], NAMES[1:2], NAMES[:2], NAMES):
        for index in range(max([1, *(len(columns[name]) for name in names)])):
            yield {name: columns[name][min(index, len(columns[name]) - 1)] for name in names}
    items = schema.get("items", {})
    for first in some(items[0] if isinstance(items, list) and items else items, depth):
        yield from ([first], [first, 1], [first, first, "a"])
    yield []


def some(schema: Any, depth: int) -> list[Any]:
    return list(islice(likely(schema, depth + 1), VALUES_MAX))
