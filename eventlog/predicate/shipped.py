"""The named filters that come with eventlog: useful by themselves, and patterns for others."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from eventlog.arrays import Mask
from eventlog.batch.columns import EventColumns
from eventlog.errors import BadFilterParameters
from eventlog.hashing import hash_keys
from eventlog.predicate.factories import Filter
from eventlog.predicate.functions import equal
from eventlog.predicate.spec import FilterContext

_HASH_BITS = 63
_STEPS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleParameters:
    """`fraction` of the keys in `[0, 1]`; another `seed` chooses others."""

    fraction: float
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A fraction of the keys, always the same ones: all events of a key, or none."""

    threshold: int
    seed: int

    def mask(self, events: EventColumns) -> Mask:
        salt = self.seed.to_bytes(8, "little", signed=True)
        hashes = np.array(hash_keys([salt + key for key in events.keys.to_list()]), np.uint64)
        return np.asarray(hashes >> np.uint64(1) < np.uint64(self.threshold))


class _SampleFactory:
    name = "sample"
    version = 1
    description = "a fraction of the keys, always the same ones"
    parameters = SampleParameters

    def build(self, parameters: SampleParameters, context: FilterContext) -> Filter:  # noqa: ARG002 # any cache has keys
        if not 0 <= parameters.fraction <= 1:
            raise BadFilterParameters(filter=self.name, parameter="fraction", why=f"must be from 0 to 1, not {parameters.fraction}")
        if not -(1 << 63) <= parameters.seed < 1 << 63:
            raise BadFilterParameters(filter=self.name, parameter="seed", why="must be a whole number of 64 bits")
        return Sample(threshold=int(parameters.fraction * (1 << _HASH_BITS)), seed=parameters.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerParameters:
    """`pointer` as in RFC 6901; `equals` is JSON."""

    pointer: str
    equals: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerEquals:
    """Events whose value has this JSON at a place."""

    steps: tuple[str, ...]
    expected: Any

    def mask(self, events: EventColumns) -> Mask:
        return np.array([self._matches(text) for text in events.values.to_list()], bool)

    def _matches(self, text: bytes) -> bool:
        try:
            found: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return False
        for step in self.steps:
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isascii() and step.isdecimal() and len(step) < 10 and int(step) < len(found):
                found = found[int(step)]
            else:
                return False
        return equal(found, self.expected)


class _PointerFactory:
    name = "json-pointer-equals"
    version = 1
    description = "events whose JSON value has, at a place (RFC 6901), just this JSON: arrays and objects too"
    parameters = PointerParameters

    def build(self, parameters: PointerParameters, context: FilterContext) -> Filter:
        if context.format != "json":
            raise BadFilterParameters(filter=self.name, parameter="pointer", why=f"needs a cache of JSON; this one is of {context.format}")
        pointer = parameters.pointer
        if pointer and not pointer.startswith("/"):
            raise BadFilterParameters(filter=self.name, parameter="pointer", why=f"must begin with '/', as in '/{pointer[:40]}'")
        steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
        if len(steps) > _STEPS_MAX:
            raise BadFilterParameters(filter=self.name, parameter="pointer", why=f"has more than {_STEPS_MAX} steps")
        return PointerEquals(steps=steps, expected=parameters.equals)


sample = _SampleFactory()
json_pointer_equals = _PointerFactory()
