"""The HTTP server: `/health/live`, `/health/ready`, `/metrics`; `GET /` answers `{}`."""

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from eventlog.errors import BadConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What the pages ask the node. `ready` returns why it is not, or an empty text."""

    ready: Callable[[], str]
    metrics: Callable[[], str]


STOP_S = 0.5  # is what requests get to end in when the node stops

log = logging.getLogger("eventlog.http")
log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))  # it is answered with 400


class HttpServer:
    """Serves the pages on a bound socket between `start` and `stop`."""

    def __init__(self, probes: Probes, bound: socket.socket) -> None:
        self._probes = probes
        self._bound = bound
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; return the port.

        Raises:
            BadConfig: the address cannot be listened on.
        """
        app = web.Application()
        app.router.add_get("/", self._root)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=log, shutdown_timeout=STOP_S, lingering_time=STOP_S)
        await self._runner.setup()
        try:
            await web.SockSite(self._runner, self._bound).start()
        except OSError as error:
            await self._runner.cleanup()
            host, port = self._bound.getsockname()[:2]
            raise BadConfig(option="http", why=f"cannot listen on {host}:{port}: {error.strerror}") from error
        return int(self._bound.getsockname()[1])

    async def stop(self) -> None:
        """Stop listening; requests in flight are given up."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._bound.close()

    async def _root(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def _live(self, _: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, _: web.Request) -> web.Response:
        why = self._probes.ready()
        return web.json_response({"ready": not why, "why": why}, status=503 if why else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._probes.metrics().encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
