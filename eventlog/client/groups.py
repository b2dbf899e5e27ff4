"""What operators ask about consumer groups."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from operator import index
from typing import Any

import msgspec

from eventlog.client.connections.requests import Requests
from eventlog.client.reading.wanted import segments_of, start_of
from eventlog.client.values import Shown, checked_flag, checked_whole
from eventlog.errors import InvalidArgument
from eventlog.groups.record import checked_name
from eventlog.ids import ID_MAX
from eventlog.limits import SEGMENTS_MAX
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group over one cache."""

    group: str
    cache: str
    mode: str
    members: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A live member. `instance` is empty unless it is static; `node` is the number of the node that it is connected to."""

    member: str
    instance: str
    client: str
    node: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSegment:
    """Where a group is in a segment: `id` is that of the last event done. Lags are None where the segment's primary did not answer.

    `member` is None while nobody has it. `lag_bytes` is an estimate; `lag_ms` is the age of the first event that is not done.
    """

    segment: int
    member: str | None
    id: int
    next_offset: int
    metadata: str
    committed_ms: int
    lag_events: int | None
    lag_bytes: int | None
    lag_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group over one cache, with its members and every segment."""

    group: str
    cache: str
    mode: str
    assignor: str
    generation: int
    members: list[MemberInfo]
    segments: list[GroupSegment]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """What a reset changes, or would: the id of the last event done in a segment.

    `events` is by how many events that is further on, below 0 where it is back; None but of a shift.
    """

    cache: str
    segment: int
    from_id: int
    to_id: int
    events: int | None = None


class GroupAdmin(Shown):
    """Groups as operators see them; `client.groups`."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def _described(self) -> str:
        return f": {self._requests}"

    async def describe(self, group: str, *, lag: bool = True) -> list[GroupDescription]:
        """Return a group over each of its caches.

        Raises:
            GroupNotFound: there is none of this name.
        """
        reply = await self._requests.ask(Message(describe_group=pb.DescribeGroup(group=checked_name(group), lag=checked_flag("lag", lag))))
        return [
            GroupDescription(
                **{
                    **row,
                    "members": [MemberInfo(**member) for member in row["members"]],
                    "segments": [GroupSegment(**segment) for segment in row["segments"]],
                }
            )
            for row in _rows(reply.body)
        ]

    async def reset(
        self,
        group: str,
        *,
        to_id: int | str | None = None,
        to_time: int | datetime | None = None,
        shift_by: int | None = None,
        cache_id: int = 0,
        segments: Collection[int] | None = None,
        dry_run: bool = False,
    ) -> list[GroupMove]:
        """Have a group without members go on behind `to_id` (an id, `earliest`, `latest`), or at `to_time`; return what changes.

        With `shift_by` it goes on so many events further on in each segment, or back where that is below 0: at the most to the first
        event kept, or behind the last one. What retention has taken counts as done. A shift of which nobody says what became of it is not
        asked for again: done twice it is another one.

        Raises:
            GroupNotEmpty: it has live members.
            InvalidArgument: a place that cannot be, or `segments` without any; None stands for all.
            OutcomeUnknown, ConnectionLost, NotPrimary, TimedOut: with an unknown `outcome` it may be done, or not; `describe` tells.
            PrimariesMissing: with `shift_by`, a segment has no primary that could count.
        """
        if sum(given is not None for given in (to_id, to_time, shift_by)) != 1:
            raise InvalidArgument(why="give one of to_id, to_time and shift_by")
        if segments is not None and not segments:
            raise InvalidArgument(why="no segments to reset: give some, or None for all")
        request = pb.ResetGroup(
            group=checked_name(group),
            cache_id=checked_whole("cache_id", cache_id),
            dry_run=checked_flag("dry_run", dry_run),
            segments=segments_of(segments, of=SEGMENTS_MAX),
        )
        if to_id == "earliest":
            request.earliest = True
        elif to_id == "latest":
            request.latest = True
        elif shift_by is not None:
            request.shift_by = _checked_shift(shift_by)
        else:
            request.id = _id_before(to_id, to_time)
        reply = await self._requests.ask(Message(reset_group=request), repeatable=shift_by is None or dry_run)
        return [GroupMove(**row) for row in _rows(reply.body)]

    async def delete(self, group: str, *, cache_id: int = 0) -> None:
        """Remove a group without members, with its positions. Raises GroupNotEmpty."""
        await self._requests.ask(
            Message(delete_group=pb.DeleteGroup(group=checked_name(group), cache_id=checked_whole("cache_id", cache_id))),
            repeatable=False,
        )

    async def list(self) -> list[GroupInfo]:
        """Return every group over each of its caches."""
        reply = await self._requests.ask(Message(list_groups=pb.ListGroups()))
        return [GroupInfo(**row) for row in _rows(reply.body)]


def _id_before(to_id: int | str | None, to_time: int | datetime | None) -> int:
    start, place = start_of(from_id=to_id, from_time=to_time, position=None)
    if place is not None or not isinstance(start, int):
        raise InvalidArgument(why="a group goes on behind an id, at a time, earliest or latest: not at a position of a reader")
    return start


def _checked_shift(shift_by: int) -> int:
    if isinstance(shift_by, bool | type) or not hasattr(shift_by, "__index__") or not 0 < abs(index(shift_by)) <= ID_MAX:
        raise InvalidArgument(why=f"shift_by is {shift_by!r}: give a whole number of events, below 0 to go back")
    return index(shift_by)


def _rows(body: memoryview) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = msgspec.msgpack.decode(body)
    return rows
