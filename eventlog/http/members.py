"""One member of a consumer group as its requests tell of it: its name, what it reads, and one poll of what comes next.

Nothing of a member lies in a node's memory between two requests. How it joined stands in its path, which generation it has heard of in its
request, and how far its group is in the cluster: so any node answers any request of it.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote

import msgspec

from eventlog.client.members.lanes import MemberLanes
from eventlog.client.members.progress import MemberProgress, Places
from eventlog.client.reading.filtering import filter_of
from eventlog.client.reading.wanted import Reading
from eventlog.errors import EventLogError, InvalidArgument
from eventlog.events import Event
from eventlog.groups.record import Place, decode_places, decode_set, encode_places, encode_set
from eventlog.http.local import LocalCore, LocalReads
from eventlog.limits import KIB, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

ANSWER_BYTES_MAX: Final = 128 * KIB  # of each node that leads some of its segments: a poll holds one answer of each
PATH_BYTES_MAX: Final = 8 * KIB  # of a member's own part; half of what the first line of a request may hold
NOTHING_MS: Final = 1_000  # what a poll without `wait` gives nodes to say that there is nothing
BEAT_WAIT_MS: Final = 3_000
_CACHE_ID_MAX: Final = (1 << 32) - 1


class MemberWords(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What a member said when it joined, as its path has it."""

    cache: str
    cache_id: Annotated[int, msgspec.Meta(ge=1, le=_CACHE_ID_MAX)]
    session_timeout_ms: Annotated[int, msgspec.Meta(ge=SESSION_TIMEOUT_MS_MIN, le=SESSION_TIMEOUT_MS_MAX)]
    on_trimmed: Literal["error", "earliest"] = "error"
    where: str | None = None
    parameters: list[Any] | dict[str, Any] | None = None
    select: str | list[str] | None = None

    def reading(self) -> Reading:
        """Return what it reads. Raises InvalidArgument: no condition."""
        chosen = filter_of(where=self.where, parameters=self.parameters, select=self.select)
        return Reading(on_trimmed=self.on_trimmed, max_bytes=ANSWER_BYTES_MAX, filter=chosen)


_decode_words = msgspec.json.Decoder(MemberWords).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What the coordinator tells a member: its generation, its segments, and where those begin that it did not say it reads."""

    generation: int
    assigned: frozenset[int]
    places: Mapping[int, Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpMember:
    """A member by its group, its name and its words."""

    group: str
    name: str
    words: MemberWords

    @classmethod
    def of_path(cls, group: str, part: str) -> Self:
        """Return the member that a part of a path stands for.

        Raises:
            InvalidArgument: no join has told such a path.
        """
        name, _, text = part.partition(".")
        try:
            data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            return cls(group=group, name=name, words=_decode_words(data))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise InvalidArgument(why=f"{part!r:.60} is no member: use the path that joining was answered with") from error

    @property
    def path(self) -> str:
        """Its path. Raises InvalidArgument: it would be too long."""
        text = urlsafe_b64encode(msgspec.json.encode(self.words)).rstrip(b"=").decode()
        if len(text) > PATH_BYTES_MAX:
            raise InvalidArgument(
                why=f"where, parameters and select take {len(text)} bytes in a path, at most {PATH_BYTES_MAX} are possible"
            )
        return f"/v1/groups/{quote(self.group, safe='')}/members/{self.name}.{text}"

    async def beat(
        self, core: LocalCore, *, generation: int, owned: frozenset[int], wait_ms: int, start: pb.GroupBeat | None = None
    ) -> Assigned:
        """Say that it lives; return when there is something new to hear, or after `wait_ms`. Generation 0: it joins, as `start` says.

        Raises:
            StaleMember: its session has ended.
        """
        count = core.routes.segments
        beat = pb.GroupBeat(
            group=self.group,
            cache_id=self.words.cache_id,
            member=self.name,
            client="http",
            session_timeout_ms=self.words.session_timeout_ms,
            epoch=generation,
            owned=encode_set(owned, count),
            wait_ms=wait_ms,
        )
        if start is not None:
            beat.MergeFrom(start)
        reply = await core.requests.ask(Message(group_beat=beat), wait_ms=wait_ms)
        answer = reply.message.group_beat_answer
        return Assigned(
            generation=answer.epoch,
            assigned=decode_set(answer.assigned, count),
            places=decode_places(reply.body, rows=answer.places, count=count),
        )

    async def commit(self, core: LocalCore, places: Places, *, generation: int, metadata: str) -> None:
        """Have the group go on behind places; they are kept when this returns.

        Raises:
            StaleMember: its session has ended, or a segment has not been its own ever since it was told this generation.
        """
        request = pb.CommitGroup(
            group=self.group, cache_id=self.words.cache_id, member=self.name, epoch=generation, places=len(places), metadata=metadata
        )
        await core.requests.ask(Message(commit_group=request), encode_places(places))

    async def leave(self, core: LocalCore) -> None:
        """Say good-bye: others get what it had."""
        request = pb.LeaveGroup(group=self.group, cache_id=self.words.cache_id, member=self.name)
        await core.requests.ask(Message(leave_group=request))


class MemberPoll:
    """One poll, while it waits: the member's segments are read from where the group is, and its session goes on."""

    def __init__(self, cache: LocalReads, member: HttpMember, told: Assigned) -> None:
        self.generation = told.generation
        self._cache = cache
        self._member = member
        self._progress = MemberProgress()
        self._progress.begin({segment: told.places[segment] for segment in told.assigned})
        self._answered: set[int] = set()
        self._error: EventLogError | None = None

    @property
    def words(self) -> MemberWords:
        """What its member said when it joined."""
        return self._member.words

    @property
    def places(self) -> Places:
        """Where the group is to go on behind what was read, in the segments where that is further than it has committed."""
        return self._progress.uncommitted(all_handed=True)

    async def events(self, *, left: int, wait_ms: int) -> list[Event]:
        """Return up to `left` events as soon as there are some, and none where none have come within `wait_ms`.

        Raises:
            StaleMember: its session has ended meanwhile.
            EventsTrimmed: retention has passed the place that the group had committed.
        """
        lanes = await self._cache.lanes(self._member.words.reading(), self._progress)
        lanes.failed = partial(self._fail, lanes)
        lanes.start(max_events=left, until_id=None, once_ms=wait_ms)
        beats = asyncio.create_task(self._beat_on(lanes), name="http group member")
        loop = asyncio.get_running_loop()
        until = loop.time() + (wait_ms or NOTHING_MS) / 1000
        try:
            while not (found := self._taken(lanes, left)) and not (wait_ms == 0 and self._answered >= self._progress.owned):
                await asyncio.wait_for(lanes.wait(), until - loop.time())
        except TimeoutError:
            return []
        else:
            return found
        finally:
            beats.cancel()
            await asyncio.wait([beats])
            await lanes.close()

    def _taken(self, lanes: MemberLanes, left: int) -> list[Event]:
        """Return what has arrived, and note how far that is."""
        found: list[Event] = []
        while left > len(found) and (fetched := lanes.take()) is not None:
            self._answered |= fetched.segments
            for batch in fetched.batches:
                self._progress.know_epochs(batch)
                taken = list(batch.events())[: left - len(found)]
                for event in taken:
                    self._progress.hand_event(event)
                found += taken
                if len(taken) < len(batch):
                    return found
            self._progress.finish_event()
            self._progress.pass_over(fetched.after)
        if not found and self._error is not None:
            raise self._error
        return found

    async def _beat_on(self, lanes: MemberLanes) -> None:
        wait_ms = min(BEAT_WAIT_MS, self._member.words.session_timeout_ms // 3)
        while True:
            try:
                told = await self._member.beat(self._cache.core, generation=self.generation, owned=self._progress.owned, wait_ms=wait_ms)
            except EventLogError as error:
                self._fail(lanes, error)
                return
            gone, new = self._progress.owned - told.assigned, told.assigned - self._progress.owned
            self.generation = told.generation
            self._progress.drop(gone)
            lanes.release(gone)
            self._progress.begin({segment: told.places[segment] for segment in new})
            lanes.arrange()
            lanes.wake()

    def _fail(self, lanes: MemberLanes, error: EventLogError) -> None:
        self._error = self._error or error
        lanes.wake()
