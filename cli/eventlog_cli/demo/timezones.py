"""Every clock change of every time zone, from the files of the `tzdata` package (TZif, RFC 9636)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

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
