"""Whether one JSON Schema takes every value that another does, as a registry has to know before a reader's schema takes a writer's place.

In the manner of Confluent's difference of schemas: a property that the writer's schema does not name may hold anything where its content
model is open (`additionalProperties` absent or true), so a reader may name it only without a condition; where it is closed, a property may
be added; where a schema stands there, the new property has to take what that schema takes. The other way round, a property may be left out
where the reader's model is open. A required property may be added if it has a default, which the reader is taken to fill in.

Covered are: `type`, `enum`, `const`; the bounds of numbers, texts, arrays and objects, `multipleOf`, `pattern`, `uniqueItems`;
`properties`, `required`, `additionalProperties`, `patternProperties`; `items`, `prefixItems`, `additionalItems`; `dependencies` and its two
heirs; `allOf`, `anyOf`, `oneOf`, `not`; `$ref`, recursive ones too. The branches of a `oneOf` are taken to exclude each other, as their
author says, so one more is an extension. Patterns are compared as text, and matched against names only where they are plain ones: an
expression of somebody else's may take for ever. `format` and what describes (`title`, `default`, `examples`, names with a dot or that
begin with `x-`) say nothing of values.

Everything else is judged incompatible unless the whole schema around it is the same on both sides. So is what takes more than
`SCHEMA_STEPS_MAX` steps. The answer errs on one side only: two schemas that are called compatible are.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, product
from math import inf
from typing import Any

from eventlog.limits import SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX
from eventlog.schema.json_types import DRAFTS_OF, JsonTypes, SchemaNode

_KINDS = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})
_NUMBERS = frozenset({"integer", "fraction"})
_DESCRIBING = frozenset(
    {
        "title", "description", "default", "examples", "example", "$comment", "$id", "id", "$schema", "$anchor", "definitions", "$defs",
        "format", "readOnly", "writeOnly", "deprecated", "contentEncoding", "contentMediaType", "contentSchema", "$vocabulary",
    }
)  # fmt: skip
_REFERRING = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_IN_PLACE = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not"})
_COVERED = frozenset(
    {
        "type", "enum", "const", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "maxLength", "minLength",
        "pattern", "maxItems", "minItems", "uniqueItems", "items", "prefixItems", "additionalItems", "maxProperties", "minProperties",
        "properties", "required", "additionalProperties", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas",
    }
)  # fmt: skip
_NARROWING = frozenset(
    {"if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)
"""Not covered, but known to take values away: without harm where the writer has them and the reader does not."""


def why_json_not_read(*, reader: JsonTypes, writer: JsonTypes) -> str:
    """Return what in the reader's schema does not take some value of the writer's, empty if it takes all of them."""
    if reader.normal == writer.normal and all(target.home is writer for target in writer.targets.values()):
        return ""
    comparison = _Comparison()
    try:
        return comparison.why([writer.top], reader.top, "#")
    except (_TooMuch, RecursionError):
        return f"the schemas take more than {SCHEMA_STEPS_MAX} steps to compare, or nest too deep in each other"


class _TooMuch(Exception):
    """A word between a comparison and its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _All:
    """Values for which all of this holds. `bases` are objects of a schema; each of `sums` has a branch that holds, none of `nots` does.

    `listed` are the only possible values by their text, None where any is possible.
    """

    bases: tuple[SchemaNode, ...] = ()
    sums: tuple[tuple[SchemaNode, ...], ...] = ()
    nots: tuple[SchemaNode, ...] = ()
    kinds: frozenset[str] = _KINDS
    listed: Mapping[str, Any] | None = None

    def __and__(self, other: "_All") -> "_All":
        kinds = self.kinds & other.kinds
        listed = self.listed if other.listed is None else other.listed
        if self.listed is not None and other.listed is not None:
            listed = {text: value for text, value in self.listed.items() if text in other.listed}
        if listed is not None:
            listed = {text: value for text, value in listed.items() if _kind_of(value) in kinds}
            kinds &= frozenset(map(_kind_of, listed.values()))
        return _All(
            bases=self.bases + other.bases,
            sums=self.sums + other.sums,
            nots=self.nots + other.nots,
            kinds=kinds,
            listed=listed,
        )

    def get(self, keyword: str) -> list[Any]:
        """Return what the bases say under a keyword."""
        return [base.tree[keyword] for base in self.bases if keyword in base.tree]

    def divided(self) -> "list[_All]":
        """Return parts that are these values together: by type, or one by one where they are listed. One part: it is not divided."""
        if self.listed is not None:
            return [self & _All(listed={text: value}) for text, value in self.listed.items()]
        if self.kinds <= {"null", "boolean"}:
            return (self & _ALL_SHORT).divided()
        kinds = [_NUMBERS & self.kinds, *(frozenset({kind}) for kind in sorted(self.kinds - _NUMBERS))]
        return [self & _All(kinds=one) for one in kinds if one]


_NOTHING = _All(kinds=frozenset())
_ALL_SHORT = _All(listed={"null": None, "true": True, "false": False})
"""All values of the types that have few."""


class _Comparison:
    """Goes through two schemas. `why(os, u)`: why not every value that all of `os` take is taken by `u`; empty if it is."""

    def __init__(self) -> None:
        self._steps = 0
        self._open: set[tuple[frozenset[int], int]] = set()
        self._texts: dict[int, str] = {}

    def why(self, writers: Iterable[SchemaNode], reader: SchemaNode, at: str) -> str:
        """Say why not; at a place that is being looked at already the answer is that of all else there (schemas are recursive)."""
        written = _All()
        writers = list(writers)
        for writer in writers:
            written &= self._parts(writer)
        pair = (frozenset(id(writer.tree) for writer in writers), id(reader.tree))
        if pair in self._open:
            return ""
        if len(self._open) >= SCHEMA_DEPTH_MAX:
            raise _TooMuch
        self._open.add(pair)
        why = self._why(written, reader, at)
        self._open.discard(pair)
        return why

    def spend(self, steps: int) -> None:
        """Count steps.

        Raises:
            _TooMuch: there have been too many.
        """
        self._steps += steps
        if self._steps > SCHEMA_STEPS_MAX:
            raise _TooMuch

    def text(self, tree: Any) -> str:
        """Return the text of a schema that is part of one of the two."""
        found = self._texts.get(id(tree))
        if found is None:
            found = self._texts[id(tree)] = _text(tree)
        return found

    def _parts(self, node: SchemaNode) -> _All:
        """Return a schema as what has to hold together; what it refers to included."""
        tree = node.tree
        if isinstance(tree, bool):
            return _All() if tree else _NOTHING
        self.spend(1 + len(tree) + len(tree.get("enum", ())))
        found = _All()
        if node.target is not None:
            found &= self._parts(node.target)
            if not node.home.counts_beside_ref:
                return found
        for inner in tree.get("allOf", ()):
            found &= self._parts(node.below(inner))
        sums = tuple(tuple(node.below(inner) for inner in tree[name]) for name in ("anyOf", "oneOf") if name in tree)
        nots = (node.below(tree["not"]),) if "not" in tree else ()
        return found & _All(bases=(node,), sums=sums, nots=nots, kinds=_kinds(tree), listed=_listed(node))

    def _why(self, written: _All, reader: SchemaNode, at: str) -> str:
        if not written.kinds:
            return ""
        read = self._parts(reader)
        if not read.kinds:
            return f"{at}: nothing is taken, and something was"
        for base in read.bases:
            if why := self._divided(written, base, at):
                return why
        for branches in read.sums:
            if why := self._of_sum(written, branches, at):
                return why
        for refused in read.nots:
            if not self._excludes(written, refused, at):
                return f"{at}: `not` refuses what may have been written"
        return ""

    def _divided(self, written: _All, base: SchemaNode, at: str) -> str:
        """Compare with a base: as a whole, and where that fails branch by branch of what was written."""
        if not written.kinds:
            return ""
        why = _Bases(self, written, base, at).why()
        if why and written.sums:
            *sums, branches = written.sums
            rest = replace(written, sums=tuple(sums))
            whys = (self._divided(rest & self._parts(branch), base, at) for branch in branches)
            return next(filter(None, whys), "")
        return why

    def _of_sum(self, written: _All, branches: Sequence[SchemaNode], at: str) -> str:
        """Compare with branches one of which has to take a value: all values by one, or each part of them by one of its own."""
        self.spend(1 + len(written.listed or ()))
        if not written.kinds or any(not self._why(written, branch, at) for branch in branches):
            return ""
        parts: Iterable[_All] = written.divided()
        if written.sums:
            *sums, divided = written.sums
            rest = replace(written, sums=tuple(sums))
            parts = (rest & self._parts(branch) for branch in divided)
        elif len(written.divided()) == 1:
            return f"{at}: no branch of `anyOf` or `oneOf` takes what may have been written"
        return next(filter(None, (self._of_sum(part, branches, at) for part in parts)), "")

    def _excludes(self, written: _All, refused: SchemaNode, at: str) -> bool:
        """Whether no value that was written is one of `refused`, as far as types and the writer's own `not` tell."""
        parts = self._parts(refused)
        if not (parts & written).kinds:
            return True
        if any(not self._why(parts, other, at) for other in written.nots):
            return True
        if not written.sums:
            return False
        *sums, branches = written.sums
        rest = replace(written, sums=tuple(sums))
        return all(self._excludes(rest & self._parts(branch), refused, at) for branch in branches)


class _Bases:
    """What was written, against the keywords of one object of the reader's."""

    def __init__(self, comparison: _Comparison, written: _All, base: SchemaNode, at: str) -> None:
        self._comparison = comparison
        self._written = written
        self._node = base
        self._read: dict[str, Any] = base.tree
        self._at = at

    def why(self) -> str:
        """Return the first keyword that does not take what was written, and where it stands."""
        if self._is_same():
            return ""
        if unknown := next(self._unknown(), None):
            return f"{self._at}/{unknown}: cannot be compared"
        if not self._written.kinds <= _kinds(self._read):
            lost = min(self._written.kinds - _kinds(self._read))
            return f"{self._at}/type: {'number' if lost == 'fraction' else lost} is not taken any more"
        wanted, listed = _listed(self._node), self._written.listed
        if listed is None and self._written.kinds <= {"null", "boolean"}:
            listed = (self._written & _ALL_SHORT).listed
        if wanted is not None and (listed is None or not listed.keys() <= wanted.keys()):
            return f"{self._at}/enum: not all values that were possible are among its own"
        kinds = self._written.kinds
        checks = [
            self._numbers if kinds & _NUMBERS else None,
            self._texts if "string" in kinds else None,
            self._items if "array" in kinds else None,
            self._object if "object" in kinds else None,
        ]
        return next(filter(None, (check() for check in checks if check is not None)), "")

    def _is_same(self) -> bool:
        """Whether a writer's base is the same, word for word, and no word means something else elsewhere."""
        return any(
            base.home.draft == self._node.home.draft
            and self._comparison.text(base.tree) == self._comparison.text(self._read)
            and not _refers(self._read)
            for base in self._written.bases
            if base.tree.keys() == self._read.keys()
        )

    def _unknown(self) -> Iterator[str]:
        yield from _unknown(self._node, _COVERED | _IN_PLACE)
        for base in self._written.bases:
            yield from _unknown(base, _COVERED | _IN_PLACE | _NARROWING)

    # ------------------------------------------------------------ numbers and texts

    def _numbers(self) -> str:
        numbers = [value for value in (self._written.listed or {}).values() if _kind_of(value) in _NUMBERS]
        low = max([(min(numbers, default=-inf), False), *(_low(base.tree) for base in self._written.bases)])
        high = min([(max(numbers, default=inf), True), *(_high(base.tree) for base in self._written.bases)])
        if _low(self._read) > low:
            return f"{self._at}/minimum: smaller numbers were taken"
        if _high(self._read) < high:
            return f"{self._at}/maximum: larger numbers were taken"
        if "multipleOf" in self._read:
            step = _exact(self._read["multipleOf"])
            steps = [_exact(found) for found in self._written.get("multipleOf")]
            if "fraction" not in self._written.kinds:
                steps.append(Fraction(1))
            if not any(found % step == 0 for found in steps):
                return f"{self._at}/multipleOf: other numbers were taken"
        return ""

    def _texts(self) -> str:
        lengths = [len(value) for value in (self._written.listed or {}).values() if isinstance(value, str)]
        if why := self._count("Length", least=min(lengths, default=0), most=max(lengths, default=inf)):
            return why
        if "pattern" in self._read and self._read["pattern"] not in self._written.get("pattern"):
            return f"{self._at}/pattern: texts were not bound to it"
        return ""

    def _count(self, what: str, *, least: float, most: float) -> str:
        """Compare `minX` and `maxX`, where `least` and `most` are known of what was written without them."""
        if self._read.get(f"min{what}", 0) > max([least, *self._written.get(f"min{what}")]):
            return f"{self._at}/min{what}: fewer were taken"
        if self._read.get(f"max{what}", inf) < min([most, *self._written.get(f"max{what}")]):
            return f"{self._at}/max{what}: more were taken"
        return ""

    # ------------------------------------------------------------ arrays

    def _items(self) -> str:
        bases = [*map(_items_of, self._written.bases)]
        most = min([inf, *(len(first) for first, rest in bases if rest is not None and rest.tree is False)])
        if why := self._count("Items", least=0, most=most):
            return why
        most = min([most, *self._written.get("maxItems")])
        if self._read.get("uniqueItems") and True not in self._written.get("uniqueItems") and most > 1:
            return f"{self._at}/uniqueItems: an item could be there twice"
        first, rest = _items_of(self._node)
        length = max([len(first), *(len(found) for found, _ in bases)])
        for index in range(length + 1):
            wanted = first[index] if index < len(first) else rest
            if wanted is not None and index < most:
                given = [found[index] if index < len(found) else further for found, further in bases]
                if why := self._comparison.why([one for one in given if one is not None], wanted, f"{self._at}/items/{index}"):
                    return why
        return ""

    # ------------------------------------------------------------ objects

    def _object(self) -> str:
        required = {name for names in self._written.get("required") for name in names}
        properties = self._read.get("properties", {})
        for name in self._read.get("required", ()):
            if name not in required and "default" not in (found if isinstance(found := properties.get(name), dict) else {}):
                return f"{self._at}/required/{name}: it was not required, and has no default"
        closed = [len(base.tree.get("properties", ())) for base in self._written.bases if _is_closed(base.tree)]
        if why := self._count("Properties", least=len(required), most=min([inf, *closed])):
            return why
        return self._properties() or self._other_properties() or self._dependent(required)

    def _properties(self) -> str:
        names = dict.fromkeys(self._read.get("properties", ()))
        names |= dict.fromkeys(name for base in self._written.bases for name in base.tree.get("properties", ()))
        count = sum(len(base.tree.get("patternProperties", ())) for base in (self._node, *self._written.bases))
        for name in names:
            self._comparison.spend(1 + count)
            for wanted, patterns in self._wanted(name):
                given = [_given(base, name, taken=patterns) for base in self._written.bases]
                if why := self._all_of(given, wanted, f"{self._at}/properties/{name}"):
                    return why
        return ""

    def _wanted(self, name: str) -> Iterator[tuple[SchemaNode, dict[str, bool]]]:
        """Yield what the reader's object may say of a property, and of which patterns it is taken for granted then whether they match."""
        named = self._read.get("properties", {})
        patterns = self._read.get("patternProperties", {})
        if name in named:
            yield self._node.below(named[name]), {}
        for pattern, tree in patterns.items():
            if _matches(pattern, name) is not False:
                yield self._node.below(tree), {pattern: True}
        is_covered = name in named or any(_matches(pattern, name) for pattern in patterns)
        if not is_covered and "additionalProperties" in self._read:
            yield self._node.below(self._read["additionalProperties"]), dict.fromkeys(patterns, False)

    def _other_properties(self) -> str:
        """Compare what is said of properties that neither side names."""
        patterns = self._read.get("patternProperties", {})
        for pattern, tree in patterns.items():
            given = [_of_pattern(base, pattern) for base in self._written.bases]
            if why := self._all_of(given, self._node.below(tree), f"{self._at}/patternProperties/{pattern}"):
                return why
        if "additionalProperties" not in self._read:
            return ""
        given = [_others(base, without=patterns) for base in self._written.bases]
        return self._all_of(given, self._node.below(self._read["additionalProperties"]), f"{self._at}/additionalProperties")

    def _all_of(self, given: Iterable[list[list[SchemaNode]]], wanted: SchemaNode, at: str) -> str:
        """Compare whichever may hold of what each of the writer's bases says."""
        whys = (self._comparison.why(chain.from_iterable(chosen), wanted, at) for chosen in product(*given))
        return next(filter(None, whys), "")

    def _dependent(self, required: set[str]) -> str:
        wanted = _dependent(self._node)
        if not wanted:
            return ""
        given = [_dependent(base) for base in self._written.bases]
        for name, (names, schema) in wanted.items():
            found = [one[name] for one in given if name in one]
            known = required | {name} | {other for others, _ in found for other in others}
            if not set(names) <= known:
                return f"{self._at}/dependencies/{name}: not all that it asks for had to be there"
            if schema is not None:
                schemas = [one for _, one in found if one is not None]
                if why := self._comparison.why([*self._written.bases, *schemas], schema, f"{self._at}/dependencies/{name}"):
                    return why
        return ""


# ---------------------------------------------------------------- what a keyword says


def _unknown(node: SchemaNode, known: frozenset[str]) -> Iterator[str]:
    """Yield keywords of which nobody here knows what they mean, in this draft or at all."""
    for keyword in node.tree:
        first, last = DRAFTS_OF.get(keyword, (0, 2020))
        is_known = keyword in known and first <= node.home.draft <= last
        if not is_known and keyword not in _DESCRIBING and "." not in keyword and not keyword.startswith("x-"):
            yield keyword


def _refers(tree: Any) -> bool:
    if isinstance(tree, list):
        return any(map(_refers, tree))
    return isinstance(tree, dict) and any(
        name in {"$ref", "$dynamicRef", "$recursiveRef"} or _refers(inner) for name, inner in tree.items()
    )


def _kinds(tree: dict[str, Any]) -> frozenset[str]:
    if "type" not in tree:
        return _KINDS
    listed = tree["type"] if isinstance(tree["type"], list) else [tree["type"]]
    return frozenset(kind for name in listed for kind in (_NUMBERS if name == "number" else (name,)))


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "fraction"
    return {type(None): "null", str: "string", list: "array", dict: "object"}[type(value)]


def _text(value: Any) -> str:
    """Return a text that is the same for values that are equal as JSON: 1 and 1.0 are, 1 and true are not."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value == int(value):
            return int(value)
        if isinstance(value, list):
            return [plain(item) for item in value]
        return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value

    return json.dumps(plain(value), sort_keys=True)


def _listed(node: SchemaNode) -> dict[str, Any] | None:
    """Return the values that `enum` and `const` leave by their texts, None where there is neither."""
    tree = node.tree
    found = {_text(value): value for value in tree["enum"]} if "enum" in tree else None
    if "const" in tree:
        text = _text(tree["const"])
        return {text: tree["const"]} if found is None or text in found else {}
    return found


def _low(tree: dict[str, Any]) -> tuple[float, bool]:
    """Return the lower bound, and whether it is itself left out; the tuple of a tighter bound is larger."""
    low, open_low = tree.get("minimum", -inf), tree.get("exclusiveMinimum", -inf)
    if isinstance(open_low, bool):  # draft 4
        return low, open_low and low != -inf
    return max((low, False), (open_low, open_low != -inf))


def _high(tree: dict[str, Any]) -> tuple[float, bool]:
    """Return the upper bound, and whether it is itself taken; the tuple of a tighter bound is smaller."""
    high, open_high = tree.get("maximum", inf), tree.get("exclusiveMaximum", inf)
    if isinstance(open_high, bool):
        return high, not (open_high and high != inf)
    return min((high, True), (open_high, open_high == inf))


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


def _items_of(node: SchemaNode) -> tuple[list[SchemaNode], SchemaNode | None]:
    """Return what is said of the first items, one by one, and of the rest."""
    tree = node.tree
    items = tree.get("items")
    if isinstance(items, list):
        first, rest = items, tree.get("additionalItems")
    else:
        first, rest = tree.get("prefixItems", []), items
    return [node.below(one) for one in first], None if rest is None else node.below(rest)


def _is_closed(tree: dict[str, Any]) -> bool:
    return tree.get("additionalProperties") is False and not tree.get("patternProperties")


def _given(base: SchemaNode, name: str, *, taken: Mapping[str, bool]) -> list[list[SchemaNode]]:
    """Return what the writer's object says of a property, or each of what it may say. Whether patterns in `taken` match is known."""
    tree = base.tree
    matching = {pattern: taken.get(pattern, _matches(pattern, name)) for pattern in tree.get("patternProperties", ())}
    certain = [base.below(tree["properties"][name])] if name in tree.get("properties", {}) else []
    certain += [base.below(tree["patternProperties"][pattern]) for pattern, found in matching.items() if found]
    return [certain] if certain else _others(base, without=[pattern for pattern, found in matching.items() if found is False])


def _others(base: SchemaNode, *, without: Container[str] = ()) -> list[list[SchemaNode]]:
    """Return what the writer's object may say of a property that it does not name: what stands under a pattern, or for all others."""
    tree = base.tree
    perhaps = [[base.below(inner)] for pattern, inner in tree.get("patternProperties", {}).items() if pattern not in without]
    return [*perhaps, [base.below(tree["additionalProperties"])] if "additionalProperties" in tree else []]


def _of_pattern(base: SchemaNode, pattern: str) -> list[list[SchemaNode]]:
    patterns = base.tree.get("patternProperties", {})
    return [[base.below(patterns[pattern])]] if pattern in patterns else _others(base)


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- /:@#%&~=<>!,;'\"")


def _matches(pattern: str, name: str) -> bool | None:
    """Return whether a name matches, None where the pattern is more than a plain beginning, end, middle or whole of a name."""
    if pattern in {".*", "^.*$", "^.*", ".*$", ""}:
        return True if "\n" not in name else None
    starts, ends = pattern.startswith("^"), pattern.endswith("$")
    middle = pattern[1 if starts else 0 : len(pattern) - 1 if ends else None]
    if not set(middle) <= _PLAIN:
        return None
    if starts and ends:
        return name == middle
    return name.startswith(middle) if starts else name.endswith(middle) if ends else middle in name


def _dependent(node: SchemaNode) -> dict[str, tuple[list[str], SchemaNode | None]]:
    """Return the names and the schema that a property asks for when it is there."""
    found: dict[str, tuple[list[str], SchemaNode | None]] = {}
    tree = node.tree
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for name, wanted in tree.get(keyword, {}).items():
            names, schema = found.get(name, ([], None))
            found[name] = (wanted, schema) if isinstance(wanted, list) else (names, node.below(wanted))
    return found
