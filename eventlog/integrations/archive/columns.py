"""The columns of a cache's events as archives and Spark have them, and batches of a read in these columns. Pure, but for `columns_of`.

Spark compares the schema of what is yielded with its own, whether each may be null included; so all columns may be, and no type is one
that Spark's reader does not take: dictionaries, unsigned numbers, large strings and views.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventlog import blocking
from eventlog.arrays import Ints, Mask
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.columns import ROW_COLUMNS
from eventlog.client.reading.frames import HEADERS, TIME
from eventlog.client.reading.iterating import EntryBatch
from eventlog.client.writing.arrow import string_array
from eventlog.events import Kind
from eventlog.ids import EPOCH_MS, TIME_SHIFT

_TEXT, _BINARY = "STRING", "BINARY"
_MAP: Final = f"MAP<{_TEXT}, {_BINARY}>"
_ARROW: Final = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "TIMESTAMP": TIME,
    _TEXT: pa.string(),
    _BINARY: pa.binary(),
    _MAP: HEADERS,
}
_TAKEN_BYTES_MAX: Final = 1 << 30  # offsets of one chunk end at 2 GiB, and rows that are picked one by one come in one
_OF_TABLE: Final = {"version": "id"}  # an entry's version is the id of its last event


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveColumns:
    """The columns that there are of a cache, by its formats."""

    has_text_keys: bool
    is_json: bool
    is_avro: bool = False
    is_state: bool = False

    @property
    def types(self) -> dict[str, str]:
        """Return the columns in their order, with their types in SQL."""
        key, value = _TEXT if self.has_text_keys else _BINARY, _TEXT if self.is_json else _BINARY
        if self.is_state:
            own = {"key": key, "value": value}
            return {"segment": "INT", "cache": _TEXT, **own, "version": "BIGINT", "time": "TIMESTAMP", "expires": "TIMESTAMP"}
        return {
            "id": "BIGINT",
            "segment": "INT",
            "offset": "BIGINT",
            "time": "TIMESTAMP",
            "cache": _TEXT,
            "kind": _TEXT,
            "key": key,
            "value": value,
            "before": value,
            "headers": _MAP,
            "epoch": "BIGINT",
        }

    def schema(self) -> pa.Schema:
        """Return the schema in Arrow."""
        return pa.schema([(name, _ARROW[kind]) for name, kind in self.types.items()])


def columns_of(cache: blocking.Cache, *, is_state: bool = False) -> ArchiveColumns:
    """Return the columns that there are of a cache. Raises CacheNotFound."""
    info = cache.info()
    return ArchiveColumns(
        has_text_keys=info.key_format == "utf8", is_json=info.format == "json", is_avro=info.format == "avro", is_state=is_state
    )


def read_columns(names: Sequence[str]) -> list[str]:
    """Return which columns a read must answer so that there are some of a table: at least one."""
    found = {_OF_TABLE.get(name, name) for name in names}
    return [name for name in ROW_COLUMNS if name in found] or ["id"]


def state_batch(batch: EntryBatch, names: Sequence[str], *, cache: str, is_avro: bool) -> pa.RecordBatch:
    """Return the entries of a batch in some columns, in their order."""
    own = {"cache": lambda: _same(cache, len(batch)), "expires": lambda: _expires(batch)}
    if is_avro:
        own["value"] = lambda: string_array(batch.values)
    return _batch_of(batch, names, own)


def record_batch(batch: EventBatch, names: Sequence[str], *, cache: str, is_avro: bool) -> pa.RecordBatch:
    """Return the events of a batch in some columns, in their order. Values of Avro stay as they are stored."""
    own = {"cache": lambda: _same(cache, len(batch)), "epoch": lambda: pa.array(batch.epochs.astype(np.int64))}
    if is_avro:
        own |= {"value": lambda: string_array(batch.values, valid=~_has_none(batch.kinds)), "before": lambda: _before(batch)}
    return _batch_of(batch, names, own)


def _batch_of(batch: EventBatch | EntryBatch, names: Sequence[str], own: dict[str, Callable[[], Any]]) -> pa.RecordBatch:
    """Return some columns: those of a read's own table, and others as `own` makes them."""
    found: dict[str, Any] = {}
    if table := [_OF_TABLE.get(name, name) for name in names if name not in own]:
        arrow = batch.arrow(columns=table)
        found = dict(zip(arrow.schema.names, arrow.columns, strict=True))
    arrays = [own[name]() if name in own else found[_OF_TABLE.get(name, name)] for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _has_none(kinds: npt.NDArray[np.uint8]) -> Mask:
    found: Mask = (kinds == Kind.REMOVED) | (kinds == Kind.EXPIRED)
    return found


def _before(batch: EventBatch) -> Any:
    return pa.nulls(len(batch), pa.binary()) if batch.before is None else string_array(batch.before, valid=batch.has_before)


def _expires(batch: EntryBatch) -> Any:
    return pa.array(batch.expiry * 1000, pa.int64(), mask=batch.expiry == 0).cast(TIME)


def times_of(ids: Ints) -> Any:
    """Return the times of ids as a column."""
    return pa.array(((ids >> TIME_SHIFT) + EPOCH_MS) * 1_000).cast(TIME)


def _same(text: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([text])).dictionary_decode()


def rows_in_order(table: pa.Table, order: Ints, *, taken_bytes_max: int = _TAKEN_BYTES_MAX) -> pa.Table:
    """Return all rows of a table in an order; of a large one as the runs of them that there are, which are not copied."""
    if table.nbytes <= taken_bytes_max or not len(order):
        return table.take(order)
    cuts = np.flatnonzero(np.diff(order) != 1) + 1
    bounds = pairwise([0, *cuts.tolist(), len(order)])
    return pa.concat_tables([table.slice(int(order[low]), high - low) for low, high in bounds])
