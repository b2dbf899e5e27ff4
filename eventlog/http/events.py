"""Events of a cache as a stream: lines of JSON, or server-sent events where a browser's `EventSource` asks for these.

What is not read stays with the node: a stream writes one batch when the socket has taken the last, so a reader that has stopped costs a
cursor, what is read ahead for it and a batch as it is told: about a MiB.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

import orjson
from aiohttp import web

from eventlog.batch.json_lines import JsonLines
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.json_columns import lines_of
from eventlog.errors import EventLogError, InvalidArgument
from eventlog.events import Event
from eventlog.http.calls import Call, Route, condition_of, id_of, is_number, told
from eventlog.http.local import LocalCore, LocalReads
from eventlog.http.shared import SharedAnswers, Text
from eventlog.limits import POLL_WAIT_MS_MAX
from eventlog.transport.link import limit_kernel_queue

SERVER_SENT: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
HEAD_S: Final = 0.25  # after which the head of what follows goes out though nothing has come yet
ENDING_HEAD_S: Final = 10.0  # the same of a read that ends: nobody waits for its head alone, and what is refused has a status that says so
SILENCE_S: Final = 15.0  # after which a comment keeps a stream of server-sent events open: proxies close what is silent for longer
EVENTS_MAX: Final = (1 << 31) - 1
BATCH_BYTES: Final = 256 << 10
_PIECE_BYTES: Final = 96 << 10  # aiohttp copies what it writes, into memory that is kept for the next only below 128 KiB
TIME_MS_MAX: Final = 1 << 53
PARAMETERS: Final = frozenset(
    {"after", "position", "from_time", "where", "parameters", "select", "listener", "continuous", "state_first", "follow", "max", "wait"}
)


class Events:
    """The route of a cache's events."""

    def __init__(self, core: LocalCore, *, head_s: float = HEAD_S) -> None:
        self._core = core
        self._head_s = head_s

    def routes(self) -> list[Route]:
        """Return what is served here."""
        return [Route(path="/v1/caches/{cache}/events", handlers={"GET": self.get}, parameters={"GET": PARAMETERS})]

    async def get(self, call: Call) -> web.StreamResponse:
        """Stream what follows a place, to the end of the log as it is now, or on and on.

        Raises:
            EventLogError: what is asked for cannot be; once the head is out the stream ends with the error instead.
        """
        is_server_sent = SERVER_SENT in call.request.headers.get("Accept", "").lower()
        wanted = _wanted(call, follows=is_server_sent)
        left = call.number("max", 0, low=1, high=EVENTS_MAX) or EVENTS_MAX
        wait_ms = call.number("wait", 0, low=0, high=POLL_WAIT_MS_MAX)
        if wait_ms and wanted["follow"]:
            raise InvalidArgument(why="wait is for a request that ends: leave it out, or give follow=false")
        place = _id if _is_ordered(wanted) else _position
        form: Form = _ServerSent(place) if is_server_sent else _Lines(place)
        stream = EventStream(call.request, form, self._core.shared, head_s=self._head_s if wanted["follow"] else ENDING_HEAD_S)
        async with self._core.reads(call.text("cache")) as cache:
            if call.request.method == "HEAD":
                return web.Response(headers=stream.headers)
            batches = _once(cache, wanted, max_events=left, wait_ms=wait_ms) if wait_ms else _batches(cache, wanted)
            try:
                await stream.send(batches, left)
            except EventLogError as error:
                if not (is_server_sent or stream.has_begun):
                    raise
                await stream.end(error)
        return stream.response


def _wanted(call: Call, *, follows: bool) -> dict[str, Any]:
    """Return the options of a read. Where to begin: behind the last event that a browser says it got, else as the parameters say."""
    given = call.parameters
    wanted = condition_of(given)
    if "listener" in given:
        wanted["listener"] = given["listener"]
    for name in ("continuous", "state_first"):
        wanted[name] = call.flag(name, default=False)
    wanted["follow"] = call.flag("follow", default=follows)
    if "from_time" in given:
        wanted["from_time"] = call.number("from_time", 0, low=0, high=TIME_MS_MAX)
    starts = [given[name] for name in ("after", "position") if name in given]
    if len(starts) + ("from_time" in given) > 1:
        raise InvalidArgument(why="after, position and from_time exclude each other")
    if last := call.request.headers.get("Last-Event-ID"):
        wanted.pop("from_time", None)
        wanted["state_first"] = False
        starts = [last]
    for start in starts:
        wanted["from_id"] = id_of(start) if is_number(start) else start
    return wanted


Some = EventBatch | list[Any]


async def _batches(cache: LocalReads, wanted: dict[str, Any]) -> AsyncGenerator[Some, None]:
    async with aclosing(cache.event_batches(max_bytes=BATCH_BYTES, **wanted)) as batches:
        async for batch in batches:
            yield batch


async def _once(cache: LocalReads, wanted: dict[str, Any], *, max_events: int, wait_ms: int) -> AsyncGenerator[Some, None]:
    options = {name: value for name, value in wanted.items() if name not in {"follow", "from_id", "from_time"}}
    if "from_time" in wanted:
        raise InvalidArgument(why="wait and from_time exclude each other: read from the time on, then wait after the last id")
    answer = await cache.poll(wanted.get("from_id"), max_events=max_events, max_bytes=BATCH_BYTES, wait_ms=wait_ms, **options)
    yield list(answer.events)


def _events_of(found: Some) -> list[Any]:
    return list(found.events()) if isinstance(found, EventBatch) else found


async def _next(batches: AsyncGenerator[Some, None]) -> Some | None:
    return await anext(batches, None)


def _is_ordered(wanted: dict[str, Any]) -> bool:
    """Whether an id says where to go on: not where entries come, or the rest of them that a token stands for."""
    start = wanted.get("from_id", 0)
    is_plain = isinstance(start, int) or start in {"earliest", "latest"}
    return is_plain and not (wanted["state_first"] or "listener" in wanted)


def _id(event: Event) -> str:
    """Return where an ordered read goes on: everything up to an event's id has come before it."""
    return str(event.id)


def _position(event: Event) -> str:
    """Return where a read goes on that has entries in it, or began at a token."""
    return event.position


class Form(Protocol):
    """How a stream says what it says."""

    content_type: str
    comment: bytes
    is_alike: bool  # for all that read the same events: an event's place is its id

    def events(self, found: Any) -> Text: ...

    def error(self, error: EventLogError) -> bytes: ...


class _Lines:
    """A JSON object a line."""

    content_type = LINES
    comment = b""

    def __init__(self, place: Callable[[Event], str]) -> None:
        self.is_alike = place is _id
        self._lines = JsonLines(place)

    def events(self, found: Some) -> Text:
        lines = lines_of(found, by_id=True) if self.is_alike and isinstance(found, EventBatch) else None
        return self._lines.lines(_events_of(found)) if lines is None else lines

    def error(self, error: EventLogError) -> bytes:
        return orjson.dumps(told(error)) + b"\n"


class _ServerSent:
    """Server-sent events (HTML standard, section 9.2): `id` is where to go on behind an event."""

    content_type = SERVER_SENT
    comment = b":\n\n"

    def __init__(self, place: Callable[[Event], str]) -> None:
        self.is_alike = place is _id
        self._place = place
        self._lines = JsonLines(place)

    def events(self, found: Some) -> Text:
        if self.is_alike and isinstance(found, EventBatch) and (told := lines_of(found, by_id=True, server_sent=True)) is not None:
            return told
        place, lines = self._place, self._lines.lines
        return b"".join([b"id: %b\ndata: %b\n" % (place(event).encode(), lines((event,))) for event in _events_of(found)])

    def error(self, error: EventLogError) -> bytes:
        return b"event: error\ndata: %b\n\n" % orjson.dumps(told(error))


class EventStream:
    """The answer while it is written."""

    def __init__(self, request: web.BaseRequest, form: Form, shared: SharedAnswers, *, head_s: float = ENDING_HEAD_S) -> None:
        """`head_s`: after so long the head goes out though nothing has come."""
        self.headers = {"Content-Type": form.content_type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        self.response = web.StreamResponse(headers=self.headers)
        self._request = request
        self._form = form
        self._shared = shared
        self._head_s = head_s

    @property
    def has_begun(self) -> bool:
        """Whether the head is out."""
        return self.response.prepared

    async def send(self, batches: AsyncGenerator[Some, None], left: int) -> None:
        """Write at most `left` events. Raises what the batches do."""
        async with aclosing(batches):
            upcoming: asyncio.Task[Some | None] | None = None
            try:
                while left > 0:
                    upcoming = upcoming or asyncio.get_running_loop().create_task(_next(batches))
                    done, _ = await asyncio.wait([upcoming], timeout=SILENCE_S if self.has_begun else self._head_s)
                    if not done:
                        await self._write(self._form.comment)
                        continue
                    found, upcoming = upcoming.result(), None
                    if found is None:
                        break
                    told, count = self._told(found, left), len(found)
                    found = None  # it is as large again, and the socket may take long
                    await self._write(told)
                    left -= count
            finally:
                if upcoming is not None:
                    upcoming.cancel()
                    await asyncio.wait([upcoming])
        await self._write(b"")
        await self.response.write_eof()

    def _told(self, found: Some, left: int) -> Text:
        """Return what is written of what was read; of a batch that others get as well it is made once."""
        form = self._form
        if isinstance(found, EventBatch) and len(found) <= left and form.is_alike:
            return self._shared.text(found, form.content_type, lambda: form.events(found))
        return form.events(_events_of(found)[:left])

    async def end(self, error: EventLogError) -> None:
        """Write why there is no more."""
        await self._write(self._form.error(error))
        await self.response.write_eof()

    async def _write(self, data: Text) -> None:
        """Have the socket take bytes, and wait until it takes more."""
        if not self.has_begun:
            limit_kernel_queue(self._request.transport, BATCH_BYTES)
            await self.response.prepare(self._request)
        for at in range(0, len(data), _PIECE_BYTES):
            await self.response.write(data[at : at + _PIECE_BYTES])
