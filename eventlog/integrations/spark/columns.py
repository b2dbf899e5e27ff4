"""The columns of a frame: those that Spark is given of a cache's values, as `value_schema` has them, and those that it gives. Pure.

Of a cache: which columns there are, what they are inferred to be, and how they are made. Of a frame: which become keys and values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.client.reading.typed import INFER, inferred
from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.values import CORRUPT, STRUCT, Corrupt, ValueColumns, ddl_of, type_of
from eventlog.integrations.spark.options import NOT_WRITTEN_OVER, SourceOptions, sink_options

__all__ = [
    "HEADERS",
    "INFER",
    "INFER_EVENTS",
    "KEY",
    "LIFESPAN",
    "VALUE",
    "Layout",
    "SparkShape",
    "check_columns",
    "inferred_struct",
    "layout_of",
    "shown_columns",
    "spark_type",
    "with_values",
]
INFER_EVENTS: Final = 1_000
KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"
LIFESPAN: Final = "lifespan_ms"


def spark_type(given: Any) -> pa.DataType:
    """Return the type that Spark tells so in JSON, as `DataType.jsonValue()` does. Raises InvalidArgument."""
    if isinstance(given, str):
        return type_of(given)
    if given["type"] == "struct":
        return pa.struct([(field["name"], spark_type(field["type"])) for field in given["fields"]])
    if given["type"] == "array":
        return pa.list_(spark_type(given["elementType"]))
    if given["type"] == "map":
        return pa.map_(spark_type(given["keyType"]), spark_type(given["valueType"]))
    raise InvalidArgument(why=f"a column of type {given['type']!r} is not one of an event")


def inferred_struct(values: Sequence[bytes]) -> pa.StructType:
    """Return the type that some JSON objects have in common; a field that is null in all of them is text.

    Raises:
        InvalidArgument: they are no objects, there are none, or they have no type in common.
    """
    found = _plain(inferred(values)) if values else None
    if found is None or not pa.types.is_struct(found) or not found.num_fields:
        raise InvalidArgument(why="the first values are no JSON objects with fields in common: name the fields with value_schema")
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return pa.list_(_plain(kind.value_type)) if pa.types.is_list(kind) else kind


def with_values(types: Mapping[str, str], kind: pa.StructType) -> dict[str, str]:
    """Return columns with those of `value_schema` behind `value`."""
    found: dict[str, str] = {}
    for name, own in types.items():
        found[name] = own
        if name == "value":
            found |= {STRUCT: ddl_of(kind), CORRUPT: "STRING"}
    return found


def shown_columns(types: Mapping[str, str], options: SourceOptions) -> list[str]:
    """Return the columns that there are unless some are chosen: `v` and `_corrupt` stand in the place of `value`."""
    left_out = {"value"} if STRUCT in types else set()
    if options.corrupt != "column":
        left_out.add(CORRUPT)
    return [name for name in types if name not in left_out]


def check_columns(names: Sequence[str], types: Mapping[str, str]) -> None:
    """Refuse columns that there are not. Raises InvalidArgument."""
    for name in names:
        if name not in types:
            raise InvalidArgument(why=f"there is no column {name!r}; there are {', '.join(types)}")
        if list(names).count(name) > 1:
            raise InvalidArgument(why=f"column {name!r} is asked for twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkShape:
    """The columns that Spark is given, in their order; the type of `v` and the schema of Avro values are text: they travel to the tasks.

    So does `is_avro`: a task of few events would ask the cluster for as long as it reads.
    """

    names: tuple[str, ...]
    struct: str = ""
    corrupt: Corrupt = "column"
    avro: str = ""
    is_avro: bool = False

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read."""
        if not self.struct:
            return self.names
        own = tuple(name for name in self.names if name not in {STRUCT, CORRUPT})
        return own if "value" in own else (*own, "value")

    def reader(self) -> Callable[[Any], Any]:
        """Return what makes batches of these columns of those that are read."""
        if not self.struct:
            return lambda rows: rows
        kind = type_of(self.struct)
        values = ValueColumns(kind, corrupt=self.corrupt, avro=self.avro)

        def rows_of(rows: Any) -> Any:
            structs, texts = values.arrays(rows.column("value").cast(pa.binary()).to_pylist())
            made = {STRUCT: structs, CORRUPT: texts}
            arrays = [made[name] if name in made else rows.column(name) for name in self.names]
            return pa.RecordBatch.from_arrays(arrays, names=list(self.names))

        return rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The key is `key`, the value `value`, or where `fields` are named one object of those; true in `removes` removes the key.

    `beside` are those of `headers` and `lifespan_ms` that there are.
    """

    fields: tuple[str, ...] = ()
    removes: str = ""
    beside: tuple[str, ...] = ()

    def table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return rows as the columns `key`, `value`, and those beside; null as a value removes its key.

        Raises:
            InvalidArgument: a value is null that is not to remove its key, or a mark of removal.
        """
        given = pa.Table.from_batches(batches)
        values = self._objects(given) if self.fields else given.column(VALUE)
        if self.removes:
            marks = given.column(self.removes)
            if marks.null_count:
                raise InvalidArgument(why=f"column {self.removes!r} is null where key is {_key_of(given, marks)!r}: give true or false")
            values = pc.if_else(marks, pa.nulls(len(marks), values.type), values)
            self._check(given, pc.and_(pc.is_null(values), pc.invert(marks)))
        elif values.null_count:
            self._check(given, pc.is_null(values))
        return pa.table({KEY: given.column(KEY), VALUE: values} | {name: given.column(name) for name in self.beside})

    def put(self, stage: blocking.Stage, batches: Sequence[pa.RecordBatch]) -> None:
        """Lay rows ready. Raises InvalidArgument, BadValue, TooLarge: naming what does not fit the cache."""
        headers, lifespan = (name if name in self.beside else None for name in (HEADERS, LIFESPAN))
        stage.put_arrow(self.table(batches), headers=headers, lifespan_ms=lifespan)

    def _objects(self, given: pa.Table) -> pa.ChunkedArray:
        columns = [given.column(name).combine_chunks() for name in self.fields]
        return pa.chunked_array(
            [pa.StructArray.from_arrays(columns, fields=[given.schema.field(name).with_nullable(nullable=True) for name in self.fields])]
        )

    def _check(self, given: pa.Table, missing: pa.ChunkedArray) -> None:
        if pc.any(missing).as_py():
            key = given.column(KEY).filter(missing)[0].as_py()
            raise InvalidArgument(why=f"the value of key {key!r} is null: to remove keys, name a column that says so as removeColumn")


def _key_of(given: pa.Table, marks: pa.ChunkedArray) -> object:
    return given.column(KEY).filter(pc.is_null(marks))[0].as_py()


def layout_of(options: Mapping[str, str], names: Sequence[str], *, overwrite: bool) -> Layout:
    """Return how the columns `names` are written.

    Raises:
        InvalidArgument: they cannot be, or everything that there is should go first.
    """
    asked = sink_options(options)
    if overwrite:
        raise InvalidArgument(why=NOT_WRITTEN_OVER)
    if KEY not in names:
        raise InvalidArgument(why=f"there is no column {KEY!r} among {', '.join(names)}")
    removes = asked.remove_column
    if removes and removes not in names:
        raise InvalidArgument(why=f"removeColumn is {removes!r}, and there are {', '.join(names)}")
    beside = tuple(name for name in (HEADERS, LIFESPAN) if name in names)
    rest = tuple(name for name in names if name not in {KEY, removes, *beside})
    if VALUE not in rest:
        if not rest:
            raise InvalidArgument(why=f"there is no column beside {KEY!r} to make values of")
        return Layout(fields=rest, removes=removes, beside=beside)
    if len(rest) > 1:
        unused = ", ".join(name for name in rest if name != VALUE)
        raise InvalidArgument(
            why=f"beside {VALUE!r} there are {unused}: drop them, or have them all as fields, under other names than {VALUE!r}"
        )
    return Layout(removes=removes, beside=beside)
