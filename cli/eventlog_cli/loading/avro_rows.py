"""Rows of files as values of an Avro cache."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from eventlog.client.formats import avro_format
from eventlog.client.strict_json import Misfit

_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")  # Python also reads 1_000, and the digits of other scripts
_REAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_TRUTHS = {"true": True, "false": False}
_parse = msgspec.json.Decoder().decode


def row_encoder(schema: str, *, key: str, is_text: bool) -> Callable[[dict[str, Any]], bytes]:
    """Return what encodes a row, which may be changed by it. The key's field is left out where the schema has none of its name.

    With `is_text` every field is text, as in CSV: numbers, truths, lists and records are read from it, and an empty one is null where the
    schema takes that.
    """
    avro = avro_format(schema)
    keeps_key = avro.fields is None or key in avro.fields
    reads = {name: _reader(kind) for name, kind in avro.types.items()} if is_text else {}

    def encode(row: dict[str, Any]) -> bytes:
        if not keeps_key:
            row.pop(key, None)
        if is_text:
            row = {name: reads[name](text) if name in reads else text for name, text in row.items()}
        try:
            return avro.encode(row)
        except Misfit as misfit:
            raise ValueError(misfit.sentence) from None

    return encode


def _reader(schema: Any) -> Callable[[str], Any]:
    """Return what reads a field from text; text that is not of the type stays what it is, and the schema refuses it."""
    branches = schema if isinstance(schema, list) else [schema]
    kinds = [_base(branch) for branch in branches]
    takes_null = "null" in kinds
    others = [kind for kind in kinds if kind != "null"]
    read = _READERS.get(others[0], _json) if len(others) == 1 else _text

    def field(text: str) -> Any:
        return None if takes_null and not text else read(text)

    return field


def _base(schema: Any) -> str:
    """Return what text is to be read as; types with a form of their own in text are "string"."""
    if not isinstance(schema, dict):
        return str(schema)
    kind = schema["type"]
    return "string" if "logicalType" in schema else kind if isinstance(kind, str) else _base(kind)


def _text(text: str) -> Any:
    return text


def _integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else text


def _real(text: str) -> Any:
    return float(text) if _REAL.fullmatch(text) else text


def _truth(text: str) -> Any:
    return _TRUTHS.get(text.lower(), text)


def _json(text: str) -> Any:
    try:
        return _parse(text)
    except (ValueError, RecursionError):
        return text


_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("int", "long"), _integer),
    **dict.fromkeys(("float", "double"), _real),
    **dict.fromkeys(("string", "bytes", "fixed", "enum", "null"), _text),
    "boolean": _truth,
}
"""What is not among them is a record, an array or a map."""
