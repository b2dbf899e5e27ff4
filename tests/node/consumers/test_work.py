"""A work group at a node that leads all of it; with members over the wire it is in tests/process/one_loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventlog.clock import Clock, SystemClock
from eventlog.errors import EventLogError, NotPrimary, OperationRefused
from eventlog.groups.coordinator import join
from eventlog.groups.record import GROUPS_CACHE, Member, new_group
from eventlog.groups.sharing import AGAIN, DONE, REJECTED, Settled, Wanted
from eventlog.ids import ID_MAX, FlakeClock
from eventlog.node.consumers.coordinator import Running, agreed_time
from eventlog.node.consumers.work import Work
from eventlog.node.node import Node
from eventlog.state.caches import CacheState
from tests.loops import until
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node

Act = Callable[[Node, Work, Running], Awaitable[None]]
MEMBER = "m"
HOUR_MS = 3_600_000


async def group_of(node: Node, cache: CacheState, **options: object) -> Running:
    """A work group with one member."""
    made = replace(new_group(SEGMENTS, mode="work"), **options)
    running = await node.coordinators.find("g", cache.cache_id, create=lambda: made)
    async with running.lock:
        await running.keep(join(running.state, Member(id=MEMBER)))
    return running


class JumpingClock(SystemClock):
    """This machine's clocks; the wall clock is off by `off_ms`."""

    def __init__(self) -> None:
        self.off_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.off_ms


def with_group(directory: Path, act: Act, values: Sequence[bytes] = (b"1",), *, clock: Clock | None = None, **options: object) -> None:
    """Run `act` with a work group over a cache with events of as many keys as there are values."""

    async def run(node: Node) -> None:
        cache = await cache_of(node)
        for number, value in enumerate(values):
            await submit(node, cache, [(b"k%d" % number, value)])
        running = await group_of(node, cache, **options)
        assert running.work is not None
        await act(node, running.work, running)

    with_node(directory, run, clock=clock)


def wanted(sequence: int, *, limit: int = 1, holding: frozenset[int] = frozenset()) -> Wanted:
    return Wanted(sequence=sequence, limit=limit, holding=holding)


async def take(work: Work, count: int = 1) -> list[Settled]:
    """Take some events, one request after the other; return them as settled with DONE."""
    found: list[Settled] = []
    for number in range(count):
        asked = wanted(number + 1, holding=frozenset(one.id for one in found))
        found += [Settled(segment=row.segment, id=task.id, verdict=DONE) for task, row in await work.take(MEMBER, asked, wait_ms=30_000)]
    return found


def test_whoever_waits_is_answered_when_the_group_goes_elsewhere(tmp_path: Path) -> None:
    async def act(_: Node, work: Work, running: Running) -> None:
        begun = asyncio.Event()
        [task] = await take(work)

        async def write(*_: object, **__: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        running.write = write
        written = asyncio.ensure_future(work.settle(MEMBER, [task]))
        await begun.wait()
        queued = asyncio.ensure_future(work.settle(MEMBER, [task]))
        await asyncio.sleep(0)
        running.forget(NotPrimary(segment=0))
        late = asyncio.ensure_future(work.settle(MEMBER, [task]))
        for request in (written, queued, late):
            with pytest.raises(NotPrimary):
                await request

    with_group(tmp_path, act)


def test_a_group_that_is_led_elsewhere_answers_so(tmp_path: Path) -> None:
    async def act(node: Node, work: Work, running: Running) -> None:
        [task] = await take(work)
        node.replicas.serving[:] = False
        with pytest.raises(NotPrimary):
            await work.settle(MEMBER, [task])
        node.replicas.serving[:] = True
        assert running.is_over

    with_group(tmp_path, act)


def test_what_breaks_a_turn_ends_the_group_there_and_not_the_node(tmp_path: Path) -> None:
    async def act(node: Node, work: Work, running: Running) -> None:
        [task] = await take(work)
        with pytest.raises(EventLogError, match="a bug of eventlog"):
            await work.settle(MEMBER, [replace(task, verdict=AGAIN, after_ms=1 << 64)])
        assert running.is_over
        again = await node.coordinators.find(*running.id)
        assert again.work is not None
        await again.work.settle(MEMBER, [task])

    with_group(tmp_path, act)


def test_what_breaks_the_reading_ends_the_group_there_and_not_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise OverflowError

    async def act(node: Node, work: Work, running: Running) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(node.work_reading, "read", broken)
            with pytest.raises(NotPrimary):
                await work.take(MEMBER, wanted(1), wait_ms=30_000)
        again = await node.coordinators.find(*running.id)
        assert again.work is not None
        assert len(await take(again.work)) == 1

    with_group(tmp_path, act)


def test_a_group_that_was_kept_with_a_start_behind_all_ids_is_no_trouble(tmp_path: Path) -> None:
    async def act(node: Node, work: Work, running: Running) -> None:
        running.forget(NotPrimary(segment=0))
        again = await node.coordinators.find(*running.id)
        assert again.work is not None
        assert again.state.start_id == ID_MAX
        assert await again.work.take(MEMBER, wanted(1), wait_ms=0) == []

    with_group(tmp_path, act, start_id=ID_MAX + 1)


@pytest.mark.parametrize("name", [GROUPS_CACHE, "c"])
def test_dead_letters_do_not_go_where_none_belong_whatever_was_kept(tmp_path: Path, name: str) -> None:
    async def act(node: Node, work: Work, running: Running) -> None:
        [task] = await take(work)
        with pytest.raises(OperationRefused):
            await work.settle(MEMBER, [replace(task, verdict=REJECTED)])
        assert not running.is_over
        assert b"k0" not in [key for key, _ in await node.inner.scan_all(GROUPS_CACHE)]
        assert node.caches.named("c").next_offsets.sum() == 1

    with_group(tmp_path, act, dead_letters=name)


async def refuse(node: Node) -> CacheState:
    """A cache of dead letters that takes no values but JSON."""
    return await cache_of(node, "dead", format="json")


async def accept(node: Node) -> None:
    await node.cache_changes.drop("dead")


def test_a_dead_letter_that_cannot_be_written_fails_its_rejection_alone(tmp_path: Path) -> None:
    async def act(node: Node, work: Work, running: Running) -> None:
        await refuse(node)
        bad, good, other = sorted(await take(work, 3), key=lambda one: one.id)
        bad, fine = replace(bad, verdict=REJECTED), replace(other, verdict=REJECTED)
        refused = asyncio.ensure_future(work.settle(MEMBER, [bad]))
        await asyncio.gather(work.settle(MEMBER, [good]), work.settle(MEMBER, [fine]))
        with pytest.raises(EventLogError, match="not JSON"):
            await refused
        assert not running.is_over
        assert [task.id for queue in work.sharing.queues.values() for task in queue.tasks.values()] == [bad.id]
        with pytest.raises(EventLogError, match="not JSON"):
            await work.settle(MEMBER, [bad])
        assert node.caches.named("dead").next_offsets.sum() == 1
        await accept(node)
        await work.settle(MEMBER, [bad])
        assert node.caches.named("dead").next_offsets.sum() == 1

    with_group(tmp_path, act, values=(b"\xff", b"1", b"1"), dead_letters="dead")


def test_who_finds_nothing_looks_again_when_something_has_changed_and_not_before(tmp_path: Path) -> None:
    async def act(node: Node, work: Work, running: Running) -> None:
        [task] = await take(work)
        turns = 0
        turn_of = work._turn_of

        async def counted(requests: list[Any]) -> list[Any]:
            nonlocal turns
            turns += 1
            return await turn_of(requests)

        work._turn_of = counted
        holding = frozenset([task.id])
        waiting = asyncio.ensure_future(work.take(MEMBER, wanted(2, holding=holding), wait_ms=30_000))
        other = await cache_of(node, "other")
        for _ in range(20):
            await submit(node, other, [(b"k", b"1")])
        assert turns == 1
        await submit(node, node.caches.named("c"), [(b"k0", b"2")])  # the next one of its key
        await at_hand(work, 2)
        await work.settle(MEMBER, [task])
        assert [row.value for _, row in await waiting] == [b"2"]

    with_group(tmp_path, act)


async def at_hand(work: Work, count: int) -> None:
    """Wait until the coordinator has read some events."""
    await until(lambda: sum(len(queue.tasks) for queue in work.sharing.queues.values()) >= count)


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_wall_clock_that_jumps_changes_no_retry(tmp_path: Path, off_ms: int) -> None:
    clock = JumpingClock()

    async def act(_: Node, work: Work, running: Running) -> None:
        [task] = await take(work)
        await work.settle(MEMBER, [replace(task, verdict=AGAIN, after_ms=200)])
        clock.off_ms = off_ms
        assert await work.take(MEMBER, wanted(2), wait_ms=0) == []
        assert [row.value for _, row in await work.take(MEMBER, wanted(3), wait_ms=30_000)] == [b"1"]

    with_group(tmp_path, act, clock=clock)


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_a_wall_clock_that_jumps_takes_no_event_from_the_member_that_works_on_it(tmp_path: Path, off_ms: int) -> None:
    clock = JumpingClock()

    async def act(_: Node, work: Work, running: Running) -> None:
        [task] = await take(work)
        async with running.lock:
            await running.keep(join(running.state, Member(id="other")))
        clock.off_ms = off_ms
        assert await work.take("other", wanted(1), wait_ms=0) == []
        await work.settle(MEMBER, [task])

    with_group(tmp_path, act, clock=clock, ack_timeout_ms=600_000)


def test_a_coordinator_waits_a_moment_for_the_time_that_members_agree_on() -> None:
    async def main() -> None:
        clock = FlakeClock(SystemClock(), node=1)
        waiting = asyncio.create_task(agreed_time(clock))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        clock.hear_others([0], members=2)
        await asyncio.wait_for(waiting, 1)
        await agreed_time(FlakeClock(SystemClock(), node=1), looks=2)  # nobody is heard

    asyncio.run(main())


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
def test_the_next_coordinator_s_wall_clock_changes_no_retry(tmp_path: Path, off_ms: int) -> None:
    """The node stands for both, each time with the clock of the other; the members' median is the same throughout."""
    clock = JumpingClock()

    async def act(node: Node, work: Work, running: Running) -> None:
        clock.off_ms = off_ms
        node.peers.clocks_ahead_ms = lambda: [-clock.off_ms] * 2  # type: ignore[method-assign]  # what is heard again meanwhile
        node.clock.hear_others(node.peers.clocks_ahead_ms(), members=3)
        soon, late = await take(work, 2)
        delays = [replace(soon, verdict=AGAIN, after_ms=200), replace(late, verdict=AGAIN, after_ms=600_000)]
        await work.settle(MEMBER, delays)
        running.forget(NotPrimary(segment=0))
        clock.off_ms = 0
        node.clock.hear_others(node.peers.clocks_ahead_ms(), members=3)
        again = await node.coordinators.find(*running.id)
        assert again.work is not None
        assert [task.id for task, _ in await again.work.take(MEMBER, wanted(3), wait_ms=30_000)] == [soon.id]
        assert await again.work.take(MEMBER, wanted(4, holding=frozenset([soon.id])), wait_ms=0) == []

    with_group(tmp_path, act, values=(b"1", b"1"), clock=clock)
