"""What a commit hands to readers: the stored values of one group, cache by cache."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)  # one a group: `frozen` ones take longer to make
class CacheValues:
    """Stored values of one cache in one group: one row a value, sorted by segment and therefore by base id.

    `counts` may hold 0: a value without events stands at its base id.
    """

    cache_id: int
    segments: list[int]
    bases: list[int]
    counts: list[int]
    data: list[bytes]


@dataclass(slots=True, kw_only=True)  # one a group: `frozen` ones take longer to make
class CommittedGroup:
    """Everything that one group committed. Its ids are one run `[first_id, last_id]`; the groups of a node never interleave."""

    first_id: int
    last_id: int
    caches: tuple[CacheValues, ...]
