"""Names of a predicate: the columns that an event has, and the fields of its value as far as the cache's format tells.

In an Avro cache the schema says which fields there are and of which type.
"""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from eventlog.limits import PATH_STEPS_MAX, SCHEMA_DEPTH_MAX
from eventlog.predicate.dialect import closest, refusal
from eventlog.predicate.spec import FilterContext
from eventlog.predicate.tree import Column, Header, Path, Root, Step, SyntaxNode, Type
from eventlog.schema.avro import AvroSchema

COLUMNS: dict[str, Type] = {"kind": "text", "key": "text", "id": "number", "time": "time", "segment": "number", "offset": "number"}
_ROOTS = ("value", "before", "headers")
_CONTINUOUS = frozenset({"key", "segment"})
_TYPES: dict[str, Type] = {
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
    **dict.fromkeys(("string", "enum"), "text"),
    **dict.fromkeys(("bytes", "fixed"), "bytes"),
    "boolean": "boolean",
    "null": "null",
}


class Names:
    """What names mean for one cache. With `is_continuous` only those that are of an entry, not of one change of it.

    With `has_short`, `v.name` is `value.name`: so fields are named where Spark reads values.
    """

    def __init__(self, context: FilterContext, *, is_continuous: bool = False, has_short: bool = False) -> None:
        self._context = context
        self._has_short = has_short
        self._is_continuous = is_continuous
        self._avro = AvroFields(AvroSchema(context.avro_schema)) if context.format == "avro" and context.avro_schema else None

    def resolve(self, tree: exp.Expression, index: Callable[[exp.Expression], Step]) -> SyntaxNode:
        """Return the column or field of a name; `index` reads what stands in brackets.

        Raises:
            BadPredicate: there is none of this name.
        """
        parts = _parts(tree, index)
        (first, at), rest = parts[0], parts[1:]
        root = str(first).lower()
        if root in COLUMNS and not rest:
            return self._column(root, at)
        if root == "headers":
            return self._header(rest, at)
        if root in {"value", "before"} or (root == "v" and rest and self._has_short):
            return self.path("before" if root == "before" else "value", rest, at)
        if root in COLUMNS:
            raise refusal(rest[0][1], f"{root} has no fields", f"value.{rest[0][0]}")
        if first == "*":
            raise refusal(at, "* is not part of a predicate")
        likely = closest(root, _ROOTS) if rest else closest(root, tuple(COLUMNS))
        whole = ".".join([likely or "value", *(str(part) for part, _ in (rest if likely else parts))])
        raise refusal(at, f"there is no column {str(first)[:60]}", whole[:80] if likely or self._context.format != "bytes" else "")

    def path(self, root: Root, steps: list[tuple[Step, int]], at: int) -> Path:
        """Return a field of the value or the before-image.

        Raises:
            BadPredicate: the cache's values have no fields, no such field, or no before-images.
        """
        if root == "before":
            if not self._context.before:
                raise refusal(at, "this cache keeps no before-images")
            self._check_lasting(root, at)
        if len(steps) > PATH_STEPS_MAX:
            raise refusal(at, f"a field is at most {PATH_STEPS_MAX} steps deep")
        if steps and self._context.format == "bytes":
            raise refusal(steps[0][1], "values of this cache are bytes, they have no fields", root)
        kind: Type = "bytes" if self._context.format == "bytes" else "any"
        if self._avro is not None:
            kind = self._avro.type_of(steps, at)
        return Path(at=at, type=kind, root=root, steps=tuple(step for step, _ in steps))

    def _column(self, name: str, at: int) -> Column:
        self._check_lasting(name, at)
        kind: Type = "bytes" if name == "key" and not self._context.text_keys else COLUMNS[name]
        return Column(at=at, type=kind, name=name)

    def _header(self, rest: list[tuple[Step, int]], at: int) -> Header:
        self._check_lasting("headers", at)
        if len(rest) != 1 or type(rest[0][0]) is not str:
            raise refusal(at, "a header is written headers['name']")
        return Header(at=at, type="bytes", name=rest[0][0])

    def _check_lasting(self, name: str, at: int) -> None:
        if self._is_continuous and name not in _CONTINUOUS:
            raise refusal(
                at, f"a continuous query compares an entry's old value with its new one: {name} is of the change, not of the entry"
            )


def place_of(tree: exp.Expression) -> int:
    """Return where a node of the parser begins, from 1: where its first name or literal does."""
    waiting = [tree]
    first: int | None = None
    while waiting:
        found = waiting.pop()
        start = found.meta.get("start")
        if start is not None and (first is None or start < first):
            first = int(start)
        waiting += found.iter_expressions()
    return 1 if first is None else first + 1


def _parts(tree: exp.Expression, index: Callable[[exp.Expression], Step]) -> list[tuple[Step, int]]:
    """Return the steps of a name with their places, the first step being its root."""
    found: list[tuple[Step, int]] = []
    while not isinstance(tree, exp.Column):
        at = place_of(tree)
        if isinstance(tree, exp.Dot) and isinstance(tree.args["expression"], exp.Identifier):
            step = tree.args["expression"]
            found.append((str(step.this), place_of(step)))
        elif isinstance(tree, exp.Bracket) and len(tree.expressions) == 1:
            place = place_of(tree.expressions[0])
            found.append((index(tree.expressions[0]), place if place > 1 else at))
        else:
            raise refusal(at, "a field is written value.name, value.name[0] or value['name']")
        tree = tree.this
    names = [tree.args[name] for name in ("this", "table", "db", "catalog") if tree.args.get(name)]
    for name in names:
        if not isinstance(name, exp.Identifier):
            raise refusal(place_of(tree), "* is not part of a predicate")
        found.append((str(name.this), place_of(name)))
    return found[::-1]


class AvroFields:
    """The fields of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema: Any = schema.plain
        self._named: dict[str, Any] = {}
        self._collect(self.schema, 0)

    def type_of(self, steps: list[tuple[Step, int]], at: int) -> Type:
        """Return the type of a field; `any` for records, arrays, maps and unions of several.

        Raises:
            BadPredicate: the schema has no such field.
        """
        if not steps:
            return "any"
        found = [self.schema]
        for step, place in steps:
            branches = [inner for schema in found for inner in self._branches(schema)]
            known: list[str] = []
            found = []
            for branch in branches:
                kind = branch.get("type") if isinstance(branch, dict) else branch
                if kind == "record" and isinstance(step, str):
                    found += [field["type"] for field in branch["fields"] if field["name"] == step]
                    known += [field["name"] for field in branch["fields"]]
                elif kind == "map" and isinstance(step, str):
                    found.append(branch["values"])
                elif kind == "array" and isinstance(step, int):
                    found.append(branch["items"])
            if not found:
                raise refusal(place or at, f"the schema has no field {step!r} here", closest(str(step), known))
        types = {self._type(inner) for schema in found for inner in self._branches(schema)} - {"null"}
        return next(iter(types)) if len(types) == 1 else "any" if types else "null"

    def _type(self, schema: Any) -> Type:
        kind = schema.get("type") if isinstance(schema, dict) else schema
        return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"

    def _branches(self, schema: Any) -> list[Any]:
        """Return the branches of a union, or the schema itself, names looked up."""
        waiting, found = [schema], []
        while waiting:
            one = waiting.pop()
            if isinstance(one, list):
                waiting += one
            elif isinstance(one, str) and one in self._named:
                found.append(self._named[one])
            elif isinstance(one, dict) and isinstance(one.get("type"), (dict, list)):
                waiting.append(one["type"])
            else:
                found.append(one)
        return found

    def _collect(self, schema: Any, depth: int) -> None:
        if depth > SCHEMA_DEPTH_MAX:
            return
        if isinstance(schema, list):
            for one in schema:
                self._collect(one, depth + 1)
        elif isinstance(schema, dict):
            if isinstance(schema.get("name"), str):
                self._named[schema["name"]] = schema
                if isinstance(schema.get("namespace"), str):
                    self._named[f"{schema['namespace']}.{schema['name']}"] = schema
            for inner in ("type", "items", "values"):
                self._collect(schema.get(inner), depth + 1)
            for field in schema.get("fields") or ():
                self._collect(field.get("type") if isinstance(field, dict) else None, depth + 1)
