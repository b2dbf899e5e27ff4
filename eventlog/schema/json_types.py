"""A JSON Schema, checked: what is known has values of its kind, every `$ref` leads to a schema, and none leads back to itself.

Drafts 4, 6, 7, 2019-09 and 2020-12, told apart by `$schema`; without it the schema is of draft 7. A `$ref` points into its own document (by
pointer, by anchor, or behind the document's `$id`), or to a schema that a registry's reference names. What is not taken: an `$id` below the
top that is more than an anchor, since it would change what the pointers in it mean.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from eventlog.errors import InvalidArgument
from eventlog.schema.reading import read_schema_json

TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")
_DRAFTS = {"draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}
DRAFT_DEFAULT = 7
DRAFTS_OF = {
    **dict.fromkeys(("const", "contains", "propertyNames"), (6, 2020)),
    **dict.fromkeys(("if", "then", "else"), (7, 2020)),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "minContains", "maxContains"), (2019, 2020)),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), (2019, 2020)),
    "prefixItems": (2020, 2020),
    "dependencies": (4, 7),
    "additionalItems": (4, 2019),
}
"""The first and the last draft in which a keyword means something. In others it is unknown."""

Check = Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_types(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(one in TYPES for one in listed)


_CHECKS: dict[str, tuple[Check, str]] = {
    "type": (_are_types, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "required": (_are_names, "a list of names"),
    "pattern": (_is_text, "text"),
    "format": (_is_text, "text"),
    "$schema": (_is_text, "text"),
    "$ref": (_is_text, "text"),
    "$anchor": (_is_text, "text"),
    "uniqueItems": (_is_flag, "true or false"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    **dict.fromkeys(("maximum", "minimum"), (_is_number, "a number")),
    **dict.fromkeys(
        ("exclusiveMaximum", "exclusiveMinimum"), (lambda value: _is_flag(value) or _is_number(value), "a number, in draft 4 true or false")
    ),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties", "maxContains", "minContains"),
        (_is_count, "a whole number of 0 or more"),
    ),
    "dependentRequired": (lambda value: isinstance(value, dict) and all(map(_are_names, value.values())), "an object of lists of names"),
}
_OF_ONE = (
    "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties",
    "unevaluatedItems", "contentSchema",
)  # fmt: skip
_OF_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_BY_NAME = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
_IN_PLACE_BY_NAME = ("dependentSchemas", "dependencies")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTypes:
    """A schema. `normal` is its JSON with names in order and without spaces.

    `draft` is 4, 6, 7, 2019 or 2020. By identity of the objects of `root`: `checked` has those that are schemas, `targets` where the `$ref`
    of each leads.
    """

    root: Any
    normal: str
    draft: int
    checked: dict[int, Any] = field(default_factory=dict, repr=False)
    targets: dict[int, "SchemaNode"] = field(default_factory=dict, repr=False)

    @property
    def counts_beside_ref(self) -> bool:
        """Whether what stands beside a `$ref` means anything."""
        return self.draft >= 2019

    @property
    def top(self) -> "SchemaNode":
        """The schema as a node."""
        return SchemaNode(tree=self.root, home=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaNode:
    """A schema within a document: an object, or true or false."""

    tree: Any
    home: JsonTypes

    def below(self, tree: Any) -> "SchemaNode":
        """Return a part of this one."""
        return SchemaNode(tree=tree, home=self.home)

    @property
    def target(self) -> "SchemaNode | None":
        """Where its `$ref` leads."""
        return self.home.targets.get(id(self.tree))


def read_json_schema(text: str, others: Mapping[str, JsonTypes] | None = None) -> JsonTypes:
    """Return a schema that may refer to `others` by their names.

    Raises:
        InvalidArgument: it is no JSON Schema; says where and why.
    """
    root = read_schema_json(text, what="a JSON Schema")
    if not isinstance(root, dict | bool):
        raise InvalidArgument(why="a JSON Schema is an object, true or false")
    said = str(root.get("$schema")) if isinstance(root, dict) else ""
    draft = next((number for name, number in _DRAFTS.items() if name in said), DRAFT_DEFAULT)
    normal = json.dumps(root, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    types = JsonTypes(root=root, normal=normal, draft=draft)
    _Checking(types, others or {}).check()
    return types


class _Checking:
    def __init__(self, types: JsonTypes, others: Mapping[str, JsonTypes]) -> None:
        self._types = types
        self._others = others
        self._id = "id" if types.draft == 4 else "$id"
        self._anchors: dict[str, Any] = {}
        self._refs: list[tuple[dict[str, Any], str]] = []

    def check(self) -> None:
        self._check_below(self._types.root, "#")
        for tree, at in self._refs:  # grows while what is outside of all known keywords is referred to
            self._types.targets[id(tree)] = self._target(tree["$ref"], at)
        self._refuse_loops()

    def _check_below(self, tree: Any, at: str) -> None:
        waiting = [(tree, at)]
        while waiting:
            tree, at = waiting.pop()
            if isinstance(tree, bool) or id(tree) in self._types.checked:
                continue
            if not isinstance(tree, dict):
                raise _wrong(at, "a schema is an object, true or false")
            self._types.checked[id(tree)] = tree
            self._check_keywords(tree, at)
            waiting += _inner(tree, at)

    def _check_keywords(self, tree: dict[str, Any], at: str) -> None:
        for keyword, (check, kind) in _CHECKS.items():
            if keyword in tree and not check(tree[keyword]):
                raise _wrong(f"{at}/{keyword}", f"it is {kind}")
        if self._types.draft == 2020 and isinstance(tree.get("items"), list):
            raise _wrong(f"{at}/items", "it is a schema, and what it was for the first items is `prefixItems` in this draft")
        found = tree.get(self._id, "")
        if not isinstance(found, str):
            raise _wrong(f"{at}/{self._id}", "it is text")
        if tree is not self._types.root and found and not found.startswith("#"):
            raise _wrong(at, f"an {self._id} below the top is not taken: register that schema by itself, and refer to it")
        for anchor in (tree.get("$anchor"), found.removeprefix("#") if found.startswith("#") else None):
            if anchor:
                self._anchors[anchor] = tree
        if "$ref" in tree:
            self._refs.append((tree, at))

    def _target(self, ref: str, at: str) -> SchemaNode:
        name, _, fragment = ref.partition("#")
        home = self._types
        own = home.root.get(self._id, "") if isinstance(home.root, dict) else ""
        if name and name != own.rstrip("#"):
            if name not in self._others:
                raise _wrong(at, f"there is no schema {name[:200]!r}: name it in the references")
            home = self._others[name]
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if home is not self._types or fragment not in self._anchors:
                raise _wrong(at, f"there is no anchor {fragment[:200]!r}")
            return SchemaNode(tree=self._anchors[fragment], home=home)
        tree = _pointed(home.root, fragment)
        if not isinstance(tree, dict | bool):
            raise _wrong(at, f"{ref[:200]!r} leads to no schema")
        if home is self._types:
            self._check_below(tree, f"#{fragment}")
        elif isinstance(tree, dict) and id(tree) not in home.checked:
            raise _wrong(at, f"{ref[:200]!r} leads to what is no schema there")
        return SchemaNode(tree=tree, home=home)

    def _refuse_loops(self) -> None:
        """Refuse a schema that says of a value only that it is of that schema: nothing could be decided of it."""
        done: set[int] = set()
        for start in self._types.checked.values():
            on_path: dict[int, Iterator[Any]] = {}
            if id(start) not in done:
                on_path[id(start)] = self._in_place(start)
            while on_path:
                last = next(reversed(on_path))
                inner = next(on_path[last], None)
                if inner is None:
                    del on_path[last]
                    done.add(last)
                elif id(inner) in on_path:
                    raise InvalidArgument(why="this is no JSON Schema: a $ref leads back to itself without a property or an item between")
                elif isinstance(inner, dict) and id(inner) not in done:
                    on_path[id(inner)] = self._in_place(inner)

    def _in_place(self, tree: dict[str, Any]) -> Iterator[Any]:
        """Yield the objects that say something of the same value as this one, of this document."""
        target = self._types.targets.get(id(tree))
        if target is not None and target.home is self._types and isinstance(target.tree, dict):
            yield target.tree
        found = [tree[name] for name in _IN_PLACE_ONE if name in tree]
        found += [inner for name in _IN_PLACE_MANY for inner in tree.get(name, ())]
        found += [inner for name in _IN_PLACE_BY_NAME for inner in tree.get(name, {}).values()]
        yield from (inner for inner in found if isinstance(inner, dict))


def _inner(tree: dict[str, Any], at: str) -> list[tuple[Any, str]]:
    """Return the schemas in one, with where they are."""
    found = [(tree[name], f"{at}/{name}") for name in _OF_ONE if name in tree]
    if "items" in tree and not isinstance(tree["items"], list):
        found.append((tree["items"], f"{at}/items"))
    for name in _OF_MANY if not isinstance(tree.get("items"), list) else (*_OF_MANY, "items"):
        if name in tree:
            listed = tree[name]
            if not isinstance(listed, list) or not (listed or name in {"items", "prefixItems"}):
                raise _wrong(f"{at}/{name}", "it is a list of schemas")
            found += [(inner, f"{at}/{name}/{index}") for index, inner in enumerate(listed)]
    for name in _BY_NAME:
        if name in tree:
            if not isinstance(tree[name], dict):
                raise _wrong(f"{at}/{name}", "it is an object of schemas")
            found += [
                (inner, f"{at}/{name}/{key}") for key, inner in tree[name].items() if not (name == "dependencies" and _are_names(inner))
            ]
    return found


def _pointed(root: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to, None where that is nothing."""
    found = root
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 7:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found


def _wrong(at: str, why: str) -> InvalidArgument:
    return InvalidArgument(why=f"this is no JSON Schema: {at[:200]}: {why}")
