"""Bugs of what applications rely on: groups, work, near caches and readers; told as those of the protocol are."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from eventlog.events import Change, Kind
from eventlog.wire.session import Reply
from tests.sim.planting import Mutant, instead


def _any_commit_counts(_name: str, _state: Any, _commit: Any) -> None:
    return None


def _give_at_once(state: Any) -> Any:
    given = tuple(
        state.generation if holder != target else given
        for holder, target, given in zip(state.holders, state.targets, state.given, strict=True)
    )
    return replace(state, holders=state.targets, given=given)


def _goes_on_in_a_later_term(_original: Any) -> Any:
    def is_current(running: Any) -> bool:
        running.term = running.node.inner.term(running.route) or running.term
        return True

    return property(is_current)


def _write_wherever_it_is_led(original: Any) -> Any:
    """Have a write go on when the term is over, at whoever leads the route then."""
    return lambda self, *args, **options: original(self, *args, **{**options, "term": None})


def _end_where_it_was_cut_short(original: Any) -> Any:
    return lambda matched, limits: replace(original(matched, limits), upto=matched.upto)


def _skip_what_no_event_of_matches(original: Any) -> Any:
    """Take the first kind that a stored value holds for the only one."""

    def kinds_of(values: Any, rows: Any) -> Any:
        kinds = original(values, rows)
        return kinds & -kinds.astype(np.int16)

    return kinds_of


def _begin_the_segment_again(_original: Any) -> Any:
    return property(lambda self: ((*self.open, *(segment for segment in self.left if segment not in self.open)), None))


def _take_any_place(self: Any, cursors: Any) -> None:
    for cursor in cursors:
        self.open[cursor.segment] = cursor
        if cursor.finished:
            self.left.pop(cursor.segment, None)
            del self.open[cursor.segment]


def _changes_without_joined(original: Any) -> Any:
    def changes(self: Any, events: Any) -> Any:
        found = original(self, events)
        return np.where(found == Change.JOINED, 0, found).astype(np.uint8)

    return changes


def _expiry_is_no_leaving(original: Any) -> Any:
    def changes(self: Any, events: Any) -> Any:
        found = original(self, events)
        return np.where((np.asarray(events.kinds) == Kind.EXPIRED) & (found == Change.LEFT), 0, found).astype(np.uint8)

    return changes


def _keep_as_done_what_was_handed_out(original: Any) -> Any:
    return lambda self: [replace(one, is_done=one.is_done or bool(one.member)) for one in original(self)]


def _go_by_the_wall_clock(_original: Any) -> Any:
    return lambda clock: clock.wall_ms()


def _own_time_where_none_is_agreed_on(original: Any) -> Any:
    def agreed_ms(clock: Any) -> int:
        found: int | None = original(clock)
        return clock.physical_ms() if found is None else found

    return agreed_ms


def _keep_how_far_it_is_ahead(original: Any) -> Any:
    """Keep another member's wall clock as ahead of the own one, and not of the monotonic clock."""

    def beaten(self: Any, peer: Any, connection: Any, outcome: Any) -> None:
        original(self, peer, connection, outcome)
        if isinstance(outcome, Reply):
            peer.clock_ms = outcome.message.beat_answer.now_ms - self._clock.wall_ms()

    return beaten


def _ahead_as_it_was_kept(self: Any) -> list[int]:
    return [peer.clock_ms for peer in self._peers.values() if peer.connection is not None and peer.clock_ms is not None]


def _sessions_by_the_wall_clock(_original: Any) -> Any:
    return property(lambda running: running.node.clock.wall_ms())


def _hand_out_whatever_is_there(self: Any, now_ms: int, limit: int) -> Any:
    return [task for task in self.tasks.values() if task.ready_ms <= now_ms][:limit]


def _forget_the_place(original: Any) -> Any:
    def close(self: Any) -> None:
        original(self)
        self.upto = 0

    return close


def _look_at_what_is_there_now(self: Any, store: Any, state: Any) -> None:
    self._store, self._rows = store, state


MUTANTS: Final = (
    Mutant(
        name="commit not fenced",
        target="eventlog.node.consumers.coordinator:check_commit",
        make=instead(_any_commit_counts),
        seed=11,
        world="groups",
    ),
    Mutant(
        name="segment given to two members",
        target="eventlog.groups.coordinator:give",
        make=instead(_give_at_once),
        seed=1,
        world="groups",
    ),
    Mutant(
        name="coordinator goes by what it knew in an earlier term",
        target="eventlog.node.consumers.coordinator:Running.is_current",
        make=_goes_on_in_a_later_term,
        seed=10,
        world="groups",
    ),
    Mutant(
        name="group written behind its next coordinator's back",
        target="eventlog.node.consumers.inner:Inner.write",
        make=_write_wherever_it_is_led,
        seed=100009,
        world="groups",
    ),
    Mutant(
        name="sessions by the wall clock",
        target="eventlog.node.consumers.coordinator:Running.now_ms",
        make=_sessions_by_the_wall_clock,
        seed=1,
        world="groups",
    ),
    Mutant(
        name="position advanced past an unread match",
        target="eventlog.read.filtered:within",
        make=_end_where_it_was_cut_short,
        seed=0,
        world="reading",
    ),
    Mutant(
        name="stored value skipped that holds a match",
        target="eventlog.read.filtered:kinds_of",
        make=_skip_what_no_event_of_matches,
        seed=1,
        world="reading",
    ),
    Mutant(
        name="snapshot not pinned",
        target="eventlog.segment.memory:MemorySnapshot.__init__",
        make=instead(_look_at_what_is_there_now),
        seed=18,
        world="reading",
    ),
    Mutant(
        name="entry repeated after another node took over",
        target="eventlog.query.iterate:IterationProgress.next",
        make=_begin_the_segment_again,
        also=(("eventlog.query.iterate:IterationProgress.took", instead(_take_any_place)),),
        seed=0,
        world="reading",
    ),
    Mutant(
        name="joining a query missed",
        target="eventlog.predicate.compile:Compiled.changes",
        make=_changes_without_joined,
        seed=0,
        world="reading",
    ),
    Mutant(
        name="expiry not told as leaving a query",
        target="eventlog.predicate.compile:Compiled.changes",
        make=_expiry_is_no_leaving,
        seed=0,
        world="reading",
    ),
    Mutant(
        name="event done before it was worked on",
        target="eventlog.groups.work:SegmentQueue.kept",
        make=_keep_as_done_what_was_handed_out,
        seed=0,
        world="work",
    ),
    Mutant(
        name="event handed out twice at once",
        target="eventlog.groups.work:SegmentQueue.ready",
        make=instead(_hand_out_whatever_is_there),
        seed=0,
        world="work",
    ),
    Mutant(
        name="leases and retries by the wall clock",
        target="eventlog.ids:FlakeClock.monotonic_ms",
        make=_go_by_the_wall_clock,
        seed=1,
        world="work",
    ),
    Mutant(
        name="retries kept as times of the wall clock",
        target="eventlog.ids:FlakeClock.agreed_ms",
        make=_go_by_the_wall_clock,
        seed=3,
        world="work",
    ),
    Mutant(
        name="own time taken where none is agreed on",
        target="eventlog.ids:FlakeClock.agreed_ms",
        make=_own_time_where_none_is_agreed_on,
        seed=15,
        world="work",
    ),
    Mutant(
        name="others' clocks kept as ahead of the own wall clock",
        target="eventlog.node.cluster.peers:Peers._beaten",
        make=_keep_how_far_it_is_ahead,
        also=(("eventlog.node.cluster.peers:Peers.clocks_ahead_ms", instead(_ahead_as_it_was_kept)),),
        seed=1,
        world="work",
    ),
    Mutant(
        name="invalidation lost at resume",
        target="eventlog.client.near.table:NearTable.close",
        make=_forget_the_place,
        seed=20,
        world="near",
    ),
)
