"""Caches, listed, described, made and dropped; and one entry of a cache, read, stored and removed by its key.

An entry's version is its entity tag. A value goes as it is stored: JSON as `application/json`, Avro as the JSON that stands for it, bytes
as `application/octet-stream`.
"""

import re
from dataclasses import asdict
from typing import Any, Final

import msgspec
from aiohttp import web

from eventlog.client.formats import LIFESPAN_MS_MAX, CacheFormat
from eventlog.client.values import CacheInfo, Entry, Removed, Stored, cache_info, cache_options
from eventlog.errors import InvalidArgument, NoEntry
from eventlog.http.calls import Call, Route, answer, given_key, json_body
from eventlog.http.local import LocalCache, LocalCore
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_TAG: Final = re.compile(r'"([1-9][0-9]{0,18})"')
_TAGS: Final = re.compile(r'"[^"]*"')
HEADER_PREFIX: Final = b"eventlog-header-"
LIFESPAN: Final = "Eventlog-Lifespan"
KEYS: Final = ("text", "base64")


class EntryRoutes:
    """The routes of one entry."""

    def __init__(self, core: LocalCore) -> None:
        self._core = core

    def routes(self) -> list[Route]:
        """Return what is served here."""
        named = frozenset({"key"})
        return [
            Route(
                path="/v1/caches/{cache}/entries/{key}",
                handlers={"GET": self.get, "PUT": self.put, "DELETE": self.remove},
                parameters={"GET": named | {"consistency"}, "PUT": named, "DELETE": named},
            )
        ]

    async def get(self, call: Call) -> web.Response:
        """Answer with the value, 304 where it is the one that the asker has."""
        cache, key = await self._asked(call)
        consistency = call.choice("consistency", ("primary", "linear", "any"), "primary")
        entry = await cache.get(key, consistency=consistency)
        if entry is None:
            raise _no_entry(key, cache)
        headers = _headers_of(entry)
        if _is_known(call.request.headers.getall("If-None-Match", []), headers["ETag"]):
            return web.Response(status=304, headers=headers)
        form = CacheFormat(await cache.info())
        body = entry.value_bytes if form.avro is None else form.avro.json(entry.value_bytes)
        return web.Response(body=body, headers=headers, content_type="application/octet-stream" if form.is_bytes else "application/json")

    async def put(self, call: Call) -> web.Response:
        """Store the body; answer with the id of the event and its kind."""
        cache, key = await self._asked(call)
        version, is_absent = _condition(call)
        form = CacheFormat(await cache.info())
        body = await call.body()
        given: dict[str, Any] = {"headers": _event_headers(call), "lifespan_ms": _lifespan_ms(call)}
        value = body if form.is_bytes else msgspec.Raw(body)
        if version is None:
            stored = await cache.put(key, value, if_absent=is_absent, **given)
        else:
            stored = await cache.replace(key, value, if_version=version or None, **given)
        return answer(201 if stored.kind == "CREATED" else 200, _told(stored), {"ETag": f'"{stored.id}"'})

    async def remove(self, call: Call) -> web.Response:
        """Remove the entry; answer as `put` does, 404 where there is none."""
        cache, key = await self._asked(call)
        version, is_absent = _condition(call)
        if is_absent:
            raise InvalidArgument(why="If-None-Match is for PUT: there would be nothing to remove")
        removed = await cache.remove(key, if_version=version or None, headers=_event_headers(call))
        if removed.id is None:
            raise _no_entry(key, cache)
        return answer(200, _told(removed))

    async def _asked(self, call: Call) -> tuple[LocalCache, str | bytes]:
        """Return the cache and the key that a path names."""
        cache = await self._core.cache(call.text("cache"))
        key = call.names["key"]
        info = await cache.info()
        if call.choice("key", KEYS, "text") != "text":
            return cache, given_key(key, info)
        if info.key_format == "bytes":
            return cache, key.encode() if isinstance(key, str) else key
        return cache, call.text("key")


def _is_known(given: list[str], tag: str) -> bool:
    """Whether tags that a client has are those of an entry: several may be given, and proxies that pack what they pass on weaken them."""
    found = _TAGS.findall(",".join(given))
    return tag in found or [one.strip() for one in given] == ["*"]


def _condition(call: Call) -> tuple[int | None, bool]:
    """Return the version that an entry must have (0: any, None: none is asked for), and whether there must be none.

    Raises:
        InvalidArgument: both, or a tag that no entry has.
    """
    match, none_match = call.request.headers.getall("If-Match", []), call.request.headers.getall("If-None-Match", [])
    if match and none_match:
        raise InvalidArgument(why="If-Match and If-None-Match exclude each other")
    if none_match:
        if none_match != ["*"]:
            raise InvalidArgument(why=f"If-None-Match of a change is {', '.join(none_match)!r}: use *, for an entry that must not be there")
        return None, True
    if not match:
        return None, False
    if match == ["*"]:
        return 0, False
    found = _TAG.fullmatch(match[0].strip()) if len(match) == 1 else None
    if found is None:
        raise InvalidArgument(why=f"If-Match is {', '.join(match)!r}: use the ETag of one entry, or * for any")
    return int(found[1]), False


def _lifespan_ms(call: Call) -> int | None:
    given = call.request.headers.getall(LIFESPAN, [])
    if not given:
        return None
    if len(given) > 1:
        raise InvalidArgument(why=f"{LIFESPAN} is given twice")
    (found,) = given
    if not (found.isascii() and found.isdigit() and len(found) < 20 and 1 <= int(found) <= LIFESPAN_MS_MAX):
        raise InvalidArgument(why=f"{LIFESPAN} is {found!r}: give whole milliseconds from 1 to {LIFESPAN_MS_MAX}")
    return int(found)


def _event_headers(call: Call) -> dict[str, bytes]:
    """Return the headers of the event, names in lower case: HTTP's have none, and proxies change it."""
    found: dict[str, bytes] = {}
    for name, value in call.request.raw_headers:
        if not (lower := name.lower()).startswith(HEADER_PREFIX):
            continue
        own = lower[len(HEADER_PREFIX) :].decode("latin-1")
        if not own or own in found:
            raise InvalidArgument(why=f"header {name.decode('latin-1')!r} is given twice, or names nothing")
        found[own] = value
    return found


def _headers_of(entry: Entry) -> dict[str, str]:
    """Return what is told of an entry. Browsers ask again each time, and never guess what a value is."""
    headers = {"ETag": f'"{entry.version}"', "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if entry.expires_ms is not None:
        headers["Eventlog-Expires"] = str(entry.expires_ms)
    return headers


def _told(written: Stored | Removed) -> dict[str, str | None]:
    return {"id": str(written.id), "kind": written.kind}


def _no_entry(key: str | bytes, cache: LocalCache) -> NoEntry:
    return NoEntry(key=key if isinstance(key, str) else key.decode(errors="backslashreplace"), cache=cache.name)


class NewCache(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a cache is made from: its name and the options that are not to be the node's own. A limit of 0 is none."""

    name: str
    format: str | None = None
    key_format: str | None = None
    schema: str | None = None
    validate: bool | None = None
    events: bool | None = None
    state: bool | None = None
    before: bool | None = None
    route_by_prefix: bool | None = None
    retain_time_ms: int | None = None
    retain_bytes: int | None = None
    retain_events: int | None = None
    lifespan_ms: int | None = None
    promote: list[str] | None = None


_decode = msgspec.json.Decoder(NewCache).decode


class CacheRoutes:
    """The routes of caches."""

    def __init__(self, core: LocalCore) -> None:
        self._core = core

    def routes(self) -> list[Route]:
        """Return what is served here."""
        return [
            Route(path="/v1/caches", handlers={"GET": self.get_all, "POST": self.create}, parameters={}),
            Route(path="/v1/caches/{cache}", handlers={"GET": self.get, "DELETE": self.drop}, parameters={}),
        ]

    async def get_all(self, _call: Call) -> web.Response:
        """Answer with all caches but the cluster's own, by name."""
        reply = await self._core.requests.ask(Message(list_caches=pb.ListCaches()))
        found = [_shown(cache_info(cache)) for cache in reply.message.list_caches_answer.caches]
        return answer(200, {"caches": sorted(found, key=lambda cache: str(cache["name"]))})

    async def get(self, call: Call) -> web.Response:
        """Answer with one cache."""
        reply = await self._core.requests.ask(Message(describe_cache=pb.DescribeCache(name=call.text("cache"))))
        return answer(200, _shown(cache_info(reply.message.cache_answer.cache)))

    async def create(self, call: Call) -> web.Response:
        """Make a cache. It is there at every node when this is answered."""
        new = msgspec.structs.asdict(await json_body(call, _decode, what="cache"))
        name = new.pop("name")
        request = pb.CreateCache(name=name, options=cache_options(new))
        reply = await self._core.requests.ask(Message(create_cache=request), repeatable=False)
        return answer(201, _shown(cache_info(reply.message.cache_answer.cache)))

    async def drop(self, call: Call) -> web.Response:
        """Remove a cache with all that is in it."""
        name = call.text("cache")
        await self._core.requests.ask(Message(drop_cache=pb.DropCache(name=name)), repeatable=False)
        return answer(200, {"name": name})


def _shown(info: CacheInfo) -> dict[str, Any]:
    """Return a cache as it is told: ids of events as text, `id` is the cache's own number."""
    return asdict(info) | {"from_id": str(info.from_id)}
