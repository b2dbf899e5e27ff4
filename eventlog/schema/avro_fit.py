"""What an Avro schema takes: from the objects of callers to those that fastavro writes, each checked, and named where it does not fit.

fastavro writes 1 for a field that is text, rounds, cuts, and takes the local time for that of a datetime without a zone, all in silence;
it looks for the branch of a union by trying each. Here every type is a function made once for a schema; a branch is named to fastavro.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Any, Final
from uuid import UUID

import msgspec

from eventlog.schema.strict_json import Misfit, article, spelled

Fit = Callable[[Any], Any]
"""Returns what is written for a value; raises Misfit."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}
_NOT_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}  # as they are read on the command line
_BYTES: Final = (bytes, bytearray, memoryview)
_MISSING: Final = object()


class Fitting:
    """The functions of one schema, which fastavro has parsed."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Fit] = {}
        self.fit = self._of(schema)

    def _of(self, schema: Any) -> Fit:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return _SIMPLE[schema] if schema in _SIMPLE else self._by_name(schema)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._of(kind)
        if "logicalType" in schema:
            made = _logical(schema)
        elif kind in {"record", "error"}:
            made = self._record(schema)
        elif kind in {"array", "map"}:
            made = self._array(schema["items"]) if kind == "array" else self._map(schema["values"])
        elif kind in {"enum", "fixed"}:
            made = _enum(schema) if kind == "enum" else _fixed(schema["size"])
        else:
            made = self._of(kind)
        if "name" in schema:
            self._named[schema["name"]] = made
        return made

    def _by_name(self, name: str) -> Fit:
        def fit(value: Any) -> Any:
            return self._named[name](value)  # looked up when it is used: inside of its own definition a name has nothing yet

        return fit

    # ------------------------------------------------------------ types of types

    def _record(self, schema: Mapping[str, Any]) -> Fit:
        name = schema["name"]
        fits: dict[str, Fit] = {}
        absent: dict[str, Any] = {}

        def fit(value: Any) -> dict[str, Any]:
            found = _as(value, dict, f"record {name}")
            if not found.keys() <= fits.keys():
                raise _unknown(found, list(fits))
            row = {}
            for field, take in fits.items():
                item = found.get(field, _MISSING)
                if item is _MISSING:
                    item = absent[field]
                    if item is _MISSING:
                        raise Misfit("missing: the schema has no default for it").within(field)
                    row[field] = item
                    continue
                try:
                    row[field] = take(item)
                except Misfit as misfit:
                    raise misfit.within(field)  # noqa: B904 -- the same one
            return row

        self._named[name] = fit  # before its fields, which may name it
        for field in schema["fields"]:
            fits[field["name"]] = self._of(field["type"])
            absent[field["name"]] = self._absent(field)
        return fit

    def _absent(self, field: Mapping[str, Any]) -> Any:
        """Return what stands for a field that a value lacks: its default, or null where it takes that."""
        kind = field["type"]
        if "default" in field:
            try:
                return self._default(kind, field["default"])
            except (Misfit, ValueError, TypeError, AttributeError, KeyError, RecursionError):
                return _MISSING  # one that is not of its own type
        takes_null = kind == "null" or (isinstance(kind, list) and "null" in kind)
        return (("null", None) if isinstance(kind, list) else None) if takes_null else _MISSING

    def _default(self, schema: Any, default: Any) -> Any:
        """Return a default, which the schema holds as JSON: bytes as text of the characters 0 to 255, a union's of its first branch."""
        if isinstance(schema, list):
            order = [*schema[:1], *[branch for branch in schema[1:] if branch == "null" and default is None]]
            return (_branch_name(order[-1]), self._default(order[-1], default))
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in {"bytes", "fixed"}:
            return default.encode("latin-1")
        if isinstance(schema, dict) and kind in {"int", "long", "string"}:
            return _SIMPLE[kind](default)  # a logical type's is that of what it is stored as
        return self._of(schema)(default)

    def _array(self, items: Any) -> Fit:
        take = self._of(items)

        def fit(value: Any) -> list[Any]:
            if isinstance(value, (set, frozenset)):
                raise Misfit(f"{article(value)}: the schema has an array, give sorted(...)")
            found = []
            for index, item in enumerate(_as(value, (list, tuple), "array")):
                try:
                    found.append(take(item))
                except Misfit as misfit:
                    raise misfit.within(index)  # noqa: B904 -- the same one
            return found

        return fit

    def _map(self, values: Any) -> Fit:
        take = self._of(values)

        def fit(value: Any) -> dict[str, Any]:
            found = {}
            for name, item in _as(value, dict, "map").items():
                try:
                    found[_text(name)] = take(item)
                except Misfit as misfit:
                    raise misfit.within(name)  # noqa: B904 -- the same one
            return found

        return fit

    def _union(self, schemas: list[Any]) -> Fit:
        branches = {_branch_name(schema): self._of(schema) for schema in schemas}
        # a number with a fraction goes where it keeps its digits
        order = sorted(branches, key=lambda name: name == "float")
        exact = {name: _exact(schema) for name, schema in zip(branches, schemas, strict=True)}
        others = [name for name in order if name != "null"]
        names = " or ".join(branches)

        def fit(value: Any) -> tuple[str, Any]:
            if value is None and "null" in branches:
                return "null", None
            if type(value) is tuple and len(value) == 2 and value[0] in branches:
                return value[0], branches[value[0]](value[1])
            if len(others) == 1 and not _is_wrapped(value, branches):
                return others[0], branches[others[0]](value)
            for chosen in ([name for name in others if type(value) in exact[name]], others):
                for name in chosen:
                    try:
                        return name, branches[name](value)
                    except Misfit:
                        continue
            if _is_wrapped(value, branches):  # as other tools write the JSON of Avro
                [(name, inner)] = value.items()
                return name, branches[name](inner)
            raise Misfit(f"{_shown(value)}: the schema takes {names}")

        return fit


def _is_wrapped(value: Any, branches: Mapping[str, Fit]) -> bool:
    return type(value) is dict and len(value) == 1 and next(iter(value)) in branches


def _branch_name(schema: Any) -> str:
    """Return by what fastavro knows a branch of a union."""
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    return str(schema["name"] if kind in {"record", "error", "enum", "fixed"} else kind)


def _exact(schema: Any) -> tuple[type, ...]:
    """Return the types of Python that are certainly meant for a type."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if logical:
        return _EXACT_LOGICAL.get(logical, (datetime,))
    return _EXACT.get(kind, (dict,) if isinstance(kind, str) else ())


_EXACT: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,), "int": (int,), "long": (int,), "float": (float,), "double": (float,), "string": (str,), "enum": (str,),
    "bytes": _BYTES, "fixed": _BYTES, "array": (list, tuple), "null": (),
}  # fmt: skip


_EXACT_LOGICAL: Final = {"decimal": (Decimal,), "uuid": (UUID,), "date": (date,), "time-millis": (time,), "time-micros": (time,)}


# ------------------------------------------------------------ simple types


def _as(value: Any, kinds: Any, wanted: str) -> Any:
    """Return a value of one of these types; what JSON would make of it is tried, an enum's value or the fields of a dataclass."""
    if isinstance(value, kinds) and not (kinds is int and isinstance(value, bool)):
        return value
    if not isinstance(value, (*_BYTES, str)):
        try:
            other = value.value if isinstance(value, Enum) else spelled(value)
        except (TypeError, ValueError):
            other = value
        if other is not value and isinstance(other, kinds) and not (kinds is int and isinstance(other, bool)):
            return other
    raise Misfit(f"{_shown(value)}: the schema wants {wanted}")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"text, {value!r:.60}"
    return f"{article(value)}, {value!r:.60}" if value is None or isinstance(value, (bool, int, float)) else article(value)


def _unknown(found: Mapping[Any, Any], known: list[str]) -> Misfit:
    name = next(name for name in found if name not in known)
    meant = get_close_matches(str(name)[:200], known, 1, 0.6)
    return Misfit(f"unknown: the schema has no such field{f', did you mean {meant[0]}?' if meant else ''}").within(name)


def _null(value: Any) -> None:
    if value is not None:
        raise Misfit(f"{_shown(value)}: the schema wants null")


def _boolean(value: Any) -> bool:
    return bool(_as(value, bool, "boolean"))


def _integer(kind: str) -> Fit:
    bound = _INTEGERS[kind]

    def fit(value: Any) -> int:
        if type(value) is not int:
            value = int(_as(value, int, kind))
        if not -bound <= value < bound:
            raise Misfit(f"{value}: more than {kind} holds")
        return value  # type: ignore[no-any-return]  # it is int

    return fit


def _real(kind: str) -> Fit:
    def fit(value: Any) -> float:
        if type(value) is not float:
            value = _NOT_NUMBERS[value] if type(value) is str and value in _NOT_NUMBERS else _as(value, (float, int), kind)
            if isinstance(value, bool):
                raise Misfit(f"{_shown(value)}: the schema wants {kind}")
            try:
                if isinstance(value, int) and int(float(value)) != value:
                    raise OverflowError
                value = float(value)
            except OverflowError:
                raise Misfit(f"{value}: {kind} does not hold all of its digits") from None
        if kind == "float" and isfinite(value):
            try:
                struct.pack("<f", value)
            except OverflowError:
                raise Misfit(f"{value}: more than float holds") from None
        return value  # type: ignore[no-any-return]  # it is float

    return fit


def _text(value: Any) -> str:
    if isinstance(value, (date, time, UUID, Decimal)):
        value = msgspec.to_builtins(value)
    elif type(value) is not str:
        value = str.__str__(_as(value, str, "string"))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Misfit(f"text that UTF-8 cannot hold: {error.reason}") from error
    found: str = value
    return found


def _bytes(value: Any) -> bytes:
    if isinstance(value, _BYTES):
        return bytes(value)
    if isinstance(value, str):
        return _text(value).encode()
    if type(value) is dict and value.keys() == {"base64"}:  # as they are shown on the command line
        try:
            return b64decode(value["base64"], validate=True)
        except (TypeError, ValueError) as error:
            raise Misfit(f"no base64: {error}") from error
    return bytes(_as(value, _BYTES, "bytes"))


def _fixed(size: int) -> Fit:
    def fit(value: Any) -> bytes:
        found = _bytes(value)
        if len(found) != size:
            raise Misfit(f"of {len(found)} bytes: the schema wants {size}")
        return found

    return fit


def _enum(schema: Mapping[str, Any]) -> Fit:
    symbols = schema["symbols"]

    def fit(value: Any) -> str:
        found = _text(value)
        if found not in symbols:
            raise Misfit(f"{found!r:.60}: the schema has {', '.join(symbols[:20])}")
        return found

    return fit


_SIMPLE: Final[dict[str, Fit]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int"),
    "long": _integer("long"),
    "float": _real("float"),
    "double": _real("double"),
    "string": _text,
    "bytes": _bytes,
}


# ------------------------------------------------------------ logical types: as Python's own, as text, or as what is stored


def _logical(schema: Mapping[str, Any]) -> Fit:
    name = schema["logicalType"]
    if name == "decimal":
        return _decimal(schema)
    if name == "uuid":
        return _uuid
    if name == "date":
        return _date
    micros = 1 if name.endswith("micros") else 1_000
    if name.startswith("time-"):
        return _time(micros, _SIMPLE[schema["type"]])
    return _timestamp(micros, is_local=name.startswith("local-"))


def _parsed(value: Any, parse: Callable[[str], Any], wanted: str) -> Any:
    """Return what text says, and anything else as it is."""
    try:
        if isinstance(value, str):
            return parse(value)
        return spelled(value) if hasattr(value, "dtype") or hasattr(value, "as_py") else value
    except (ValueError, TypeError, InvalidOperation):
        raise Misfit(f"{_shown(value)}: the schema wants {wanted}") from None


def _timestamp(micros: int, *, is_local: bool) -> Fit:
    wanted = "a local time, as 2026-11-20T10:00:00" if is_local else "a time, as 2026-11-20T10:00:00Z"

    def fit(value: Any) -> int:
        found = _parsed(value, datetime.fromisoformat, wanted)
        if not isinstance(found, datetime):
            return _stored(found, _SIMPLE["long"], wanted)
        if found != found:  # noqa: PLR0124 -- NaT
            raise Misfit(f"NaT: the schema wants {wanted}")
        if is_local and found.tzinfo is not None:
            raise Misfit(f"{found.isoformat()}, which has a zone: the schema wants {wanted}")
        since = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)) - _EPOCH
        return (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // micros

    return fit


def _date(value: Any) -> int:
    wanted = "a date, as 2026-11-20"
    found = _parsed(value, date.fromisoformat, wanted)
    if isinstance(found, date) and not isinstance(found, datetime):
        return found.toordinal() - _EPOCH_ORDINAL
    return _stored(found, _SIMPLE["int"], wanted)


def _time(micros: int, stored: Fit) -> Fit:
    wanted = "a time of day, as 10:00:00"

    def fit(value: Any) -> int:
        found = _parsed(value, time.fromisoformat, wanted)
        if not isinstance(found, time):
            return _stored(found, stored, wanted)
        if found.tzinfo is not None:
            raise Misfit(f"{found.isoformat()}, which has a zone: the schema wants {wanted}")
        return (((found.hour * 60 + found.minute) * 60 + found.second) * 1_000_000 + found.microsecond) // micros

    return fit


def _stored(value: Any, fit: Fit, wanted: str) -> int:
    if type(value) is not int:
        raise Misfit(f"{_shown(value)}: the schema wants {wanted}")
    return int(fit(value))


def _uuid(value: Any) -> str:
    found = _parsed(value, UUID, "a UUID")
    if not isinstance(found, UUID):
        raise Misfit(f"{_shown(value)}: the schema wants a UUID")
    return str(found)


def _decimal(schema: Mapping[str, Any]) -> Fit:
    precision, scale = schema["precision"], schema.get("scale", 0)
    size = schema["size"] if schema["type"] == "fixed" else 0
    wanted = f"a decimal of {precision} digits, {scale} of them behind the point"

    def fit(value: Any) -> bytes:
        found = _parsed(value, Decimal, wanted)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            found = Decimal(repr(found))
        if not isinstance(found, Decimal) or not found.is_finite():
            raise Misfit(f"{_shown(value)}: the schema wants {wanted}")
        sign, digits, exponent = found.as_tuple()
        moved = int(exponent) + scale
        if any(digits) and not -len(digits) < moved <= precision - len(digits):  # before a power of ten that may be huge
            raise Misfit(f"{str(found)[:60]}: the schema wants {wanted}")
        number = int("".join(map(str, digits)))
        if number:
            number, rest = (number * 10**moved, 0) if moved >= 0 else divmod(number, 10**-moved)
            if rest:
                raise Misfit(f"{str(found)[:60]}: the schema wants {wanted}")
        number = -number if sign else number
        return number.to_bytes(size or (number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)

    return fit
