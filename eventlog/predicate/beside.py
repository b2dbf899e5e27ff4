"""Equality with fields that stand beside the values: as JSON in its one shortest form, so that equal is equal byte by byte."""

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from eventlog.predicate.frame import Frame
from eventlog.predicate.tree import Node, Path
from eventlog.predicate.values import Truth, Truths

_WHOLE_MAX = 1 << 53
_NOTHING = (b"", b"null")


def beside_or(item: Node, options: Iterable[Any], otherwise: Truths, *, has_null: bool = False) -> Truths:
    """Return what tells which fields are one of `options`, by their bytes where they stand beside the values, else by `otherwise`."""
    if not isinstance(item, Path) or item.root != "value":
        return otherwise
    wanted: list[bytes] = []
    for option in options:
        forms = _forms(option)
        if not forms:
            return otherwise
        wanted += forms
    steps = item.steps

    def judged(frame: Frame) -> Truth:
        texts = frame.promoted(steps)
        if texts is None:
            return otherwise(frame)
        true = texts.is_in(wanted)
        other = np.zeros(len(true), bool) if has_null else ~(true | texts.is_in(_NOTHING))
        return true, other

    return judged


def _forms(value: Any) -> list[bytes]:
    """Return every text that a field equal to `value` can have; none where that is not known."""
    if type(value) is str:
        try:
            return [msgspec.json.encode(value)]
        except UnicodeEncodeError:
            return []
    if type(value) is bool:
        return [msgspec.json.encode(value)]
    if type(value) in {int, float} and abs(value) <= _WHOLE_MAX:
        forms = {msgspec.json.encode(kind(value)) for kind in (int, float) if kind(value) == value}
        return [*forms] if value else [b"0", b"0.0", b"-0.0"]
    return []
