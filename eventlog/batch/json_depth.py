"""How deep a JSON value is nested: how deep a decoder can go hangs on how deep its caller is already, so there is a limit for all."""

import re
from collections.abc import Collection

from eventlog.limits import JSON_DEPTH_MAX

TOO_DEEP = f"it is nested deeper than {JSON_DEPTH_MAX} levels"
_DEEP_BYTES_MIN = 2 * JSON_DEPTH_MAX  # what opens and closes
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACE, _OPEN, _CLOSE = ord("{") & ~ord("["), ord("{"), ord("}")


def are_too_deep(values: Collection[bytes]) -> bool:
    """Return whether one of many is; that none is large enough is found out without a call for each."""
    return max(map(len, values), default=0) >= _DEEP_BYTES_MIN and any(map(is_too_deep, values))


def is_too_deep(value: bytes) -> bool:
    """Return whether JSON is nested deeper than allowed."""
    if len(value) < _DEEP_BYTES_MIN or value.count(b"[") + value.count(b"{") <= JSON_DEPTH_MAX:
        return False
    import numpy as np  # noqa: PLC0415 -- hardly a value has as many brackets, and a short command does without it

    text = np.frombuffer(_TEXTS.sub(b"", value), np.uint8) | np.uint8(_BRACE)  # makes braces of brackets
    depth = (text == _OPEN).astype(np.int64) - (text == _CLOSE)
    return bool(depth.cumsum().max(initial=0) > JSON_DEPTH_MAX)
