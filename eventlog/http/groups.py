"""Consumer groups: members that join, poll, commit and leave by requests alone, and groups as operators see them.

A poll gives what follows the last commit, so one that asks again without having committed gets the same again. Each poll ends with a line
that says how far it went and by which generation: sent back as it is, it is the commit.
"""

import re
import uuid
from dataclasses import asdict
from typing import Any, Final, Literal

import msgspec
import orjson
from aiohttp import web

from eventlog.batch.json_lines import JsonLines
from eventlog.client.groups import GroupAdmin, GroupDescription
from eventlog.client.members.progress import Places, places_of, position_of
from eventlog.client.reading.filtering import compiled_here
from eventlog.client.reading.wanted import start_of
from eventlog.errors import CacheNotFound, InvalidArgument, Overloaded
from eventlog.events import Event
from eventlog.groups.record import AssignorName, Place, checked_name, checked_timeout
from eventlog.http.calls import Call, Route, answer, id_of, is_number, json_body
from eventlog.http.events import EVENTS_MAX, LINES, TIME_MS_MAX
from eventlog.http.local import LocalCore, LocalReads
from eventlog.http.members import HttpMember, MemberPoll, MemberWords
from eventlog.ids import ID_MAX
from eventlog.limits import POLL_WAIT_MS_MAX
from eventlog.read import token
from eventlog.read.position import SegmentPositions
from eventlog.wire import eventlog_pb2 as pb

POLLS_MAX: Final = 512  # at a time: each holds an answer of every node that leads some of its segments
SESSION_TIMEOUT_MS: Final = 30_000  # unless a member says otherwise: nothing but its requests tells that it lives
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HEADERS: Final = {"Content-Type": LINES, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class NewMember(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A member to be: what it reads, and, where it is the first one of all, where its group begins."""

    cache: str
    member: str | None = None
    where: str | None = None
    parameters: list[Any] | dict[str, Any] | None = None
    select: str | list[str] | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    on_trimmed: Literal["error", "earliest"] = "error"
    assignor: AssignorName = "uniform"
    from_id: int | str | None = None
    from_time: int | None = None


class DoneUpto(msgspec.Struct, forbid_unknown_fields=True):
    """What a member has done: all that a poll gave, or of that what has ids up to one, inclusive."""

    generation: int
    position: str | None
    upto: int | str | None = None
    metadata: str = ""


_decode_new = msgspec.json.Decoder(NewMember).decode
_decode_done = msgspec.json.Decoder(DoneUpto).decode


class GroupRoutes:
    """The routes of groups and their members."""

    def __init__(self, core: LocalCore, *, polls_max: int = POLLS_MAX) -> None:
        self._core = core
        self._admin = GroupAdmin(core.requests)
        self._polls_max = polls_max
        self._polls = 0
        self._polls_peak = 0

    def routes(self) -> list[Route]:
        """Return what is served here."""
        path = "/v1/groups/{group}"
        member = f"{path}/members/{{member}}"
        return [
            Route(path="/v1/groups", handlers={"GET": self.get_all}, parameters={}),
            Route(path=path, handlers={"GET": self.get, "DELETE": self.remove}, parameters={}),
            Route(path=f"{path}/members", handlers={"POST": self.join}, parameters={}),
            Route(path=member, handlers={"DELETE": self.leave}, parameters={}),
            Route(path=f"{member}/events", handlers={"GET": self.poll}, parameters={"GET": frozenset({"generation", "max", "wait"})}),
            Route(path=f"{member}/position", handlers={"PUT": self.commit}, parameters={}),
        ]

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"http_group_polls": (self._polls, self._polls_max, self._polls_peak)}

    # ------------------------------------------------------------ members

    async def join(self, call: Call) -> web.Response:
        """Make a member; answer with its path. One of the same name joins anew, and what that had not committed comes again."""
        group = checked_name(call.text("group"))
        new = await json_body(call, _decode_new, what="member")
        name = uuid.uuid4().hex if new.member is None else new.member
        if _NAME.fullmatch(name) is None:
            raise InvalidArgument(why=f"member is {name!r:.60}: give 1 to 100 of the characters A-Z, a-z, 0-9, _ and -")
        await self._core.open()
        cache = LocalReads(self._core, new.cache)
        info = await cache.info()
        member = HttpMember(
            group=group,
            name=name,
            words=MemberWords(
                cache=new.cache,
                cache_id=info.id,
                session_timeout_ms=checked_timeout(new.session_timeout_ms),
                on_trimmed=new.on_trimmed,
                where=new.where,
                parameters=new.parameters,
                select=new.select,
            ),
        )
        path = member.path
        if (chosen := member.words.reading().filter) is not None:
            compiled_here(chosen, info)  # refused here, rather than by each poll
        start = pb.GroupBeat(start_id=await _start_id(cache, new), assignor=new.assignor)
        told = await member.beat(self._core, generation=0, owned=frozenset(), wait_ms=0, start=start)
        shown = {"group": group, "member": name, "path": path, "generation": told.generation, "segments": len(told.assigned)}
        return answer(201, shown | {"session_timeout_ms": new.session_timeout_ms}, {"Location": path})

    async def poll(self, call: Call) -> web.Response:
        """Answer with what follows the group's last commit in the member's segments, and a line that says how far that is."""
        member = _member(call)
        generation = call.number("generation", 0, low=1, high=ID_MAX)
        if not generation:
            raise InvalidArgument(why="generation is missing: give the one that joining, or the poll before, was answered with")
        left = call.number("max", EVENTS_MAX, low=1, high=EVENTS_MAX)
        wait_ms = call.number("wait", 0, low=0, high=POLL_WAIT_MS_MAX)
        if call.request.method == "HEAD":
            return web.Response(headers=_HEADERS)
        if self._polls >= self._polls_max:
            raise Overloaded(what="the number of polls of group members over HTTP", limit=self._polls_max)
        self._polls += 1
        self._polls_peak = max(self._polls_peak, self._polls)
        try:
            await self._core.open()
            async with self._core.reads(member.words.cache) as cache:
                if (await cache.info()).id != member.words.cache_id:
                    raise CacheNotFound(cache=member.words.cache)
                told = await member.beat(self._core, generation=generation, owned=frozenset(), wait_ms=0)
                poll = MemberPoll(cache, member, told)
                events = await poll.events(left=left, wait_ms=wait_ms)
                return web.Response(body=JsonLines(_id).lines(events) + _end(poll, cache), headers=_HEADERS)
        finally:
            self._polls -= 1

    async def commit(self, call: Call) -> web.Response:
        """Keep how far a member's group has come. It never goes back; written down when this is answered."""
        member = _member(call)
        done = await json_body(call, _decode_done, what="commit")
        if not 1 <= done.generation <= ID_MAX:
            raise InvalidArgument(why=f"generation is {done.generation}: give the one of the poll")
        await self._core.open()
        places = self._places(member, done)
        await member.commit(self._core, places, generation=done.generation, metadata=done.metadata)
        return answer(200, {"generation": done.generation, "segments": len(places)})

    def _places(self, member: HttpMember, done: DoneUpto) -> Places:
        """Return the places that a commit is about.

        Raises:
            InvalidArgument, PositionMismatch: its position is not one of a poll of this cache.
        """
        if done.position is None:
            return {}
        position = token.from_short_text(done.position)
        position.check(cluster=self._core.cluster, cache_id=member.words.cache_id, segments=self._core.routes.segments)
        if not isinstance(position.at, SegmentPositions) or position.steps or position.acknowledged or position.unread:
            raise InvalidArgument(why="position is not one that a poll of a group's member ends with")
        places = places_of(position)
        if done.upto is None:
            return places
        upto = id_of(done.upto)
        return {segment: place if place.id <= upto else Place(id=upto) for segment, place in places.items()}

    async def leave(self, call: Call) -> web.Response:
        """Let a member go; others get what it had at once, and what it has not committed."""
        member = _member(call)
        await member.leave(self._core)
        return answer(200, {"group": member.group, "member": member.name})

    # ------------------------------------------------------------ groups

    async def get_all(self, _call: Call) -> web.Response:
        """Answer with all groups, over each of their caches."""
        found = await self._admin.list()
        return answer(200, {"groups": [asdict(one) for one in sorted(found, key=lambda one: (one.group, one.cache))]})

    async def get(self, call: Call) -> web.Response:
        """Answer with a group over each of its caches: its members, and how far it lags in each segment."""
        found = await self._admin.describe(checked_name(call.text("group")))
        return answer(200, {"caches": [_shown(one) for one in found]})

    async def remove(self, call: Call) -> web.Response:
        """Remove a group without members, with its positions."""
        group = checked_name(call.text("group"))
        await self._admin.delete(group)
        return answer(200, {"group": group})


def _member(call: Call) -> HttpMember:
    return HttpMember.of_path(checked_name(call.text("group")), call.text("member"))


async def _start_id(cache: LocalReads, new: NewMember) -> int:
    """Return behind which id a new group begins."""
    from_id = id_of(new.from_id) if new.from_id is not None and is_number(new.from_id) else new.from_id
    if new.from_time is not None and not 0 <= new.from_time <= TIME_MS_MAX:
        raise InvalidArgument(why=f"from_time is {new.from_time}: give milliseconds since 1970, up to {TIME_MS_MAX}")
    start, place = start_of(from_id=from_id, from_time=new.from_time, position=None)
    if place is not None:
        raise InvalidArgument(why="a group begins at an id, a time, earliest or latest")
    return (await cache.log_ends()).last_id if start == "latest" else start


def _id(event: Event) -> str:
    return str(event.id)


def _end(poll: MemberPoll, cache: LocalReads) -> bytes:
    """Return the last line of a poll, which is what a commit of all of it is made from."""
    core, places = cache.core, poll.places
    scope = (core.cluster, poll.words.cache_id, core.routes.segments)
    position = token.to_short_text(position_of(places, scope)) if places else None
    return orjson.dumps({"generation": poll.generation, "position": position}) + b"\n"


def _shown(described: GroupDescription) -> dict[str, Any]:
    """Return a group as it is told: ids as text."""
    shown = asdict(described)
    return shown | {"segments": [segment | {"id": str(segment["id"])} for segment in shown["segments"]]}
