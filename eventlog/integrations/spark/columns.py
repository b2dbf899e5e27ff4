"""The columns of a cache's events as Spark has them, and batches of a read in these columns. Pure.

Spark compares the schema of what is yielded with its own, whether each may be null included; so all columns may be, and no type is one
that Spark's reader does not take: dictionaries, unsigned numbers, large strings and views.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.frames import TIME
from eventlog.client.reading.iterating import EntryBatch
from eventlog.errors import InvalidArgument

_TEXT, _BINARY = "STRING", "BINARY"
_OWN: Final = ("cache", "epoch")
"""What a read's own table does not have."""
_OWN_OF_STATE: Final = ("cache", "expires")
_OF_TABLE: Final = {"version": "id"}  # an entry's version is the id of its last event


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns that there are of a cache, by its formats."""

    has_text_keys: bool
    is_json: bool
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
            "headers": f"MAP<{_TEXT}, {_BINARY}>",
            "epoch": "BIGINT",
        }

    def ddl(self, names: Sequence[str] = ()) -> str:
        """Return the schema of some columns, by default all. Raises InvalidArgument."""
        types = self.types
        self.check(names)
        return ", ".join(f"`{name}` {types[name]}" for name in names or types)

    def check(self, names: Sequence[str]) -> None:
        """Refuse columns that there are not. Raises InvalidArgument."""
        for name in names:
            if name not in self.types:
                raise InvalidArgument(why=f"there is no column {name!r}; there are {', '.join(self.types)}")
            if list(names).count(name) > 1:
                raise InvalidArgument(why=f"column {name!r} is asked for twice")


def state_batch(batch: EntryBatch, names: Sequence[str], *, cache: str) -> pa.RecordBatch:
    """Return the entries of a batch in some columns, in their order."""
    table = [_OF_TABLE.get(name, name) for name in names if name not in _OWN_OF_STATE]
    found: dict[str, Any] = {}
    if table:
        arrow = batch.arrow(columns=table)
        found = dict(zip(arrow.schema.names, arrow.columns, strict=True))
    found["version"] = found.get("id")
    if "cache" in names:
        found["cache"] = _same(cache, len(batch))
    if "expires" in names:
        found["expires"] = pa.array(batch.expiry * 1000, pa.int64(), mask=batch.expiry == 0).cast(TIME)
    return pa.RecordBatch.from_arrays([found[name] for name in names], names=list(names))


def _same(text: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([text])).dictionary_decode()


def record_batch(batch: EventBatch, names: Sequence[str], *, cache: str) -> pa.RecordBatch:
    """Return the events of a batch in some columns, in their order."""
    table = [name for name in names if name not in _OWN]
    found: dict[str, Any] = {}
    if table:
        arrow = batch.arrow(columns=table)
        found = dict(zip(arrow.schema.names, arrow.columns, strict=True))
    if "cache" in names:
        found["cache"] = _same(cache, len(batch))
    if "epoch" in names:
        found["epoch"] = pa.array(batch.epochs.astype(np.int64))
    return pa.RecordBatch.from_arrays([found[name] for name in names], names=list(names))
