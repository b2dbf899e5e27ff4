"""Which answers of primaries count, and what is refused when some are missing."""

from pathlib import Path

import numpy as np
import pytest

from eventlog.errors import NoState, PrimariesMissing
from eventlog.node.cluster.primaries import Cover, Led
from eventlog.node.node import Node
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Clear, ClearAnswer, Message
from tests.node.nodes import with_node

QUESTION = Message(clear=Clear(cache_id=1))


def told(*pairs: tuple[int, int]) -> pb.Cover:
    return pb.Cover(segments=[segment for segment, _ in pairs], epochs=[epoch for _, epoch in pairs])


def cover_of(count: int, *, epoch: int = 3) -> Cover:
    cover = Cover(count)
    cover.least = np.full(count, epoch)
    return cover


def test_answers_add_up_to_all_segments() -> None:
    cover = cover_of(4)
    assert cover.take([0, 1], told((0, 3), (1, 4)))
    assert cover.missing == [2, 3]
    assert cover.take([2, 3], told((3, 3)))
    assert cover.missing == [2]
    assert cover.take([2], told((2, 9)))
    assert cover.missing == []


@pytest.mark.parametrize(
    "answer",
    [
        told(),
        told((0, 3), (1, 2)),
        told((0, 3), (2, 3)),
        told((0, 3), (3, 3)),
        told((0, 3), (0, 3)),
        pb.Cover(segments=[0, 1], epochs=[3]),
    ],
    ids=["of nothing", "of an epoch that is over", "of what was not asked", "of what is covered", "of one twice", "without an epoch"],
)
def test_an_answer_counts_as_a_whole_or_not_at_all(answer: pb.Cover) -> None:
    cover = cover_of(4)
    assert cover.take([3], told((3, 3)))
    assert not cover.take([0, 1, 3], answer)
    assert cover.missing == [0, 1, 2]


def test_what_nobody_answers_for_is_named() -> None:
    error = PrimariesMissing(segments=[1], timeout_ms=50, why="they have no primary")
    assert "no primary answered for segment 1 within 50 ms" in str(error)
    assert "segments 0, 1, 2, 3, 4 and 7 more" in str(PrimariesMissing(segments=list(range(12)), timeout_ms=50, why=""))


def test_a_segment_that_is_lost_while_the_answer_is_made_is_asked_again_with_all_that_were_asked_with_it(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        asked: list[list[int]] = []

        async def answer(led: Led) -> Message:
            asked.append(led.segments)
            node.replicas.serving[[2, 5]] = len(asked) > 1  # a takeover in the middle of the first answer, over by the second
            return Message()

        answers = await node.primaries.ask(QUESTION, answer)
        assert asked == [list(range(node.segments)), [0, 1, 3, 4, 6, 7], [2, 5]]
        assert sorted(segment for one in answers for segment in one.cover.segments) == list(range(node.segments))

    with_node(tmp_path, act)


def test_what_is_not_served_until_the_deadline_is_refused_by_name(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        async def answer(led: Led) -> Message:
            return Message(clear_answer=ClearAnswer(removed=len(led.segments)))

        node.replicas.serving[[2, 5]] = False
        with pytest.raises(PrimariesMissing) as raised:
            await node.primaries.ask(QUESTION, answer, timeout_ms=100)
        assert (raised.value.segments, raised.value.timeout_ms) == ([2, 5], 100)
        node.replicas.serving[[2, 5]] = True
        assert [one.clear_answer.removed for one in await node.primaries.ask(QUESTION, answer, timeout_ms=100)] == [node.segments]

    with_node(tmp_path, act)


def test_an_error_that_asking_again_does_not_cure_is_raised_at_once(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        async def answer(led: Led) -> Message:
            raise NoState(cache=str(len(led.segments)))

        with pytest.raises(NoState):
            await node.primaries.ask(QUESTION, answer)

    with_node(tmp_path, act)
