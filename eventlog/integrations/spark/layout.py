"""Which columns of a frame become keys and values of a cache. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.errors import InvalidArgument
from eventlog.integrations.spark.options import NOT_WRITTEN_OVER, sink_options

KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"
LIFESPAN: Final = "lifespan_ms"


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
