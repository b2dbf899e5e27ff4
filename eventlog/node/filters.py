"""Filters of readers, compiled once for all who use the same on one cache. Compiling is done in the reader thread."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from eventlog.errors import InvalidArgument
from eventlog.limits import FILTERS_COMPILED_MAX
from eventlog.node.caches import CacheState
from eventlog.node.reader import ReaderThread
from eventlog.predicate.spec import CompiledFilter, FilterContext, FilterSpec
from eventlog.wire.eventlog_pb2 import Filter, Poll

Key = tuple[int, FilterContext, bytes]


class Filters:
    """The compiled filters, the latest used ones. `listener_spec`, once set, looks up what a registered listener wants."""

    def __init__(self, thread: ReaderThread, *, entries_max: int = FILTERS_COMPILED_MAX) -> None:
        self._thread = thread
        self._entries_max = entries_max
        self._compiled: OrderedDict[Key, CompiledFilter] = OrderedDict()
        self.listener_spec: Callable[[CacheState, str], Awaitable[FilterSpec | None]] | None = None
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
        if found is None:
            key = _key(cache, spec)
            found = await self._thread.run(owner, lambda: _compile(spec, key[1]))
            self._compiled[key] = found
            while len(self._compiled) > self._entries_max:
                self._compiled.popitem(last=False)
            self.peak = max(self.peak, len(self._compiled))
        return found

    async def of_poll(self, cache: CacheState, poll: Poll, *, owner: object = None) -> CompiledFilter | None:
        """Return the filter of a request: its own, or that of the listener it names; None where everything is wanted.

        Raises:
            ListenerNotFound: nobody registered it.
            BadPredicate, FilterNotFound: as `compile`.
        """
        spec = spec_of(poll.filter) if poll.HasField("filter") else None
        if poll.listener:
            if self.listener_spec is None or spec is not None:
                raise InvalidArgument(why="a poll names a listener or a filter, and a listener where listeners are kept")
            spec = await self.listener_spec(cache, poll.listener)
        return None if spec is None else await self.compile(cache, spec, owner=owner)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"filters_compiled": (len(self._compiled), self._entries_max, self.peak)}


def is_filtered(poll: Poll) -> bool:
    """Return whether a request wants some events only."""
    return bool(poll.listener) or (poll.HasField("filter") and spec_of(poll.filter) is not None)


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


def _key(cache: CacheState, spec: FilterSpec) -> Key:
    return cache.cache_id, context_of(cache), spec.digest


def _compile(spec: FilterSpec, context: FilterContext) -> CompiledFilter:
    from eventlog.predicate.compile import compile_filter  # noqa: PLC0415 -- a parser of SQL takes a third of a second to load

    return compile_filter(spec, context)
