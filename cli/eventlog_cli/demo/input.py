"""What the demo loads: every clock change of every time zone, or the rows of a file.

The clock changes are those in the files of the `tzdata` package (TZif, RFC 9636).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import orjson

from eventlog.errors import InvalidArgument
from eventlog_cli.loading.rows import RowBatch, RowShape
from eventlog_cli.loading.source import format_of, open_source, reader_of

BATCH_ROWS = 1_000
ROWS_MAX = 500_000  # the demo keeps all it wrote in memory, to compare
KEY_NAMES = ("key", "id", "path", "name", "k")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRows:
    """Rows in batches, and what to call them."""

    cache: str
    title: str
    parts: list[RowBatch]

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(len(batch.keys) for batch in self.parts)

    def batches(self) -> Iterator[RowBatch]:
        """Yield the rows, as a reader does."""
        return iter(self.parts)


def time_zones() -> DemoRows:
    """Return the clock changes in the order of time, keyed by zone."""
    changes = clock_changes()
    parts = [
        RowBatch(keys=[change.zone.encode() for change in part], values=[orjson.dumps(change.value) for change in part])
        for part in (changes[low : low + BATCH_ROWS] for low in range(0, len(changes), BATCH_ROWS))
    ]
    zones = len({change.zone for change in changes})
    return DemoRows(cache="clock-changes", title=f"every clock change of {zones} time zones", parts=parts)


def rows_of_file(path: str, *, key: str | None, rows_max: int = ROWS_MAX) -> DemoRows:
    """Return the first rows of a file, without those that cannot be written.

    Raises:
        InvalidArgument: the key's field is not named and cannot be guessed, or no row can be written.
        OSError: the file cannot be read.
    """
    field = key or _guess_key(path)
    batches: list[RowBatch] = []
    rows, refused, why = 0, 0, ""
    for batch in _batches(path, field):
        batches.append(batch.first(rows_max - rows))
        rows += len(batches[-1].keys)
        refused += len(batch.rejections)
        why = why or _first_refusal(batch)
        if rows >= rows_max:
            break
    if not rows:
        raise InvalidArgument(why=f"no row of {path} has a key in field {field!r}{why}; name another with --key")
    which = f"the first {rows:,} rows of {path}" if rows >= rows_max else path
    but = f", but {refused:,} refused rows{why}" if refused else ""
    return DemoRows(cache="rows", title=f"{which}, keyed by {field!r}{but}", parts=[batch for batch in batches if batch.keys])


def _batches(path: str, key: str) -> Iterator[RowBatch]:
    with open_source(path) as source:
        yield from reader_of(source, RowShape(key=key), format_name=format_of(source), rows=BATCH_ROWS).batches()


def _guess_key(path: str) -> str:
    """Return the usual name of a key that most rows of the first batch have."""
    found = {name: next(_batches(path, name), RowBatch()) for name in KEY_NAMES}
    best = max(KEY_NAMES, key=lambda name: len(found[name].keys))
    if not found[best].keys:
        why = _first_refusal(found[best])
        raise InvalidArgument(why=f"{path} has none of the fields {', '.join(KEY_NAMES)}{why}; name the field of the key with --key")
    return best


def _first_refusal(batch: RowBatch) -> str:
    return f" (line {batch.rejections[0].line}: {batch.rejections[0].why})" if batch.rejections else ""


_HEADER = struct.Struct(">4sc15x6I")
_TYPE = struct.Struct(">iBB")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)


class BadZoneFile(ValueError):
    """Bytes that are no TZif file of version 2 or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """From `at` (seconds since 1970) on, clocks of `zone` show UTC plus `offset` seconds."""

    zone: str
    at: int
    offset: int
    abbreviation: str
    is_dst: bool

    @property
    def value(self) -> dict[str, Any]:
        """Return the change as the value of its zone."""
        return {"offset": self.offset, "abbreviation": self.abbreviation, "is_dst": self.is_dst, "at": _iso(self.at)}


def clock_changes() -> list[ClockChange]:
    """Return the changes of all zones, oldest first."""
    root = files("tzdata")
    names = (root / "zones").read_text().split()
    found = [change for name in names for change in parse_zone(name, (root / "zoneinfo" / name).read_bytes())]
    return sorted(found, key=lambda change: (change.at, change.zone))


def parse_zone(zone: str, data: bytes) -> Iterator[ClockChange]:
    """Yield the changes in a TZif file, in its order.

    Raises:
        BadZoneFile: it is none, too old, or cut short.
    """
    try:
        head = _header(data, 0)
        # version 1 has 32-bit times; the block with 64-bit ones follows it
        second = _HEADER.size + _block_bytes(head, time_bytes=4)
        utc, standard, leaps, times, types, letters = _header(data, second)
        at = second + _HEADER.size
        moments = struct.unpack_from(f">{times}q", data, at)
        kinds = data[at + 8 * times : at + 9 * times]
        local = [_TYPE.unpack_from(data, at + 9 * times + _TYPE.size * index) for index in range(types)]
        names = data[at + 9 * times + _TYPE.size * types :][:letters]
        if len(data) < at + _block_bytes((utc, standard, leaps, times, types, letters), time_bytes=8) or len(names) < letters:
            raise BadZoneFile(f"{zone} ends in the middle")
        for moment, kind in zip(moments, kinds, strict=True):
            offset, is_dst, name = local[kind]
            abbreviation = names[name : names.index(0, name)].decode("ascii")
            yield ClockChange(zone=zone, at=moment, offset=offset, abbreviation=abbreviation, is_dst=bool(is_dst))
    except (struct.error, IndexError, ValueError) as error:
        raise BadZoneFile(f"{zone}: {error}") from error


def _header(data: bytes, at: int) -> tuple[int, int, int, int, int, int]:
    magic, version, *counts = _HEADER.unpack_from(data, at)
    if magic != b"TZif" or version < b"2":
        raise BadZoneFile("no TZif file of version 2 or later")
    utc, standard, leaps, times, types, letters = counts
    return utc, standard, leaps, times, types, letters


def _block_bytes(counts: tuple[int, int, int, int, int, int], *, time_bytes: int) -> int:
    utc, standard, leaps, times, types, letters = counts
    return times * (time_bytes + 1) + types * _TYPE.size + letters + leaps * (time_bytes + 4) + standard + utc


def _iso(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds) if seconds > (_YEAR_1 - _EPOCH).total_seconds() else _YEAR_1
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
