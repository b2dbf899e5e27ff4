"""Listeners of a cache: registered, listed with how far they lag, given another filter, moved on and removed.

What one wants is read as events (`events?listener=`). Ids are text, as everywhere here. A change is answered with the listener as it is
described afterwards: answers to the changes themselves count no lag.
"""

from dataclasses import asdict
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from eventlog.client.listeners import ListenerAdmin, ListenerInfo
from eventlog.errors import InvalidArgument, ListenerNotFound
from eventlog.http.calls import Call, Route, answer, id_of, is_number, json_body
from eventlog.http.local import LocalCore

_IDS: Final = ("last_id", "first_id", "from_id", "position_id")


class ListenerWanted(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a listener wants, and what it may hold back."""

    where: str | None = None
    parameters: list[Any] | dict[str, Any] | None = None
    select: str | list[str] | None = None
    filter: str | None = None
    params: dict[str, Any] | None = None
    continuous: bool = False
    hold: int | None = None
    hold_ms: int | None = None
    expire_ms: int | None = None
    from_id: int | str | None = None


class NewListener(ListenerWanted, forbid_unknown_fields=True, omit_defaults=True):
    """A listener to be: beside that its name, and whether it stays when nobody polls."""

    id: str | None = None
    durable: bool = False


class Reached(msgspec.Struct, forbid_unknown_fields=True):
    """How far a reader has come: an event's `position`, which is an id or a token."""

    position: int | str


_decode_new = msgspec.json.Decoder(NewListener).decode
_decode_wanted = msgspec.json.Decoder(ListenerWanted).decode
_decode_reached = msgspec.json.Decoder(Reached).decode


class ListenerRoutes:
    """The routes of listeners."""

    def __init__(self, core: LocalCore) -> None:
        self._core = core
        self._admin = ListenerAdmin(core.requests)

    def routes(self) -> list[Route]:
        """Return what is served here."""
        path = "/v1/caches/{cache}/listeners"
        return [
            Route(path=path, handlers={"GET": self.get_all, "POST": self.register}, parameters={}),
            Route(path=f"{path}/{{listener}}", handlers={"GET": self.get, "PATCH": self.alter, "DELETE": self.remove}, parameters={}),
            Route(path=f"{path}/{{listener}}/position", handlers={"PUT": self.acknowledge}, parameters={}),
        ]

    async def get_all(self, call: Call) -> web.Response:
        """Answer with the listeners of a cache, by name."""
        cache = await self._core.cache(call.text("cache"))
        found = await self._admin.list(cache_id=(await cache.info()).id)
        return answer(200, {"listeners": [_shown(one) for one in sorted(found, key=lambda one: one.id)]})

    async def get(self, call: Call) -> web.Response:
        """Answer with one listener."""
        return answer(200, _shown(await self._named(call)))

    async def register(self, call: Call) -> web.Response:
        """Register a listener; by the same name with the same words once."""
        cache = await self._core.cache(call.text("cache"))
        new = msgspec.structs.asdict(await json_body(call, _decode_new, what="listener"))
        new["from_id"] = _start(new["from_id"])
        made = await cache.register(**new)
        return answer(201, _shown(await self._admin.describe(made.id)))

    async def alter(self, call: Call) -> web.Response:
        """Give a listener another filter, or another bound on what it may hold back."""
        found = await self._named(call)
        given = msgspec.structs.asdict(await json_body(call, _decode_wanted, what="change of a listener"))
        start = _start(given["from_id"])
        if start == "earliest":
            raise InvalidArgument(why="from_id is earliest: another filter begins behind an id, or from now on")
        await self._admin.alter(found.id, **given | {"from_id": start or 0})
        return answer(200, _shown(await self._admin.describe(found.id)))

    async def acknowledge(self, call: Call) -> web.Response:
        """Note how far a durable listener has come; it never goes back. Written down when this is answered."""
        found = await self._named(call)
        upto = (await json_body(call, _decode_reached, what="position")).position
        await self._admin.acknowledge(found.id, id_of(upto) if is_number(upto) else upto)
        return answer(200, _shown(await self._admin.describe(found.id)))

    async def remove(self, call: Call) -> web.Response:
        """Remove a listener."""
        found = await self._named(call)
        await self._admin.remove(found.id)
        return answer(200, {"id": found.id})

    async def _named(self, call: Call) -> ListenerInfo:
        """Return the listener that a path names. Raises ListenerNotFound: there is none, or it is one of another cache."""
        cache = await self._core.cache(call.text("cache"))
        found = await self._admin.describe(name := call.text("listener"))
        if found.cache != cache.name:
            raise ListenerNotFound(listener=name)
        return found


def _start(given: int | str | None) -> int | Literal["earliest"] | None:
    if given is None or given == "earliest":
        return None if given is None else "earliest"
    if not is_number(given):
        raise InvalidArgument(why=f"from_id is {given!r:.60}: give an id or earliest")
    return id_of(given)


def _shown(info: ListenerInfo) -> dict[str, Any]:
    return asdict(info) | {name: str(getattr(info, name)) for name in _IDS}
