"""Filters made by hand, for tests of those who use them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eventlog.batch.columns import EventColumns
from eventlog.predicate.spec import ANYTHING, EVERY_KIND, Bounds, FilterContext, FilterSpec


@dataclass
class HandFilter:
    """Matches the keys and values that `wanted` says yes to. Counts how many events it judged, and in how many calls."""

    wanted: Callable[[bytes, bytes], bool]
    spec: FilterSpec = field(default_factory=FilterSpec)
    kinds: int = EVERY_KIND
    is_costly: bool = False
    keeps_before: bool = True
    bounds: Bounds = ANYTHING
    projection: Callable[[bytes], bytes] | None = None
    judged: int = 0
    calls: int = 0

    def may_match(self, *, kinds: np.ndarray, segments: np.ndarray, bases: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        return kinds & self.kinds != 0

    def mask(self, events: EventColumns) -> np.ndarray:
        self.judged += len(events)
        self.calls += 1
        rows = zip(events.keys.to_list(), events.values.to_list(), strict=True)
        return np.array([self.wanted(key, value) for key, value in rows], bool)

    def project(self, events: EventColumns, *, image: str = "value") -> tuple[bytes, bytes] | None:
        if self.projection is None or image == "before":
            return None
        values = [self.projection(value) for value in events.values.to_list()]
        return np.cumsum([0, *map(len, values)]).astype("<i4").tobytes(), b"".join(values)

    def changes(self, events: EventColumns) -> np.ndarray:
        return self.mask(events).astype(np.uint8) * 2


def compile_by_hand(spec: FilterSpec, _: FilterContext) -> HandFilter:
    """`where` is `all`, `none`, `costly TEXT` or a text that keys or values hold; `select` is how many bytes of the value are left."""
    text = spec.where.removeprefix("costly ").encode()
    projection = (lambda value: value[: int(spec.select[0])]) if spec.select else None

    def wanted(key: bytes, value: bytes) -> bool:
        return text == b"all" or (text != b"none" and (text in key or text in value))

    return HandFilter(wanted=wanted, spec=spec, is_costly=spec.where.startswith("costly "), projection=projection)
