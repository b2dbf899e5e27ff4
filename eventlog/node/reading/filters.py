"""Filters of readers, compiled once for all that use the same on one cache. Compiling is done in the reader thread."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.limits import FILTERS_COMPILED_MAX
from eventlog.node.reading.reader import ReaderThread
from eventlog.predicate.spec import CompiledFilter, FilterContext, FilterSpec
from eventlog.state.caches import CacheState
from eventlog.wire.eventlog_pb2 import Filter, Poll

Key = tuple[int, FilterContext, bytes]


class Filters:
    """The compiled filters, the latest used ones. `compiler` makes one; it runs in the reader thread."""

    def __init__(self, thread: ReaderThread, *, entries_max: int = FILTERS_COMPILED_MAX) -> None:
        self._thread = thread
        self._entries_max = entries_max
        self._compiled: OrderedDict[Key, CompiledFilter] = OrderedDict()
        self._compiling: dict[Key, asyncio.Future[CompiledFilter]] = {}
        self.compiler: Callable[[FilterSpec, FilterContext], CompiledFilter] = _compile
        self.peak = 0

    def known(self, cache: CacheState, spec: FilterSpec) -> CompiledFilter | None:
        """Return a filter that was compiled before."""
        key = _key(cache, spec)
        found = self._compiled.get(key)
        if found is not None:
            self._compiled.move_to_end(key)
        return found

    async def compile(self, cache: CacheState, spec: FilterSpec, *, owner: object = None) -> CompiledFilter:
        """Return a filter for a cache as it is now.

        Raises:
            BadPredicate: it does not fit the cache, or is none.
            FilterNotFound: this node lacks the factory.
        """
        found = self.known(cache, spec)
        if found is not None:
            return found
        key = _key(cache, spec)
        compiling = self._compiling.get(key)
        if compiling is None:
            compiling = self._compiling[key] = self._thread.run(owner, lambda: self.compiler(spec, key[1]))
            compiling.add_done_callback(partial(self._keep, key))
        return await asyncio.shield(compiling)  # one that leaves does not take it from the others

    def _keep(self, key: Key, done: "asyncio.Future[CompiledFilter]") -> None:
        del self._compiling[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._compiled[key] = done.result()
        while len(self._compiled) > self._entries_max:
            self._compiled.popitem(last=False)
        self.peak = max(self.peak, len(self._compiled))

    async def of_poll(self, cache: CacheState, poll: Poll, *, owner: object = None) -> CompiledFilter | None:
        """Return the filter of a request, None where everything is wanted.

        Raises:
            BadPredicate, FilterNotFound: as `compile`.
        """
        spec = spec_of(poll.filter)
        return None if spec is None else await self.compile(cache, spec, owner=owner)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"filters_compiled": (len(self._compiled), self._entries_max, self.peak)}


def spec_of(filter_: Filter) -> FilterSpec | None:
    """Return what a request's filter says, None where it wants everything as it is."""
    spec = FilterSpec(
        where=filter_.where,
        parameters=filter_.parameters,
        select=tuple(filter_.select),
        name=filter_.name,
        version=filter_.version,
        arguments=filter_.arguments,
        continuous=filter_.continuous,
    )
    return spec if spec.where or spec.select or spec.name or spec.continuous else None


def message_of(spec: FilterSpec) -> Filter:
    """Return a filter as requests carry it."""
    return Filter(
        where=spec.where,
        parameters=spec.parameters,
        select=spec.select,
        name=spec.name,
        version=spec.version,
        arguments=spec.arguments,
        continuous=spec.continuous,
    )


def context_of(cache: CacheState) -> FilterContext:
    """Return what filters of a cache are checked against."""
    options = cache.options
    return FilterContext(
        format=options.format,
        text_keys=not options.bytes_keys,
        before=options.before and options.state,
        avro_schema=options.schema or None if options.format == "avro" else None,
        promoted=frozenset(options.promoted),
    )


def segments_of(matches: CompiledFilter, cache: CacheState) -> npt.NDArray[np.int64] | None:
    """Return the segments in which anything can match, rising; None for all.

    Keys that are named have theirs, in a cache with state: without, the segment of every key of a block is not checked.
    """
    bounds = matches.bounds
    keys = bounds.keys if cache.options.state else None
    if keys is None and bounds.segments is None:
        return None
    found = set(range(cache.segments)) if bounds.segments is None else set(bounds.segments)
    if keys is not None:
        by_prefix = cache.options.route_by_prefix
        found &= {segment_of(hash_key(route_bytes(key, by_prefix=by_prefix)), cache.segments) for key in keys}
    within = sorted(segment for segment in found if 0 <= segment < cache.segments)
    return np.array(within or [0], np.int64)  # nothing can match: one is looked through in vain


def _key(cache: CacheState, spec: FilterSpec) -> Key:
    return cache.cache_id, context_of(cache), spec.digest


def _compile(spec: FilterSpec, context: FilterContext) -> CompiledFilter:
    from eventlog.predicate.compile import compile_filter  # noqa: PLC0415 -- a parser of SQL takes a third of a second to load

    return compile_filter(spec, context)
