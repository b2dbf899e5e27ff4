"""Values as a struct column, and what does not fit it: types in Spark's words, and how JSON is read as one. Pure. Avro is in `avro_values`.

A field that a value does not have is null. One that does not fit its type is null, and the value as a whole stands in `_corrupt`: as with
Spark's `from_json`. What is no text under a field of text is its JSON.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import msgspec
import pyarrow as pa

from eventlog.client.reading.typed import TypedJson, Unfit
from eventlog.errors import InvalidArgument

Corrupt = Literal["column", "null", "fail"]

STRUCT: Final = "v"
CORRUPT: Final = "_corrupt"
VALUE_COLUMNS: Final = (STRUCT, CORRUPT)
PIECE_ROWS: Final = 65_536
_DEPTH_MAX: Final = 32
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES: Final = {kind: name.upper() for name, kind in reversed(_SIMPLE.items())}
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z_0-9]+|[<>(),:])")


def struct_of(ddl: str) -> pa.StructType:
    """Return the type that fields in Spark's words have, as in `customer STRING, total DOUBLE`.

    Raises:
        InvalidArgument: they are none, or of a type that JSON is not read as.
    """
    words = _Words(ddl)
    found = words.fields(depth=0)
    words.end()
    return found


def type_of(text: str) -> pa.DataType:
    """Return the type that Spark calls so, as in `struct<customer:string>`. Raises InvalidArgument."""
    words = _Words(text)
    found = words.type(depth=0)
    words.end()
    return found


def archived_struct(ddl: str) -> pa.StructType:
    """Return the type that fields in Spark's words have, with names that a table may have.

    Raises:
        InvalidArgument: they are none, or two names differ in case alone, or one has a letter that Delta refuses.
    """
    found = struct_of(ddl)
    _check_names(found)
    return found


def _check_names(kind: pa.DataType) -> None:
    if pa.types.is_map(kind):
        _check_names(kind.item_type)
    elif pa.types.is_list(kind):
        _check_names(kind.value_type)
    elif pa.types.is_struct(kind):
        names = [field.name for field in kind]
        for name in names:
            if not name or set(name) & _NOT_IN_NAMES:
                raise InvalidArgument(
                    why=f"field {name!r} cannot be in a table: a name has none of {' ,;{}()='!r}, and no tab or end of a line"
                )
        if len({name.casefold() for name in names}) < len(names):
            raise InvalidArgument(why=f"the fields {', '.join(names)} cannot be in a table: two of them differ in case alone")
        for field in kind:
            _check_names(field.type)


def has_grown_from(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a type is another with none or more fields added to its structs."""
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        own = {field.name: field.type for field in kind}
        return all(field.name in own and has_grown_from(own[field.name], field.type) for field in other)
    if pa.types.is_map(kind) and pa.types.is_map(other):
        return kind.key_type == other.key_type and has_grown_from(kind.item_type, other.item_type)
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return has_grown_from(kind.value_type, other.value_type)
    return bool(kind == other)


def ddl_of(kind: pa.DataType) -> str:
    """Return what Spark calls a type. Raises InvalidArgument for one that it has not."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_struct(kind):
        return "STRUCT<" + ", ".join(f"{_quoted(field.name)}: {ddl_of(field.type)}" for field in kind) + ">"
    if pa.types.is_list(kind):
        return f"ARRAY<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return f"MAP<STRING, {ddl_of(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    raise InvalidArgument(why=f"Spark has no type for {kind}")


class ValueForm(Protocol):
    """How values of one format are read as a struct type."""

    def items(self, values: Sequence[bytes | None]) -> Sequence[Any]:
        """Return what is read of each value: what the others take."""
        ...

    def all(self, items: Sequence[Any]) -> Any:
        """Return structs. Raises Unfit or `msgspec.MsgspecError`: one does not fit."""
        ...

    def fields(self, item: Any) -> Sequence[Any] | None:
        """Return one value field by field, None for each that does not fit; None where it is no object."""
        ...

    def text(self, value: bytes) -> str:
        """Return a value as text, whatever it is."""
        ...


class ValueColumns:
    """Values as arrays of one struct type."""

    def __init__(self, kind: pa.StructType, *, corrupt: Corrupt, avro: str = "") -> None:
        """Take a type, and the schema of values that are Avro. Raises InvalidArgument."""
        self.type = kind
        self._corrupt = corrupt
        self._form: ValueForm = _avro_form(avro, kind) if avro else _JsonForm(kind)

    def of_table(self, values: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
        """Return the columns of values, made piece by piece. Raises InvalidArgument as `arrays`."""
        pieces = [self.arrays(values.slice(low, PIECE_ROWS).cast(pa.binary()).to_pylist()) for low in range(0, len(values), PIECE_ROWS)]
        return {
            STRUCT: pa.chunked_array([structs for structs, _ in pieces], self.type),
            CORRUPT: pa.chunked_array([texts for _, texts in pieces], pa.string()),
        }

    def arrays(self, values: Sequence[bytes | None]) -> tuple[Any, Any]:
        """Return the structs, null where there is no value or it is no object, and the text of those that do not fit, else null.

        Raises:
            InvalidArgument: one does not fit, and that is to fail.
        """
        structs: list[Any] = []
        texts: list[Any] = []
        self._take(values, self._form.items(values), structs, texts)
        if not structs:
            return pa.array([], self.type), pa.array([], pa.string())
        return pa.concat_arrays(structs), pa.concat_arrays(texts)

    def _take(self, values: Sequence[bytes | None], items: Sequence[Any], structs: list[Any], texts: list[Any]) -> None:
        """Read all at once; where that fails, each half by itself, down to those that do not fit."""
        if not values:
            return
        try:
            structs.append(self._form.all(items))
        except (Unfit, msgspec.MsgspecError):
            if len(values) > 1:
                middle = len(values) // 2
                self._take(values[:middle], items[:middle], structs, texts)
                self._take(values[middle:], items[middle:], structs, texts)
                return
            struct, fits = _struct_of_fields(self.type, self._form.fields(items[0]))
            structs.append(struct)
            texts.append(pa.nulls(1, pa.string()) if fits or values[0] is None else self._text(values[0]))
        else:
            texts.append(pa.nulls(len(values), pa.string()))

    def _text(self, value: bytes) -> Any:
        text = self._form.text(value)
        if self._corrupt == "fail":
            raise InvalidArgument(why=f"value {text[:200]!r} does not fit value_schema {ddl_of(self.type)}")
        return pa.array([text], pa.string())


class _JsonForm:
    """JSON: an item is the value."""

    def __init__(self, kind: pa.StructType) -> None:
        self._type = kind
        self.all = TypedJson(kind, passes_over=True).read
        self._fields = [TypedJson(field.type, passes_over=True) for field in kind]

    def items(self, values: Sequence[bytes | None]) -> Sequence[bytes | None]:
        return values

    def fields(self, item: bytes | None) -> Sequence[Any] | None:
        try:
            given = msgspec.json.decode(item or b"null", type=dict[str, msgspec.Raw])
        except msgspec.MsgspecError:
            return None
        return [_field(typed, given.get(field.name)) for field, typed in zip(self._type, self._fields, strict=True)]

    def text(self, value: bytes) -> str:
        return value.decode(errors="replace")


def _avro_form(schema: str, kind: pa.StructType) -> ValueForm:
    from eventlog.integrations.archive.avro_values import AvroForm  # noqa: PLC0415 -- fastavro is slow to load, and most caches are JSON

    return AvroForm(schema, kind)


def _struct_of_fields(kind: pa.StructType, columns: Sequence[Any] | None) -> tuple[Any, bool]:
    """Return a struct of one row, null for a field whose column is None, and whether there was none; null where there are no columns."""
    if columns is None:
        return pa.nulls(1, kind), False
    arrays = [pa.nulls(1, field.type) if column is None else column for field, column in zip(kind, columns, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind)), all(column is not None for column in columns)


def _field(typed: TypedJson, given: msgspec.Raw | None) -> Any:
    """Return one field, None where it does not fit; what is no text is its JSON where there is to be text."""
    value = None if given is None else bytes(given)
    try:
        return typed.read([value])
    except (Unfit, msgspec.MsgspecError):
        return pa.array([msgspec.json.format(value, indent=-1).decode()], pa.string()) if typed.type == pa.string() and value else None


# ---------------------------------------------------------------- Spark's words for types


class _Words:
    """A reader of types in Spark's words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(text[at:].strip()[:20])
            self._words.append(match[1])
            at = match.end()
        self._at = 0

    def _wrong(self, word: str) -> InvalidArgument:
        return InvalidArgument(
            why=f"value_schema is {self._text!r:.200}: {word!r} is not expected; write as in 'customer STRING, total DOUBLE'"
        )

    def _next(self) -> str:
        if self._at == len(self._words):
            raise self._wrong("its end")
        self._at += 1
        return self._words[self._at - 1]

    def _has(self, word: str) -> bool:
        if self._at < len(self._words) and self._words[self._at].lower() == word:
            self._at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if (found := self._next()) != word:
            raise self._wrong(found)

    def end(self) -> None:
        """Raise InvalidArgument unless all was read."""
        if self._at < len(self._words):
            raise self._wrong(self._words[self._at])

    def fields(self, *, depth: int) -> pa.StructType:
        """Read fields, separated by commas."""
        found: list[tuple[str, pa.DataType]] = []
        while True:
            name = self._next()
            if name in "<>(),:":
                raise self._wrong(name)
            self._has(":")
            found.append((name[1:-1].replace("``", "`") if name.startswith("`") else name, self.type(depth=depth + 1)))
            if not self._has(","):
                break
        if len({name for name, _ in found}) < len(found):
            raise InvalidArgument(why=f"value_schema is {self._text!r:.200}: it has a field twice")
        return pa.struct(found)

    def type(self, *, depth: int) -> pa.DataType:
        """Read a type."""
        if depth > _DEPTH_MAX:
            raise InvalidArgument(why=f"value_schema is deeper than {_DEPTH_MAX} levels")
        name = self._next().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        read = {"struct": self._struct, "array": self._array, "map": self._map, "decimal": self._decimal, "dec": self._decimal}.get(name)
        if read is None:
            raise self._wrong(name)
        return read(depth)

    def _struct(self, depth: int) -> pa.DataType:
        self._expect("<")
        found = self.fields(depth=depth)
        self._expect(">")
        return found

    def _array(self, depth: int) -> pa.DataType:
        self._expect("<")
        found = pa.list_(self.type(depth=depth + 1))
        self._expect(">")
        return found

    def _map(self, depth: int) -> pa.DataType:
        self._expect("<")
        if (key := self._next().lower()) != "string":
            raise self._wrong(key)
        self._expect(",")
        found = pa.map_(pa.string(), self.type(depth=depth + 1))
        self._expect(">")
        return found

    def _decimal(self, _depth: int) -> pa.DataType:
        if not self._has("("):
            return pa.decimal128(10, 0)
        precision, scale = self._next(), "0"
        if self._has(","):
            scale = self._next()
        self._expect(")")
        if not (precision.isdigit() and scale.isdigit() and 0 < int(precision) <= 38 and int(scale) <= int(precision)):
            raise self._wrong(f"({precision}, {scale})")
        return pa.decimal128(int(precision), int(scale))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
