"""A client: caches, and the administration of the cluster behind them."""

import asyncio
from collections.abc import Sequence
from typing import Literal, Self, Unpack

from eventlog.client.cache import Cache
from eventlog.client.cluster import ClusterAdmin
from eventlog.client.core import ClientCore
from eventlog.client.groups import GroupAdmin
from eventlog.client.listeners import ListenerAdmin, check_awaited
from eventlog.client.mirrors import MirrorAdmin
from eventlog.client.options import ClientOptions, ConnectOptions
from eventlog.client.reading.filtering import FilterInfo, filter_info
from eventlog.client.reports import (
    CheckReport,
    Health,
    RetentionRun,
    SegmentInfo,
    Status,
    check_report,
    retention_run,
    segment_info,
    status,
)
from eventlog.client.values import (
    CacheInfo,
    ClientUsage,
    Format,
    KeyFormat,
    Shown,
    cache_info,
    cache_options,
    checked_flag,
    checked_id,
    checked_text,
)
from eventlog.errors import InvalidArgument, TimedOut
from eventlog.routing.addresses import parse_addresses
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

ADDRESS_DEFAULT = "127.0.0.1:7400"


def connect(*addresses: str, **options: Unpack[ConnectOptions]) -> "Client":
    """Return a client of the cluster that answers at one of `addresses`; enter it with `async with`.

    An address is `HOST:PORT`, or several with commas between.

    `options` are those of `ClientOptions`: timeout_ms, connect_timeout_ms, reconnect_ms_max, idempotent, bytes_unanswered_max,
    frame_bytes_target, read_ahead_bytes, retry, routing, name.

    Raises:
        InvalidArgument: not an address, or an option that there is not.
    """
    unknown = set(options) - set(ClientOptions.__dataclass_fields__)
    if unknown:
        raise InvalidArgument(why=f"connect has no option {', '.join(sorted(unknown))}")
    return Client(addresses or (ADDRESS_DEFAULT,), ClientOptions(**options))


class Client(Shown):
    """Connected while it is entered, or from `open` to `close`. Use it from one event loop, by as many tasks as you like.

    Leaving it waits for writes under way; leaving it with an exception does not.
    """

    def __init__(self, addresses: Sequence[str], options: ClientOptions) -> None:
        self._addresses = [address for given in addresses for address in parse_addresses(given)]
        self._options = options
        self._core: ClientCore | None = None
        self._keeper: asyncio.Task[None] | None = None

    def _described(self) -> str:
        return f": {self._core or 'not connected, at ' + ', '.join(map(str, self._addresses))}"

    async def open(self) -> Self:
        """Connect to the first address that answers.

        Raises:
            ConnectionLost, TimedOut: none does.
            Misuse: opened before.
        """
        if self._core is not None:
            raise InvalidArgument(why="this client was opened before; make another")
        core = self._core = ClientCore(self._addresses, self._options)
        self._keeper = asyncio.create_task(core.run(), name="eventlog-client")
        try:
            await core.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connection. Calls under way fail with ClientClosed; later ones, too."""
        core, keeper, self._keeper = self._core, self._keeper, None
        if core is None or keeper is None:
            return
        core.writer.close()
        await core.close(keeper)

    async def flush(self) -> None:
        """Wait until every write taken in so far is written, or has failed."""
        await self._opened.writer.flush()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and self._keeper is not None:
                await self.flush()
        finally:
            await self.close()

    @property
    def _opened(self) -> ClientCore:
        if self._core is None:
            raise InvalidArgument(why="this client is not connected: enter it with `async with`, or call open()")
        return self._core

    @property
    def cluster(self) -> str:
        """The id of the cluster."""
        return self._opened.cluster

    @property
    def segments_count(self) -> int:
        """How many segments the cluster has."""
        return self._opened.routes.segments

    @property
    def usage(self) -> ClientUsage:
        """What it holds now: connections, and writes that are not answered."""
        core = self._opened
        return ClientUsage(
            connections=len(core.nodes.live()),
            bytes_unanswered=core.writer.bytes_unanswered,
            frames_undecided=core.writer.frames_undecided,
        )

    @property
    def admin(self) -> ClusterAdmin:
        """What operators ask: members, moving segments, comparing copies."""
        return ClusterAdmin(self._opened.requests)

    @property
    def groups(self) -> GroupAdmin:
        """What operators ask about consumer groups: list, describe, reset, delete."""
        return GroupAdmin(self._opened.requests)

    # ------------------------------------------------------------ caches

    def cache(self, name: str) -> Cache:
        """Return the cache `name`. It is looked up by its first call, which raises CacheNotFound if there is none."""
        return Cache(self._opened, checked_text("name", name))

    async def create_cache(
        self,
        name: str,
        *,
        format: Format | None = None,
        key_format: KeyFormat | None = None,
        events: bool | None = None,
        state: bool | None = None,
        before: bool | None = None,
        retain_time_ms: int | None = None,
        retain_bytes: int | None = None,
        retain_events: int | None = None,
        lifespan_ms: int | None = None,
        route_by_prefix: bool | None = None,
        schema: str | None = None,
        validate: bool | None = None,
        promote: Sequence[str] | str | None = None,
        wait_ms: int | None = None,
        wait_proceeds: bool | None = None,
        if_exists: Literal["error", "use"] = "error",
    ) -> Cache:
        """Create a cache and return it.

        What is None is the node's default: JSON under keys of text, events and state on, before-images with JSON and Avro, events kept for
        7 days and up to 10 GiB.
        A limit of 0 is none. `promote` names fields, as `value.a`, that are stored beside the values, for filters. Listeners
        to wait for come later, with `alter_cache`: there is none of a cache before the cache. With `validate` a value that the
        `schema` (Avro, or a JSON Schema) does not take is refused by the node, with BadValue.

        Raises:
            CacheExists: there is one, and `if_exists` is `error`. With `use` it is returned.
            CacheDiffers: with `use`, and another is there of format, schema, validate, key_format, state, before, events or
                route_by_prefix than is given.
            BadName: not a name for a cache.
        """
        if if_exists not in ("error", "use"):
            raise InvalidArgument(why=f"if_exists is {if_exists!r}: use error or use")
        options = cache_options(
            {
                "format": format,
                "key_format": key_format,
                "events": events,
                "state": state,
                "before": before,
                "retain_time_ms": retain_time_ms,
                "retain_bytes": retain_bytes,
                "retain_events": retain_events,
                "lifespan_ms": lifespan_ms,
                "route_by_prefix": route_by_prefix,
                "schema": schema,
                "validate": validate,
                "promote": promote,
                "wait_ms": wait_ms,
                "wait_proceeds": wait_proceeds,
            }
        )
        request = pb.CreateCache(name=checked_text("name", name), options=options, use_existing=if_exists == "use")
        reply = await self._opened.requests.ask(Message(create_cache=request), repeatable=if_exists == "use")
        return Cache(self._opened, name, cache_info(reply.message.cache_answer.cache))

    async def describe_cache(self, name: str) -> CacheInfo:
        """Return a cache's options as they are now."""
        reply = await self._opened.requests.ask(Message(describe_cache=pb.DescribeCache(name=checked_text("name", name))))
        return cache_info(reply.message.cache_answer.cache)

    async def alter_cache(self, name: str, **options: object) -> CacheInfo:
        """Change options of a cache (those of `create_cache`; a limit of 0 is none) and return all of them.

        A newer `schema` of Avro has fields behind the others, each with a default, which old values have then; a handle that
        was looked up before goes on with the fields that it knows. Writes wait for `wait_listeners` as those of `put` do. `archive`
        notes where an archive of the cache is, for readers over both: a path that all of them have, or an address; an empty one is none.

        Raises:
            Unalterable: one is fixed at creation.
            ListenerNotFound: writes are to wait for a listener that is not there, which would delay or fail all of them.
            InvalidArgument: or for one of another cache, or an ephemeral one.
        """
        wanted = cache_options(options)
        for listener in filter(None, wanted.wait_listeners.split(",")):
            check_awaited(await self.listeners.describe(listener), cache=name)
        reply = await self._opened.requests.ask(Message(alter_cache=pb.AlterCache(name=checked_text("name", name), options=wanted)))
        return cache_info(reply.message.cache_answer.cache)

    async def drop_cache(self, name: str) -> None:
        """Remove a cache with all its events and entries."""
        await self._opened.requests.ask(Message(drop_cache=pb.DropCache(name=checked_text("name", name))), repeatable=False)

    async def list_caches(self, *, internal: bool = False) -> list[CacheInfo]:
        """Return all caches, with `internal` the cluster's own as well."""
        reply = await self._opened.requests.ask(Message(list_caches=pb.ListCaches(internal=checked_flag("internal", internal))))
        return [cache_info(cache) for cache in reply.message.list_caches_answer.caches]

    async def list_filters(self) -> list[FilterInfo]:
        """Return the named filters that are installed, one for each node that has it."""
        reply = await self._opened.requests.ask(Message(list_filters=pb.ListFilters()))
        return [filter_info(found) for found in reply.message.list_filters_answer.filters]

    @property
    def mirrors(self) -> MirrorAdmin:
        """The mirrors of caches in Kafka."""
        return MirrorAdmin(self._opened.requests)

    @property
    def listeners(self) -> ListenerAdmin:
        """The listeners of all caches."""
        return ListenerAdmin(self._opened.requests)

    async def wait_for(self, cache: Cache | str, id: int, *, timeout_ms: int | None = None) -> None:
        """Return once readers of `cache`, or the cache of this name, see everything up to `id`, wherever they read.

        Raises:
            TimedOut: they do not in time.
            InvalidArgument: `id` is none, or `timeout_ms` not above 0.
            NoEvents: the cache keeps none. Its entries are read as they are from the moment on at which a write has returned.
        """
        wanted = checked_id(id, "id")
        read = cache if isinstance(cache, Cache) else self.cache(checked_text("cache", cache))
        timeout_ms = self._options.limit_ms(timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while (await read.log_ends()).last_id < wanted:
                    await read.poll(wanted - 1, max_events=0, wait_ms=WAIT_STEP_MS, on_trimmed="earliest")
        except TimeoutError:
            raise TimedOut(what=f"event {id} to be readable", timeout_ms=timeout_ms) from None

    # ------------------------------------------------------------ administration

    async def ping(self) -> None:
        """Return when the node has answered."""
        await self._opened.requests.ask(Message(ping=pb.Ping()))

    async def status(self) -> Status:
        """Return the health of the cluster."""
        return status((await self._opened.requests.ask(Message(status=pb.Status()))).message.status_answer)

    async def health(self) -> Health:
        """Return which share of the segments can be written and read now, and which nodes are missing."""
        found = await self.status()
        whole = max(found.segments, 1)
        return Health(writable=1 - found.unwritable / whole, readable=1 - found.unreadable / whole, missing=found.missing)

    async def segments(self, cache: str | None = None) -> list[SegmentInfo]:
        """Return every segment, with the figures of one cache or of all."""
        reply = await self._opened.requests.ask(
            Message(list_segments=pb.ListSegments(cache="" if cache is None else checked_text("cache", cache)))
        )
        return [segment_info(segment) for segment in reply.message.list_segments_answer.segments]

    async def run_retention(self, cache: str, *, dry_run: bool = False) -> RetentionRun:
        """Apply a cache's retention now, or say what that would remove."""
        request = pb.RunRetention(cache=checked_text("cache", cache), dry_run=checked_flag("dry_run", dry_run))
        return retention_run((await self._opened.requests.ask(Message(run_retention=request))).message.run_retention_answer)

    async def check(self, cache: str | None = None, *, timeout_ms: int | None = None) -> CheckReport:
        """Have everything stored read and compared with its checksums; return what is wrong. Takes long: give it time."""
        extra_ms = max(0, self._options.limit_ms(timeout_ms) - self._options.timeout_ms)
        reply = await self._opened.requests.ask(
            Message(check_data=pb.CheckData(cache="" if cache is None else checked_text("cache", cache))), wait_ms=extra_ms
        )
        return check_report(reply.message.check_data_answer)


WAIT_STEP_MS = 1_000  # then the low watermark is looked at again: the id may be of another cache
