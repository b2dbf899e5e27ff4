"""What is said of a beginning outside of the log: everything, or nothing, is printed for it, which may not be what was meant."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from eventlog.errors import EventsTrimmed, InvalidArgument, Unavailable
from eventlog.ids import time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX
from eventlog_cli.output import note
from eventlog_cli.quantities import IdTimes

if TYPE_CHECKING:
    from eventlog.blocking import Cache
    from eventlog.client.reports import LogEnds


def say_beginning(cache: "Cache", start: int | str | None, *, is_time: bool) -> None:
    """Say on stderr where a read begins outside of the log; `is_time`: `start` is what lies before a time that was asked for.

    Raises:
        InvalidArgument: no event can have the id yet.
    """
    if not isinstance(start, int) or start == 0:
        return
    with suppress(Unavailable, EventsTrimmed):  # who reads is told so, or waits
        ends = cache.log_ends()
        said = outside(start, ends, is_time=is_time, now_ms=time.time_ns() // 1_000_000)
        if said is None:
            return
        if start <= ends.last_id:
            cache.poll(start, max_events=1)  # where retention has passed it the error says all of that
        note(f"note: {said}")


def outside(start: int, ends: "LogEnds", *, is_time: bool, now_ms: int) -> str | None:
    """Return what to say of a read after an id, None where that lies in the log.

    Raises:
        InvalidArgument: no event can have the id yet, neither by the nodes' clocks nor by this one.
    """
    what, end = "the time asked for" if is_time else f"id {_shown(start)}", f"id {_shown(ends.last_id)}"
    if not is_time and time_of(start) > max(time_of(ends.last_id), now_ms) + CLOCK_AHEAD_MS_MAX:
        why = f"{what} is of the future: no event can have it yet; the log ends at {end}"
        raise InvalidArgument(why=f"{why}: use --from-id latest for what comes next, or --from-time")
    if start > ends.last_id:
        return f"{what} lies ahead of the log's end, {end}: nothing is behind it yet"
    if not is_time and ends.first_id is not None and start < ends.first_id:
        return f"{what} lies before the first event kept, id {_shown(ends.first_id)}"
    return None


def _shown(id_: int) -> str:
    return f"{id_} of {IdTimes().text(id_)}"
