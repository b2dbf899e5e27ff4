"""Keys and values of one cache: from what callers hold to bytes, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eventlog.client.values import CacheInfo
from eventlog.errors import BadValue, InvalidArgument, TooLarge
from eventlog.events import TOO_DEEP, are_too_deep, decode_value, encode_headers, is_too_deep
from eventlog.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX
from eventlog.schema.strict_json import Misfit, article, encode_json, encode_json_many

if TYPE_CHECKING:
    from eventlog.client.avro import AvroFormat

LIFESPAN_MS_MAX: Final = 1 << 53


class Remove:
    """The type of `REMOVE`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REMOVE"


REMOVE: Final = Remove()
"""In the pairs of `put_many`: remove the key instead of putting a value."""

_BYTES: Final = (bytes, bytearray, memoryview)
_NOT_OBJECTS: Final = frozenset({*_BYTES, msgspec.Raw, Remove})
_decode: Final = msgspec.json.Decoder().decode


class CacheFormat:
    """How one cache stores keys and values."""

    __slots__ = ("avro", "is_json", "is_text")

    def __init__(self, info: CacheInfo) -> None:
        self.is_text = info.key_format == "utf8"
        self.is_json = info.format == "json"
        self.avro = avro_format(info.schema) if info.format == "avro" else None

    @property
    def is_bytes(self) -> bool:
        """Whether values are bytes as they are."""
        return not self.is_json and self.avro is None

    def selected(self) -> "CacheFormat":
        """Return the format of what is answered where fields of values are selected: those of Avro are JSON then."""
        if self.avro is None:
            return self
        found = copy(self)
        found.avro, found.is_json = None, True
        return found

    def key(self, key: str | bytes) -> bytes:
        """Return a key as it is stored.

        Raises:
            InvalidArgument: not text, or not bytes, whichever the cache's keys are.
            TooLarge: longer than any node takes.
        """
        if self.is_text:
            if not isinstance(key, str):
                raise InvalidArgument(why=f"a key is {article(key)}: keys of this cache are str")
            try:
                stored = str.encode(key)
            except UnicodeEncodeError as error:
                raise InvalidArgument(why=f"key {key!r} is not text that UTF-8 can hold: {error.reason}") from error
        else:
            if not isinstance(key, _BYTES):
                raise InvalidArgument(why=f"a key is {article(key)}: keys of this cache are bytes")
            stored = bytes(key)
        if len(stored) > KEY_BYTES_MAX:
            raise TooLarge(what="a key", size=len(stored), limit=KEY_BYTES_MAX)
        return stored

    def keys(self, keys: Iterable[str | bytes]) -> list[bytes]:
        """Return many keys; the common case costs no call each.

        Raises:
            InvalidArgument: it is one text or bytes, whose characters are hardly meant.
        """
        given = checked_keys(keys)
        if set(map(type, given)) <= {str if self.is_text else bytes}:
            try:
                stored = list(map(str.encode, given)) if self.is_text else given
            except UnicodeEncodeError:
                return list(map(self.key, given))  # says which
            if max(map(len, stored), default=0) <= KEY_BYTES_MAX:
                return stored
        return list(map(self.key, given))

    def value(self, key: str | bytes, value: Any) -> bytes:
        """Return a value as it is stored: JSON or Avro made from an object, or bytes; `msgspec.Raw` is JSON that is ready.

        Bytes for an Avro cache are a value that is encoded already.

        Raises:
            BadValue: not what the cache's format can hold.
        """
        if self.avro is not None:
            return self._avro(self.avro, key, value)
        if isinstance(value, _BYTES) is self.is_json or value is REMOVE:
            expected = "an object that JSON can hold, or ready JSON as msgspec.Raw" if self.is_json else "bytes"
            raise BadValue(key=_printable(key), why=f"it is {article(value)}; values of this cache are {expected}")
        if not self.is_json:
            return bytes(value)
        if type(value) is msgspec.Raw:
            return checked_json(key, bytes(value))
        try:
            stored = encode_json(value)
        except Misfit as misfit:
            raise BadValue(key=_printable(key), why=misfit.sentence) from misfit
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(key=_printable(key), why=f"JSON cannot hold it: {error}") from error
        return _checked_depth(key, stored)

    def values(self, keys: list[Any], values: list[Any]) -> list[bytes]:
        """Return many values; the common case costs no call of ours each."""
        if self.avro is not None:
            return [self._avro(self.avro, key, value) for key, value in zip(keys, values, strict=True)]
        kinds = set(map(type, values))
        if not self.is_json and kinds == {bytes}:
            return values
        if self.is_json and kinds.isdisjoint(_NOT_OBJECTS):
            try:
                stored = encode_json_many(values)
            except (TypeError, ValueError, RecursionError):
                return list(map(self.value, keys, values))  # says which
            return list(map(_checked_depth, keys, stored)) if are_too_deep(stored) else stored
        return list(map(self.value, keys, values))

    def _avro(self, avro: "AvroFormat", key: str | bytes, value: Any) -> bytes:
        try:
            if isinstance(value, _BYTES) and not avro.is_bytes:
                return avro.checked(bytes(value))
            if value is REMOVE:
                raise Misfit("REMOVE: it is for put_many alone")
            return avro.encode(_decode(value) if type(value) is msgspec.Raw else value)
        except Misfit as misfit:
            raise BadValue(key=_printable(key), why=misfit.sentence) from misfit
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadValue(key=_printable(key), why=f"not JSON: {error}") from error

    def check(self, keys: Sequence[bytes], values: Sequence[bytes], *, removed: Sequence[bool] | None) -> None:
        """Refuse values that are encoded already and that no node would: nodes check JSON, and not Avro.

        Raises:
            BadValue: one was not written with the cache's schema.
        """
        if self.avro is None:
            return
        for key, value, is_gone in zip(keys, values, removed or [False] * len(keys), strict=True):
            try:
                if not is_gone:
                    self.avro.checked(value)
            except Misfit as misfit:
                raise BadValue(key=_printable(key), why=misfit.sentence) from misfit

    def read_key(self, key: bytes) -> str | bytes:
        """Return a stored key as callers see it."""
        return key.decode() if self.is_text else key

    def read_value(self, value: bytes) -> Any:
        """Return a stored value as callers see it."""
        return decode_value(value, json_values=self.is_json) if self.avro is None else self.avro.decode(value)


def json_check(info: CacheInfo) -> Callable[[bytes], str] | None:
    """Return what says why the nodes would refuse a value of a JSON cache, nothing if they take it; None where they take any."""
    if info.format != "json" or not info.validate:
        return None
    from eventlog.schema.checking import why_refused  # noqa: PLC0415 -- as below
    from eventlog.schema.json_check import JsonCheck  # noqa: PLC0415 -- only writing files needs it, and RE2 with it
    from eventlog.schema.meter import Meter, steps_of  # noqa: PLC0415 -- as above

    check = JsonCheck(info.schema)
    return lambda value: why_refused(check, value, Meter(steps_of(value)))


@lru_cache(maxsize=256)
def avro_format(schema: str) -> "AvroFormat":
    """Return how values of a schema are encoded and decoded; caches of one schema share it."""
    from eventlog.client.avro import AvroFormat  # noqa: PLC0415 -- most programs never need fastavro, and it is slow to load

    return AvroFormat(schema)


def headers_bytes(headers: Mapping[Any, Any] | None) -> bytes:
    """Return headers as they are stored.

    Raises:
        InvalidArgument: a name is not text or a value not bytes.
        TooLarge: all together are more than any node takes.
    """
    if not headers:
        return b""
    if not isinstance(headers, Mapping):
        raise InvalidArgument(why=f"headers are {article(headers)}: give a mapping of names, which are str, to bytes")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes) or not _is_header_name(name):
            raise InvalidArgument(why=f"header {str(name)[:50]!r}: names are str of less than 64 KiB, values bytes")
    stored = encode_headers(dict(headers))
    if len(stored) > HEADERS_BYTES_MAX:
        raise TooLarge(what="the headers of an event", size=len(stored), limit=HEADERS_BYTES_MAX)
    return stored


def _is_header_name(name: str) -> bool:
    try:
        return len(name.encode()) < 1 << 16
    except UnicodeEncodeError:
        return False


def checked_keys(keys: Any) -> list[Any]:
    """Return the keys that are given. Raises InvalidArgument: it is one text or bytes, or nothing that has some."""
    if isinstance(keys, (str, *_BYTES)):
        raise InvalidArgument(why=f"keys: {article(keys)} is given where many keys are wanted: put it into a list")
    if isinstance(keys, type) or not isinstance(keys, Iterable):
        raise InvalidArgument(why=f"keys is {keys!r:.60}: give a list of keys")
    return list(keys)


def lifespan(lifespan_ms: int | None) -> int:
    """Return a lifespan as it is sent, 0 for the cache's own."""
    if lifespan_ms is None:
        return 0
    # half a millisecond would be stored as none: for ever
    if not hasattr(lifespan_ms, "__int__") or lifespan_ms % 1 or not 0 < lifespan_ms <= LIFESPAN_MS_MAX:
        allowed = f"whole milliseconds from 1 to {LIFESPAN_MS_MAX}, or None for the cache's own"
        raise InvalidArgument(why=f"lifespan_ms is {lifespan_ms!r}: give {allowed}")
    return lifespan_ms


def checked_json(key: str | bytes, data: bytes) -> bytes:
    """Return JSON that is ready, if readers can read it: being well-formed is not enough, text has to be UTF-8 and numbers in range.

    Raises:
        BadValue: they cannot.
    """
    try:
        _decode(data)
    except (ValueError, RecursionError) as error:  # of msgspec, and UnicodeDecodeError
        raise BadValue(key=_printable(key), why=f"not JSON: {error}") from error
    return _checked_depth(key, data)


def _checked_depth(key: str | bytes, data: bytes) -> bytes:
    if is_too_deep(data):
        raise BadValue(key=_printable(key), why=TOO_DEEP)
    return data


def _printable(key: str | bytes) -> str:
    return key if isinstance(key, str) else bytes(key).decode(errors="backslashreplace")
