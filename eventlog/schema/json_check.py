"""Whether a value is what a JSON Schema takes, by functions that are made once for a schema.

Compiled validators exist. Those that write Python run a text made of a stranger's schema, and match its patterns with an engine that may
take for ever. None can be told to stop: `anyOf` within `anyOf` doubles the work with each level, of the schema and of the value. Here each
step is counted (`meter.py`), patterns are matched by RE2 in time that is linear in the text, and a `$ref` leads to the document itself.

What a schema says is what its draft says of it; `format` and keywords that are not known say nothing. `unevaluatedProperties`,
`unevaluatedItems`, `$dynamicRef` and `$recursiveRef` are refused: a value would pass that they rule out.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

import msgspec
import re2

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_PATTERN_SIZE_MAX
from eventlog.schema.json_types import DRAFTS_OF, JsonTypes, read_json_schema
from eventlog.schema.meter import Meter
from eventlog.schema.strict_json import Misfit

Part = Callable[[Any, Meter], Misfit | None]
"""Returns why a value does not fit, None if it does. Raises OutOfSteps."""

_decode = msgspec.json.Decoder().decode
_BYTES_A_STEP: Final = 32  # of decoding
_NAMES_A_STEP: Final = 16  # of looking them up
_KINDS: Final = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_NUMBERS: Final = (int, float)
_NOT_CHECKED: Final = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = 1 << 20
_ESCAPED_CODE: Final = re.compile(r"\\u([0-9A-Fa-f]{4})")
_PATTERN_BYTES_A_STEP: Final = 128  # times instructions: what RE2 does where it cannot remember its states


class JsonCheck:
    """Checks values by one schema."""

    def __init__(self, schema: str) -> None:
        """Take a schema as JSON.

        Raises:
            InvalidArgument: it is no JSON Schema, or says what cannot be checked.
        """
        self._fits = _Compiling(read_json_schema(schema)).whole()

    def check(self, value: bytes, meter: Meter) -> None:
        """Look at a value; what is no JSON is for others to refuse.

        Raises:
            Misfit: the schema does not take it; says where.
            OutOfSteps: it takes more steps than the meter has.
        """
        meter.take(2 + len(value) // _BYTES_A_STEP)
        try:
            found = _decode(value)
        except (ValueError, RecursionError):
            return
        if misfit := self._fits(found, meter):
            raise misfit


class _Compiling:
    """Makes functions of the schemas in a document. What a `$ref` leads to is made after what refers to it, and found when it is needed."""

    def __init__(self, types: JsonTypes) -> None:
        self._types = types
        self._made: dict[int, Part] = {}
        self._referred: list[Any] = []

    def whole(self) -> Part:
        found = self.part(self._types.root)
        while self._referred:
            tree = self._referred.pop()
            if id(tree) not in self._made:
                self._made[id(tree)] = self.part(tree)
        return found

    def part(self, tree: Any) -> Part:
        """Return what one schema says of a value."""
        if isinstance(tree, bool):
            return _takes_all if tree else _takes_none
        draft = self._types.draft
        says = {name: said for name, said in tree.items() if _is_of(name, draft)}
        for name in _NOT_CHECKED:
            if name in says:
                raise InvalidArgument(why=f"values cannot be checked by `{name}`: leave it out, or say it with other keywords")
        target = self._types.targets.get(id(tree))
        if target is not None and not self._types.counts_beside_ref:
            return self._later(target.tree)
        parts: dict[type, list[Part]] = {kind: [] for kind in _KINDS}
        if target is not None:
            _add(parts, _KINDS, self._later(target.tree))
        if "type" in says:
            _refuse_types(parts, says["type"], is_exact=draft == 4)
        _add_values(parts, says)
        _add_numbers(parts, says)
        _add_texts(parts, says)
        _add(parts, (list,), *self._of_lists(says))
        _add(parts, (dict,), *self._of_objects(says))
        _add(parts, _KINDS, *self._combined(says))
        return _together(parts)

    def parts(self, trees: Iterable[Any]) -> tuple[Part, ...]:
        return tuple(map(self.part, trees))

    def by_name(self, trees: Mapping[str, Any]) -> dict[str, Part]:
        return {name: self.part(tree) for name, tree in trees.items()}

    def _later(self, tree: Any) -> Part:
        self._referred.append(tree)
        made, place = self._made, id(tree)

        def referred(value: Any, meter: Meter) -> Misfit | None:
            return made[place](value, meter)

        return referred

    # ------------------------------------------------------------ arrays

    def _of_lists(self, says: Mapping[str, Any]) -> Iterable[Part]:
        yield from _sizes(says, "Items", "items")
        if says.get("uniqueItems"):
            yield _unique
        first, rest = says.get("prefixItems"), says.get("items")
        if isinstance(rest, list):
            first, rest = rest, says.get("additionalItems")
        if first is not None or rest is not None:
            yield _items(self.parts(first or ()), None if rest is None else self.part(rest))
        if "contains" in says:
            yield _contains(self.part(says["contains"]), least=int(says.get("minContains", 1)), most=says.get("maxContains"))

    # ------------------------------------------------------------ objects

    def _of_objects(self, says: Mapping[str, Any]) -> Iterable[Part]:
        yield from _sizes(says, "Properties", "properties")
        if says.get("required"):
            yield _required(says["required"])
        if "propertyNames" in says:
            yield _names(self.part(says["propertyNames"]))
        if {"properties", "patternProperties", "additionalProperties"} & says.keys():
            rest = says.get("additionalProperties", True)
            yield _members(
                self.by_name(says.get("properties", {})),
                [(_Pattern(name), part) for name, part in self.by_name(says.get("patternProperties", {})).items()],
                None if rest is True else _is_unknown if rest is False else self.part(rest),
            )
        asked: dict[str, Any] = {**says.get("dependentRequired", {})}
        schemas: dict[str, Any] = {**says.get("dependentSchemas", {})}
        for name, needs in says.get("dependencies", {}).items():
            (asked if isinstance(needs, list) else schemas)[name] = needs
        depending = [(name, _required(needs)) for name, needs in asked.items()]
        depending += self.by_name(schemas).items()
        if depending:
            yield _depending(depending)

    # ------------------------------------------------------------ schemas of the same value

    def _combined(self, says: Mapping[str, Any]) -> Iterable[Part]:
        yield from (part for part in self.parts(says.get("allOf", ())) if part is not _takes_all)
        if "anyOf" in says:
            yield _any_of(self.parts(says["anyOf"]))
        if "oneOf" in says:
            yield _one_of(self.parts(says["oneOf"]))
        if "not" in says:
            yield _is_not(self.part(says["not"]))
        if "if" in says and ("then" in says or "else" in says):
            yield _depends_on(self.part(says["if"]), self.part(says.get("then", True)), self.part(says.get("else", True)))


def _is_of(keyword: str, draft: int) -> bool:
    first, last = DRAFTS_OF.get(keyword, (0, 2020))
    return first <= draft <= last


def _add(parts: dict[type, list[Part]], kinds: Iterable[type], *more: Part) -> None:
    for kind in kinds:
        parts[kind] += more


def _together(parts: Mapping[type, list[Part]]) -> Part:
    if not any(parts.values()):
        return _takes_all
    most = max(map(len, parts.values()))
    return _one_each(parts) if most == 1 else _some_each({kind: tuple(found) for kind, found in parts.items()})


def _one_each(parts: Mapping[type, list[Part]]) -> Part:
    table = {kind: found[0] if found else None for kind, found in parts.items()}

    def fits(value: Any, meter: Meter) -> Misfit | None:
        meter.left -= 1
        if meter.left < 0:
            meter.take(0)
        part = table[type(value)]
        return None if part is None else part(value, meter)

    return fits


def _some_each(parts: Mapping[type, tuple[Part, ...]]) -> Part:
    def fits(value: Any, meter: Meter) -> Misfit | None:
        meter.left -= 1
        if meter.left < 0:
            meter.take(0)
        for part in parts[type(value)]:  # in here and not in a part of its own: a level of a value takes few calls
            if (misfit := part(value, meter)) is not None:
                return misfit
        return None

    return fits


def _takes_all(_value: Any, _meter: Meter) -> Misfit | None:
    return None


def _takes_none(_value: Any, _meter: Meter) -> Misfit | None:
    return Misfit("not allowed by the schema")


def _is_unknown(_value: Any, _meter: Meter) -> Misfit | None:
    return Misfit("a property that the schema does not have")


# ---------------------------------------------------------------- any value


def _refuse_types(parts: dict[type, list[Part]], wanted: Any, *, is_exact: bool) -> None:
    names = wanted if isinstance(wanted, list) else [wanted]
    text = " or ".join(names)
    for kind, name in _KINDS.items():
        if name not in names and not (kind is int and "number" in names):
            whole = kind is float and "integer" in names and not is_exact  # from draft 6 on 1.0 is an integer
            parts[kind].append(_whole(text) if whole else _refusing(f"{_with_article(name)}, not {_with_article(text)}"))


def _with_article(name: str) -> str:
    return name if name == "null" else f"{'an' if name[0] in 'aio' else 'a'} {name}"


def _refusing(why: str) -> Part:
    def refused(_value: Any, _meter: Meter) -> Misfit | None:
        return Misfit(why)

    return refused


def _whole(text: str) -> Part:
    def whole(value: float, _meter: Meter) -> Misfit | None:
        return None if value.is_integer() else Misfit(f"a number, not {_with_article(text)}")

    return whole


def _add_values(parts: dict[type, list[Part]], says: Mapping[str, Any]) -> None:
    free = Meter(1 << 62)
    for keyword in ("enum", "const"):
        if keyword in says:
            listed = says[keyword] if keyword == "enum" else [says[keyword]]
            _add(parts, _KINDS, _one_of_values(frozenset(_frozen(value, free) for value in listed)))


def _one_of_values(listed: frozenset[Any]) -> Part:
    why = f"none of the {len(listed)} values that the schema lists" if len(listed) != 1 else "not the one value that the schema has"

    def is_listed(value: Any, meter: Meter) -> Misfit | None:
        return None if (value if type(value) is str else _frozen(value, meter)) in listed else Misfit(why)

    return is_listed


def _frozen(value: Any, meter: Meter) -> Any:
    """Return what is equal for values that are equal in JSON, and can be hashed: 1 is 1.0 and not true."""
    meter.take(1)
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple([_frozen(item, meter) for item in value]))
    if isinstance(value, dict):
        return (dict, frozenset([(name, _frozen(item, meter)) for name, item in value.items()]))
    return value


# ---------------------------------------------------------------- numbers and texts


def _add_numbers(parts: dict[type, list[Part]], says: Mapping[str, Any]) -> None:
    for keyword, word in (("minimum", "less"), ("maximum", "more")):
        bound, strict = says.get(keyword), says.get(f"exclusive{keyword.title()}")
        if strict is True:  # draft 4: the other bound is meant
            bound, strict = None, bound
        sign = 1 if keyword == "minimum" else -1
        if bound is not None:
            _add(parts, _NUMBERS, _bounded(bound, sign, is_strict=False, why=f"{word} than {bound}"))
        if strict is not None and strict is not False:
            other = "more" if sign > 0 else "less"
            _add(parts, _NUMBERS, _bounded(strict, sign, is_strict=True, why=f"not {other} than {strict}"))
    if "multipleOf" in says:
        _add(parts, _NUMBERS, _multiple(says["multipleOf"]))


def _bounded(bound: float, sign: int, *, is_strict: bool, why: str) -> Part:
    def from_below(value: float, _meter: Meter) -> Misfit | None:
        return None if value > bound or (value == bound and not is_strict) else Misfit(why)

    def from_above(value: float, _meter: Meter) -> Misfit | None:
        return None if value < bound or (value == bound and not is_strict) else Misfit(why)

    return from_below if sign > 0 else from_above


def _multiple(of: float) -> Part:
    unit = Decimal(repr(of))

    def is_multiple(value: float, meter: Meter) -> Misfit | None:
        if type(value) is int and type(of) is int:
            return None if value % of == 0 else Misfit(f"no multiple of {of}")
        meter.take(5)
        number = Decimal(repr(value))  # as it is written: 0.3 is a multiple of 0.1
        try:
            rest = _remainder(number, unit)
        except InvalidOperation:  # they are too far apart
            meter.take(100)
            rest = Decimal((Fraction(number) / Fraction(unit)).denominator - 1)
        return Misfit(f"no multiple of {of}") if rest else None

    return is_multiple


_remainder: Final = Context(prec=40).remainder


def _add_texts(parts: dict[type, list[Part]], says: Mapping[str, Any]) -> None:
    _add(parts, (str,), *_sizes(says, "Length", "characters"))
    if "pattern" in says:
        _add(parts, (str,), _matching(_Pattern(says["pattern"])))


class _Pattern:
    """An expression that is looked for anywhere in a text."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        try:
            compiled = re2.compile(_ESCAPED_CODE.sub(r"\\x{\1}", expression), _OPTIONS)
        except re2.error as error:
            said = error.args[0] if error.args else error
            why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
            raise InvalidArgument(why=f"the pattern {expression[:100]!r} is not one that RE2 takes: {why[:200]}") from error
        self._size: int = compiled.programsize
        if self._size > SCHEMA_PATTERN_SIZE_MAX:
            raise InvalidArgument(
                why=f"the pattern {expression[:100]!r} makes {self._size} instructions: at most {SCHEMA_PATTERN_SIZE_MAX} are taken"
            )
        self._search = compiled.search

    def is_in(self, text: str, meter: Meter) -> bool:
        data = text.encode("utf-8", "surrogatepass")  # twice as fast as to hand over the text
        meter.take(10 + len(data) * self._size // _PATTERN_BYTES_A_STEP)
        return self._search(data) is not None


def _matching(pattern: _Pattern) -> Part:
    def matches(value: str, meter: Meter) -> Misfit | None:
        return None if pattern.is_in(value, meter) else Misfit(f"not of the pattern {pattern.expression[:100]}")

    return matches


def _sizes(says: Mapping[str, Any], what: str, unit: str) -> Iterable[Part]:
    """Yield the bounds of how many characters, items or properties there are."""
    if f"min{what}" in says:
        yield _least(int(says[f"min{what}"]), unit)
    if f"max{what}" in says:
        yield _most(int(says[f"max{what}"]), unit)


def _least(least: int, unit: str) -> Part:
    def is_enough(value: Any, _meter: Meter) -> Misfit | None:
        return None if len(value) >= least else Misfit(f"of {len(value)} {unit}, less than {least}")

    return is_enough


def _most(most: int, unit: str) -> Part:
    def is_bounded(value: Any, _meter: Meter) -> Misfit | None:
        return None if len(value) <= most else Misfit(f"of {len(value)} {unit}, more than {most}")

    return is_bounded


# ---------------------------------------------------------------- arrays


def _unique(value: list[Any], meter: Meter) -> Misfit | None:
    seen = set()
    for place, item in enumerate(value):
        frozen = _frozen(item, meter)
        if frozen in seen:
            return Misfit("equal to an item before it").within(place)
        seen.add(frozen)
    return None


def _items(first: tuple[Part, ...], rest: Part | None) -> Part:
    def fit(value: list[Any], meter: Meter) -> Misfit | None:
        for place, item in enumerate(value):
            part = first[place] if place < len(first) else rest
            if part is None:
                return None
            if (misfit := part(item, meter)) is not None:
                return misfit.within(place)
        return None

    return fit


def _contains(part: Part, *, least: int, most: float | None) -> Part:
    def fit(value: list[Any], meter: Meter) -> Misfit | None:
        found = sum([part(item, meter) is None for item in value])
        if least <= found and (most is None or found <= most):
            return None
        bound = f"less than {least}" if found < least else f"more than {int(most or 0)}"
        return Misfit(f"with {found} of the items that `contains` asks for, {bound}")

    return fit


# ---------------------------------------------------------------- objects


def _required(names: list[str]) -> Part:
    steps = len(names) // _NAMES_A_STEP

    def has_all(value: dict[str, Any], meter: Meter) -> Misfit | None:
        meter.left -= steps
        for name in names:
            if name not in value:
                return Misfit(f"without {name!r}")
        return None

    return has_all


def _names(part: Part) -> Part:
    def fit(value: dict[str, Any], meter: Meter) -> Misfit | None:
        for name in value:
            if (misfit := part(name, meter)) is not None:
                return Misfit(f"under a name that is {misfit.why}").within(name)
        return None

    return fit


def _members(named: dict[str, Part], patterns: list[tuple[_Pattern, Part]], rest: Part | None) -> Part:
    if patterns:
        return _matched_members(named, patterns, rest)

    def fit(value: dict[str, Any], meter: Meter) -> Misfit | None:
        for name, item in value.items():
            part = named.get(name, rest)
            if part is not None and (misfit := part(item, meter)) is not None:
                return misfit.within(name)
        return None

    return fit


def _matched_members(named: dict[str, Part], patterns: list[tuple[_Pattern, Part]], rest: Part | None) -> Part:
    def fit(value: dict[str, Any], meter: Meter) -> Misfit | None:
        for name, item in value.items():
            parts = [named[name]] if name in named else []
            parts += [part for pattern, part in patterns if pattern.is_in(name, meter)]
            if not parts and rest is not None:
                parts.append(rest)
            for part in parts:
                if (misfit := part(item, meter)) is not None:
                    return misfit.within(name)
        return None

    return fit


def _depending(parts: list[tuple[str, Part]]) -> Part:
    steps = len(parts) // _NAMES_A_STEP

    def fit(value: dict[str, Any], meter: Meter) -> Misfit | None:
        meter.left -= steps
        for name, part in parts:
            if name in value and (misfit := part(value, meter)) is not None:
                return misfit
        return None

    return fit


# ---------------------------------------------------------------- schemas of the same value


def _any_of(parts: tuple[Part, ...]) -> Part:
    def fit(value: Any, meter: Meter) -> Misfit | None:
        nearest = None
        meter.left -= len(parts)
        for part in parts:
            if (misfit := part(value, meter)) is None:
                return None
            if nearest is None or len(misfit.steps) > len(nearest.steps):
                nearest = misfit
        return nearest if nearest is not None and nearest.steps else _of_none(parts)

    return fit


def _of_none(parts: tuple[Part, ...]) -> Misfit:
    return Misfit(f"of none of the {len(parts)} kinds that the schema takes")


def _one_of(parts: tuple[Part, ...]) -> Part:
    any_of = _any_of(parts)

    def fit(value: Any, meter: Meter) -> Misfit | None:
        meter.left -= len(parts)
        found = sum([part(value, meter) is None for part in parts])
        if found == 1:
            return None
        return any_of(value, meter) if not found else Misfit(f"of {found} of the kinds of which the schema takes one")

    return fit


def _is_not(part: Part) -> Part:
    def fit(value: Any, meter: Meter) -> Misfit | None:
        return None if part(value, meter) is not None else Misfit("what `not` of the schema rules out")

    return fit


def _depends_on(condition: Part, then: Part, otherwise: Part) -> Part:
    def fit(value: Any, meter: Meter) -> Misfit | None:
        return (otherwise if condition(value, meter) is not None else then)(value, meter)

    return fit
