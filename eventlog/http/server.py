"""The HTTP server: `/health/live`, `/health/ready`, `/metrics`; `GET /` answers `{}`. And the paths of a schema registry."""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from eventlog.errors import BadConfig
from eventlog.http.registry import Registrar, answer, is_registry_path
from eventlog.limits import KIB, SCHEMA_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What the pages ask the node. `ready` returns why it is not, or an empty text."""

    ready: Callable[[], str]
    metrics: Callable[[], str]


STOP_S = 0.5  # is what requests get to end in when the node stops
IDLE_S = 75.0  # after which a connection without a request is closed
METHODS = ("GET", "HEAD")
BODY_S = 10.0  # is what a client gets to send a body in
BODY_BYTES_MAX = 6 * SCHEMA_BYTES_MAX + 64 * KIB  # a schema as JSON escapes it at worst, and its references
CONNECTIONS_MAX = 64  # another one has the oldest closed, so that probes get through whoever keeps connections

log = logging.getLogger("eventlog.http")
log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))  # it is answered with 400


class HttpServer:
    """Serves the pages on a bound socket between `start` and `stop`."""

    def __init__(
        self,
        probes: Probes,
        bound: socket.socket,
        *,
        registry: Registrar | None = None,
        idle_s: float = IDLE_S,
        body_s: float = BODY_S,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._idle_s = idle_s
        self._body_s = body_s
        self._body_bytes_max = body_bytes_max
        self._probes = probes
        self._registry = registry
        self._bound = bound
        self._pages = {"/": self._root, "/health/live": self._live, "/health/ready": self._ready, "/metrics": self._metrics}
        self._runner: web.ServerRunner | None = None
        self._listening: asyncio.Server | None = None
        self._connections_peak = 0

    async def start(self) -> int:
        """Listen; return the port.

        Raises:
            BadConfig: the address cannot be listened on.
        """
        # Without an application, whose router has its own opinion of a header `Expect`; and what bodies hold is nobody's business.
        server = web.Server(
            self._answer, access_log=None, auto_decompress=False, keepalive_timeout=self._idle_s, lingering_time=STOP_S, logger=log
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(self._accept, sock=self._bound, backlog=CONNECTIONS_MAX)
        except OSError as error:
            await self._runner.cleanup()
            host, port = self._bound.getsockname()[:2]
            raise BadConfig(option="http", why=f"cannot listen on {host}:{port}: {error.strerror}") from error
        return int(self._bound.getsockname()[1])

    def _accept(self) -> web.RequestHandler:
        server = self._server()
        open_ = server.connections
        for oldest in open_[: max(len(open_) - CONNECTIONS_MAX + 1, 0)]:
            oldest.force_close()
        self._connections_peak = max(self._connections_peak, min(len(open_) + 1, CONNECTIONS_MAX))
        return server()

    def _server(self) -> web.Server:
        assert self._runner is not None
        assert self._runner.server is not None, "it is set up"
        return self._runner.server

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"http_connections": (len(self._server().connections), CONNECTIONS_MAX, self._connections_peak)}

    async def stop(self) -> None:
        """Stop listening; requests in flight are given up."""
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._bound.close()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if self._registry is not None and is_registry_path(request.path):
            return await self._of_registry(self._registry, request)
        page = self._pages.get(request.path)
        if page is None:
            return web.Response(status=404, text="404: Not Found")
        if request.method not in METHODS:
            return web.Response(status=405, text="405: Method Not Allowed", headers={"Allow": ",".join(METHODS)})
        return page()

    async def _of_registry(self, registry: Registrar, request: web.BaseRequest) -> web.Response:
        try:
            body = await self._body_of(request) if request.can_read_body else b""
        except TimeoutError:
            return _ended(web.json_response({"error_code": 408, "message": "The body did not come"}, status=408))
        if body is None:
            return _ended(web.json_response({"error_code": 413, "message": "The body is too large"}, status=413))
        found = await answer(
            registry,
            method=request.method,
            path=request.rel_url.raw_path,
            query=request.rel_url.raw_query_string,
            content_type=request.headers.get("Content-Type", ""),
            body=body,
        )
        return web.Response(status=found.status, headers=found.headers, body=found.body)

    async def _body_of(self, request: web.BaseRequest) -> bytes | None:
        """Return the body, None where it is too large."""
        body = bytearray()
        async with asyncio.timeout(self._body_s):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > self._body_bytes_max:
                    return None
        return bytes(body)

    def _root(self) -> web.Response:
        return web.json_response({})

    def _live(self) -> web.Response:
        return web.json_response({"live": True})

    def _ready(self) -> web.Response:
        why = self._probes.ready()
        return web.json_response({"ready": not why, "why": why}, status=503 if why else 200)

    def _metrics(self) -> web.Response:
        return web.Response(body=self._probes.metrics().encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def _ended(response: web.Response) -> web.Response:
    """Return an answer after which the connection is closed: the rest of the body would be taken for a request."""
    response.force_close()
    return response
