"""What the calls that read events are asked for: the same options for all of them, checked once and made into a reading. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from eventlog.client.reading.bounds import (
    OnStalled,
    OnTrimmed,
    Reading,
    Start,
    begins_with_state,
    checked_stalled,
    checked_trimmed,
    start_of,
)
from eventlog.client.reading.filtering import Parameters, Select, filter_of
from eventlog.errors import InvalidArgument
from eventlog.limits import ANSWER_BYTES_MAX


class ScanOptions(TypedDict, total=False):
    """Options of `scan_events`, by name."""

    position: str | None
    until_id: int | None
    segments: Collection[int] | None
    on_trimmed: OnTrimmed
    accept_diverged: bool
    state_first: bool
    where: str | None
    parameters: Parameters | None
    select: Select | None
    filter: str | None
    params: Mapping[str, Any] | None
    continuous: bool


class PollOptions(ScanOptions, total=False):
    """Options of `poll`, by name."""

    listener: str | None


class ReadOptions(PollOptions, total=False):
    """Options of `events` and `event_batches`, by name."""

    from_time: int | datetime | None
    tail: int | None
    follow: bool
    on_stalled: OnStalled
    poll_interval_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a poll wants, with what holds where nothing is said."""

    position: str | None = None
    until_id: int | None = None
    segments: Collection[int] | None = None
    on_trimmed: OnTrimmed = "error"
    accept_diverged: bool = False
    state_first: bool = False
    where: str | None = None
    parameters: Parameters | None = None
    select: Select | None = None
    filter: str | None = None
    params: Mapping[str, Any] | None = None
    listener: str | None = None
    continuous: bool = False
    from_time: int | datetime | None = None
    tail: int | None = None
    follow: bool = False
    on_stalled: OnStalled = "wait"
    poll_interval_ms: int | None = None

    def reading(self, from_id: int | str | None, *, max_bytes: int) -> tuple[Start, Reading]:
        """Return where to begin, and the reading without its ends.

        Raises:
            InvalidArgument: something that cannot be wanted, or not together.
        """
        if self.poll_interval_ms is not None and self.poll_interval_ms <= 0:
            raise InvalidArgument(why=f"poll_interval_ms is {self.poll_interval_ms}: give a number above 0")
        if max_bytes < 0:
            raise InvalidArgument(why=f"max_bytes is {max_bytes}: give a number above 0, or 0 for the node's choice")
        if self.listener == "":  # further down that is none, and everything would be read
            raise InvalidArgument(why="listener is empty: leave it out, or name one")
        if self.tail is not None:
            self._check_tail(from_id)
        start, place = start_of(from_id=from_id, from_time=self.from_time, position=self.position)
        is_placed = any(given is not None for given in (from_id, self.from_time, self.position))
        reading = Reading(
            position=place,
            on_trimmed=checked_trimmed(self.on_trimmed),
            on_stalled=checked_stalled(self.on_stalled),
            accept_diverged=self.accept_diverged,
            max_bytes=min(max_bytes, ANSWER_BYTES_MAX),
            listener=self.listener or "",
            goes_on=self.listener is not None and not is_placed,
            filter=filter_of(
                where=self.where,
                parameters=self.parameters,
                select=self.select,
                filter=self.filter,
                params=self.params,
                continuous=self.continuous,
            ),
            state_first=begins_with_state(self.state_first, start, place),
        )
        return start, reading

    def _check_tail(self, from_id: int | str | None) -> None:
        """Raise InvalidArgument where the last events are wanted, and something that begins or ends elsewhere."""
        for name, given in (
            ("from_id", from_id is not None),
            ("from_time", self.from_time is not None),
            ("position", self.position is not None),
            ("until_id", self.until_id is not None),
            ("state_first", self.state_first),
            ("listener", self.listener is not None),
        ):
            if given:
                raise InvalidArgument(why=f"tail begins so many events before the end of the log: leave {name} out")
