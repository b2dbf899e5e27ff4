"""Planted bugs of what consumers rely on: groups, readers, work, near caches and mirrors; told as those of the protocol are."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from eventlog.events import Change, Kind
from tests.sim.planting import Mutant, instead

_COPYING: Final = "eventlog.integrations.kafka.copying"


def _commit_progress_apart(_original: Any) -> Any:
    async def commit(self: Any, made: Any, records: Any) -> None:
        mirror = self._of.mirror
        await self._writer.write({mirror.topic: made.batches}, progress_topic=mirror.progress_topic, progress={})
        await self._writer.write({}, progress_topic=mirror.progress_topic, progress=records)

    return commit


class _Early:
    """A way into Kafka whose progress was read before."""

    def __init__(self, kafka: Any, records: Any) -> None:
        self._kafka = kafka
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)

    async def records(self, _topic: str, **_: Any) -> Any:
        return self._records


def _read_progress_first(original: Any) -> Any:
    async def copy(self: Any) -> Any:
        opened = self._open_kafka
        kafka = opened(self._mirror.kafka)
        early = _Early(kafka, await kafka.records(self._mirror.progress_topic))
        self._open_kafka = lambda _name: early
        try:
            return await original(self)
        finally:
            self._open_kafka = opened

    return copy


def _no_record(_mirror: Any, _shard: int, **_: Any) -> Any:
    return {}


def _look_for_nothing(original: Any) -> Any:
    async def found(*args: Any, **named: Any) -> Any:
        return replace(await original(*args, **named), begins={})

    return found


def _settle_as(*, committed: bool) -> Any:
    return lambda original: lambda self, place, **_: original(self, place, is_commit=committed)


def _settle_nothing(_original: Any) -> Any:
    async def settle(_self: Any, _at: Any) -> None:
        return

    return settle


def _any_term_counts(found: Any, _mirror: Any, **_: Any) -> Any:
    return found


def _remember_where_it_goes(original: Any) -> Any:
    def records(self: Any, at: Any, rows: Any) -> Any:
        self._goes_to = at
        return original(self, at, rows)

    return records


def _let_go_before_the_commit(original: Any) -> Any:
    async def commit(self: Any, made: Any, records: Any) -> None:
        await self._source.acknowledge(self._goes_to)
        await original(self, made, records)

    return commit


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


CONSUMER_MUTANTS: Final = (
    Mutant(
        name="commit not fenced",
        target="eventlog.node.consumers.coordinator:check_commit",
        make=instead(_any_commit_counts),
        seed=13,
        world="group",
    ),
    Mutant(
        name="segment given to two members",
        target="eventlog.groups.coordinator:give",
        make=instead(_give_at_once),
        seed=1,
        world="group",
    ),
    Mutant(
        name="coordinator goes by what it knew in an earlier term",
        target="eventlog.node.consumers.coordinator:Running.is_current",
        make=_goes_on_in_a_later_term,
        seed=15,
        world="group",
    ),
    Mutant(
        name="group written behind its next coordinator's back",
        target="eventlog.node.consumers.inner:Inner.write",
        make=_write_wherever_it_is_led,
        seed=6,
        world="group",
    ),
    Mutant(
        name="sessions by the wall clock",
        target="eventlog.node.consumers.coordinator:Running.now_ms",
        make=_sessions_by_the_wall_clock,
        seed=1,
        world="group",
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
        seed=0,
        world="reading",
    ),
    Mutant(
        name="snapshot not pinned",
        target="eventlog.segment.memory:MemorySnapshot.__init__",
        make=instead(_look_at_what_is_there_now),
        seed=0,
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
        seed=0,
        world="work",
    ),
    Mutant(
        name="retries kept as times of the wall clock",
        target="eventlog.ids:FlakeClock.agreed_ms",
        make=_go_by_the_wall_clock,
        seed=1,
        world="work",
    ),
    Mutant(
        name="invalidation lost at resume",
        target="eventlog.client.near.table:NearTable.close",
        make=_forget_the_place,
        seed=100001,
        world="near",
    ),
    Mutant(
        name="progress of a mirror in a transaction of its own",
        target=f"{_COPYING}:Copying._commit",
        make=_commit_progress_apart,
        seed=0,
        world="mirror",
    ),
    Mutant(
        name="progress read before the producer is opened",
        target="eventlog.integrations.kafka.shard:Shard._copy",
        make=_read_progress_first,
        seed=0,
        world="mirror",
    ),
    Mutant(
        name="progress read up to where a former leader says that it ends",
        target="eventlog.mirror.progress:begin_of",
        make=instead(_no_record),
        seed=0,
        world="mirror",
    ),
    Mutant(
        name="what Kafka left open of a transaction not looked for",
        target="eventlog.integrations.kafka.settling:LeftOpen.found",
        make=_look_for_nothing,
        seed=200021,
        world="mirror",
    ),
    Mutant(
        name="what Kafka left open of a transaction given up in any case",
        target="eventlog.integrations.kafka.settling:LeftOpen._settle",
        make=_settle_as(committed=False),
        seed=0,
        world="mirror",
    ),
    Mutant(
        name="what Kafka left open of a transaction committed in any case",
        target="eventlog.integrations.kafka.settling:LeftOpen._settle",
        make=_settle_as(committed=True),
        seed=200069,
        world="mirror",
    ),
    Mutant(
        name="what Kafka left open of the last transaction not looked for",
        target=f"{_COPYING}:Copying._settle",
        make=_settle_nothing,
        seed=73,
        world="mirror",
    ),
    Mutant(
        name="term of a shard not compared",
        target="eventlog.mirror.progress:_checked",
        make=instead(_any_term_counts),
        seed=0,
        world="mirror",
    ),
    Mutant(
        name="hold of a mirror moved before the commit",
        target=f"{_COPYING}:Copying._commit",
        make=_let_go_before_the_commit,
        also=((f"{_COPYING}:Copying._records", _remember_where_it_goes),),
        seed=0,
        world="mirror",
    ),
)
