"""Who of a group's members is alive. Kept in memory by the coordinator alone: a new one starts every timer anew.

A session ends when its member has said nothing for its timeout, or a second after its own connection closed. Nothing else ends one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from eventlog.consume.membership.values import Member

CLOSED_MS = 1_000
"""How long a member whose connection closed has to come back."""
_CLOSED_KEPT = 100  # connections: what was said over one last may have waited its turn, and be heard after it closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Via:
    """Over which connection of which node a member speaks. Numbers of connections are never used again by their node's process."""

    node: int = 0
    connection: int = 0


@dataclass(slots=True, kw_only=True)
class _Session:
    is_static: bool
    timeout_ms: int
    ends_ms: int
    via: Via | None = None


class Sessions:
    """The timers of one group's members."""

    def __init__(self, members: Iterable[Member], now_ms: int) -> None:
        self._sessions: dict[str, _Session] = {}
        self._closed: dict[Via | None, None] = {}
        self._coming: tuple[str, Via | None] = "", None
        for member in members:
            self._begin(member, now_ms)

    def _begin(self, member: Member, now_ms: int) -> None:
        session = self._sessions[member.id] = _Session(
            is_static=bool(member.instance), timeout_ms=member.timeout_ms, ends_ms=now_ms + member.timeout_ms
        )
        coming, via = self._coming
        if coming == member.id:
            session.via = via
            if via in self._closed:
                _closes(session, now_ms)

    def follow(self, members: Iterable[Member], now_ms: int) -> None:
        """Keep a session for each of these members and for nobody else."""
        wanted = {member.id: member for member in members}
        for id_ in [id_ for id_ in self._sessions if id_ not in wanted]:
            del self._sessions[id_]
        for id_, member in wanted.items():
            if id_ not in self._sessions:
                self._begin(member, now_ms)

    def heard(self, member: str, via: Via | None, now_ms: int) -> None:
        """Note that a member has spoken; the session of one that joins begins with the next `follow`.

        What was said over a connection that has closed since says nothing about its member.
        """
        session = self._sessions.get(member)
        if session is None:
            self._coming = member, via
        elif via not in self._closed:
            session.via = via
            session.ends_ms = now_ms + session.timeout_ms

    def closed(self, member: str, via: Via, now_ms: int) -> None:
        """Note that a member's own connection closed. One that it no longer speaks over says nothing about it.

        A static member keeps its time-out: that it may restart in peace is what it is static for.
        """
        self._closed[via] = None
        if len(self._closed) > _CLOSED_KEPT:
            del self._closed[next(iter(self._closed))]
        session = self._sessions.get(member)
        if session is not None and session.via == via:
            _closes(session, now_ms)

    def ended(self, now_ms: int) -> list[str]:
        """Return whose session is over by now."""
        return [id_ for id_, session in self._sessions.items() if session.ends_ms <= now_ms]

    @property
    def next_ms(self) -> int | None:
        """When the next session ends unless its member speaks; None without members."""
        return min((session.ends_ms for session in self._sessions.values()), default=None)

    def left_ms(self, member: str, now_ms: int) -> int:
        """Return how long a member's session still lasts if it says nothing more."""
        session = self._sessions.get(member)
        return 0 if session is None else max(0, session.ends_ms - now_ms)


def _closes(session: _Session, now_ms: int) -> None:
    if not session.is_static:
        session.ends_ms = min(session.ends_ms, now_ms + CLOSED_MS)
