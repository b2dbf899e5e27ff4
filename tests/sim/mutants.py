"""Bugs that only a whole node can have, each planted in place of a method; the simulator must find every one of them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from secrets import randbelow
from typing import Any, Final

import numpy as np

from eventlog.errors import EventLogError
from eventlog.state.producers import TRANSACTIONS_FROM
from eventlog.write.transactions import NextStep
from tests.sim.cluster.application_mutants import MUTANTS as OF_APPLICATIONS
from tests.sim.planting import Mutant, instead


def _tell_before_it_is_written(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_and_tell(self: Any, append: Any, told: Any) -> None:
        original(self, append, lambda _error: None)
        asyncio.get_running_loop().call_soon(told, None)

    return append_and_tell


def _show_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, _entries, nbytes: original(self, [], nbytes)


def _marks_as_of_the_furthest(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda caches, *, marks, **others: original(caches, marks=np.full_like(marks, marks.max()), **others)


def _commit_what_was_lost(original: Callable[..., Any]) -> Callable[..., Any]:
    def settled(self: Any, group: Any, flight: Any) -> None:
        flight.lost = frozenset()
        original(self, group, flight)

    return settled


def _acknowledge_what_is_there(original: Callable[..., Any]) -> Callable[..., Any]:
    async def acknowledging(self: Any, poll: Any) -> Any:
        poll = type(poll)(cache_id=poll.cache_id, after=await self._end() if await original(self, poll) else 0)
        return await original(self, poll)

    return acknowledging


async def _hold_nothing(_self: Any, _cache_id: int, _segments: Any) -> list[Any]:
    return []


def _follow_without_dropping(self: Any, upto: int, **_: Any) -> None:
    self.upto = max(self.upto, upto)


def _number_anew(original: Callable[..., Any]) -> Callable[..., Any]:
    def resume(self: Any) -> Any:
        again = original(self)
        for frame in again:
            chains = self._numbering.chains[frame.cache]
            frame.sequences, frame.doubtful = chains.next[frame.segments], False
            chains.next[frame.segments] += 1
        return again

    return resume


def _see_without_judging(original: Callable[..., Any]) -> Callable[..., Any]:
    def see(self: Any, entry: Any) -> bool:
        original(self, entry)
        return True

    return see


def _publish_as_anybody(original: Callable[..., Any]) -> Callable[..., Any]:
    async def publish_segment(self: Any, request: Any, *, timeout_ms: int) -> None:
        again = type(request)()
        again.CopyFrom(request)
        again.producer, again.first = TRANSACTIONS_FROM + randbelow(1 << 62), 0
        await original(self, again, timeout_ms=timeout_ms)

    return publish_segment


def _one_place_for_all_attempts(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, segment, attempt: original(self, segment, bytes(len(attempt)))


def _decide_again(original: Callable[..., Any]) -> Callable[..., Any]:
    def step_of(found: Any, batch: int) -> NextStep:
        step: NextStep = original(found, batch)
        return NextStep.BEGIN if step is NextStep.GO_ON and found.batch == batch else step

    return step_of


def _carry_out_later(original: Callable[..., Any]) -> Callable[..., Any]:
    async def carry_out(self: Any, cache: Any, found: Any, staged: Any, *, deadline: float) -> None:
        async def later() -> None:
            with suppress(EventLogError):
                await original(self, cache, found, staged, deadline=deadline)

        self._node.own(asyncio.create_task(later()))

    return carry_out


def _open_without_comparing(piece: bytes) -> bytes:
    return piece[4:]


def _flush_nothing(_original: Any) -> Any:
    async def flush(self: Any) -> Any:
        self._marks = np.maximum(self._marks, self._node.followed.applied)
        return self._marks

    return flush


def _follow_what_is_not_committed(original: Callable[..., Any]) -> Callable[..., Any]:
    def follow(self: Any, segments: Any, watermarks: Any) -> None:
        original(self, segments, np.maximum(watermarks, self._replicas.core.ends[segments]))

    return follow


_OTHERS: Final = {"entry repeated after another node took over": 6, "joining a query missed": 4, "event done before it was worked on": 9}
"""Those that runs of one kind of application are to find as well, with the seed that finds them here."""

MUTANTS: Final = (
    Mutant(
        name="commit before the storage thread's answer",
        target="eventlog.node.writing.storage:StorageThread.append_and_tell",
        make=_tell_before_it_is_written,
        seed=7,
        world="clients",
    ),
    Mutant(
        name="overlay without what the state does not hold yet",
        target="eventlog.write.overlay:Overlay.push",
        make=_show_nothing,
        seed=0,
        world="clients",
    ),
    Mutant(
        name="promise above what is in flight",
        target="eventlog.read.watermark:Promises.begin",
        make=lambda _: lambda *_args, **_options: None,
        seed=0,
        world="clients",
    ),
    Mutant(
        name="write that comes again is written again",
        target="eventlog.state.producers:ProducerTable.is_next",
        make=lambda _: lambda self, number, _segment, _sequence: number in self._producers,
        also=(("eventlog.state.producers:ProducerTable._sort_block", lambda _: lambda *_args, **_options: None),),
        seed=0,
        world="clients",
    ),
    Mutant(
        name="mark ahead of the state",
        target="eventlog.node.state.checkpoint:checkpoint_rows",
        make=_marks_as_of_the_furthest,
        seed=37,
        world="clients",
    ),
    Mutant(
        name="group that was fenced answered as committed",
        target="eventlog.node.writing.writer:NodeWriter._settled",
        make=_commit_what_was_lost,
        seed=4,
        world="clients",
    ),
    Mutant(
        name="retry under a new number",
        target="eventlog.routing.window:Window.resume",
        make=_number_anew,
        seed=6,
        world="clients",
    ),
    Mutant(name="condition not judged", target="eventlog.write.few:Lone.see", make=_see_without_judging, seed=1, world="clients"),
    Mutant(
        name="listener moved on before it was given anything",
        target="eventlog.node.consumers.listeners:Listeners._acknowledging",
        make=_acknowledge_what_is_there,
        seed=1,
        world="clients",
    ),
    Mutant(
        name="retention passes what is held back",
        target="eventlog.node.consumers.listener_home:ListenerHome.holds",
        make=instead(_hold_nothing),
        seed=2,
        world="clients",
    ),
    Mutant(
        name="near cache keeps what was written over",
        target="eventlog.client.near.table:NearTable.advance",
        make=instead(_follow_without_dropping),
        seed=0,
        world="clients",
    ),
    Mutant(
        name="batch not written as its transaction's producer",
        target="eventlog.node.consumers.transactions:Transactions.publish_segment",
        make=_publish_as_anybody,
        seed=2,
        world="clients",
    ),
    Mutant(
        name="attempts laid ready in one place",
        target="eventlog.node.consumers.transactions:Transactions._prefix",
        make=_one_place_for_all_attempts,
        seed=2,
        world="clients",
    ),
    Mutant(
        name="batch decided again with other attempts",
        target="eventlog.write.transactions:step_of",
        make=_decide_again,
        seed=35,
        world="clients",
    ),
    Mutant(
        name="batch done before it is written",
        target="eventlog.node.consumers.transactions:Transactions._carry_out",
        make=_carry_out_later,
        seed=2,
        world="clients",
    ),
    Mutant(
        name="copy switched to before its checksum was compared",
        target="eventlog.node.copying.replicate_copy:unseal",
        make=instead(_open_without_comparing),
        seed=3,
        world="clients",
    ),
    Mutant(
        name="keys known of an earlier term",
        target="eventlog.node.copying.takeover:TakeOver.rebuild_keys",
        make=instead(lambda _self, _segments: None),
        seed=3,
        world="clients",
    ),
    Mutant(
        name="trimmed above what is on disk",
        target="eventlog.node.copying.retention:Retention.flush",
        make=_flush_nothing,
        seed=10,
        world="clients",
    ),
    Mutant(
        name="state of a backup ahead of the watermark",
        target="eventlog.node.copying.replicate_in:IncomingAppends.follow",
        make=_follow_what_is_not_committed,
        seed=7,
        world="clients",
    ),
    *(replace(mutant, world="clients", seed=_OTHERS[mutant.name]) for mutant in OF_APPLICATIONS if mutant.name in _OTHERS),
)
