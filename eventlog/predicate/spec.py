"""What a filter is to its readers: its description, what it is checked against, and what it does once compiled."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import EventColumns
from eventlog.ids import ID_MAX

Image = Literal["value", "before"]
EVERY_KIND = 0xFF


@dataclass(frozen=True, kw_only=True)
class FilterSpec:
    """What a reader wants. `parameters` and `arguments` are JSON text; empty for none. Two equal ones mean the same."""

    where: str = ""
    parameters: bytes = b""
    select: tuple[str, ...] = ()
    name: str = ""
    version: int = 0
    arguments: bytes = b""
    continuous: bool = False

    @cached_property
    def digest(self) -> bytes:
        """Return what equal specifications share, and others do not."""
        fields = (self.where.encode(), self.parameters, *[field.encode() for field in self.select], self.name.encode(), self.arguments)
        counts = f"{len(self.select)} {self.version} {self.continuous} {[len(field) for field in fields]}".encode()
        return xxh3_128_digest(b"".join((counts, *fields)))


@dataclass(frozen=True, kw_only=True)
class FilterContext:
    """What a filter is checked against: the cache as it is. `promoted` are paths of the value stored as columns."""

    format: Literal["json", "bytes", "avro"]
    text_keys: bool
    before: bool
    avro_schema: str | None = None
    promoted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What every matching event is within; `kinds` are bits `1 << kind`, ids are inclusive, None is any."""

    kinds: int = EVERY_KIND
    id_low: int = 0
    id_high: int = ID_MAX
    segments: frozenset[int] | None = None
    keys: frozenset[bytes] | None = None
    key_prefix: bytes = b""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing can match."""
        return not self.kinds or self.id_low > self.id_high or self.segments == frozenset() or self.keys == frozenset()


ANYTHING = Bounds()
NOTHING = Bounds(kinds=0)


class CompiledFilter(Protocol):
    """A checked filter. Its methods are pure and may be called from any thread.

    A named filter that fails makes `mask` and `project` raise EventLogError with its name.
    """

    @property
    def spec(self) -> FilterSpec:
        """What it was compiled from; a factory's version is the one it stands for."""
        ...

    @property
    def bounds(self) -> Bounds:
        """What every event that matches is within."""
        ...

    @property
    def kinds(self) -> int:
        """Bits `1 << kind` of the kinds that can match: a stored value with none of them is skipped unread."""
        ...

    @property
    def is_costly(self) -> bool:
        """Whether it takes more than some tens of nanoseconds an event: where it decodes values."""
        ...

    @property
    def keeps_before(self) -> bool:
        """Whether before-images are answered at all: a selection that names none of their fields leaves them out."""
        ...

    def may_match(self, *, kinds: npt.NDArray[np.uint8], segments: Ints, bases: Ints, lasts: Ints) -> Mask:
        """Return which stored values can hold an event that matches, by what their headers say: bits of kinds, first and last id."""
        ...

    def mask(self, events: EventColumns, *, image: Image = "value") -> Mask:
        """Return which events match; with `image="before"`, of which the entry matched before the change."""
        ...

    def project(self, events: EventColumns, *, image: Image = "value") -> tuple[bytes, bytes] | None:
        """Return offsets (i32, one more than events) and bytes of what is answered for an image; None where it is answered as it is."""
        ...

    def changes(self, events: EventColumns) -> npt.NDArray[np.uint8]:
        """Return of each event what it is to a continuous query: 0 nothing, 1 JOINED, 2 UPDATED, 3 LEFT."""
        ...
