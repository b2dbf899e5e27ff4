"""What every reader makes: batches of keys and values in the order of the file, and the rows that cannot be written."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from eventlog.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX

BATCH_BYTES_TARGET = 4 << 20  # a batch ends here even with fewer rows: bounds what waits in memory


class RowRefused(ValueError):
    """A row that cannot be written, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A refused row. `line` counts from 1; `before` rows of the same batch stand before it; nothing can follow a `is_last` one."""

    line: int
    why: str
    before: int
    is_last: bool = False


@dataclass(slots=True, kw_only=True)
class RowBatch:
    """Rows in order, read up to `last_line` inclusive. `removals` is empty where no row can be one; a removal's value is empty."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    removals: list[bool] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    last_line: int = 0

    def before(self, rejection: Rejection) -> "RowBatch":
        """Return the rows that stand before one of the rejected ones."""
        found = self.first(rejection.before)
        found.last_line = rejection.line - 1
        return found

    def first(self, rows: int) -> "RowBatch":
        """Return the first rows, without rejections."""
        return RowBatch(keys=self.keys[:rows], values=self.values[:rows], removals=self.removals[:rows], last_line=self.last_line)

    def reject(self, line: int, why: str, *, is_last: bool = False) -> None:
        """Note that the next row is refused."""
        self.rejections.append(Rejection(line=line, why=why, before=len(self.keys), is_last=is_last))

    def extend(self, other: "RowBatch") -> None:
        """Add the rows of `other`, which may be taken over as they are, behind these; its rejections are left out."""
        if self.keys:
            self.keys += other.keys
            self.values += other.values
            self.removals += other.removals
        else:
            self.keys, self.values, self.removals = other.keys, other.values, other.removals
        self.last_line = other.last_line

    @property
    def lines(self) -> int:
        """Return how many rows were looked at."""
        return len(self.keys) + len(self.rejections)


class FormatReader(Protocol):
    """Reads one format."""

    def batches(self) -> Iterator[RowBatch]:
        """Yield the whole input as batches of at most the rows asked for; none without a row or a rejection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """What a row must have: the field that is its key; the field and the words that make it a removal; how large it may be.

    A batch of rows ends at `batch_bytes`. With `text_keys` a key of bytes has to be UTF-8, as the cache takes no other. `encode` makes
    a value of a row where that is not JSON, and raises ValueError with what does not fit. `check` says what the cache's schema does not
    take of a value, nothing if all.
    """

    key: str
    operation: str | None = None
    removal_words: frozenset[str] = frozenset()
    key_bytes_max: int = KEY_BYTES_MAX
    value_bytes_max: int = VALUE_BYTES_MAX
    batch_bytes: int = BATCH_BYTES_TARGET
    text_keys: bool = True
    encode: Callable[[dict[str, Any]], bytes] | None = None
    check: Callable[[bytes], str] | None = None

    def key_of(self, row: dict[str, Any]) -> bytes:
        """Return the key of a row.

        Raises:
            RowRefused: the field is missing, or holds no text, whole number or bytes that the cache takes as a key.
        """
        if self.key not in row:
            raise RowRefused(f"field {self.key!r} for the key is missing")
        found = row[self.key]
        if isinstance(found, bytes):
            key = self._checked_bytes(found)
        elif isinstance(found, str):
            key = encode_text(found, self.key)
        elif isinstance(found, int) and not isinstance(found, bool):
            key = b"%d" % found
        elif _is_uuid(found):
            key = str(found).encode()
        else:
            raise RowRefused(f"field {self.key!r} for the key holds {type_name(found)}, not text or a whole number")
        if len(key) > self.key_bytes_max:
            raise RowRefused(f"the key has {len(key)} bytes, the limit is {self.key_bytes_max}")
        return key

    def _checked_bytes(self, key: bytes) -> bytes:
        if self.text_keys:
            try:
                key.decode()
            except UnicodeDecodeError:
                raise RowRefused(f"field {self.key!r} for the key holds bytes that are not UTF-8, and the cache's keys are text") from None
        return key

    def take_removal(self, row: dict[str, Any]) -> bool:
        """Take the operation's field out of a row and return whether it says that the row is a removal.

        Raises:
            RowRefused: the field is missing or is no single value.
        """
        if self.operation is None:
            return False
        if self.operation not in row:
            raise RowRefused(f"field {self.operation!r} for the operation is missing")
        found = row.pop(self.operation)
        if isinstance(found, str):
            return found in self.removal_words
        if isinstance(found, dict | list | bytes):
            raise RowRefused(f"field {self.operation!r} for the operation holds {type_name(found)}, not a word")
        return orjson.dumps(found).decode() in self.removal_words

    def checked_value(self, value: bytes) -> bytes:
        """Return `value`.

        Raises:
            RowRefused: it is too large, or the schema does not take it.
        """
        if len(value) > self.value_bytes_max:
            raise RowRefused(f"the value has {len(value)} bytes, the limit is {self.value_bytes_max}")
        if self.check is not None and (why := self.check(value)):
            raise RowRefused(why)
        return value

    def add(self, row: dict[str, Any], batch: RowBatch) -> None:
        """Add a parsed row to `batch`, its value written as JSON.

        Raises:
            RowRefused: it cannot be written; `batch` is as before.
        """
        key = self.key_of(row)
        is_removal = self.take_removal(row)
        value = b"" if is_removal else self.value_of(row)
        self.append(batch, key, value, is_removal=is_removal)

    def value_of(self, row: dict[str, Any]) -> bytes:
        """Return a row as it is stored.

        Raises:
            RowRefused: it does not fit the cache, or is too large.
        """
        if self.encode is None:
            return self.checked_value(dump(row))
        for name, item in row.items():
            if isinstance(item, Unreadable):
                raise RowRefused(f"field {name!r} cannot be read: {item.why}")
        try:
            return self.checked_value(self.encode(row))
        except RowRefused:
            raise
        except ValueError as error:
            raise RowRefused(str(error)) from None

    def append(self, batch: RowBatch, key: bytes, value: bytes, *, is_removal: bool) -> None:
        """Add one finished row to `batch`."""
        batch.keys.append(key)
        batch.values.append(value)
        if self.operation is not None:
            batch.removals.append(is_removal)


def dump(row: dict[str, Any]) -> bytes:
    """Return a row as JSON; times become ISO 8601, decimals text, bytes text or `{"base64": ...}`.

    Raises:
        RowRefused: a field holds what JSON cannot.
    """
    try:
        return orjson.dumps(row, default=_dump_other, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except orjson.JSONEncodeError as error:
        if "key must be str" in str(error):  # of a map, such as parquet has; it takes longer, so it is not asked for each row
            with suppress(orjson.JSONEncodeError):
                return orjson.dumps(row, default=_dump_other, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS)
        raise RowRefused(_why_not_json(error)) from None


def _is_uuid(value: object) -> bool:
    from uuid import UUID  # noqa: PLC0415 - only rows of parquet and avro have such values

    return isinstance(value, UUID)


class Unreadable:
    """A field that its reader cannot hold, and why; the row is refused for it. No dataclass: JSON would take it."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


def _why_not_json(error: Exception) -> str:
    if isinstance(error.__cause__, RowRefused):
        return str(error.__cause__)
    text = str(error)
    return "a field is not UTF-8 text" if "surrogates" in text else f"a field cannot be written as JSON: {text}"


def _dump_other(value: object) -> object:
    # not at the top: only rows of parquet and avro have such values
    from base64 import b64encode  # noqa: PLC0415
    from datetime import date, time, timedelta  # noqa: PLC0415
    from decimal import Decimal  # noqa: PLC0415

    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, date | time):  # datetimes are dates; orjson itself writes 00:00:00.01 as 00:00:00.10000
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Unreadable):
        raise RowRefused(f"a field cannot be read: {value.why}")
    raise TypeError(f"a value of type {type(value).__name__}")


def encode_text(text: str, name: str) -> bytes:
    """Return UTF-8.

    Raises:
        RowRefused: the source was not UTF-8 there.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RowRefused(f"field {name!r} is not UTF-8 text") from None


def type_name(value: object) -> str:
    """Return what JSON calls the type of `value`."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object", bytes: "bytes"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
