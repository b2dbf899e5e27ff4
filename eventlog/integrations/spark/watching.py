"""How far a streaming query is: what Spark knows of it, and what the cluster says about the place where it stands.

A source reports the end of the log with every micro-batch, and beside it where the cluster is (`offsets.Reported`). So whoever has a
query can ask the cluster, while Spark's own figures are as old as its last micro-batch.
"""

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import isfinite
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from eventlog import blocking
from eventlog.client.reports import Stalled
from eventlog.errors import CacheRecreated, EventLogError, EventsTrimmed, PositionMismatch, Unavailable
from eventlog.ids import time_of
from eventlog.integrations.spark.offsets import Reported, Scope, id_of, reported_of
from eventlog.integrations.spark.options import SourceOptions
from eventlog.integrations.spark.session import client_of

log = logging.getLogger("eventlog.spark")
_TIMEOUT_MS: Final = 2_000  # figures are for now: a cluster that does not answer is to be seen, and not to be waited for
_REQUEST_S: Final = 5.0
_FAMILIES: Final = {
    "lag_events": "Events in the log behind the position of the query.",
    "lag_ms": "Age of the first event behind the position of the query.",
    "events_per_second": "Rows a second of the last micro-batch.",
    "losses": "About how many events retention has taken before the query read them.",
    "stalled": "Segments that hold the query up.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """How far a query is in one cache: it has done everything up to the id `position`.

    `lag_events` are in the log behind it, a condition left aside, and `lag_ms` is the age of the first; None where a primary that could
    count does not answer. `events_per_second` is of the last micro-batch, 0 where the query is idle. `losses` is about how many events
    retention took before the query read them: since it was started, and behind its position now. `stalled` are segments for whose
    primary all readers wait since more than two seconds.
    """

    query: str
    cache: str
    position: int
    lag_events: int | None
    lag_ms: int | None
    events_per_second: float
    losses: int
    stalled: tuple[Stalled, ...]

    def __str__(self) -> str:
        figures = " ".join(f"{name}={getattr(self, name)}" for name in ("lag_events", "lag_ms", "events_per_second", "losses"))
        held = ",".join(str(one.segment) for one in self.stalled)
        return f"query={self.query} cache={self.cache} position={self.position} {figures} stalled={held or '-'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportedSource:
    """What Spark has told last of one source of a query."""

    query: str
    position: int
    events_per_second: float
    reported: Reported


def progress(query: Any) -> list[QueryProgress]:
    """Return how far a streaming query is in each cache that it reads; nothing before its first micro-batch is done.

    The cluster is asked, for two seconds at most where nodes do not answer.

    Raises:
        PositionMismatch, CacheRecreated: what the query reads from is another cluster or cache by now.
        EventLogError: no node can be reached.
    """
    return [_ask(source) for source in _sources(query.lastProgress)]


def _sources(told: Any) -> list[_ReportedSource]:
    """Return the sources of ours in a `StreamingQueryProgress`."""
    found: list[_ReportedSource] = []
    for source in () if told is None else told.sources:
        end, latest = _object(source.endOffset), _object(source.latestOffset)
        reported = None if latest is None else reported_of(latest)
        if end is None or reported is None:
            continue
        rate = source.processedRowsPerSecond or 0.0
        found.append(
            _ReportedSource(
                query=told.name or str(told.id),
                position=id_of(end, reported.scope),
                events_per_second=round(rate, 1) if isfinite(rate) else 0.0,
                reported=reported,
            )
        )
    return found


def _object(text: str | None) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _ask(source: _ReportedSource) -> QueryProgress:
    reported = source.reported
    options = SourceOptions(servers=reported.servers, cache=reported.scope.cache, client={"timeout_ms": _TIMEOUT_MS})
    client = client_of(options)
    cache = client.cache(reported.scope.cache)
    _check_scope(client, reported.scope)
    segments, position, lost = reported.segments or None, source.position, 0
    stalled: tuple[Stalled, ...] = ()
    try:
        stalled = tuple(cache.poll(position, max_events=0, segments=segments).stalled)
    except EventsTrimmed as error:
        lost = error.lost
    lag_events, lag_ms = _lag(cache, position, segments)
    return QueryProgress(
        query=source.query,
        cache=reported.scope.cache,
        position=position,
        lag_events=lag_events,
        lag_ms=lag_ms,
        events_per_second=source.events_per_second,
        losses=reported.losses + lost,
        stalled=stalled,
    )


def _check_scope(client: blocking.Client, scope: Scope) -> None:
    if client.cluster != scope.cluster:
        raise PositionMismatch(what="cluster")
    if client.cache(scope.cache).info().id != scope.cache_id:
        raise CacheRecreated(cache=scope.cache)


def _lag(cache: blocking.Cache, position: int, segments: tuple[int, ...] | None) -> tuple[int | None, int | None]:
    """Return how many events are behind a position, and how old the first is by the cluster's clock; None where nobody can say now."""
    try:
        end = cache.log_ends().last_id  # the low watermark: its time is that of now
        plan = cache.plan(position, upto=end, segments=segments)
        if not plan.events:
            return 0, 0
        first = cache.plan(position, upto=plan.upto, max_events=1, segments=segments).upto
    except Unavailable:
        return None, None
    return plan.events, max(time_of(end) - time_of(first), 0)


class ProgressListener(StreamingQueryListener):
    """Logs a line of figures with every micro-batch of each query that reads a cache, and while it is idle every ten seconds.

    With `port` (0: any) it serves the same figures for Prometheus on 127.0.0.1, as long as it is open: `with ProgressListener(port=9404)`.
    Those are as of each request. Figures that the cluster does not give are left out, and what it says instead is logged.
    """

    def __init__(self, *, port: int | None = None) -> None:
        self._asked_port = port
        self._known: dict[str, list[_ReportedSource]] = {}
        self._server: HTTPServer | None = None
        self._serving: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Begin to serve, if there is a port. Raises OSError: it is taken."""
        if self._asked_port is not None and self._server is None:
            self._server = HTTPServer(("127.0.0.1", self._asked_port), _handler_of(self))
            self._serving = threading.Thread(target=self._server.serve_forever, name="progress", daemon=True)
            self._serving.start()

    def close(self) -> None:
        """Serve no longer."""
        if self._server is not None and self._serving is not None:
            self._server.shutdown()
            self._serving.join()
            self._server.server_close()
            self._server = None

    @property
    def port(self) -> int:
        """Where it serves, 0 while it does not."""
        return 0 if self._server is None else self._server.server_port

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 -- Spark's names
        """Take note of nothing: there is no position yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Log how far a query is."""
        self._known[str(event.progress.runId)] = sources = _sources(event.progress)
        self._log(sources)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Log how far a query is that has nothing to do."""
        self._log([_idle(one) for one in self._known.get(str(event.runId), ())])

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget a query."""
        self._known.pop(str(event.runId), None)

    def _log(self, sources: Iterable[_ReportedSource]) -> None:
        for found in _asked(sources):
            log.log(logging.WARNING if found.stalled or found.losses else logging.INFO, "spark_progress %s", found)

    def metrics(self) -> str:
        """Return figures of all queries that run, in the text form of Prometheus."""
        found = list(_asked(source for sources in list(self._known.values()) for source in sources))
        lines: list[str] = []
        for name, help_text in _FAMILIES.items():
            family = f"eventlog_spark_{name}"
            lines += [f"# HELP {family} {help_text}", f"# TYPE {family} gauge"]
            for one in found:
                value = len(one.stalled) if name == "stalled" else getattr(one, name)
                if value is not None:
                    lines.append(f'{family}{{query="{_escaped(one.query)}",cache="{_escaped(one.cache)}"}} {value}')
        return "\n".join([*lines, ""])


def _idle(source: _ReportedSource) -> _ReportedSource:
    return _ReportedSource(query=source.query, position=source.position, events_per_second=0.0, reported=source.reported)


def _asked(sources: Iterable[_ReportedSource]) -> Iterator[QueryProgress]:
    for source in sources:
        try:
            yield _ask(source)
        except EventLogError as error:
            log.warning("spark_progress_unknown query=%s cache=%s why=%s", source.query, source.reported.scope.cache, error)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _handler_of(listener: ProgressListener) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S  # there is one request at a time: who sends nothing must not keep the others out

        def do_GET(self) -> None:
            is_known = self.path.partition("?")[0] == "/metrics"
            body = listener.metrics().encode() if is_known else b"there is /metrics\n"
            with suppress(OSError):  # the other side has gone
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8" if is_known else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    return Handler
