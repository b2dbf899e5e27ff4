"""Many entries written by one request: lines of JSON in, a line of answer for each out, some megabytes at a time.

A line is `{"key": ..., "value": ...}` or `{"key": ..., "remove": true}`, whole and alone; empty lines are passed over. Lines are
written in their order, as many at once as there are by then, so memory holds a part of the body and never the whole. What is answered
is written; where the body breaks off, or a line means nothing, what came before it is written and told, and the last line of the
answer says what is wrong.
"""

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import orjson
from aiohttp import web

from eventlog.client.formats import LIFESPAN_MS_MAX, CacheFormat
from eventlog.errors import BadValue, BodyTooSlow, EventLogError, InvalidArgument, TooLarge, UnsupportedBody, tellable
from eventlog.events import KIND_NAMES
from eventlog.http.calls import Call, Route, base64_key, check_encoding, invite, refusal, told
from eventlog.http.listing import PARAMETERS, EntryListing
from eventlog.http.local import LocalCache, LocalCore, WrittenMany
from eventlog.limits import MIB

LINES: Final = "application/x-ndjson"
CHUNK_BYTES: Final = 1 * MIB
CHUNK_LINES: Final = 10_000
SILENCE_MS_MAX: Final = 30_000  # between two pieces of a body
PAUSE_S: Final = 1.0  # after which the lines that have come are written, though fewer than CHUNK_BYTES: what breaks off later leaves them
_KINDS: Final = tuple(name.encode() for name in KIND_NAMES)


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line."""

    key: str
    value: msgspec.Raw = msgspec.Raw(b"")
    remove: bool = False
    lifespan_ms: int | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(Line).decode
_decode_lines = msgspec.json.Decoder(Line).decode_lines


class Bulk:
    """The route of many entries."""

    def __init__(self, core: LocalCore) -> None:
        self._core = core

    def routes(self) -> list[Route]:
        """Return what is served here."""
        handlers = {"GET": EntryListing(self._core).get, "POST": self.post}
        return [Route(path="/v1/caches/{cache}/entries", handlers=handlers, parameters={"GET": PARAMETERS, "POST": frozenset({"key"})})]

    async def post(self, call: Call) -> web.StreamResponse:
        """Write the lines of the body.

        Raises:
            EventLogError: what is wrong before anything is written; afterwards the answer ends with it.
        """
        if call.request.content_type != LINES:
            raise UnsupportedBody(found=f"content type {call.request.content_type!r}", instead=f"send lines of JSON as {LINES}")
        check_encoding(call.request)
        writing = _Writing(await self._core.cache(call.text("cache")), is_base64=call.choice("key", ("text", "base64"), "text") == "base64")
        await writing.open()
        await invite(call.request)
        response = web.StreamResponse(headers={"Content-Type": LINES, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
        try:
            async for data in _chunks(call):
                async for text in writing.written(data):
                    await _send(call, response, text)
        except EventLogError as error:
            if not response.prepared:
                refused = refusal(error, line=writing.line)
                if not call.request.content.is_eof():
                    refused.force_close()
                return refused
            await _send(call, response, orjson.dumps({**told(error), "line": writing.line}) + b"\n")
            response.force_close()  # the rest of the body is not read
        await _send(call, response, b"")
        await response.write_eof()
        return response


async def _send(call: Call, response: web.StreamResponse, data: bytes) -> None:
    if not response.prepared:
        await response.prepare(call.request)
    if data:
        await response.write(data)


async def _chunks(call: Call) -> AsyncGenerator[bytes, None]:
    """Yield the body in whole lines, some at a time.

    Raises:
        BodyTooSlow: the next piece did not come in time.
        TooLarge: a line is longer than a value may be.
        Overloaded: other bodies fill the memory that there is for them.
    """
    bounds, pieces, held = call.bounds, call.request.content, bytearray()
    line_bytes_max = 2 * bounds.bytes_max + CHUNK_BYTES
    while True:
        end, is_pause = held.rfind(b"\n") + 1, False
        try:
            async with asyncio.timeout(PAUSE_S if end else SILENCE_MS_MAX / 1000):
                piece = await pieces.readany()
        except TimeoutError:
            if not end:
                raise BodyTooSlow(timeout_ms=SILENCE_MS_MAX) from None
            piece, is_pause = b"", True
        if not (piece or is_pause) and pieces.at_eof():
            break
        bounds.take(len(piece))
        call.held += len(piece)
        held += piece
        if (is_pause or len(held) >= CHUNK_BYTES) and (end := held.rfind(b"\n") + 1):
            yield bytes(held[:end])
            del held[:end]
            call.release()
            bounds.take(len(held))
            call.held = len(held)
        if len(held) > line_bytes_max:
            raise TooLarge(what="a line", size=len(held), limit=line_bytes_max)
    if held:
        yield bytes(held)


class _Writing:
    """Writes chunks of lines, one after the other. `line` is the one behind those that were answered, empty ones counted, from 1."""

    def __init__(self, cache: LocalCache, *, is_base64: bool) -> None:
        self._cache = cache
        self._is_base64 = is_base64
        self.line = 1

    async def open(self) -> None:
        """Learn what the cache is. Raises InvalidArgument: its keys are bytes, and it is not said how they are written."""
        info = await self._cache.info()
        self._form = CacheFormat(info)
        if info.key_format == "bytes" and not self._is_base64:
            raise InvalidArgument(why="keys of this cache are bytes: write them in base64url, with ?key=base64")

    async def written(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers to the lines of a chunk, some at a time. Raises what is wrong with a line, after those before it."""
        before, parsed = self.line - 1, _parsed(data)
        for low in range(0, len(parsed.lines), CHUNK_LINES):
            part = parsed.lines[low : low + CHUNK_LINES]
            self.line = before + parsed.numbers[low]
            keys, values, bad = self._stored(part)
            if keys:
                given = part[: len(keys)]
                found = await self._cache.write_many(
                    keys, values, removed=[line.remove for line in given], lifespans=[line.lifespan_ms or 0 for line in given]
                )
                yield _answers(found)
            if bad is not None:
                self.line = before + parsed.numbers[low + len(keys)]
                raise bad
        self.line = before + parsed.numbers[-1]
        if parsed.wrong is not None:
            raise parsed.wrong

    def _stored(self, lines: Sequence[Line]) -> tuple[list[bytes], list[bytes], EventLogError | None]:
        """Return keys and values up to the first line that cannot be stored, and why that cannot."""
        keys: list[bytes] = []
        values: list[bytes] = []
        try:
            for line in lines:
                key, value = self._key(line), self._value(line)
                keys.append(key)
                values.append(value)
        except EventLogError as error:
            return keys, values, error
        return keys, values, None

    def _key(self, line: Line) -> bytes:
        return base64_key(line.key) if self._is_base64 else self._form.key(line.key)

    def _value(self, line: Line) -> bytes:
        if not (line.lifespan_ms is msgspec.UNSET or 1 <= line.lifespan_ms <= LIFESPAN_MS_MAX):
            raise BadValue(key=line.key, why=f"lifespan_ms is {line.lifespan_ms}: give whole milliseconds from 1 to {LIFESPAN_MS_MAX}")
        raw = bytes(line.value)
        if line.remove is bool(raw):
            raise BadValue(key=line.key, why="a line has a value, or removes")
        if line.remove:
            if line.lifespan_ms is not msgspec.UNSET:
                raise BadValue(key=line.key, why="a line that removes has no lifespan_ms: it leaves nothing that could expire")
            return b""
        if not self._form.is_bytes:
            return self._form.value(line.key, msgspec.Raw(raw))
        try:
            return b64decode(msgspec.json.decode(raw, type=str), validate=True)
        except (msgspec.MsgspecError, Base64Error, ValueError) as error:
            raise BadValue(key=line.key, why=f"a value of a bytes cache is base64 in a text: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """The lines of a chunk up to the first that means nothing, and what is wrong with that. `numbers` are theirs and the next."""

    lines: list[Line]
    numbers: Sequence[int]
    wrong: EventLogError | None = None


def _parsed(data: bytes) -> _Parsed:
    try:
        found = _decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parsed_singly(data)
    ends = data.count(b"\n") + (not data.endswith(b"\n"))
    # The decoder takes objects with any space between. Where each newline but the last stands between two of them, a line is one.
    if data.count(b"}\n{") == ends - 1 == len(found) - 1:
        return _Parsed(lines=found, numbers=range(1, ends + 2))
    return _parsed_singly(data)


def _parsed_singly(data: bytes) -> _Parsed:
    found: list[Line] = []
    numbers: list[int] = []
    number = 0
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        if not line.strip():
            continue
        numbers.append(number)
        try:
            found.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _Parsed(lines=found, numbers=numbers, wrong=InvalidArgument(why=f"the line is not one of key and value: {error}"))
    return _Parsed(lines=found, numbers=[*numbers, number + 1])


def _answers(found: WrittenMany) -> bytes:
    """Return a line for each item; what was refused, or is not known, has an error."""
    parts: list[bytes] = []
    for id_, kind, error in zip(found.ids.tolist(), found.kinds.tolist(), found.errors, strict=True):
        if error is not None:
            parts.append(orjson.dumps(told(tellable(error)), option=orjson.OPT_APPEND_NEWLINE))
        elif id_:
            parts.append(b'{"id":"%d","kind":"%b"}\n' % (id_, _KINDS[kind]))
        else:
            parts.append(b'{"id":null,"kind":null}\n')  # a removal that found nothing
    return b"".join(parts)
