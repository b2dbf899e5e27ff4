"""Events for filters: rows as plain dictionaries, laid out as the log lays them out, a few a stored value."""

from typing import Any

import msgspec
import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.columns import EventColumns, columns_of_values
from eventlog.batch.join import pack
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.events import Kind, encode_headers
from eventlog.predicate.compile import Compiled, compile_filter
from eventlog.predicate.spec import FilterContext, FilterSpec

JSON = FilterContext(format="json", text_keys=True, before=True)
BYTES = FilterContext(format="bytes", text_keys=False, before=True)
BASE = 794_354_197_236_000_000 >> 10 << 10
A_VALUE = 4


def events(rows: list[dict[str, Any]], *, a_value: int = A_VALUE) -> EventColumns:
    """Return rows as columns; each has `key` and `value` (None: removed), and what it likes of `kind`, `before`, `headers`, `segment`."""
    data, segments = [], []
    for start in range(0, len(rows), a_value):
        part = rows[start : start + a_value]
        segments.append(start // a_value % 8)
        data.append(_stored(part, segment=segments[-1], start=start))
    return columns_of_values(pack(segments, data), after=-1, until=(1 << 63) - 1)


def _stored(part: list[dict[str, Any]], *, segment: int, start: int) -> bytes:
    kinds = [kind_of(row) for row in part]
    before = [encoded(row.get("before")) for row in part]
    headers = [encode_headers(row.get("headers") or {}) for row in part]
    columns = Columns(
        kinds=np.array(kinds, np.uint8),
        keys=[row["key"].encode() if isinstance(row["key"], str) else row["key"] for row in part],
        values=[
            b"" if kind in {Kind.REMOVED, Kind.EXPIRED} else encoded(row["value"], null=b"null")
            for row, kind in zip(part, kinds, strict=True)
        ],
        before=before if any(before) else None,
        headers=headers if any(headers) else None,
    )
    block, _ = build_blocks(columns, np.array([len(part)]))
    head = ValueHead(
        flags=0, sections=1, epoch=1, count=len(part), bitmap=columns.bitmap, kinds=sum({1 << kind for kind in kinds}), producers=0,
        base=BASE + (start << 10), first_offset=start,
    )  # fmt: skip
    return encode_value(head, segment=segment, cache=1, sections=[block])


def kind_of(row: dict[str, Any]) -> Kind:
    if "kind" in row:
        return Kind[row["kind"]]
    return Kind.REMOVED if row["value"] is None else Kind.MODIFIED if "before" in row else Kind.CREATED


def encoded(value: Any, *, null: bytes = b"") -> bytes:
    if value is None:
        return null
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def compiled(where: str = "", context: FilterContext = JSON, parameters: Any = None, **spec: Any) -> Compiled:
    given = b"" if parameters is None else msgspec.json.encode(parameters)
    return compile_filter(FilterSpec(where=where, parameters=given, **spec), context)


def matching(where: str, rows: list[dict[str, Any]], context: FilterContext = JSON, parameters: Any = None) -> list[int]:
    """Return the indexes of the rows that match."""
    return np.flatnonzero(compiled(where, context, parameters).mask(events(rows))).tolist()


def matches(where: str, value: Any, context: FilterContext = JSON, parameters: Any = None, **row: Any) -> bool:
    """Return whether one event with this value matches."""
    return matching(where, [{"key": "k", "value": value, **row}], context, parameters) == [0]
