"""The HTTP server: `/health/live`, `/health/ready`, `/metrics`, the API under `/v1`, and a schema registry; `GET /` answers `{}`.

Two kinds of connections share the port. Those that have asked nothing of the API are for probes: there are few places, and the oldest gives
way to a newcomer. The API has places of its own, and nobody is closed for another there.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from eventlog.errors import BadConfig, EventLogError, ForeignPage, Overloaded, UnsupportedBody, tellable
from eventlog.http.bulk import Bulk
from eventlog.http.calls import JSON, BodyBounds, Call, Route, called, check_encoding, check_page, invite, path_of, refusal
from eventlog.http.entries import CacheRoutes, EntryRoutes
from eventlog.http.events import HEAD_S, Events
from eventlog.http.groups import GroupRoutes
from eventlog.http.listeners import ListenerRoutes
from eventlog.http.local import InsideRoads, LocalCore
from eventlog.http.registry import Registrar, answer, is_registry_path
from eventlog.http.shared import SharedAnswers
from eventlog.limits import KIB, MIB, SCHEMA_BYTES_MAX
from eventlog.transport.connection import Dispatch
from eventlog.wire.session import SessionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What the pages ask the node. `ready` returns why it is not, or an empty text."""

    ready: Callable[[], str]
    metrics: Callable[[], str]


STOP_S = 0.5  # is what requests get to end in when the node stops
IDLE_S = 75.0  # after which a connection without a request is closed
FIRST_S = 10.0  # within which the head of its first request has to be there
METHODS = ("GET", "HEAD")
BODY_S = 10.0  # is what a client gets to send a body in
BODY_BYTES_MAX = 6 * SCHEMA_BYTES_MAX + 64 * KIB  # a schema as JSON escapes it at worst, and its references
CONNECTIONS_MAX = 64  # that the API has not; another one has the oldest closed, so that probes get through whatever keeps connections
LINE_BYTES_MAX = 16 << 10  # of a request's first line: a key of 4 KiB takes three times as much where all of it is escaped

PREFIX: Final = "/v1/"
DOCUMENT: Final = "/v1/openapi.json"
API_CONNECTIONS_MAX: Final = 1_024  # that have asked for something under PREFIX; the next one is told to come again
BODIES_BYTES_MAX: Final = 128 * MIB
BODY_MS_MAX: Final = 30_000  # from the end of a request's head to the end of its body

log = logging.getLogger("eventlog.http")
log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))  # it is answered with 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """What the API takes. `own_names` are names of this host, beside the machine's, under which pages of its own may be served."""

    body_bytes_max: int
    session: SessionOptions = field(default_factory=SessionOptions)
    own_names: Collection[str] = ()
    connections_max: int = API_CONNECTIONS_MAX
    body_ms_max: int = BODY_MS_MAX
    head_s: float = HEAD_S


class Api:
    """Answers requests whose path begins with PREFIX. The first request makes a connection one of the API's, until it ends."""

    def __init__(self, dispatch: Dispatch, options: ApiOptions) -> None:
        self._options = options
        self._roads = InsideRoads(dispatch, options.session)
        self._bounds = BodyBounds(
            bytes_max=options.body_bytes_max, all_bytes_max=max(BODIES_BYTES_MAX, options.body_bytes_max), timeout_ms=options.body_ms_max
        )
        self._shared = SharedAnswers()
        core = LocalCore(self._roads, self._shared)
        self._groups = GroupRoutes(core)
        parts = (CacheRoutes(core), Bulk(core), EntryRoutes(core), Events(core, head_s=options.head_s), ListenerRoutes(core), self._groups)
        document = Route(path=DOCUMENT, handlers={"GET": _document}, parameters={})
        self.routes = [document, *(route for part in parts for route in part.routes())]
        self._connections: set[object] = set()
        self._connections_peak = 0

    @property
    def own_names(self) -> Collection[str]:
        """Names of this host under which pages of its own may be served."""
        return self._options.own_names

    def has(self, connection: object) -> bool:
        """Whether a connection is one of the API's."""
        return connection in self._connections

    def forget(self, connection: object) -> None:
        """Take note that a connection has ended."""
        self._connections.discard(connection)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {
            "http_api_connections": (len(self._connections), self._options.connections_max, self._connections_peak),
            "http_body_bytes": (self._bounds.used, self._bounds.all_bytes_max, self._bounds.peak),
            **self._roads.figures(),
            **self._shared.figures(),
            **self._groups.figures(),
        }

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer to a request. One that cannot be told what it wants is told why; the rest of its body is not read."""
        connection = request.protocol
        if connection not in self._connections and len(self._connections) >= self._options.connections_max:
            busy = refusal(Overloaded(what="the number of connections over HTTP", limit=self._options.connections_max))
            busy.set_status(503)  # 429 blames the caller: others hold the places
            busy.force_close()
            return busy
        self._connections.add(connection)
        self._connections_peak = max(self._connections_peak, len(self._connections))
        call = None
        try:
            handler, call = called(request, self.routes, self._bounds)
            check_page(request, self._options.own_names, moves="listener" in call.parameters)
            return await handler(call)
        except Exception as error:
            if not isinstance(error, EventLogError):
                log.exception("http_failed method=%s", request.method)
            refused = refusal(tellable(error))
            if not request.content.is_eof():
                refused.force_close()
            return refused
        finally:
            if call is not None:
                call.release()

    async def close(self) -> None:
        """Ask the node no more."""
        await self._roads.close()


async def _document(_call: Call) -> web.Response:
    """Answer with what describes every route."""
    return web.Response(body=_document_bytes(), content_type=JSON)


@cache
def _document_bytes() -> bytes:
    return Path(__file__).with_name("openapi.json").read_bytes()


class _AnonymousRequest(web.BaseRequest):
    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Say nothing of the versions that answer: aiohttp names its own and Python's."""
        response.headers.popall("Server", None)


class _Connections(web.Server):
    """The connections there are; `lost` hears of the end of each."""

    lost: Callable[[web.RequestHandler], None]

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self.lost(handler)
        super().connection_lost(handler, exc)


class HttpServer:
    """Serves the pages and the API on a bound socket between `start` and `stop`."""

    def __init__(
        self,
        probes: Probes,
        bound: socket.socket,
        *,
        api: Api,
        registry: Registrar | None = None,
        idle_s: float = IDLE_S,
        first_s: float = FIRST_S,
        body_s: float = BODY_S,
        body_bytes_max: int = BODY_BYTES_MAX,
        stop_s: float = STOP_S,
    ) -> None:
        self._idle_s = idle_s
        self._first_s = first_s
        self._body_s = body_s
        self._body_bytes_max = body_bytes_max
        self._stop_s = stop_s
        self._probes = probes
        self._registry = registry
        self._bound = bound
        self._api = api
        self._pages = {"/": self._root, "/health/live": self._live, "/health/ready": self._ready, "/metrics": self._metrics}
        self._runner: web.ServerRunner | None = None
        self._listening: asyncio.Server | None = None
        self._connections_peak = 0
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}  # that have asked nothing yet

    async def start(self) -> int:
        """Listen; return the port.

        Raises:
            BadConfig: the address cannot be listened on.
        """
        # Without an application, whose router has its own opinion of a header `Expect`; and what bodies hold is nobody's business.
        server = _Connections(
            self._answer,
            request_factory=partial(_AnonymousRequest, loop=asyncio.get_running_loop()),
            handler_cancellation=True,  # what nobody waits for any more is not continued
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self._idle_s,
            lingering_time=self._stop_s,
            max_line_size=LINE_BYTES_MAX,
            logger=log,
        )
        server.lost = self._lost
        self._runner = web.ServerRunner(server, shutdown_timeout=self._stop_s)
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
        open_ = [connection for connection in server.connections if not self._api.has(connection)]
        for oldest in open_[: max(len(open_) - CONNECTIONS_MAX + 1, 0)]:
            oldest.force_close()
        self._connections_peak = max(self._connections_peak, min(len(open_) + 1, CONNECTIONS_MAX))
        connection = server()
        self._silent[connection] = asyncio.get_running_loop().call_later(self._first_s, self._close_silent, connection)
        return connection

    def _close_silent(self, connection: web.RequestHandler) -> None:
        """Close a connection that has asked nothing yet: its head may go on coming for ever, a byte at a time."""
        self._silent.pop(connection, None)
        connection.force_close()

    def _lost(self, connection: web.RequestHandler) -> None:
        self._heard(connection)
        self._api.forget(connection)

    def _heard(self, connection: web.RequestHandler) -> None:
        if (timer := self._silent.pop(connection, None)) is not None:
            timer.cancel()

    def _server(self) -> web.Server:
        assert self._runner is not None
        assert self._runner.server is not None, "it is set up"
        return self._runner.server

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        used = sum(not self._api.has(connection) for connection in self._server().connections)
        return {"http_connections": (used, CONNECTIONS_MAX, self._connections_peak), **self._api.figures()}

    async def stop(self) -> None:
        """Stop listening; requests in flight are given up."""
        if self._listening is not None:
            self._listening.close()
        for timer in self._silent.values():
            timer.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._api.close()
        self._bound.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._heard(request.protocol)
        if path_of(request).startswith(PREFIX):
            return await self._api.answer(request)
        if self._registry is not None and is_registry_path(request.path):
            return await self._of_registry(self._registry, request)
        page = self._pages.get(request.path or "/")
        if page is None:
            return web.Response(status=404, text="404: Not Found")
        if request.method not in METHODS:
            return web.Response(status=405, text="405: Method Not Allowed", headers={"Allow": ",".join(METHODS)})
        return page()

    async def _of_registry(self, registry: Registrar, request: web.BaseRequest) -> web.Response:
        try:
            check_page(request, self._api.own_names)
        except ForeignPage as error:
            return _ended(web.json_response({"error_code": 403, "message": str(error)}, status=403))
        except UnsupportedBody:
            pass  # the registry says what it takes
        try:
            check_encoding(request)
        except UnsupportedBody as error:
            return _ended(web.json_response({"error_code": 415, "message": str(error)}, status=415))
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
        if (request.content_length or 0) > self._body_bytes_max:
            return None
        await invite(request)
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


# ------------------------------------------------------------ the Prometheus text format, version 0.0.4

Counter = tuple[str, str, str, float, str]  # name, help, kind, value, labels
Bounded = tuple[str, int, int, int | None]  # name, used, limit (0: none), peak (None: nobody keeps it)

_BOUNDED_HELP = {
    "eventlog_used": "What is used of a bounded thing.",
    "eventlog_limit": "The limit of a bounded thing, 0 for none.",
    "eventlog_peak": "The most of a bounded thing that was used since start.",
}


def render(counters: Iterable[Counter], bounded: Iterable[Bounded]) -> str:
    """Return the page; the samples of one name stand together, as the format asks for."""
    families: dict[str, list[str]] = {}
    for name, help_text, kind, value, labels in counters:
        _sample(families, (name, help_text, kind), labels=labels, value=value)
    things = list(bounded)
    for index, (name, help_text) in enumerate(_BOUNDED_HELP.items()):
        for thing, *figures in things:
            if (figure := figures[index]) is not None:
                _sample(families, (name, help_text, "gauge"), labels=f'thing="{thing}"', value=float(figure))
    return "\n".join(line for lines in families.values() for line in lines) + "\n"


def _sample(families: dict[str, list[str]], family: tuple[str, str, str], *, labels: str, value: float) -> None:
    name, help_text, kind = family
    lines = families.setdefault(name, [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"])
    lines.append(f"{name}{{{labels}}} {value:.17g}" if labels else f"{name} {value:.17g}")
