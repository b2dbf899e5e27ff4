"""What one task reads: a range of ids of some segments. A plan is the same whenever it is made for the same ends. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from eventlog.client.reports import Plan
from eventlog.limits import MIB

PARTITIONS_MAX: Final = 16
PARTITION_EVENTS_MIN: Final = 500_000
PARTITION_BYTES_MIN: Final = 64 * MIB


class Packable(Protocol):
    """A file."""

    @property
    def nbytes(self) -> int: ...


PackableT = TypeVar("PackableT", bound=Packable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Events in `(after, upto]` of `segments`."""

    after: int
    upto: int
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds:
    """Rows of an archive: ids in `(after, upto]` of `segments`, None for all.

    Of these nobody wants a key below the first of `keys` or above the second, as bytes, or a kind that is not among `kinds`, by name. That
    prunes what is read, and is judged elsewhere.
    """

    after: int
    upto: int
    segments: frozenset[int] | None = None
    keys: tuple[bytes, bytes] | None = None
    kinds: frozenset[bytes] | None = None

    def may_meet(
        self,
        *,
        ids: tuple[int, int] | None = None,
        segments: tuple[int, int] | None = None,
        keys: tuple[bytes, bytes] | None = None,
        kinds: tuple[bytes, bytes] | None = None,
    ) -> bool:
        """Return whether rows within some lowest and highest values, None where nobody knows them, can be among these."""
        if ids is not None and (ids[1] <= self.after or ids[0] > self.upto):
            return False
        if keys is not None and self.keys is not None and (keys[1] < self.keys[0] or keys[0] > self.keys[1]):
            return False
        if kinds is not None and self.kinds is not None and not any(kinds[0] <= kind <= kinds[1] for kind in self.kinds):
            return False
        if self.segments is None or segments is None:
            return self.segments is None or bool(self.segments)
        return any(segments[0] <= segment <= segments[1] for segment in self.segments)


def ranges_of(
    after: int, upto: int, *, segments: Sequence[int], events: int, nbytes: int, asked: int = 0, most: int = PARTITIONS_MAX
) -> list[Range]:
    """Return ranges that cover the segments once: `asked` of them, or as many as are worth a task each, at `most` so many.

    There are none where there are no events.

    Keys are spread over segments by their hash, so segments side by side hold about the same.
    """
    if after >= upto or not events:
        return []
    worth = max(-(-events // PARTITION_EVENTS_MIN), -(-nbytes // PARTITION_BYTES_MIN))
    count = min(asked or min(worth, most), len(segments))
    bounds = [len(segments) * part // count for part in range(count + 1)]
    return [Range(after=after, upto=upto, segments=tuple(segments[low:high])) for low, high in pairwise(bounds)]


def ranges_of_owners(plan: Plan, by_owner: Mapping[str, Sequence[int]], *, asked: int, most: int) -> Iterator[tuple[str, Range]]:
    """Yield the ranges of a plan, each of segments of one owner: of those that are `asked`, or of the `most`, each has its share."""
    whole = sum(map(len, by_owner.values()))
    for owner, segments in sorted(by_owner.items()):
        events, nbytes = plan.within(segments)
        shares = {name: max(count * len(segments) // whole, 1) if count else 0 for name, count in (("asked", asked), ("most", most))}
        for one in ranges_of(plan.after, plan.upto, segments=segments, events=events, nbytes=nbytes, **shares):
            yield owner, one


def packed(files: Sequence[PackableT], count: int) -> list[tuple[PackableT, ...]]:
    """Return files in their order, in at most `count` parts of about as many bytes; 0: each by itself."""
    if not count:
        return [(file,) for file in files]
    whole, before, parts = max(sum(file.nbytes for file in files), 1), 0, dict[int, list[PackableT]]()
    for file in files:
        parts.setdefault(min((before + file.nbytes // 2) * count // whole, count - 1), []).append(file)
        before += file.nbytes
    return [tuple(part) for part in parts.values()]
