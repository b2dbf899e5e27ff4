"""The entries of a cache as lines of JSON, segment by segment, keys rising in each: as they are, or as they were at an id.

What is not read stays with the node, as with events. Where a listing broke off its last key says where to go on, at any node and at any
time: the order is that of segments and keys, which never changes.
"""

from base64 import urlsafe_b64encode
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import islice
from typing import Any, Final

import orjson
from aiohttp import web

from eventlog.batch.json_lines import json_of, readable
from eventlog.client.formats import CacheFormat
from eventlog.client.reading.iterating import EntryBatch
from eventlog.client.values import CacheInfo
from eventlog.errors import EventLogError, InvalidArgument
from eventlog.events import ValueFormat
from eventlog.http.calls import Call, condition_of, given_key, told
from eventlog.http.events import BATCH_BYTES, EVENTS_MAX, LINES, EventStream
from eventlog.http.local import LocalCore, LocalReads
from eventlog.ids import ID_MAX
from eventlog.routing.routes import Routes

PARAMETERS: Final = frozenset({"prefix", "after", "key", "where", "parameters", "select", "at", "max"})


class EntryListing:
    """The listing of a cache's entries."""

    def __init__(self, core: LocalCore) -> None:
        self._core = core

    async def get(self, call: Call) -> web.StreamResponse:
        """Stream the entries.

        Raises:
            EventLogError: what is asked for cannot be; once the head is out the stream ends with the error instead.
        """
        is_base64 = call.choice("key", ("text", "base64"), "text") == "base64"
        left = call.number("max", 0, low=1, high=EVENTS_MAX) or EVENTS_MAX
        wanted = _wanted(call)
        stream = EventStream(call.request, _EntryLines(), self._core.shared)
        async with self._core.reads(call.text("cache")) as cache:
            info = await cache.info()
            if info.key_format == "bytes" and not is_base64:
                raise InvalidArgument(why="keys of this cache are bytes: read them in base64url, with ?key=base64")
            if is_base64 and "prefix" in wanted:
                wanted["prefix"] = given_key(wanted["prefix"], info)
            behind = None
            if (after := call.parameters.get("after")) is not None:
                behind = _behind(given_key(after, info) if is_base64 else after, info, cache.core.routes)
                wanted["segments"] = range(behind[0], cache.core.routes.segments)
            if call.request.method == "HEAD":
                return web.Response(headers=stream.headers)
            try:
                await stream.send(_lines(cache, wanted, _liner(info, is_selected="select" in wanted, is_base64=is_base64), behind), left)
            except EventLogError as error:
                if not stream.has_begun:
                    raise
                await stream.end(error)
        return stream.response


class _EntryLines:
    content_type = LINES
    comment = b""
    is_alike = False

    def events(self, found: list[bytes]) -> bytes:
        return b"".join(found)

    def error(self, error: EventLogError) -> bytes:
        return orjson.dumps(told(error)) + b"\n"


def _wanted(call: Call) -> dict[str, Any]:
    given = call.parameters
    wanted = condition_of(given)
    if "prefix" in given:
        wanted["prefix"] = given["prefix"]
    if "at" in given:
        wanted["at"] = call.number("at", 0, low=1, high=ID_MAX)
    return wanted


Place = tuple[int, bytes]  # a segment, and a key of it


def _behind(key: str | bytes, info: CacheInfo, routes: Routes) -> Place:
    stored = CacheFormat(info).key(key)
    return routes.segment(stored, by_prefix=info.route_by_prefix), stored


async def _lines(
    cache: LocalReads, wanted: dict[str, Any], line: Callable[[bytes, bytes, int, int], bytes], behind: Place | None
) -> AsyncGenerator[list[Any], None]:
    async with aclosing(cache.entries(metadata=True, batch_bytes=BATCH_BYTES, **wanted).batches()) as batches:
        async for batch in batches:
            if found := _of_batch(batch, line, behind):
                yield found


def _of_batch(batch: EntryBatch, line: Callable[[bytes, bytes, int, int], bytes], behind: Place | None) -> list[Any]:
    keys = batch.keys.to_list()
    low = 0 if behind is None else bisect_right(list(zip(batch.segments.tolist(), keys, strict=True)), behind)
    columns = (keys, batch.values.to_list(), batch.versions.tolist(), batch.expiry.tolist())
    return [line(*row) for row in islice(zip(*columns, strict=True), low, None)]


def _liner(info: CacheInfo, *, is_selected: bool, is_base64: bool) -> Callable[[bytes, bytes, int, int], bytes]:
    """Return what makes a line of an entry."""
    json_values = is_selected or info.format == "json"
    values: ValueFormat | None = None if is_selected else CacheFormat(info).avro

    def line(key: bytes, value: bytes, version: int, expiry: int) -> bytes:
        name = orjson.dumps(urlsafe_b64encode(key).rstrip(b"=").decode() if is_base64 else readable(key))
        shown = json_of(value, json_values=json_values, values=values)
        end = b',"expires_ms":%d}\n' % expiry if expiry else b"}\n"
        return b'{"key":%b,"value":%b,"version":"%d"%b' % (name, shown, version, end)

    return line
