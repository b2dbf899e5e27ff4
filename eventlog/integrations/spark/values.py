"""The columns that Spark is given of `value_schema`: which there are, what they are inferred to be, and how they are made. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from eventlog.client.reading.typed import INFER, inferred
from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.values import CORRUPT, STRUCT, Corrupt, ValueColumns, ddl_of, type_of
from eventlog.integrations.spark.options import SourceOptions

__all__ = ["INFER", "INFER_EVENTS", "SparkShape", "check_columns", "inferred_struct", "shown_columns", "spark_type", "with_values"]
INFER_EVENTS: Final = 1_000


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
