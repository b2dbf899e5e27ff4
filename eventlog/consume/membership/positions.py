"""Committed positions of a group, and the fence that a commit has to pass."""

from collections.abc import Mapping
from dataclasses import dataclass

from eventlog.consume.membership.values import GroupState
from eventlog.consume.position import OFFSET_UNKNOWN
from eventlog.errors import StaleMember


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a group is in one segment, as in a position: last id done, offset after it, epoch of that event."""

    id: int
    next_offset: int = OFFSET_UNKNOWN
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed place with what its member said about it; `time_ms` since 1970, `generation` that of the group then."""

    place: Place
    generation: int = 0
    time_ms: int = 0
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Places that a member has done, by segment. `epoch` is the one it was told last when it took the events."""

    member: str
    epoch: int
    places: Mapping[int, Place]
    metadata: str = ""


def check_commit(name: str, state: GroupState, commit: Commit) -> None:
    """Refuse a commit of what is not its member's, or was not for a while since the member took it.

    Raises:
        StaleMember: nothing of the commit counts.
    """
    if state.member(commit.member) is None:
        raise StaleMember(group=name, member=commit.member, why="its session has ended")
    for segment in commit.places:
        if not is_held(state, commit, segment):
            why = f"segment {segment} is not its own any more"
            raise StaleMember(group=name, member=commit.member, why=why)


def is_held(state: GroupState, commit: Commit, segment: int) -> bool:
    """Whether a segment has been the committing member's all the time since it was told the epoch that it commits under."""
    return segment < len(state.holders) and state.holders[segment] == commit.member and state.given[segment] <= commit.epoch


def advance(before: Mapping[int, Committed], commit: Commit, *, generation: int, time_ms: int) -> dict[int, Committed]:
    """Return the places that a commit changes. None goes back: a commit that was overtaken by a later one changes nothing."""
    return {
        segment: Committed(place=place, generation=generation, time_ms=time_ms, metadata=commit.metadata)
        for segment, place in commit.places.items()
        if segment not in before or before[segment].place.id < place.id or before[segment].metadata != commit.metadata
        if segment not in before or before[segment].place.id <= place.id
    }
