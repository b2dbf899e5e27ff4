"""Fields of Avro values: their types, for checking, and a schema with only those that are asked for, so that the rest is skipped."""

from typing import Any

from eventlog.predicate.avro_schema import SCHEMA_DEPTH_MAX, AvroSchema
from eventlog.predicate.dialect import closest, refusal
from eventlog.predicate.tree import Step, Type

_TYPES: dict[str, Type] = {
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
    **dict.fromkeys(("string", "enum"), "text"),
    **dict.fromkeys(("bytes", "fixed"), "bytes"),
    "boolean": "boolean",
    "null": "null",
}


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
