"""A member of a group whose session ends at bad moments, or who is given nothing."""

import asyncio

import pytest

from eventlog.client.members import consumer as members
from eventlog.client.members.consumer import Consumer
from eventlog.client.members.lanes import LaneAnswer
from eventlog.groups.record import Place
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


def at(number: int) -> Place:
    return Place(id=number, next_offset=number, epoch=1)


async def member_of(client, *, segments: dict[int, Place]) -> Consumer:
    """A member with segments, as after joining; nobody has been asked."""
    cache = await client.create_cache("c")
    consumer = await cache.new_consumer("g", session_timeout_ms=1_000)
    consumer._member.epoch = 1
    consumer._member._expires_at = consumer._member._now() + 60
    await consumer._assigned(frozenset(segments), segments)
    consumer._member.owned = frozenset(segments)
    return consumer


def test_a_session_that_ends_while_segments_are_let_go_leaves_nothing_to_read() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            consumer = await member_of(client, segments={0: at(10), 1: at(10)})
            consumer._progress.done[1] = consumer._progress.handed[1] = at(20)
            goes_on = asyncio.Event()

            async def commit(*_: object, **__: object) -> None:
                await goes_on.wait()

            consumer._member.commit = commit
            letting_go = asyncio.ensure_future(consumer._assigned(frozenset({0, 2}), {2: at(30)}))
            await asyncio.sleep(0)
            consumer._member._lose()
            goes_on.set()
            await letting_go
            assert consumer.assignment == frozenset()
            consumer._member.epoch, consumer._member._expires_at = 2, consumer._member._now() + 60
            await consumer._assigned(frozenset({2}), {2: at(90)})
            assert consumer._progress.fetch == {2: at(90)}, "another member has read it up to there meanwhile"

    run(main())


def test_who_stood_still_past_its_session_hands_out_nothing_more() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            consumer = await member_of(client, segments={0: at(10)})
            fetched = LaneAnswer(segments=frozenset({0}), batches=[], after={})
            assert consumer.may_hand(fetched)
            consumer._member._expires_at = consumer._member._now()
            assert not consumer.may_hand(fetched)
            consumer._member.check_time()
            assert (consumer.generation, consumer.assignment) == (0, frozenset())

    run(main())


def test_a_member_to_whom_nothing_is_given_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            consumer = await member_of(client, segments={})
            assert [batch async for batch in consumer.batches(until_id=1 << 40)] == []

    monkeypatch.setattr(members, "_WITHOUT_S_MAX", 0.05)
    run(main())
