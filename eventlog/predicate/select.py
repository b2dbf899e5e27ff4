"""The fields that are answered of each value, in the nesting that they have there. A field that a value lacks is left out."""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import numpy as np
import orjson

from eventlog.batch.texts import Texts
from eventlog.predicate.avro_values import avro_json
from eventlog.predicate.tree import Step

Steps = tuple[Step, ...]
_MISSING = object()


class Projection(Protocol):
    """Makes of each value what is answered instead."""

    def apply(self, texts: Texts) -> list[bytes]:
        """Return one text for each; an empty one stays empty."""
        ...


class Level:
    """The chosen fields of an object or items of an array; without any, all of it."""

    __slots__ = ("below",)

    def __init__(self, paths: Iterable[Steps]) -> None:
        below: dict[Step, list[Steps]] = {}
        whole = False
        for path in paths:
            if path:
                below.setdefault(path[0], []).append(path[1:])
            else:
                whole = True
        self.below: dict[Step, Level] = {} if whole else {step: Level(inner) for step, inner in below.items()}

    def pick(self, found: Any) -> Any:
        """Return the chosen part of a decoded value, `_MISSING` where there is none of it."""
        if not self.below:
            return found
        names = [step for step in self.below if isinstance(step, str)]
        places = [step for step in self.below if isinstance(step, int)]
        if isinstance(found, dict) and names:
            parts = {name: self.below[name].pick(found[name]) for name in names if name in found}
            chosen = {name: part for name, part in parts.items() if part is not _MISSING}
            return chosen if chosen or not parts else _MISSING
        if isinstance(found, list) and places:
            items = [self.below[place].pick(found[place]) for place in places if place < len(found)]
            return [item for item in items if item is not _MISSING]
        return _MISSING

    @property
    def has_names_only(self) -> bool:
        """Return whether no array is reached into."""
        return all(isinstance(step, str) and level.has_names_only for step, level in self.below.items())

    def struct(self) -> Any:
        """Return the type of an object with the chosen fields, each taken over as the bytes it has."""
        fields = []
        rename = {}
        for index, (step, level) in enumerate(self.below.items()):
            kind = level.struct() if level.below else msgspec.Raw
            fields.append((f"f{index}", kind | msgspec.UnsetType, msgspec.UNSET))
            rename[f"f{index}"] = str(step)
        return msgspec.defstruct("Chosen", fields, gc=False, rename=rename)


class JsonProjection:
    """Of JSON values. Where a field on the way is no object, the value is decoded whole and picked from."""

    __slots__ = ("_decode", "_level")

    def __init__(self, paths: Iterable[Steps]) -> None:
        self._level = Level(paths)
        self._decode = msgspec.json.Decoder(self._level.struct()).decode if self._level.has_names_only else None

    def apply(self, texts: Texts) -> list[bytes]:
        decode, encode, items = self._decode, _encode, texts.to_list()
        if decode is not None:
            try:
                return [encode(decode(text)) if text else text for text in items]
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass
        return [self._one(text) if text else text for text in items]

    def _one(self, text: bytes) -> bytes:
        try:
            found = self._level.pick(_decode_all(text))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return text  # no JSON: there is nothing to choose from
        return b"{}" if found is _MISSING else _encode(found)


class AvroProjection:
    """Of Avro values: the chosen fields as JSON, null for a field of the value that nests deeper than that is written."""

    __slots__ = ("_fields", "_level")

    def __init__(self, fields: Any, paths: Iterable[Steps]) -> None:
        self._fields = fields
        self._level = Level(paths)

    def apply(self, texts: Texts) -> list[bytes]:
        return [self._one(found) if size else b"" for size, found in zip(texts.sizes.tolist(), self._fields.decode(texts), strict=True)]

    def _one(self, found: Any) -> bytes:
        chosen = self._level.pick(found)
        if chosen is _MISSING:
            return b"{}"
        try:
            return avro_json(chosen)
        except TypeError:  # a recursive schema has no bound on depth, orjson has one
            fields = chosen if isinstance(chosen, dict) else {}
            return orjson.dumps({name: _written(field) for name, field in fields.items()}) if fields else b"null"


class Nothing:
    """No field of the value is asked for."""

    def __init__(self, placeholder: bytes) -> None:
        self._placeholder = placeholder

    def apply(self, texts: Texts) -> list[bytes]:
        return [self._placeholder if size else b"" for size in texts.sizes.tolist()]


def as_column(items: list[bytes]) -> tuple[bytes, bytes]:
    """Return offsets (i32, one more than items) and bytes."""
    offsets = np.zeros(len(items) + 1, "<i4")
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return offsets.tobytes(), b"".join(items)


def _written(field: Any) -> orjson.Fragment | None:
    try:
        return orjson.Fragment(avro_json(field))
    except TypeError:
        return None


_encode = msgspec.json.Encoder().encode
_decode_all = msgspec.json.Decoder().decode
