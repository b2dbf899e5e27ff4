"""Calls waiting for frames, writers waiting for room."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from eventlog.client.writing.calls import Backlog, Changes, WriteCall
from eventlog.errors import ClientClosed, TimedOut

LATER = 1e9


def call(size: int = 10, *, cache: int = 1, previous: bool = False) -> WriteCall:
    changes = Changes(cache_id=cache, by_prefix=False, keys=[b""], values=[bytes(size - 24)], wants_previous=previous)
    assert changes.nbytes == size
    return WriteCall(changes, timeout_ms=1_000, is_many=False)


def on_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def admit(backlog: Backlog, nbytes: int, deadline: float = LATER) -> "asyncio.Task[None]":
    return asyncio.ensure_future(backlog.admit(nbytes, deadline=deadline, timeout_ms=7))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_writers_get_room_in_the_order_in_which_they_came() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        await backlog.admit(90, deadline=LATER, timeout_ms=1)
        large, small = admit(backlog, 50), admit(backlog, 5)
        await turn()
        assert (large.done(), small.done(), backlog.nbytes) == (False, False, 90), "the small one overtook"
        backlog.release(45)
        await turn()
        assert (large.done(), small.done(), backlog.nbytes) == (True, True, 100)

    on_loop(test)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_call_does_not_overtake_one_that_has_its_room_and_has_not_run_since(is_cancelled: bool) -> None:
    async def test() -> None:
        backlog, order = Backlog(bytes_max=120), []
        await backlog.admit(120, deadline=LATER, timeout_ms=1)

        async def write(name: str) -> None:
            await backlog.admit(30, deadline=LATER, timeout_ms=1)
            order.append(name)

        waiting = [asyncio.ensure_future(write(name)) for name in ("first", "second")]
        await turn()
        backlog.release(120)
        if is_cancelled:
            waiting[0].cancel()
        await write("third")
        assert order == (["second", "third"] if is_cancelled else ["first", "second", "third"])
        assert backlog.nbytes == 30 * len(order)
        await write("fourth")
        assert order[-1] == "fourth"

    on_loop(test)


def test_what_is_larger_than_all_room_gets_it_alone() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        await backlog.admit(10, deadline=LATER, timeout_ms=1)
        huge, after = admit(backlog, 1_000), admit(backlog, 1)
        await turn()
        assert not huge.done()
        backlog.release(10)
        await turn()
        assert (huge.done(), after.done(), backlog.nbytes) == (True, False, 1_000)
        backlog.release(1_000)
        await after

    on_loop(test)


def test_a_writer_out_of_time_leaves_the_line_to_those_behind_it() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        await backlog.admit(90, deadline=LATER, timeout_ms=1)
        late, patient = admit(backlog, 50, deadline=asyncio.get_running_loop().time()), admit(backlog, 5)
        with pytest.raises(TimedOut) as caught:
            await late
        assert (caught.value.outcome, caught.value.timeout_ms) == ("none", 7)
        await patient
        assert backlog.nbytes == 95

    on_loop(test)


@pytest.mark.parametrize("moment", ["before room", "after room"])
def test_a_cancelled_writer_keeps_no_room(moment: str) -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        await backlog.admit(100, deadline=LATER, timeout_ms=1)
        waiting = admit(backlog, 50)
        await asyncio.sleep(0)
        if moment == "after room":
            backlog.release(100)  # room is there, but the task has not run yet
        waiting.cancel()
        await turn()
        assert waiting.cancelled()
        assert backlog.nbytes == (0 if moment == "after room" else 100)

    on_loop(test)


def test_a_frame_takes_what_follows_in_the_same_cache_up_to_its_size() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=10_000)
        calls = [call(40), call(40), call(40), call(40, cache=2), call(40, cache=2), call(40, previous=True), call(40), call(500)]
        for each in calls:
            backlog.nbytes += each.nbytes
            backlog.calls.append(each)
        taken = []
        while backlog.calls:
            taken.append([calls.index(each) for each in backlog.take(bytes_target=100)])
        assert taken == [[0, 1], [2], [3, 4], [5], [6], [7]]

    on_loop(test)


def test_calls_that_nobody_waits_for_give_their_room_back() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=10_000)
        calls = [call(40), call(50), call(60)]
        for each in calls:
            backlog.nbytes += each.nbytes
            backlog.calls.append(each)
        calls[0].future.cancel()
        assert backlog.take(bytes_target=1) == [calls[1]]
        assert backlog.nbytes == 110
        calls[2].future.cancel()
        backlog.forget_dead()
        assert (list(backlog.waiting()), backlog.nbytes) == ([], 50)

    on_loop(test)


def test_one_that_is_cancelled_when_it_is_its_turn_is_cancelled_and_the_next_gets_the_room() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        await backlog.admit(100, deadline=LATER, timeout_ms=1)
        first, second = admit(backlog, 50), admit(backlog, 60)
        await turn()
        first.cancel()
        backlog.release(100)  # in the same turn of the loop
        await turn()
        assert (first.cancelled(), second.done(), backlog.nbytes) == (True, True, 60)

    on_loop(test)


def test_who_waits_for_room_is_told_when_the_client_is_closed() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        await backlog.admit(100, deadline=LATER, timeout_ms=1)
        waiting = [admit(backlog, 50) for _ in range(3)]
        await turn()
        backlog.close()
        await turn()
        assert [type(task.exception()) for task in waiting] == [ClientClosed] * 3
        assert backlog.nbytes == 100

    on_loop(test)


def test_what_waits_for_segments_that_cannot_be_written_gets_half_of_the_room() -> None:
    async def test() -> None:
        backlog = Backlog(bytes_max=100)
        calls = [call(30) for _ in range(3)]
        for one in calls:
            await backlog.admit(one.nbytes, deadline=LATER, timeout_ms=1)
        assert backlog.hold(calls[:1])
        assert backlog.hold(calls[:1]), "it counts once"
        assert not backlog.hold(calls[1:2])
        backlog.closed(calls[0])
        backlog.closed(calls[1])
        assert (backlog.nbytes, backlog.held_bytes) == (30, 0)
        assert backlog.hold(calls[2:])

    on_loop(test)
