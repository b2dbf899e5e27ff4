"""Whether bytes are a value of an Avro schema, by functions that are made once for a schema and only walk through the bytes.

fastavro reads whole values: its compiled reader makes a dictionary of every byte where a schema says so, gigabytes of a few megabytes,
and lets nothing else run meanwhile. Nothing is made here, and each step is counted (`meter.py`).

Stricter than fastavro, which takes a negative index for the end of an enum, any byte for true and any number for an int; a value that
passes is read by every client. Logical types are looked at where a number or a text can be none of them.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from eventlog.schema.avro import AvroSchema, can_grow, first_optional
from eventlog.schema.meter import Meter
from eventlog.schema.strict_json import Misfit, Step

Walk = Callable[[bytes, int, Meter], int]
"""Returns where the value ends that begins at a place. Raises Misfit, OutOfSteps."""

_CUT: Final = "cut off: the bytes end within it"
_LONG_BYTES_MAX: Final = 10
_DAYS: Final = (-719_162, 2_932_896)  # since 1970, of the years 1 to 9999
_DAY_MS: Final = 86_400_000
_DIGITS_MAX: Final = 1_000  # a schema may say any number: beyond, readers round
_RANGES: Final = {
    "date": _DAYS,
    "time-millis": (0, _DAY_MS - 1),
    "time-micros": (0, _DAY_MS * 1_000 - 1),
    **dict.fromkeys(("timestamp-millis", "local-timestamp-millis"), (_DAYS[0] * _DAY_MS, (_DAYS[1] + 1) * _DAY_MS - 1)),
    **dict.fromkeys(("timestamp-micros", "local-timestamp-micros"), (_DAYS[0] * _DAY_MS * 1_000, (_DAYS[1] + 1) * _DAY_MS * 1_000 - 1)),
}


class AvroCheck:
    """Checks values by one schema."""

    def __init__(self, schema: str) -> None:
        """Take a schema as JSON.

        Raises:
            InvalidArgument: it is no Avro schema.
        """
        self._named: dict[str, Walk] = {}
        known = AvroSchema(schema)
        self._walk = self._of(known.typed) if not can_grow(known) else self._grown(known.typed)

    def check(self, value: bytes, meter: Meter) -> None:
        """Look at a value.

        Raises:
            Misfit: it is none of the schema; says where.
            OutOfSteps: it takes more steps than the meter has.
        """
        meter.take(1)
        end = self._walk(value, 0, meter)
        if end != len(value):
            raise Misfit(f"followed by {len(value) - end} bytes that are not of the schema")

    def _grown(self, schema: Any) -> Walk:
        """Return what takes a record that was written before the last of its fields were appended, too."""
        fields = schema["fields"]
        first = first_optional(fields)
        return _record([(field["name"], self._of(field["type"])) for field in fields], first=max(first, 1))

    def _of(self, schema: Any) -> Walk:
        if isinstance(schema, list):
            return _union([self._of(branch) for branch in schema])
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._by_name(schema)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._of(kind)
        if kind in {"record", "error"}:
            made = _record([(field["name"], self._of(field["type"])) for field in schema["fields"]])
        elif kind in {"array", "map"}:
            made = _items(self._of(schema["items"]) if kind == "array" else self._of(schema["values"]), has_keys=kind == "map")
        elif kind == "enum":
            made = _ranged(0, len(schema["symbols"]) - 1, "a symbol of the enum")
        elif kind == "fixed":
            made = _fixed(schema["size"])
        else:
            made = self._of(kind)
        made = _logical(schema, made) if "logicalType" in schema else made
        if "name" in schema:
            self._named[schema["name"]] = made
        return made

    def _by_name(self, name: str) -> Walk:
        named = self._named

        def walk(data: bytes, at: int, meter: Meter) -> int:
            return named[name](data, at, meter)  # looked up when it is used: inside of its own definition a name has nothing yet

        return walk


# ---------------------------------------------------------------- numbers, texts, bytes


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends."""
    found = shift = 0
    for byte in data[at : at + _LONG_BYTES_MAX]:
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            if found >> 64:
                break
            return (found >> 1) ^ -(found & 1), at
        shift += 7
    else:
        if shift < 7 * _LONG_BYTES_MAX:
            raise Misfit(_CUT)
    raise Misfit("a number of more than 64 bits")


def _null(_data: bytes, at: int, _meter: Meter) -> int:
    return at


def _boolean(data: bytes, at: int, _meter: Meter) -> int:
    if at >= len(data):
        raise Misfit(_CUT)
    if data[at] > 1:
        raise Misfit("neither true nor false")
    return at + 1


def _long(data: bytes, at: int, _meter: Meter) -> int:
    if at < len(data) and data[at] < 0x80:
        return at + 1
    return _number(data, at)[1]


def _ranged(low: int, high: int, what: str) -> Walk:
    def walk(data: bytes, at: int, _meter: Meter) -> int:
        found, end = _number(data, at)
        if not low <= found <= high:
            raise Misfit(f"{found}, which is not {what}")
        return end

    return walk


def _int(data: bytes, at: int, meter: Meter) -> int:
    if at < len(data) and data[at] < 0x80:
        return at + 1
    return _any_int(data, at, meter)


_any_int = _ranged(-(1 << 31), (1 << 31) - 1, "an int")


def _fixed(size: int) -> Walk:
    def walk(data: bytes, at: int, _meter: Meter) -> int:
        if at + size > len(data):
            raise Misfit(_CUT)
        return at + size

    return walk


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Return where bytes or a text begin whose length stands at a place, and where they end."""
    size, start = _number(data, at)
    if size < 0:
        raise Misfit(f"said to have {size} bytes")
    if start + size > len(data):
        raise Misfit(_CUT)
    return start, start + size


def _bytes(data: bytes, at: int, _meter: Meter) -> int:
    return _span(data, at)[1]


def _text(data: bytes, at: int) -> tuple[str, int]:
    start, end = _span(data, at)
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise Misfit(f"no UTF-8: {error.reason}") from None


def _string(data: bytes, at: int, _meter: Meter) -> int:
    return _text(data, at)[1]


_PRIMITIVES: Final[dict[str, Walk]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _string,
}


# ---------------------------------------------------------------- what holds others


def _record(fields: list[tuple[Step, Walk]], *, first: int | None = None) -> Walk:
    """Return what passes over a record; all of the bytes may end before the field `first`, or one that follows it."""
    steps = 1 + len(fields)
    needed, optional = fields[:first], fields[len(fields) if first is None else first :]

    def walk(data: bytes, at: int, meter: Meter) -> int:
        meter.left -= steps
        if meter.left < 0:
            meter.take(0)
        name: Step = ""
        try:
            for name, field in needed:  # noqa: B007 -- named in what is raised
                at = field(data, at, meter)
            for name, field in optional:  # noqa: B007 -- as above
                if at == len(data):
                    break
                at = field(data, at, meter)
        except Misfit as misfit:
            raise misfit.within(name) from None
        return at

    return walk


def _items(item: Walk, *, has_keys: bool) -> Walk:
    def walk(data: bytes, at: int, meter: Meter) -> int:
        place: Step = 0
        while True:
            count, at = _number(data, at)
            if not count:
                return at
            if count < 0:  # then the size of the block follows, for readers that pass over it
                count = -count
                _, at = _number(data, at)
            try:
                for _ in range(count):
                    meter.take(1)
                    if has_keys:
                        place, at = _text(data, at)
                    at = item(data, at, meter)
                    if not has_keys:
                        place = int(place) + 1
            except Misfit as misfit:
                raise misfit.within(place) from None

    return walk


def _union(branches: list[Walk]) -> Walk:
    def walk(data: bytes, at: int, meter: Meter) -> int:
        meter.take(1)
        found, at = _number(data, at)
        if not 0 <= found < len(branches):
            raise Misfit(f"of branch {found} of a union that has {len(branches)}")
        return branches[found](data, at, meter)

    return walk


# ---------------------------------------------------------------- logical types


def _logical(schema: Any, plain: Walk) -> Walk:
    name = schema["logicalType"]
    if name in _RANGES:
        return _ranged(*_RANGES[name], f"a {name}")
    return _uuid if name == "uuid" else _decimal(plain, schema)


def _uuid(data: bytes, at: int, meter: Meter) -> int:
    text, end = _text(data, at)
    meter.take(10)
    try:
        UUID(text)
    except ValueError:
        raise Misfit("no UUID") from None
    return end


def _decimal(plain: Walk, schema: Any) -> Walk:
    digits, is_fixed = schema["precision"], schema["type"] == "fixed"
    if digits > _DIGITS_MAX:
        return plain
    limit = 10**digits

    def walk(data: bytes, at: int, meter: Meter) -> int:
        end = plain(data, at, meter)
        start = at if is_fixed else _span(data, at)[0]
        if abs(int.from_bytes(data[start:end], "big", signed=True)) >= limit:
            raise Misfit(f"a decimal of more than {digits} digits")
        return end

    return walk
