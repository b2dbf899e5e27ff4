"""What a cache is known by: its name, and, once looked up, its number and formats."""

from collections.abc import Generator
from typing import Any, Protocol, Self

from eventlog.client.connections.requests import Requests, Roads
from eventlog.client.formats import CacheFormat
from eventlog.client.options import ClientOptions
from eventlog.client.values import CacheInfo, Shown, cache_info
from eventlog.routing.routes import Routes
from eventlog.wire.eventlog_pb2 import DescribeCache, Message


class Core(Protocol):
    """What a client's caches share, whichever client it is."""

    options: ClientOptions
    requests: Requests

    @property
    def nodes(self) -> Roads[Any]:
        """The roads to its nodes."""
        ...

    @property
    def routes(self) -> Routes:
        """Where requests go. Raises ClientClosed: the client was never opened."""
        ...


class CacheHandle(Shown):
    """A cache of a client. Holding one costs nothing; the first call looks it up, and it stays the cache found then."""

    def __init__(self, core: Core, name: str, info: CacheInfo | None = None) -> None:
        self.name = name
        self._core = core
        self._info = info
        self._form: CacheFormat | None = None if info is None else CacheFormat(info)

    def _described(self) -> str:
        return f" {self.name!r}: {self._core}"

    def __await__(self) -> Generator[Any, None, Self]:
        """Look the cache up at once: `cache = await client.cache(name)` raises CacheNotFound if there is none."""
        return self._looked_up().__await__()

    async def _looked_up(self) -> Self:
        await self.info()
        return self

    async def info(self) -> CacheInfo:
        """Return the cache's options as they were when it was looked up.

        Raises:
            CacheNotFound: there is none of this name.
        """
        if self._info is None:
            reply = await self._core.requests.ask(Message(describe_cache=DescribeCache(name=self.name)))
            self._info = cache_info(reply.message.cache_answer.cache)
            self._form = CacheFormat(self._info)
        return self._info

    async def _found(self) -> tuple[CacheInfo, CacheFormat]:
        info = self._info or await self.info()
        assert self._form is not None, "it is made with the info"
        return info, self._form
