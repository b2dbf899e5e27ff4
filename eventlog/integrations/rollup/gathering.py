"""Counting: the events of some windows into one row a group, in tasks, and the rows of tasks into those of the table. Pure.

Whatever tasks there are and however they are cut, the result is the same to the last bit. Numbers are added up without rounding: what
a task sends on is a few numbers whose exact sum is that of all of its numbers. Keys are told apart exactly: all events of a key in one
group of one window are in one task, because tasks have segments of their own, or windows of their own. A sketch depends
on its keys alone.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventlog.client.reading.frames import TIME
from eventlog.ids import EPOCH_MS, TIME_SHIFT, time_of
from eventlog.integrations.archive.events import event_columns, sorted_rows
from eventlog.integrations.rollup.definition import KEYS_ABOUT, WINDOW, Definition
from eventlog.integrations.rollup.sketches import KeySketch, coupons_of
from eventlog.predicate.compile import compile_expressions
from eventlog.predicate.spec import FilterContext

_ROWS: Final = 1_000_000  # of groups, keys or numbers that are gathered before they are put together
_WINDOW: Final = "w"
_WHOLE_EXACTLY: Final = 1 << 53
_FIGURES: Final = {"count": "sum", "bytes": "sum", "first": "min", "last": "max"}
_encode = msgspec.json.Encoder(order="sorted").encode


class Gathering:
    """What a task counts of the events that it is given."""

    def __init__(self, definition: Definition, context: FilterContext) -> None:
        """Check the expressions. Raises BadPredicate: one is not right for the cache."""
        self._definition = definition
        self._by = compile_expressions([one.expression for one in definition.by], context)
        self._numbers = compile_expressions(definition.numbers, context)
        self._groups = [_WINDOW, *(f"b{place}" for place in range(len(definition.by)))]
        self._has_keys, self._has_sketches = (any(one.function == name for one in definition.measures) for name in ("keys", KEYS_ABOUT))
        self._figures = _FIGURES | {f"{low}{place}": low for place in range(len(definition.numbers)) for low in ("min", "max")}
        self._counted = _Gathered(lambda table: _put_together(table, self._groups, self._figures))
        self._keys = _Gathered(lambda table: table.group_by([*self._groups, "key"], use_threads=False).aggregate([]))
        self._sketches = _Sketched(self._groups)
        self._sums = [_Gathered(self._added) for _ in definition.numbers]

    def add(self, rows: pa.RecordBatch) -> None:
        """Count events, in the columns of an archive."""
        if not len(rows):
            return
        rows = sorted_rows(rows)
        events = event_columns(rows)
        ids = rows.column("id").to_numpy()
        window_ms = self._definition.window_ms
        groups = [pa.array(((ids >> TIME_SHIFT) + EPOCH_MS) // window_ms * window_ms)]
        groups += [pa.array([_text(value) for value in values], pa.string()) for values in self._by.lists(events)]
        nbytes = pc.add(pc.binary_length(rows.column("key")), pc.fill_null(pc.binary_length(rows.column("value")), 0))
        figures = [pa.array(np.ones(len(rows), np.int64)), nbytes.cast(pa.int64()), rows.column("id"), rows.column("id")]
        for place, values in enumerate(self._numbers.lists(events)):
            numbers = pa.array([_number(value) for value in values], pa.float64())
            figures += [numbers, numbers]
            left = values
            while numbers.null_count < len(numbers):
                parts = pa.ListArray.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=np.int32)), numbers)
                self._sums[place].take(pa.table([*groups, parts], names=[*self._groups, "parts"]).filter(numbers.is_valid()))
                left, numbers = _left_out(left, numbers)
        self._counted.take(pa.table([*groups, *figures], names=[*self._groups, *self._figures]))
        if self._has_keys:
            self._keys.take(pa.table([*groups, rows.column("key")], names=[*self._groups, "key"]))
        if self._has_sketches:
            self._sketches.take(pa.table([*groups, pa.array(coupons_of(rows.column("key")))], names=[*self._groups, "coupon"]))

    def _added(self, table: pa.Table) -> pa.Table:
        """Return the numbers of each group as few that have the same sum."""
        found: dict[tuple[Any, ...], list[float]] = {}
        for *group, parts in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found.setdefault(tuple(group), []).extend(parts)
        columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in self._groups]
        arrays = [pa.array(column, table.schema.field(name).type) for name, column in zip(self._groups, columns, strict=True)]
        sums = pa.array([exact(numbers) for numbers in found.values()], pa.list_(pa.float64()))
        return pa.table([*arrays, sums], names=table.schema.names)

    def table(self) -> pa.Table:
        """Return a row for each group, for `merged`."""
        found = self._counted.whole()
        if found is None:
            return pa.table({})
        rows = {_group(row, self._groups): row for row in found.to_pylist()}
        for row in rows.values():
            row |= {"keys": 0, KEYS_ABOUT: None}
            row |= {f"sum{place}": [] for place in range(len(self._sums))}
        if (keys := self._keys.whole()) is not None:
            for row in keys.group_by(self._groups, use_threads=False).aggregate([("key", "count")]).to_pylist():
                rows[_group(row, self._groups)]["keys"] = row["key_count"]
        for group, sketch in self._sketches.whole().items():
            rows[group][KEYS_ABOUT] = sketch.to_bytes()
        for place, gathered in enumerate(self._sums):
            for row in () if (sums := gathered.whole()) is None else sums.to_pylist():
                rows[_group(row, self._groups)][f"sum{place}"] = row["parts"]
        numbers = range(len(self._sums))
        types: list[tuple[str, pa.DataType]] = [(_WINDOW, pa.int64()), *((name, pa.string()) for name in self._groups[1:])]
        types += [*((name, pa.int64()) for name in (*_FIGURES, "keys")), (KEYS_ABOUT, pa.binary())]
        types += [(f"{low}{place}", pa.float64()) for place in numbers for low in ("min", "max")]
        types += [(f"sum{place}", pa.list_(pa.float64())) for place in numbers]
        return pa.Table.from_pylist(list(rows.values()), schema=pa.schema(types))


class _Gathered:
    """Tables of one kind, put together now and then so that they stay small."""

    def __init__(self, put_together: Any) -> None:
        self._put_together = put_together
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._limit = _ROWS

    def take(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._rows += len(table)
        if self._rows > self._limit:
            whole = self.whole()
            self._limit = _ROWS + 2 * (0 if whole is None else len(whole))  # where nearly all are different, not at each batch anew

    def whole(self) -> pa.Table | None:
        """Return all of it as one table, None where nothing came."""
        if self._tables:
            self._tables = [self._put_together(pa.concat_tables(self._tables))]
            self._rows = len(self._tables[0])
        return self._tables[0] if self._tables else None


class _Sketched:
    """Coupons of keys, put into the sketches of their groups now and then."""

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = list(groups)
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._found: dict[tuple[Any, ...], KeySketch] = {}

    def take(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._rows += len(table)
        if self._rows > _ROWS:
            self.whole()

    def whole(self) -> dict[tuple[Any, ...], KeySketch]:
        """Return the sketches of all that came."""
        if self._tables:
            different = pa.concat_tables(self._tables).group_by([*self._groups, "coupon"], use_threads=False).aggregate([])
            self._tables, self._rows = [], 0
            lists = different.group_by(self._groups, use_threads=False).aggregate([("coupon", "list")]).combine_chunks()
            coupons = lists.column("coupon_list").chunk(0)
            offsets, values = coupons.offsets.to_pylist(), coupons.values.to_numpy()
            groups = zip(*(lists.column(name).to_pylist() for name in self._groups), strict=True)
            for group, (low, high) in zip(groups, pairwise(offsets), strict=True):
                self._found.setdefault(group, KeySketch()).add(values[low:high])
        return self._found


def _put_together(table: pa.Table, groups: Sequence[str], figures: dict[str, str]) -> pa.Table:
    found = table.group_by(list(groups), use_threads=False).aggregate(list(figures.items()))
    return found.select([*groups, *(f"{name}_{how}" for name, how in figures.items())]).rename_columns([*groups, *figures])


def _group(row: dict[str, Any], groups: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in groups)


def merged(definition: Definition, tables: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of the table, by window and group, of what tasks have counted."""
    groups = [_WINDOW, *(f"b{place}" for place in range(len(definition.by)))]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for table in tables:
        for row in table.to_pylist():
            if row[KEYS_ABOUT] is not None:
                row[KEYS_ABOUT] = KeySketch.of_bytes(row[KEYS_ABOUT])
            known = found.setdefault(_group(row, groups), row)
            if known is not row:
                _merge(known, row)
    ordered = sorted(found, key=lambda group: [(value is not None, value) for value in group])
    numbers = {expression: place for place, expression in enumerate(definition.numbers)}
    columns: dict[str, Any] = {WINDOW: pa.array([group[0] * 1000 for group in ordered], pa.int64()).cast(TIME)}
    for place, one in enumerate(definition.by):
        columns[one.name] = pa.array([group[place + 1] for group in ordered], pa.string())
    for measure in definition.measures:
        name = f"{measure.function}{numbers[measure.expression]}" if measure.expression else measure.function
        values = [_figure(measure.function, found[group][name]) for group in ordered]
        columns[measure.name] = pa.array(values, pa.int64()).cast(TIME) if measure.type == TIME else pa.array(values, measure.type)
        if measure.sketch:
            columns[measure.sketch] = pa.array([found[group][name].to_bytes() for group in ordered], pa.binary())
    return pa.table(columns, schema=definition.schema)


def _merge(known: dict[str, Any], row: dict[str, Any]) -> None:
    for name, value in row.items():
        if name in {"count", "bytes", "keys"} or name.startswith("sum"):
            known[name] = known[name] + value
        elif name == KEYS_ABOUT:
            if value is not None:
                known[name].merge(value)
        elif name.startswith(("min", "first", "max", "last")):
            both = [one for one in (known[name], value) if one is not None]
            lowest = name.startswith(("min", "first"))
            known[name] = (min(both) if lowest else max(both)) if both else None


def _figure(function: str, found: Any) -> Any:
    if function == "sum":
        return added(found) if found else None
    if function == KEYS_ABOUT:
        return found.estimate()
    return time_of(found) * 1000 if function in {"first", "last"} else found


def added(numbers: Sequence[float]) -> float:
    """Return the sum of finite numbers, rounded once; infinite where it is too large for a number."""
    try:
        return math.fsum(numbers)
    except OverflowError:  # on the way there, in whatever order they come
        total = sum(map(Fraction, numbers))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def exact(numbers: Sequence[float]) -> list[float]:
    """Return few finite numbers that have exactly the same sum: the sum rounded, what that left out, what that left out again, and so on.

    Where the sum is too large for a number, they are the numbers themselves.
    """
    found: list[float] = []
    while rest := added([*numbers, *(-one for one in found)]):
        if math.isinf(rest):
            return list(numbers)
        found.append(rest)
    return found or [0.0]


def _number(value: Any) -> float | None:
    if type(value) not in {int, float}:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _left_out(values: list[Any], numbers: Any) -> tuple[list[Any], Any]:
    """Return what `numbers` leave out of `values` that are whole and have more than 53 bits, and the numbers of that, null for nothing."""
    if (pc.max(pc.abs(numbers)).as_py() or 0) < _WHOLE_EXACTLY:
        return values, pa.nulls(len(numbers), pa.float64())
    pairs = zip(values, numbers.to_pylist(), strict=True)
    rests = [value - int(number) or None if type(value) is int and number is not None else None for value, number in pairs]
    return rests, pa.array([_number(rest) for rest in rests], pa.float64())


def _text(value: Any) -> str | None:
    """Return a value as a group is called by it; of text the text, of bytes their hexadecimal digits, else JSON.

    Bytes that were taken for text and are no UTF-8 are shown with a backslash.
    """
    if value is None or type(value) is str:
        return value if value is None or value.isascii() else value.encode("utf-8", "surrogateescape").decode(errors="backslashreplace")
    return value.hex() if type(value) is bytes else _encode(value).decode()
