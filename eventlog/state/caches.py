"""The caches as this node holds them: options, offsets, retention marks, key tables, producers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.layout import place_seed
from eventlog.control.caches import DROPPED_MAX, INTERNAL_PREFIX, SIGNALS
from eventlog.control.records import CacheOptions
from eventlog.errors import CacheDropped, CacheNotFound
from eventlog.events import Kind
from eventlog.state.key_table import KeyTable
from eventlog.state.producers import ProducerTable

KeyChange = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8], Ints]  # hashes, kinds, and which rows changed something


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """What the interceptors need to know of a cache. `may_expire`: some entry has, or had, a lifespan."""

    cache_id: int
    name: str
    state: bool
    before: bool
    by_prefix: bool
    text_keys: bool = False
    json_values: bool = False
    lifespan_ms: int
    may_expire: bool
    segments: int
    promoted: tuple[str, ...] = ()


@dataclass(kw_only=True, eq=False)
class CacheState:
    """One cache. Arrays are indexed by segment.

    Invariants: offsets `[trimmed_offsets + 1, next_offsets)` are kept; `live` counts entries of the current state; `keys` is None
    while it is being built or too large, then existence is read from the store. `trimmed_ids` is what retention removed at a primary, as
    far as this node has heard, `removed_ids` what it removed from the copy that this node has: never more.
    """

    cache_id: int
    name: str
    options: CacheOptions
    from_id: int
    segments: int
    next_offsets: Ints
    trimmed_ids: Ints
    trimmed_offsets: Ints
    removed_ids: Ints
    live: Ints
    may_expire: bool = False
    keys: KeyTable | None = None
    building: list[KeyChange] | None = None
    producers: ProducerTable
    seeds: list[int] = field(default_factory=list)
    dropped: bool = False
    unchecked: int = 0
    stored_bytes: int = 0

    @property
    def is_gated(self) -> bool:
        """Return whether a frame goes to the writer by the gate of values, which holds `unchecked` ones now."""
        return self.options.validate or self.unchecked > 0

    @property
    def is_internal(self) -> bool:
        """Return whether it is one of the cluster's own, which only nodes write to, except signals."""
        return self.name.startswith(INTERNAL_PREFIX)

    @property
    def rules(self) -> CacheRules:
        """Return what the interceptors need to know."""
        return CacheRules(
            cache_id=self.cache_id,
            name=self.name,
            state=self.options.state,
            before=self.options.before and self.options.state,
            by_prefix=self.options.route_by_prefix,
            promoted=self.options.promoted if self.options.promote else (),
            text_keys=not self.options.bytes_keys,
            json_values=self.options.format == "json",
            lifespan_ms=self.options.lifespan_ms,
            may_expire=self.may_expire,
            segments=self.segments,
        )

    def count_one(self, segment: int, *, kind: int, nbytes: int) -> None:
        """Count one event, stored in `nbytes`."""
        self.stored_bytes += nbytes
        if kind != Kind.MODIFIED and self.options.state:
            self.live[segment] += 1 if kind == Kind.CREATED else -1

    def forget(self, segments: Sequence[int]) -> None:
        """Forget what was stored in `segments`: it is being deleted."""
        at = np.array(segments, np.int64)
        self.next_offsets[at] = self.trimmed_ids[at] = self.removed_ids[at] = self.live[at] = 0
        self.trimmed_offsets[at] = -1
        self.producers.forget(at)

    @property
    def kept(self) -> Ints:
        """Return how many events retention has left in each segment."""
        # of a segment that is held elsewhere, or being copied here, only the trimmed mark is known
        kept: Ints = np.maximum(self.next_offsets - self.trimmed_offsets - 1, 0)
        return kept

    @property
    def events_kept(self) -> int:
        """Return how many events retention has left."""
        return int(self.kept.sum())

    @property
    def last_trimmed_id(self) -> int:
        """Return the highest id that retention removed, 0 for none: a scalar position below it has lost events."""
        return int(self.trimmed_ids.max(initial=0))


def new_cache(*, cache_id: int, name: str, options: CacheOptions, from_id: int, segments: int) -> CacheState:
    """Return a cache without events."""
    return CacheState(
        cache_id=cache_id,
        name=name,
        options=options,
        from_id=from_id,
        segments=segments,
        next_offsets=np.zeros(segments, np.int64),
        trimmed_ids=np.zeros(segments, np.int64),
        trimmed_offsets=np.full(segments, -1, np.int64),
        removed_ids=np.zeros(segments, np.int64),
        live=np.zeros(segments, np.int64),
        keys=KeyTable() if options.state else None,
        may_expire=options.lifespan_ms > 0,
        seeds=[place_seed(segment, cache_id) for segment in range(segments)],
        producers=ProducerTable(segments),
    )


class Caches:
    """The caches of a node by id and by name; dropped ones are remembered, as many as the metadata remember."""

    def __init__(self) -> None:
        self._by_id: dict[int, CacheState] = {}
        self._by_name: dict[str, CacheState] = {}
        self._dropped: dict[int, str] = {}
        self.internal: set[int] = set()  # ids of those that are for nodes alone
        self.drops = 0  # how many of them this node has heard of
        self.changes = 0  # of names, and of what is set for a cache

    def __iter__(self) -> Iterator[CacheState]:
        return iter(self._by_id.values())

    def add(self, cache: CacheState) -> None:
        """Take a cache in."""
        self._by_id[cache.cache_id] = cache
        self._by_name[cache.name] = cache
        self.changes += 1
        if cache.is_internal and cache.name != SIGNALS:
            self.internal.add(cache.cache_id)

    def drop(self, cache: CacheState) -> None:
        """Forget a cache; requests that still name its id get CACHE_DROPPED."""
        cache.dropped = True
        self.changes += 1
        self.internal.discard(cache.cache_id)
        del self._by_id[cache.cache_id]
        if self._by_name.get(cache.name) is cache:  # the name may be another's by now
            del self._by_name[cache.name]
        self.remember_dropped({cache.cache_id: cache.name})

    def remember_dropped(self, names: Mapping[int, str]) -> None:
        """Take in names of caches that were dropped, by their ids."""
        self.drops += len(names.keys() - self._dropped.keys())
        self._dropped |= names
        for cache_id in sorted(self._dropped)[: max(len(self._dropped) - DROPPED_MAX, 0)]:
            del self._dropped[cache_id]

    def has(self, cache_id: int) -> bool:
        """Return whether there is a cache with this id."""
        return cache_id in self._by_id

    def get(self, cache_id: int) -> CacheState | None:
        """Return the cache with this id, None when there is none now."""
        return self._by_id.get(cache_id)

    def was_dropped(self, cache_id: int) -> bool:
        """Return whether there was a cache with this id."""
        return cache_id in self._dropped

    def dropped_name(self, cache_id: int) -> str | None:
        """Return the name of a cache that was dropped, None where that is not known (any more)."""
        return self._dropped.get(cache_id)

    def find(self, cache_id: int) -> CacheState:
        """Return the cache with this id.

        Raises:
            CacheDropped: there was one.
            CacheNotFound: there never was.
        """
        cache = self._by_id.get(cache_id)
        if cache is not None:
            return cache
        if cache_id in self._dropped:
            raise CacheDropped(cache=self._dropped[cache_id])
        raise CacheNotFound(cache=f"#{cache_id}")

    def named(self, name: str) -> CacheState:
        """Return the cache with this name.

        Raises:
            CacheNotFound: there is none.
        """
        cache = self._by_name.get(name)
        if cache is None:
            raise CacheNotFound(cache=name)
        return cache
