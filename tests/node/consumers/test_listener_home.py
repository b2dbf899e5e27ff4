"""What durable listeners hold back, as their home tells it; more nodes are in tests/process/one_loop."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventlog.errors import NotPrimary
from eventlog.groups.listeners import FilterFrom, ListenerRecord
from eventlog.node.node import Node
from eventlog.predicate.spec import FilterSpec
from eventlog.read import token
from eventlog.read.position import Position
from eventlog.wire.eventlog_pb2 import Message
from tests.node.nodes import cache_of, with_node

LAST = 1_000


def record_of(cache_id: int, listener: str = "l", **options: object) -> ListenerRecord:
    filters = (FilterFrom(from_id=0, spec=FilterSpec()),)
    return ListenerRecord(id=listener, cache_id=cache_id, cache="c", filters=filters, last_id=LAST, **options)


def test_what_is_held_back_goes_by_the_position_that_is_written_down(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache_id, home, every = (await cache_of(node)).cache_id, node.listeners.home, range(node.segments)
        await home.register(record_of(cache_id, durable=True, hold_bytes=7))
        await home.register(record_of(cache_id, "ephemeral", expire_ms=60_000))
        assert await home.holds(cache_id, every) == [("l", LAST, 7, 0, False)]
        place = Position(cluster=node.cluster, cache_id=cache_id, segments=node.segments, at=2 * LAST)
        await home.used("l", token.encode(place))
        assert await home.holds(cache_id, every) == [("l", LAST, 7, 0, False)]
        await home.write_positions_of(cache_id + 1)
        assert await home.holds(cache_id, every) == [("l", LAST, 7, 0, False)]
        await home.write_positions_of(cache_id)
        assert await home.holds(cache_id, every) == [("l", 2 * LAST, 7, 0, False)]
        assert await home.holds(cache_id + 1, every) == []
        elsewhere = [segment for segment in every if segment != node.inner.segment(b"l")]
        assert await home.holds(cache_id, elsewhere) == []

    with_node(tmp_path, act)


def test_a_position_is_kept_though_the_listener_is_altered_meanwhile(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache_id, home = (await cache_of(node)).cache_id, node.listeners.home
        await home.register(record_of(cache_id, durable=True, hold_bytes=7))
        place = Position(cluster=node.cluster, cache_id=cache_id, segments=node.segments, at=2 * LAST)
        altering = home.alter("l", lambda record: msgspec.structs.replace(record, hold_bytes=8))
        await asyncio.gather(altering, home.settle("l", token.encode(place)))
        assert await home.holds(cache_id, range(node.segments)) == [("l", 2 * LAST, 8, 0, False)]

    with_node(tmp_path, act)


def test_one_that_is_being_registered_holds_everything_back(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache_id, home, every = (await cache_of(node)).cache_id, node.listeners.home, range(node.segments)
        with home.registering(cache_id, hold_bytes=7, hold_ms=8):
            assert await home.holds(cache_id, every) == [("", 0, 7, 8, False)]
            assert await home.holds(cache_id + 1, every) == []
        assert await home.holds(cache_id, every) == []

    with_node(tmp_path, act)


def test_what_is_held_in_a_segment_that_is_not_served_is_not_known(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache_id, home = (await cache_of(node)).cache_id, node.listeners.home
        node.replicas.serving[3] = False
        with pytest.raises(NotPrimary):
            await home.holds(cache_id, range(node.segments))
        with pytest.raises(NotPrimary):
            await home.of(range(node.segments))
        node.replicas.serving[3] = True

    with_node(tmp_path, act)


def test_each_change_of_what_is_kept_is_counted_and_a_position_is_none(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache_id, home, every = (await cache_of(node)).cache_id, node.listeners.home, range(node.segments)
        counts = [(await home.of(every))[1]]
        await home.register(record_of(cache_id, durable=True))
        counts.append((await home.of(every))[1])
        await home.alter("l", lambda _: record_of(cache_id, durable=True, hold_bytes=9))
        counts.append((await home.of(every))[1])
        await home.remove("l")
        counts.append((await home.of(every))[1])
        assert counts == [0, 1, 2, 3]
        await home.register(record_of(cache_id, durable=True))
        place = Position(cluster=node.cluster, cache_id=cache_id, segments=node.segments, at=2 * LAST)
        await home.used("l", token.encode(place))
        await home.write_positions(is_last=True)
        found, changes = await home.of(every)
        assert ([kept.record.id for kept in found], changes) == (["l"], 4)

    with_node(tmp_path, act)


def test_a_burst_that_passes_several_limits_is_warned_of_once_and_only_then_a_cap_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(node: Node) -> None:
        cache_id, home, every = (await cache_of(node)).cache_id, node.listeners.home, range(node.segments)
        await home.register(record_of(cache_id, durable=True, hold_bytes=7))
        heard = []
        for percent in (49, 79, 120, 120, 30, 96, 60, 94):
            caplog.clear()
            home.note_held({"l": percent, "of another home": 99})
            warnings = [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]
            assert warnings in ([], [f"listener_falls_behind listener=l cache=c percent={percent}"])
            heard.append((percent, bool(warnings), (await home.holds(cache_id, every))[0].warned))
        assert heard == [
            (49, False, False),
            (79, True, False),
            (120, True, True),
            (120, False, True),
            (30, False, False),
            (96, True, True),
            (60, False, False),
            (94, True, False),
        ]

    with_node(tmp_path, act)


def test_of_a_cache_without_limits_nothing_is_asked_again_and_again(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache, ask = await cache_of(node, retain_time_ms=0, retain_bytes=0), node.primaries.ask
        asked: list[int] = []
        await node.listeners.home.register(record_of(cache.cache_id, durable=True, hold_bytes=7))

        class Primaries:
            async def ask(self, question: Message, *answer: Any, **options: Any) -> list[Message]:
                asked.append(question.retention_steps.cache_id or question.retention_cut.cache_id)
                return await ask(question, *answer, **options)

        async def run() -> bool:
            asked.clear()
            await node.retention.run_all()
            return cache.cache_id in asked

        node.primaries = Primaries()  # type: ignore[assignment]
        assert [await run() for _ in range(3)] == [True, False, False]
        await node.cache_changes.alter("c", {"retain_events": 10})
        assert [await run() for _ in range(2)] == [True, True]
        await node.cache_changes.alter("c", {"retain_events": 0})
        assert [await run() for _ in range(2)] == [False, False], "nothing was told of it under its limits that has to be taken back"

    with_node(tmp_path, act)
