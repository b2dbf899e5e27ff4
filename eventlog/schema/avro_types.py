"""An Avro schema taken apart, as strictly as the specification (1.12) has it: every name known, every default of its type.

Named types stand once, in a table; elsewhere stands their full name. So what goes through a schema has no depth but that of its JSON, and
a schema that needs others (a registry's references) is one whose table begins with theirs.

Stricter than fastavro, which takes two types of one name, names of any spelling, unions in unions and arrays as a default of arrays of
something else. As Java's library, and unlike the specification, a name without a namespace that its surroundings lack is looked up without
one: that library writes such names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX
from eventlog.schema.avro import PRIMITIVE_TYPES, is_logical
from eventlog.schema.reading import read_schema_json

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})*")
_RECORDS = frozenset({"record", "error"})
_NAMED = _RECORDS | {"enum", "fixed"}
Decimal = tuple[int, int]  # precision and scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    name: str
    decimal: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    items: "Type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    values: "Type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    branches: tuple["Type", ...]


Type = Primitive | Array | Map | Union | str
"""A string is the full name of a type in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: Type
    has_default: bool
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A record, an enum or a fixed. `json` is what its schema says, with the full name of each further type in place of it."""

    kind: str
    name: str
    aliases: frozenset[str]
    json: dict[str, Any]
    fields: tuple[Field, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None  # of an enum
    size: int = 0
    decimal: Decimal | None = None

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroTypes:
    """A schema: `root` and the types by name, those of other schemas included. `normal` is the same for all spellings of it.

    `normal` keeps documentation, defaults, aliases and whatever else is said; names are full, the order of attributes is one.
    """

    root: Type
    named: Mapping[str, Named]
    normal: str
    json: Any = field(repr=False)

    def alone(self) -> str:
        """Return a schema that means the same and needs no other.

        Raises:
            InvalidArgument: types of other schemas nest too deep in each other for one.
        """
        return _written(_inlined(self.json, self.named))

    def fields_alone(self) -> list[dict[str, Any]]:
        """Return the fields of a record, each with the types that it names.

        Raises:
            InvalidArgument: as `alone`.
        """
        assert isinstance(self.root, str), "it is a record"
        return [{**one, "type": _inlined(one["type"], self.named)} for one in self.named[self.root].json["fields"]]


def read_avro(text: str, others: Iterable["AvroTypes"] = ()) -> AvroTypes:
    """Return a schema that may name types of `others`.

    Raises:
        InvalidArgument: it is no Avro schema; says where and why.
    """
    given = read_schema_json(text, what="an Avro schema")
    known = {name: named for other in others for name, named in other.named.items()}
    reading = _SchemaReading(known)
    root, flat = reading.type(given, space="", at="schema")
    reading.check_defaults()
    own = {name: named for name, named in reading.named.items() if name not in known}
    return AvroTypes(root=root, named=reading.named, normal=_written(_inlined(flat, own)), json=flat)


def _written(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class _SchemaReading:
    """Reads the JSON of one schema. A type is returned with its JSON, in which types with a name are that."""

    def __init__(self, known: Mapping[str, Named]) -> None:
        self.named: dict[str, Named] = dict(known)
        self._defaults: list[tuple[Type, Any, str]] = []
        self._begun: set[str] = set(known)

    def type(self, given: Any, *, space: str, at: str) -> tuple[Type, Any]:
        if isinstance(given, str):
            return self._of_name(given, space=space, at=at)
        if isinstance(given, list):
            return self._union(given, space=space, at=at)
        if not isinstance(given, dict):
            raise _wrong(at, f"{given!r} is no type")
        kind = given.get("type")
        if not isinstance(kind, str):
            raise _wrong(at, "a type is an object with the name of one under `type`")
        if kind in _NAMED:
            return self._definition(kind, given, space=space, at=at)
        if kind in {"array", "map"}:
            part = "items" if kind == "array" else "values"
            if part not in given:
                raise _wrong(at, f"{kind} lacks `{part}`")
            inner, flat = self.type(given[part], space=space, at=f"{at}.{part}")
            found: Type = Array(items=inner) if kind == "array" else Map(values=inner)
            return found, {**given, part: flat}
        if kind not in PRIMITIVE_TYPES:
            return self._of_name(kind, space=space, at=at)
        return Primitive(name=kind, decimal=_decimal(given)), kind if set(given) == {"type"} else dict(given)

    def _of_name(self, name: str, *, space: str, at: str) -> tuple[Type, str]:
        if name in PRIMITIVE_TYPES:
            return Primitive(name=name), name
        for full in [name] if "." in name or not space else [f"{space}.{name}", name]:
            if full in self._begun:
                return full, full
        raise _wrong(at, f"there is no type {name[:100]!r}")

    def _union(self, given: list[Any], *, space: str, at: str) -> tuple[Type, list[Any]]:
        pairs = [self.type(branch, space=space, at=f"{at}[{index}]") for index, branch in enumerate(given)]
        branches = tuple(branch for branch, _ in pairs)
        kinds = [type(branch) if isinstance(branch, Array | Map | Union) else _name_of(branch) for branch in branches]
        if Union in kinds:
            raise _wrong(at, "a union has no union in it")
        if len(set(kinds)) < len(kinds):
            raise _wrong(at, "a union has each type once, and one array and one map")
        return Union(branches=branches), [flat for _, flat in pairs]

    def _definition(self, kind: str, given: dict[str, Any], *, space: str, at: str) -> tuple[str, str]:
        name, own_space = _full_name(given, space=space, at=at)
        if name in self._begun:
            raise _wrong(at, f"{name} is defined twice")
        self._begun.add(name)
        at = name
        aliases = [alias if "." in alias or not own_space else f"{own_space}.{alias}" for alias in _aliases(given, at=at)]
        flat = {key: inner for key, inner in given.items() if key != "namespace"} | {"name": name}
        if "aliases" in given:
            flat["aliases"] = aliases
        common: dict[str, Any] = {"name": name, "aliases": frozenset(aliases), "json": flat}
        if kind in _RECORDS:
            flat["type"] = "record"
            fields, flat["fields"] = self._fields(given, space=own_space, at=at)
            self.named[name] = Named(kind="record", fields=fields, **common)
        elif kind == "enum":
            self.named[name] = Named(kind=kind, symbols=_symbols(given, at=at), default=given.get("default"), **common)
        else:
            self.named[name] = Named(kind=kind, size=_size(given, at=at), decimal=_decimal(given), **common)
        return name, name

    def _fields(self, given: dict[str, Any], *, space: str, at: str) -> tuple[tuple[Field, ...], list[Any]]:
        listed = given.get("fields")
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise _wrong(at, "a record has a list of objects under `fields`")
        fields, flats = [], []
        for one in listed:
            name = one.get("name")
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise _wrong(at, f"{name!r} is no name of a field")
            if "type" not in one:
                raise _wrong(f"{at}.{name}", "a field has a type")
            inner, flat = self.type(one["type"], space=space, at=f"{at}.{name}")
            if "default" in one:
                self._defaults.append((inner, one["default"], f"{at}.{name}"))
            aliases = tuple(_aliases(one, at=f"{at}.{name}"))
            fields.append(Field(name=name, type=inner, has_default="default" in one, aliases=aliases))
            flats.append({**one, "type": flat})
        names = [one.name for one in fields]
        if len(set(names)) < len(names):
            raise _wrong(at, "a record has each field once")
        return tuple(fields), flats

    def check_defaults(self) -> None:
        """Refuse a default that is not of its field's type."""
        fitting = _Fitting(self.named)
        for inner, value, at in self._defaults:
            if not fitting.fits(inner, value):
                raise _wrong(at, "the default is not of the field's type")


class _Fitting:
    """Whether JSON stands for a value of a type, as defaults are written."""

    def __init__(self, named: Mapping[str, Named]) -> None:
        self._named = named
        self._steps = 0

    def fits(self, kind: Type, value: Any) -> bool:
        self._steps += 1
        if self._steps > SCHEMA_STEPS_MAX:
            raise InvalidArgument(why=f"the defaults of a schema are checked in at most {SCHEMA_STEPS_MAX} steps")
        if isinstance(kind, Primitive):
            return _fits_primitive(kind.name, value)
        if isinstance(kind, Union):
            return any(self.fits(branch, value) for branch in kind.branches)
        if isinstance(kind, Array):
            return isinstance(value, list) and all(self.fits(kind.items, item) for item in value)
        if isinstance(kind, Map):
            return isinstance(value, dict) and all(self.fits(kind.values, item) for item in value.values())
        return self._fits_named(self._named[kind], value)

    def _fits_named(self, named: Named, value: Any) -> bool:
        if named.kind == "enum":
            return value in named.symbols
        if named.kind == "fixed":
            return _fits_primitive("bytes", value) and len(value) == named.size
        return isinstance(value, dict) and all(
            self.fits(one.type, value[one.name]) if one.name in value else one.has_default for one in named.fields
        )


def _fits_primitive(name: str, value: Any) -> bool:
    if name in {"int", "long"}:
        bits = 31 if name == "int" else 63
        return type(value) is int and -(1 << bits) <= value < 1 << bits
    if name in {"float", "double"}:
        return type(value) is int or (type(value) is float and isfinite(value))
    if name == "bytes":
        return isinstance(value, str) and all(ord(character) <= 0xFF for character in value)
    return isinstance(value, {"null": type(None), "boolean": bool, "string": str}[name])


def _name_of(kind: Primitive | str) -> str:
    return kind if isinstance(kind, str) else kind.name


def _wrong(at: str, why: str) -> InvalidArgument:
    return InvalidArgument(why=f"this is no Avro schema: {at[:200]}: {why}")


def _full_name(given: dict[str, Any], *, space: str, at: str) -> tuple[str, str]:
    """Return the full name of a definition, and the namespace that it and the names in it are in."""
    name, own = given.get("name"), given.get("namespace", space)
    if not isinstance(name, str) or _FULL_NAME.fullmatch(name) is None:
        raise _wrong(at, f"{name!r} is no name of a type")
    if "." in name:
        return name, name.rpartition(".")[0]
    if not isinstance(own, str) or (own and _FULL_NAME.fullmatch(own) is None):
        raise _wrong(at, f"{own!r} is no namespace")
    if name in PRIMITIVE_TYPES and not own:
        raise _wrong(at, f"{name} is a type already")
    return (f"{own}.{name}" if own else name), own


def _aliases(given: dict[str, Any], *, at: str) -> list[str]:
    found = given.get("aliases", [])
    if not isinstance(found, list) or not all(isinstance(one, str) and _FULL_NAME.fullmatch(one) for one in found):
        raise _wrong(at, "aliases are a list of names")
    return found


def _symbols(given: dict[str, Any], *, at: str) -> tuple[str, ...]:
    found = given.get("symbols")
    if not isinstance(found, list) or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in found):
        raise _wrong(at, "an enum has a list of names under `symbols`")
    if len(set(found)) < len(found):
        raise _wrong(at, "an enum has each symbol once")
    if "default" in given and given["default"] not in found:
        raise _wrong(at, "the default of an enum is one of its symbols")
    return tuple(found)


def _size(given: dict[str, Any], *, at: str) -> int:
    size = given.get("size")
    if type(size) is not int or size < 0:
        raise _wrong(at, "a fixed has a number of bytes under `size`")
    return size


def _decimal(given: dict[str, Any]) -> Decimal | None:
    if given.get("logicalType") != "decimal" or not is_logical(given):
        return None
    return given["precision"], given.get("scale", 0)


def _inlined(flat: Any, named: Mapping[str, Named]) -> Any:
    """Return the JSON of a schema with each of the named types defined where it comes first."""
    written: set[str] = set()

    def of_type(tree: Any, depth: int) -> Any:
        if depth > SCHEMA_DEPTH_MAX:
            raise InvalidArgument(why=f"a schema nests at most {SCHEMA_DEPTH_MAX} levels deep")
        if isinstance(tree, str):
            if tree not in named or tree in written:
                return tree
            written.add(tree)
            return dict(of_parts(named[tree].json, depth))
        if isinstance(tree, list):
            return [of_type(branch, depth + 1) for branch in tree]
        return dict(of_parts(tree, depth))

    def of_parts(tree: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
        for key, inner in tree.items():
            if (tree["type"], key) in {("array", "items"), ("map", "values")}:
                yield key, of_type(inner, depth + 1)
            elif (tree["type"], key) == ("record", "fields"):
                yield key, [{**one, "type": of_type(one["type"], depth + 3)} for one in inner]
            else:
                yield key, inner

    return of_type(flat, 0)
