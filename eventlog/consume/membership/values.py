"""What is kept of a consumer group."""

from dataclasses import dataclass
from typing import Literal

from eventlog.errors import InvalidArgument
from eventlog.limits import GROUP_NAME_BYTES_MAX, SESSION_TIMEOUT_MS_DEFAULT, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN

Mode = Literal["read", "work"]
AssignorName = Literal["uniform", "range", "owner"]

NOBODY = ""
"""Stands for a member where a segment has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer. `instance` names a static member, who keeps its segments while it restarts; empty: a dynamic one.

    `node` is the number of the node that the member is connected to: segments led there are the nearest to it.
    """

    id: str
    instance: str = ""
    client: str = ""
    node: int = 0
    timeout_ms: int = SESSION_TIMEOUT_MS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group over one cache. Replaced whole by every change of membership, each of which has a generation of its own.

    Indexed by segment: `targets` is who is to have it, `holders` who may be reading it, `given` the generation in which its holder
    got it. Invariants: `members` is sorted by id and holds every target and holder; a segment changes hands only over NOBODY. A
    group of mode `work` assigns nothing: every member may be handed events of every segment, each event `deliveries_max` times at most,
    then it goes into the cache `dead_letters`; one that is not settled within `ack_timeout_ms` is taken from its member, 0 for never.
    `filter` is what its members share, as it came over the wire; empty: every event.
    """

    segments: int
    mode: Mode = "read"
    assignor: AssignorName = "uniform"
    generation: int = 0
    start_id: int = 0
    deliveries_max: int = 0
    dead_letters: str = ""
    filter: bytes = b""
    ack_timeout_ms: int = 0
    members: tuple[Member, ...] = ()
    targets: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    given: tuple[int, ...] = ()

    def member(self, id: str) -> Member | None:
        """Return a member of this id."""
        return next((member for member in self.members if member.id == id), None)

    def instance(self, name: str) -> Member | None:
        """Return the static member of this name."""
        return next((member for member in self.members if name and member.instance == name), None)

    def held(self, id: str) -> frozenset[int]:
        """Return the segments that a member may be reading."""
        return frozenset(segment for segment, holder in enumerate(self.holders) if holder == id)

    def assigned(self, id: str) -> frozenset[int]:
        """Return the segments that a member may go on reading: what it holds and is to keep."""
        pairs = enumerate(zip(self.holders, self.targets, strict=True))
        return frozenset(segment for segment, (holder, target) in pairs if holder == target == id)


def new_group(segments: int, *, mode: Mode = "read", assignor: AssignorName = "uniform", start_id: int = 0) -> GroupState:
    """Return a group without members."""
    count = segments if mode == "read" else 0
    return GroupState(
        segments=segments,
        mode=mode,
        assignor=assignor,
        start_id=start_id,
        targets=(NOBODY,) * count,
        holders=(NOBODY,) * count,
        given=(0,) * count,
    )


def checked_name(name: object) -> str:
    """Return a group's name, if it can be one.

    Raises:
        InvalidArgument: it cannot.
    """
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= GROUP_NAME_BYTES_MAX or not name.isprintable():
        raise InvalidArgument(why=f"{name!r} is no name for a group: 1 to {GROUP_NAME_BYTES_MAX} bytes of printable text")
    return name


def checked_timeout(timeout_ms: int) -> int:
    """Return a session timeout, if it is within bounds.

    Raises:
        InvalidArgument: it is not.
    """
    if not SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise InvalidArgument(why=f"session_timeout_ms is {timeout_ms}: give {SESSION_TIMEOUT_MS_MIN} to {SESSION_TIMEOUT_MS_MAX}")
    return timeout_ms
