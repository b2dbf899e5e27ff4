"""Fields of values that a cache has promoted: taken out of the values once, when they are written, for filters on history."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from eventlog.predicate.json_fields import JsonFields

_encode = msgspec.json.Encoder().encode
_PLANS_MAX = 1_000


def promote(values: Sequence[bytes], paths: tuple[str, ...]) -> dict[str, list[bytes]]:
    """Return of each path the field of every value as JSON in its shortest form, empty where there is none or null."""
    fields, steps = _plan(paths)
    objects = fields.decode_list(values)
    return {
        path: [b"" if item is None else _encode(item) for item in fields.values(objects, own)]
        for path, own in zip(paths, steps, strict=True)
    }


@lru_cache(_PLANS_MAX)
def _plan(paths: tuple[str, ...]) -> tuple[JsonFields, tuple[tuple[str, ...], ...]]:
    steps = tuple(tuple(path.split(".")[1:]) for path in paths)
    return JsonFields(steps), steps
