"""Whether one Avro schema reads what another wrote: the specification's "Schema Resolution" (1.12), decided for all values at once.

A value is read with the reader's schema by the rules below, so every value is if no place of the writer's schema breaks one. Where the
specification leaves a choice:

- Aliases of the reader are used, those of types and those of fields. A field's own name comes before its aliases.
- A reader's union reads with its first branch that matches; if the rest does not fit that branch, no other one is tried.
  Java's compatibility check tries them all, and takes pairs that its decoder then refuses.
- A writer's symbol that the reader's enum lacks may never be written. It counts, unless that enum has a default.
- Two decimals match if precision and scale are the same. Other logical types are read as what they are stored as.
"""

from eventlog.limits import SCHEMA_STEPS_MAX
from eventlog.schema.avro_types import Array, AvroTypes, Field, Map, Named, Primitive, Type, Union

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What a primitive type may be read as besides itself."""


def why_not_read(*, reader: AvroTypes, writer: AvroTypes) -> str:
    """Return what in the reader's schema cannot read values of the writer's, empty if it reads all of them."""
    resolution = _Resolution(reader=reader, writer=writer)
    while resolution.waiting:
        if resolution.steps >= SCHEMA_STEPS_MAX:
            return f"the schemas have more than {SCHEMA_STEPS_MAX} places to compare"
        if why := resolution.step():
            return why
    return ""


class _Resolution:
    """Pairs of types that are still to be resolved: a list instead of calls, for schemas nest through names as deep as they have names."""

    def __init__(self, *, reader: AvroTypes, writer: AvroTypes) -> None:
        self._reader = reader.named
        self._writer = writer.named
        self._seen: set[tuple[str, str]] = set()
        self.waiting: list[tuple[Type, Type, str]] = [(writer.root, reader.root, "value")]
        self.steps = 0

    def step(self) -> str:
        """Take one pair; return why it cannot be resolved."""
        writer, reader, at = self.waiting.pop()
        self.steps += 1
        if isinstance(writer, Union):
            self.waiting += [(branch, reader, at) for branch in writer.branches]
            return ""
        if isinstance(reader, Union):
            first = next((branch for branch in reader.branches if self._match(writer, branch)), None)
            if first is None:
                return f"{at}: no branch of the reader's union reads {_named(writer)}"
            reader = first
        elif not self._match(writer, reader):
            return f"{at}: {self._difference(writer, reader)}"
        if isinstance(writer, Array) and isinstance(reader, Array):
            self.waiting.append((writer.items, reader.items, f"{at}[]"))
        elif isinstance(writer, Map) and isinstance(reader, Map):
            self.waiting.append((writer.values, reader.values, f"{at}[]"))
        elif isinstance(writer, str) and isinstance(reader, str) and (writer, reader) not in self._seen:
            self._seen.add((writer, reader))
            return self._parts(self._writer[writer], self._reader[reader], at)
        return ""

    def _match(self, writer: Type, reader: Type) -> bool:
        """Whether two types match, as far as the choice of a union's branch goes: what is in records is not looked at."""
        self.steps += 1
        if isinstance(writer, Union) or isinstance(reader, Union):
            return True
        if isinstance(writer, Array) and isinstance(reader, Array):
            return self._match(writer.items, reader.items)
        if isinstance(writer, Map) and isinstance(reader, Map):
            return self._match(writer.values, reader.values)
        if isinstance(writer, Primitive) and isinstance(reader, Primitive):
            is_read = writer.name == reader.name or reader.name in _PROMOTED.get(writer.name, ())
            return is_read and _same_decimal(writer, reader)
        if isinstance(writer, str) and isinstance(reader, str):
            return _match_named(self._writer[writer], self._reader[reader])
        return False

    def _difference(self, writer: Type, reader: Type) -> str:
        if isinstance(writer, str) and isinstance(reader, str):
            old, new = self._writer[writer], self._reader[reader]
            if old.kind == new.kind == "fixed" and old.size != new.size:
                return f"{new.name} has {new.size} bytes, and had {old.size}"
        return f"the reader has {_named(reader)}, the writer {_named(writer)}"

    def _parts(self, writer: Named, reader: Named, at: str) -> str:
        if reader.kind == "enum":
            lacking = sorted(set(writer.symbols) - set(reader.symbols))
            if lacking and reader.default is None:
                return f"{at}: {reader.name} lacks the symbol {lacking[0]}, and has no default"
        if reader.kind == "record":
            written = {one.name: one for one in writer.fields}
            for one in reader.fields:
                source = _source(one, written)
                if source is not None:
                    self.waiting.append((source.type, one.type, f"{at}.{one.name}"))
                elif not one.has_default:
                    return f"{at}.{one.name}: the writer has no such field, and it has no default"
        return ""


def _source(field: Field, written: dict[str, Field]) -> Field | None:
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def _match_named(writer: Named, reader: Named) -> bool:
    if writer.kind != reader.kind or (reader.kind == "fixed" and writer.size != reader.size):
        return False
    is_named_so = writer.short_name == reader.short_name or writer.name in reader.aliases
    return is_named_so and _same_decimal(writer, reader)


def _same_decimal(writer: Primitive | Named, reader: Primitive | Named) -> bool:
    return writer.decimal is None or reader.decimal is None or writer.decimal == reader.decimal


def _named(kind: Type) -> str:
    if isinstance(kind, str):
        return kind
    return kind.name if isinstance(kind, Primitive) else type(kind).__name__.lower()
