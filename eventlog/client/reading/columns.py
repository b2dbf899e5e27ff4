"""Rows that a read answers, as columns: what they are, and their items as Python's own, without work per item where that can be."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.marks import CONTENT
from eventlog.batch.views import Strings
from eventlog.errors import InvalidArgument
from eventlog.events import ValueFormat

OPTIONAL: Final = ("before", "headers")
ROW_COLUMNS: Final = ("id", "time", "segment", "offset", "kind", "key", "value", *OPTIONAL)
CHANGE: Final = "change"


def checked_columns(columns: Sequence[str] | None, *, has_changes: bool = False) -> tuple[str, ...] | None:
    """Return columns as they are asked for, None for all. Raises InvalidArgument."""
    if columns is None:
        return None
    found = listed("columns", columns)
    check_names("columns", found, (*ROW_COLUMNS, *((CHANGE,) if has_changes else ())))
    return found


def listed(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names that are given. Raises InvalidArgument where they are one text, or nothing that has some."""
    if isinstance(names, str):
        raise InvalidArgument(why=f"{option} is the text {names!r}: give a list of names")
    if isinstance(names, bytes | type) or not isinstance(names, Iterable):
        raise InvalidArgument(why=f"{option} is {names!r:.60}: give a list of names")
    return tuple(names)


def check_names(option: str, given: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Raise InvalidArgument where names are given that there are not, one twice, or none."""
    for name in given:
        if name not in names:
            raise InvalidArgument(why=f"{option} has {name!r}: choose of {', '.join(names)}")
        if given.count(name) > 1:
            raise InvalidArgument(why=f"{option} has {name!r} twice")
    if not given and option == "columns":
        raise InvalidArgument(why=f"columns is empty: choose of {', '.join(names)}")


def left_out(columns: tuple[str, ...]) -> list[str]:
    """Return which columns nodes need not answer where these are asked for."""
    return sorted(CONTENT.difference(columns))


def check_asked(name: str, columns: tuple[str, ...] | None) -> None:
    """Refuse a column that was not asked for: nobody knows what it would hold. Raises InvalidArgument."""
    if columns is not None and name not in columns:
        raise InvalidArgument(why=f"column {name!r} was not asked for: these are {', '.join(columns)}")


class FrameForm(NamedTuple):
    """What the rows of a read are: text or bytes as keys; values of `values`, JSON, or bytes; whether they have a change.

    `typed` is the type that JSON values are read as, None where they stay text. `columns` are those that were asked for, None for all.
    """

    text_keys: bool
    json_values: bool
    values: ValueFormat | None
    has_changes: bool = False
    typed: Any = None  # a `pyarrow.DataType`
    columns: tuple[str, ...] | None = None


class RowColumns(Protocol):
    """Item i of each column is row i; `before`, `headers` and `changes` are None where no row has one."""

    def __len__(self) -> int: ...

    @property
    def ids(self) -> Ints: ...

    @property
    def segments(self) -> npt.NDArray[np.uint16]: ...

    @property
    def offsets(self) -> Ints: ...

    @property
    def kinds(self) -> npt.NDArray[np.uint8]: ...

    @property
    def keys(self) -> Strings: ...

    @property
    def values(self) -> Strings: ...

    @property
    def before(self) -> Strings | None: ...

    @property
    def has_before(self) -> npt.NDArray[np.bool_]: ...

    @property
    def headers(self) -> Strings | None: ...

    @property
    def changes(self) -> npt.NDArray[np.uint8] | None: ...


def arrow_module() -> Any:
    """Return the module that needs pyarrow; the first call takes a tenth of a second."""
    from eventlog.client.writing import arrow  # noqa: PLC0415 -- most programs never need pyarrow, and it is slow to load

    return arrow


Items = Callable[[int, int], list[Any]]
"""Items `[low, high)` of a column as a list; `high` may be past the end."""


def items_of(strings: Strings, order: Ints | None, *, valid: npt.NDArray[np.bool_] | None = None) -> Items:
    """Return how to get items as bytes, in `order` if given, None where not `valid`.

    In one step where all are as long, else through pyarrow where the program has loaded it anyway.
    """
    size = int(strings.offsets[1]) if len(strings.offsets) > 1 else 0
    if size and valid is None and bool((np.diff(strings.offsets) == size).all()):
        rows = np.frombuffer(strings.data, np.dtype((np.void, size)))

        def same(low: int, high: int) -> list[Any]:
            found: list[Any] = (rows[low:high] if order is None else rows[order[low:high]]).tolist()
            return found

        return same
    if "pyarrow" in sys.modules:
        found: Items = arrow_module().items_of(strings, order=order, valid=valid)
        return found
    return _slices(strings, order, valid)


def _slices(strings: Strings, order: Ints | None, valid: npt.NDArray[np.bool_] | None) -> Items:
    begins, ends = strings.offsets[:-1], strings.offsets[1:]
    if order is not None:
        begins, ends = begins[order], ends[order]
        valid = None if valid is None else valid[order]
    data = bytes(strings.data)

    def items(low: int, high: int) -> list[Any]:
        found: list[Any] = [data[begin:end] for begin, end in zip(begins[low:high].tolist(), ends[low:high].tolist(), strict=True)]
        if valid is None:
            return found
        return [item if mark else None for item, mark in zip(found, valid[low:high].tolist(), strict=True)]

    return items
