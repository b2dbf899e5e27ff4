"""Flake ids: their layout, runs of them, and the clock that issues them.

An id has 64 bits: sign 0, 41 bits milliseconds since 2020-01-01T00:00:00Z, 12 bits sequence, 10 bits node. Time comes first and
the node last, so ids sort by time, and the ids of a run are `base + i * ID_STEP` with the sequence carrying into the time: a run is
stored as its base and its length.

`FlakeClock` decides alone, without a metadata store: its owner raises the ceiling below which it may issue.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from eventlog.clock import Clock
from eventlog.errors import ClockAhead, ClockSkew, InvalidArgument, MetadataUnavailable
from eventlog.limits import CLOCK_AHEAD_MS_MAX, LEASE_AHEAD_MS, LEASE_MS, NODE_NUMBER_MAX

EPOCH_MS = 1_577_836_800_000  # 2020-01-01T00:00:00Z in milliseconds since 1970
NODE_BITS = 10
SEQUENCE_BITS = 12
TIME_BITS = 41
TIME_SHIFT = SEQUENCE_BITS + NODE_BITS
ID_STEP = 1 << NODE_BITS
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
TIME_MS_MAX = EPOCH_MS + (1 << TIME_BITS) - 1  # in September 2089
ID_MAX = (1 << 63) - 1
MEDIAN_SLACK_MS = 5_000  # how far the wall clock may run ahead of the members' median before it is not believed
AGREED_WITHIN_MS = 2 * MEDIAN_SLACK_MS  # how far the agreed times of two members may be apart

assert NODE_NUMBER_MAX == ID_STEP - 1, "every node number fits its bits"


def make_id(time_ms: int, sequence: int, node: int) -> int:
    """Return the id of `time_ms` (since 1970, `[EPOCH_MS, TIME_MS_MAX]`), sequence `[0, 4095]` and node `[0, 1023]`."""
    _check("time", time_ms, low=EPOCH_MS, high=TIME_MS_MAX)
    _check("sequence", sequence, low=0, high=SEQUENCE_MAX)
    _check("node", node, low=0, high=NODE_NUMBER_MAX)
    return (time_ms - EPOCH_MS) << TIME_SHIFT | sequence << NODE_BITS | node


def decode_id(event_id: int) -> tuple[int, int, int]:
    """Return milliseconds since 1970, sequence and node of an id in `[0, ID_MAX]`."""
    _check("id", event_id, low=0, high=ID_MAX)
    return time_of(event_id), (event_id >> NODE_BITS) & SEQUENCE_MAX, event_id & NODE_NUMBER_MAX


def time_of(event_id: int) -> int:
    """Return the milliseconds since 1970 in an id."""
    return (event_id >> TIME_SHIFT) + EPOCH_MS


def id_before(time_ms: int) -> int:
    """Return the last id possible before `time_ms` (since 1970): reading after it misses nothing of that moment or later.

    Any time has an answer: 0 up to the epoch, `ID_MAX` after the last id's time.
    """
    return min(max(((time_ms - EPOCH_MS) << TIME_SHIFT) - 1, 0), ID_MAX)


def last_of_run(base: int, n: int) -> int:
    """Return the last of the `n` >= 1 ids that begin with `base`."""
    return base + (n - 1) * ID_STEP


def id_fields(**ids: int | None) -> dict[str, Any]:
    """Return each number under its name and, as a string, under `<name>_str`: readers with 53-bit numbers would round it."""
    fields: dict[str, Any] = {}
    for name, number in ids.items():
        fields[name] = number
        if number is not None:
            fields[f"{name}_str"] = str(number)
    return fields


def _check(what: str, found: int, *, low: int, high: int) -> None:
    if not low <= found <= high:
        raise InvalidArgument(why=f"{what} {found} is not in [{low}, {high}]")


class IdTimes:
    """Ids to ISO times; neighbouring ids share their second, so its text is kept."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, event_id: int) -> str:
        """Return the time in `event_id` as `2026-11-20T10:00:00.123Z`."""
        second, milliseconds = divmod((event_id >> TIME_SHIFT) + EPOCH_MS, 1_000)
        if second != self._second:
            self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._second = second
        return f"{self._text}.{milliseconds:03d}Z"


class FlakeClock:
    """A node's source of ids, and of promises to issue none: the two strictly rise together, whatever the wall clock does.

    `last` is the highest id issued, promised or seen; everything issued later is above it. Ids and promises stay below
    `ceiling`, which only the owner of the lease moves. Without a ceiling (0) nothing is issued.
    """

    __slots__ = ("_agreed_ms", "_asked", "_clock", "_measured_ms", "_median_ms", "_node", "_physical_halves", "ceiling", "last")

    def __init__(self, clock: Clock, *, node: int) -> None:
        _check("node", node, low=1, high=NODE_NUMBER_MAX)
        self._clock = clock
        self._node = node
        self._physical_halves = 0  # halves of a millisecond since 2020: at half speed, whole ones would be lost between close looks
        self._measured_ms = clock.monotonic_ms()
        self._median_ms: tuple[int, int] | None = None  # the members' median since 2020, and the monotonic time it was heard
        self._agreed_ms: tuple[int, int] | None = None  # the same, as most members' clocks were close to it
        self._asked = 0
        self.last = 0
        self.ceiling = 0

    def physical_ms(self) -> int:
        """Return physical time in milliseconds since 1970: what lifespans, retention and the bound on ids ahead compare with.

        It follows the wall clock forward, but no further than a little above the members' median; when the wall clock stops
        or is set back, it goes on at half speed.
        """
        return self._physical() + EPOCH_MS

    def _physical(self) -> int:
        now = self._clock.monotonic_ms()
        wall = self._clock.wall_ms() - EPOCH_MS
        if self._median_ms is not None:
            median, heard = self._median_ms
            wall = min(wall, median + (now - heard) + MEDIAN_SLACK_MS)
        slowest = self._physical_halves + (now - self._measured_ms)
        self._physical_halves = max(2 * wall, slowest)
        self._measured_ms = now
        return self._physical_halves // 2

    def next(self, n: int) -> int:
        """Return the base of a run of `n` >= 1 fresh ids. After an error nothing was issued.

        Raises:
            ClockAhead: the run would end more than `CLOCK_AHEAD_MS_MAX` ahead of physical time; it passes.
            MetadataUnavailable: the run would not end below the ceiling, which has not been raised in time.
        """
        assert n >= 1, "a run has at least one id"
        physical = self._physical()
        base = max((self.last >> NODE_BITS) + 1, physical << SEQUENCE_BITS) << NODE_BITS | self._node
        last = last_of_run(base, n)
        ahead_ms = (last >> TIME_SHIFT) - physical
        if ahead_ms > CLOCK_AHEAD_MS_MAX or last > ID_MAX:
            raise ClockAhead(ahead_ms=ahead_ms)
        if last >= self.ceiling:
            self._asked = max(self._asked, last)
            raise MetadataUnavailable(why="the lease of ids is used up")
        self.last = last
        return base

    def observe(self, event_id: int) -> None:
        """Adopt an id from outside, so that everything issued later is above it.

        Raises:
            ClockSkew: it lies more than `CLOCK_AHEAD_MS_MAX` above physical time; the clock did not move.
        """
        _check("id", event_id, low=0, high=ID_MAX)
        ahead_ms = (event_id >> TIME_SHIFT) - self._physical()
        if ahead_ms > CLOCK_AHEAD_MS_MAX:
            raise ClockSkew(id=event_id, ahead_ms=ahead_ms)
        self.last = max(self.last, event_id)

    def raise_above(self, floor: int) -> None:
        """Issue and promise only above `floor`, an id that the metadata store or the own log vouches for, however far ahead.

        Physical time is lifted as far as issuing needs and no further: lifespans end by it.
        """
        _check("floor", floor, low=0, high=ID_MAX)
        self.last = max(self.last, floor)
        self._lift((floor >> TIME_SHIFT) - CLOCK_AHEAD_MS_MAX)

    def start_above(self, ceiling: int) -> None:
        """Begin after `ceiling`, the one in the own node record: an earlier process may have issued everything below it.

        Physical time begins there too, since that process may have ended lifespans by it.
        """
        self.raise_above(ceiling)
        self._lift(ceiling >> TIME_SHIFT)

    def _lift(self, physical: int) -> None:
        self._physical()
        self._physical_halves = max(self._physical_halves, 2 * physical)

    def agreed_ms(self) -> int | None:
        """Return physical time brought within `MEDIAN_SLACK_MS` of the members' median: what members agree on, in `AGREED_WITHIN_MS`.

        Physical time is bounded from above alone, so that of a member whose wall clock is an hour behind may be as far behind. This one
        is for what one member writes and another reads. It follows the median, and so may go back. None: most members' clocks have not
        been heard yet to be close to each other, so that this one might be the one that is wrong.
        """
        if self._agreed_ms is None:
            return None
        physical = self._physical()
        median, heard = self._agreed_ms
        median += self._measured_ms - heard
        return min(max(physical, median - MEDIAN_SLACK_MS), median + MEDIAN_SLACK_MS) + EPOCH_MS

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment of this machine; what must not change when a wall clock jumps is counted by it."""
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""
        return self._clock.wall_ms()

    def hear_others(self, ahead_ms: Sequence[int], *, members: int) -> None:
        """Take the wall clocks of the others that are heard, each in milliseconds ahead of this one's; `members` there are in all."""
        clocks = sorted((0, *ahead_ms))
        median = clocks[(len(clocks) - 1) // 2]
        if ahead_ms:
            self.hear_median(self.wall_ms() + median)
        if 2 * sum(abs(clock - median) <= MEDIAN_SLACK_MS for clock in clocks) > members:
            self._agreed_ms = self.wall_ms() + median - EPOCH_MS, self._clock.monotonic_ms()

    def hear_median(self, median_ms: int) -> None:
        """Take the lower median of the members' clocks, since 1970, as of now; it is carried on by the monotonic clock."""
        self._median_ms = (median_ms - EPOCH_MS, self._clock.monotonic_ms())

    def close_up(self, upto: int | None = None, *, vouched: Callable[[], int] = lambda: 0) -> int:
        """Promise that nothing at or below the returned id will be issued any more.

        The promise covers all that was issued or seen and all time before this millisecond; with `upto`, that id too, unless it lies
        too far ahead and at or above `vouched()`, the highest lease of a member. What the ceiling does not allow is left out, and
        wanted from the next lease. Promises never fall unless the ceiling does.
        """
        if upto is not None:
            try:
                self.observe(upto)
            except ClockSkew:
                if upto < vouched():  # a member issued it, so it is this clock that is far behind
                    self.raise_above(upto)
        wanted = max(self.last, (self._physical() << TIME_SHIFT) - 1)
        allowed = max(min(wanted, self.ceiling - 1), 0)
        self.last = max(self.last, allowed)
        return allowed

    def ceiling_wanted(self) -> int:
        """Return the ceiling to lease next: `LEASE_MS` above the clock, `LEASE_AHEAD_MS` above what was or could not be issued.

        A segment that changes primaries again and again starts each time above the last lease: with whole leases, one takeover
        every few seconds would drive ids ahead of the clock without end.
        """
        latest = max(self.last, self._asked)
        return min(max(self._physical() + LEASE_MS, (latest >> TIME_SHIFT) + LEASE_AHEAD_MS) << TIME_SHIFT, ID_MAX)

    def set_ceiling(self, ceiling: int) -> None:
        """Issue and promise below `ceiling` from now on. Raise it only after the store has it; lower it before."""
        _check("ceiling", ceiling, low=0, high=ID_MAX)
        self.ceiling = ceiling
