"""Many writes of one call: pairs or Arrow columns to stored bytes, cut into frames that a node takes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeVar

from msgspec import Raw

from eventlog.client.formats import REMOVE, CacheFormat, Remove, checked_json, headers_bytes, lifespan
from eventlog.client.options import BULK_EVENTS_MAX
from eventlog.client.reading.columns import arrow_module
from eventlog.client.writing.calls import EVENT_BYTES, Changes
from eventlog.errors import InvalidArgument, TooLarge

Columns = tuple[list[bytes], list[bytes], list[bool] | None]  # keys, values, which are removals
Made = TypeVar("Made")
_PAIRS = "put_many takes pairs of key and value"


def pair_columns(pairs: Iterable[tuple[Any, Any]] | Mapping[Any, Any], form: CacheFormat) -> Columns:
    """Return pairs of key and value as they are stored; `REMOVE` as a value removes the key.

    Raises:
        InvalidArgument, BadValue, TooLarge: naming the first that does not fit the cache.
    """
    if not isinstance(pairs, Iterable):
        raise InvalidArgument(why=f"pairs are {pairs!r:.60}: {_PAIRS}")
    given = list(pairs.items() if isinstance(pairs, Mapping) else pairs)  # what a generator of the caller's raises is the caller's
    try:
        keys, values = map(list, zip(*given, strict=True)) if given else ([], [])
    except (TypeError, ValueError) as error:
        raise InvalidArgument(why=_PAIRS) from error
    stored_keys = form.keys(keys)
    if Remove not in set(map(type, values)):
        return stored_keys, form.values(keys, values), None
    rows = zip(keys, values, strict=True)
    return stored_keys, [b"" if value is REMOVE else form.value(key, value) for key, value in rows], [value is REMOVE for value in values]


def arrow_columns(batch: Any, form: CacheFormat, *, key: str, value: str) -> Columns:
    """Return two columns of what has the Arrow C interface as they are stored; a null value removes the key.

    Values of a JSON cache may be text or bytes that hold JSON, or anything else that Arrow has, which becomes JSON. Those of an Avro cache
    may be text with JSON, bytes that are encoded already, or structs and whatever else fits its schema.

    Raises:
        InvalidArgument: a column is missing, there twice, or cannot be a key.
        BadValue: a value does not fit the cache's format.
    """
    arrow = arrow_module()
    batch = arrow.table_of(batch)
    key_column, value_column = _one_column(batch, key), _one_column(batch, value)
    keys = arrow.column_bytes(key_column)
    if keys is None:
        raise InvalidArgument(why=f"column {key!r} is {key_column.type}: keys are text or binary")
    if None in keys:
        raise InvalidArgument(why=f"column {key!r} is null in row {keys.index(None)}: each row needs a key")
    if form.is_text and not arrow.is_text(key_column.type):
        _check_text(keys, key)
    found = arrow.column_bytes(value_column)
    if form.avro is not None:
        found = _avro_values(value_column, keys, found, form=form, name=value)
    elif found is None:
        if not form.is_json:
            raise InvalidArgument(why=f"column {value!r} is neither text nor binary; values of this cache are bytes")
        objects = _objects(value_column, value)
        found = [None if item is None else form.value(own, item) for own, item in zip(keys, objects, strict=True)]
    elif form.is_json:
        _check_json(keys, found)
    removed = [item is None for item in found]
    return keys, [item or b"" for item in found], removed if any(removed) else None


def header_column(batch: Any, name: str) -> list[bytes]:
    """Return a column of maps from names to bytes as headers are stored; null is none.

    Raises:
        InvalidArgument: it is missing, or something else.
        TooLarge: the headers of a row are.
    """
    column = _one_column(batch, name)
    if not arrow_module().is_header_map(column.type):
        raise InvalidArgument(why=f"column {name!r} is {column.type}: headers are a map of text to binary")
    return _each(name, lambda pairs: headers_bytes(dict(pairs)) if pairs else b"", column)


def lifespan_column(batch: Any, name: str) -> list[int]:
    """Return a column of whole milliseconds, 0 where it is null: the cache's own lifespan.

    Raises:
        InvalidArgument: it is something else.
    """
    column = _one_column(batch, name)
    if not arrow_module().is_integer(column.type):
        raise InvalidArgument(why=f"column {name!r} is {column.type}: lifespans are whole milliseconds")
    return _each(name, lifespan, column)


def _each(name: str, read: Callable[[Any], Made], column: Any) -> list[Made]:
    """Return what is made of each item. What is refused says which row it is of."""
    made: list[Made] = []
    for item in column.to_pylist():
        try:
            made.append(read(item))
        except InvalidArgument as error:
            raise InvalidArgument(why=f"column {name!r} in row {len(made)}: {error.why}") from error
        except TooLarge as error:
            raise TooLarge(what=f"{error.what}, column {name!r} in row {len(made)},", size=error.size, limit=error.limit) from error
    return made


def _one_column(batch: Any, name: str) -> Any:
    if batch.schema.names.count(name) != 1:
        which = "several columns" if name in batch.schema.names else "no column"
        raise InvalidArgument(why=f"{which} {name!r} among {', '.join(batch.schema.names)}")
    return batch.column(name)


def _check_text(keys: list[bytes], name: str) -> None:
    for row, key in enumerate(keys):
        try:
            key.decode()
        except UnicodeDecodeError as error:
            why = f"column {name!r} has {key!r} in row {row}: keys of this cache are text, and that is not UTF-8"
            raise InvalidArgument(why=why) from error


def _avro_values(column: Any, keys: list[bytes], found: list[Any] | None, *, form: CacheFormat, name: str) -> list[bytes | None]:
    """Return a column encoded: text is JSON, binary encoded already, anything else is what it says."""
    if found is None:
        items = _objects(column, name)
    else:
        is_text = arrow_module().is_text(column.type)
        items = [Raw(item) if is_text and item is not None else item for item in found]
    return [None if item is None else form.value(key, item) for key, item in zip(keys, items, strict=True)]


def _objects(column: Any, name: str) -> list[Any]:
    try:
        found: list[Any] = arrow_module().column_items(column)
    except (ValueError, OverflowError, KeyError) as error:  # of pyarrow, too
        raise InvalidArgument(why=f"column {name!r} holds what Python has no value for: {error.args[0]}") from error
    return found


def _check_json(keys: list[bytes], values: list[bytes | None]) -> None:
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            checked_json(key, value)


def parts_of(changes: Changes, *, bytes_max: int) -> Iterator[Changes]:
    """Yield the same changes in parts that fit a frame, in order; nearly always that is one."""
    if changes.nbytes <= bytes_max and len(changes) <= BULK_EVENTS_MAX:
        yield changes
        return
    sizes = [len(key) + len(value) + EVENT_BYTES for key, value in zip(changes.keys, changes.values, strict=True)]
    if changes.headers is not None:
        sizes = [size + len(header) for size, header in zip(sizes, changes.headers, strict=True)]
    low = base = 0
    for high, total in enumerate(accumulate(sizes)):
        if high > low and (total - base > bytes_max or high - low >= BULK_EVENTS_MAX):
            yield _slice(changes, low, high)
            low, base = high, total - sizes[high]
    yield _slice(changes, low, len(changes))


def _slice(changes: Changes, low: int, high: int) -> Changes:
    return replace(
        changes,
        keys=changes.keys[low:high],
        values=changes.values[low:high],
        removed=None if changes.removed is None else changes.removed[low:high],
        lifespans=None if changes.lifespans is None else changes.lifespans[low:high],
        headers=None if changes.headers is None else changes.headers[low:high],
    )
