"""Objects as JSON that says what was given: what JSON does not have is refused with its place, and never becomes something else in silence.

orjson refuses sets and names that are no text, and is as fast as msgspec, which takes both. Neither refuses NaN: a value with a null in it
is packed once more in a form that has NaN, and looked through. Only what one of the two is doubtful about is gone through in Python.
"""

import dataclasses
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from types import NoneType
from typing import Any, Final
from uuid import UUID

import msgspec
import orjson

from eventlog.events import TOO_DEEP
from eventlog.limits import JSON_DEPTH_MAX

_AT_ONCE: Final = 256  # values written by one call: many more no longer fit the processor's cache
_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATACLASS  # of dataclasses orjson leaves out names with an underscore
_BREAK: Any = orjson.Fragment(b"\n")  # stands between values written together: JSON has no line break between two commas
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
# `in` takes bytes of several for a number first, and raises and drops an error: 200 ns that `find` does not take.
_FLOAT: Final = 0xCB
_NAN: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # in MessagePack, and in some texts
_WORD: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TIMES: Final = frozenset({datetime, date, UUID})

Step = str | int


class Misfit(ValueError):
    """What a value holds does not fit where it is to be stored. `steps` lead to it, and are added on the way out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[Step] = []

    def within(self, step: Step) -> "Misfit":
        """Return the same, seen from the object or list that holds it."""
        self.steps.append(step)
        return self

    @property
    def place(self) -> str:
        """Say where it is, as in `value.a[3]`."""
        path = "".join(f".{step}" if isinstance(step, str) and _WORD.fullmatch(step) else f"[{step!r}]" for step in reversed(self.steps))
        return f"value{path}"

    @property
    def sentence(self) -> str:
        """Say where it is, and why it does not fit."""
        return f"{self.place} is {self.why}"


def encode_json(value: Any) -> bytes:
    """Return an object as JSON.

    Raises:
        Misfit: JSON does not have what is in it.
    """
    try:
        stored = orjson.dumps(value, spelled, _OPTIONS)
    except TypeError:
        return _encode(plain(value))
    if stored.find(b"null") >= 0 and _may_hold_nan(value):
        plain(value)
    return stored


def encode_json_many(values: Sequence[Any]) -> list[bytes]:
    """Return many objects as JSON, without a call of ours for each.

    Raises:
        ValueError, TypeError: one of them does not fit, or has to be looked at alone.
    """
    stored: list[bytes] = []
    for low in range(0, len(values), _AT_ONCE):
        some = values[low : low + _AT_ONCE]
        parted = [_BREAK] * (2 * len(some) - 1)
        parted[::2] = some
        together = orjson.dumps(parted, spelled, _OPTIONS)
        if together.find(b"null") >= 0 and _may_hold_nan(some):
            raise ValueError("one of them may hold NaN")
        stored += together[1:-1].split(b",\n,")
    if len(stored) != len(values):
        raise ValueError("one of them is an orjson.Fragment that is no JSON")
    return stored


def _may_hold_nan(value: Any) -> bool:
    try:
        packed = _pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return True
    if _FLOAT not in packed or (packed.find(b"\xcb\x7f") < 0 and packed.find(b"\xcb\xff") < 0):
        return False
    return _NAN.search(packed) is not None


def spelled(value: Any) -> Any:
    """Return what stands for an object that JSON has no type for; its items are looked at in turn.

    Raises:
        TypeError, ValueError: nothing does.
    """
    for kind, spell in _SPELLINGS:
        if isinstance(value, kind):
            return spell(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}
    return builtin_of(value)


def _fragment(ready: msgspec.Raw) -> orjson.Fragment:
    _decode(ready)
    return orjson.Fragment(bytes(ready))


_SPELLINGS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    ((bytes, bytearray, memoryview), lambda data: b64encode(data).decode()),
    ((Decimal, timedelta, time, msgspec.Struct), msgspec.to_builtins),
    (msgspec.Raw, _fragment),
    (tuple, list),  # of another class, as named tuples are
)
_pack: Final = msgspec.msgpack.Encoder(enc_hook=spelled).encode


def builtin_of(scalar: Any) -> Any:
    """Return a scalar of numpy, pandas or pyarrow as Python's own. None of them is imported: what there is of one has done that.

    Raises:
        TypeError: it is none of these, or one of no time.
    """
    if hasattr(scalar, "as_py"):
        return scalar.as_py()
    if isinstance(scalar, datetime) and scalar == scalar:  # noqa: PLR0124 -- NaT is not
        return scalar.isoformat()
    if isinstance(scalar, float):
        return float(scalar)
    if getattr(scalar, "shape", None) == () and hasattr(scalar, "item"):
        kind = scalar.dtype.kind
        found = scalar.astype(f"{kind}8[us]" if kind in "mM" else scalar.dtype).item()  # finer times would be numbers
        if type(found) is not type(scalar) and (found is not None or kind == "O"):
            return found
    raise TypeError(f"a {type(scalar).__name__}")


# ------------------------------------------------------------ one by one


def plain(value: Any, depth: int = 0) -> Any:
    """Return the objects, lists, texts and numbers that JSON is written of, for `value` and all in it.

    Raises:
        Misfit: naming the first that has no such form.
    """
    if isinstance(value, Enum):
        return plain(value.value, depth)
    for kind, take in _LEAVES:
        if isinstance(value, kind):
            return take(value)
    if depth > JSON_DEPTH_MAX:
        raise Misfit(TOO_DEEP.removeprefix("it is "))
    if isinstance(value, dict):
        return {_name(name): _item(item, name, depth) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_item(item, index, depth) for index, item in enumerate(value)]
    return _plain_other(value, depth)


def _plain_other(value: Any, depth: int) -> Any:
    try:
        if type(value) in _TIMES:
            return value
        if isinstance(value, msgspec.Raw):
            _decode(value)
            return value
        return plain(spelled(value), depth + 1)
    except Misfit:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(value, msgspec.Raw):
            raise Misfit(f"a msgspec.Raw that is no JSON ({error})") from error
        hint = ", give .tolist()" if hasattr(value, "tolist") else ""
        raise Misfit(f"{article(value)}: JSON has nothing for it{hint}") from error


def _item(item: Any, step: Any, depth: int) -> Any:
    try:
        return plain(item, depth + 1)
    except Misfit as misfit:
        raise misfit.within(step)  # noqa: B904 -- the same one


def _name(name: Any) -> str:
    found = name.value if isinstance(name, Enum) else name
    if isinstance(found, str):
        return _text(found)
    if isinstance(found, (UUID, date)):
        return str(msgspec.to_builtins(found))
    raise Misfit(f"an object with the name {name!r:.60}: names are text, and that is {article(name)}")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Misfit(f"text that UTF-8 cannot hold: {error.reason}") from error
    return str(text)


def _number(number: float) -> float:
    if not isfinite(number):
        raise Misfit(f"{float(number)}: JSON has no such number, give None, or text")
    return float(number)


def _refuse_set(given: Any) -> None:
    raise Misfit(f"{article(given)}: JSON has lists alone, give sorted(...)")


_LEAVES: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (str, _text),
    ((bool, NoneType), lambda value: value),
    (int, int),
    (float, _number),
    ((set, frozenset), _refuse_set),
)


def article(value: object) -> str:
    """Return the name of a value's type as it stands in a sentence."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
