"""Segments that change windows: their frames follow, in order and with their numbers, and nothing is in two windows at once."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.routing.lanes import Lanes, lane_apart
from eventlog.routing.routes import NOBODY
from eventlog.routing.window import Blocks, NumberedFrame, Numbering
from tests.examples import examples

SEGMENTS = 4
Names = list[str]


def split(frame: NumberedFrame[Names], blocks: Blocks) -> NumberedFrame[Names]:
    return NumberedFrame(cache=frame.cache, segments=frame.segments[blocks], content=[frame.content[block] for block in blocks.tolist()])


def lanes_of(primaries: list[int]) -> Lanes[Names]:
    lanes: Lanes[Names] = Lanes(Numbering(SEGMENTS), split=split)
    move(lanes, primaries)
    return lanes


def move(lanes: Lanes[Names], primaries: list[int]) -> bool:
    lanes.aim(primaries)
    return lanes.settle(lambda _frame, _parts: None)


def connect(lanes: Lanes[Names], *numbers: int) -> None:
    for number in numbers:
        lanes.windows[number].resume()


def frame(name: str, *segments: int) -> NumberedFrame[Names]:
    return NumberedFrame(cache=1, segments=np.array(segments), content=[f"{name}{segment}" for segment in segments])


def sent(lanes: Lanes[Names], lane: int) -> list[NumberedFrame[Names]]:
    return list(iter(lanes.windows[lane].take, None))


def shown(frames: list[NumberedFrame[Names]]) -> list[tuple[Names, list[int]]]:
    return [(each.content, each.sequences.tolist()) for each in frames]


def test_a_frame_is_taken_apart_by_primary() -> None:
    lanes = lanes_of([1, 2, 1, 2])
    connect(lanes, 1, 2)
    assert [(lane, part.content) for lane, part in lanes.add(frame("a", 0, 1, 2, 3))] == [(1, ["a0", "a2"]), (2, ["a1", "a3"])]
    assert shown(sent(lanes, 1)) == [(["a0", "a2"], [0, 0])]


def test_without_a_topology_everything_is_in_one_lane() -> None:
    lanes: Lanes[Names] = Lanes(Numbering(SEGMENTS), split=split)
    whole = frame("a", 0, 3)
    assert lanes.add(whole) == [(NOBODY, whole)]


def test_frames_that_wait_follow_their_segments_and_stay_in_order() -> None:
    lanes = lanes_of([1, 1, 1, 1])
    lanes.add(frame("a", 0, 1))
    lanes.add(frame("b", 1))
    assert move(lanes, [1, 2, 1, 1])
    lanes.add(frame("c", 1))
    connect(lanes, 1, 2)
    assert shown(sent(lanes, 2)) == [(["a1"], [0]), (["b1"], [1]), (["c1"], [2])]
    assert shown(sent(lanes, 1)) == [(["a0"], [0])]


def test_a_segment_stays_where_it_is_on_its_way_and_nothing_new_leaves() -> None:
    lanes = lanes_of([1, 1, 1, 1])
    connect(lanes, 1, 2)
    lanes.add(frame("a", 0))
    (first,) = sent(lanes, 1)
    assert not move(lanes, [2, 1, 1, 1])
    assert lanes.unsettled() == [1]
    lanes.add(frame("b", 0))
    assert sent(lanes, 1) == sent(lanes, 2) == []
    lanes.windows[1].answered(first)
    assert lanes.settle(lambda _frame, _parts: None)
    assert shown(sent(lanes, 2)) == [(["b0"], [1])]


def test_a_change_of_mind_lets_the_old_window_go_on() -> None:
    lanes = lanes_of([1, 1, 1, 1])
    connect(lanes, 1)
    lanes.add(frame("a", 0))
    sent(lanes, 1)
    assert not move(lanes, [2, 1, 1, 1])
    assert move(lanes, [1, 1, 1, 1])
    lanes.add(frame("b", 0))
    assert shown(sent(lanes, 1)) == [(["b0"], [1])]


def test_what_a_lost_connection_left_in_doubt_goes_to_the_new_primaries_with_its_numbers() -> None:
    lanes = lanes_of([1, 1, 1, 1])
    connect(lanes, 1, 2, 3)
    lanes.add(frame("a", 0, 1))
    lanes.add(frame("b", 0, 1))
    sent(lanes, 1)
    lanes.windows[1].lost()
    lanes.add(frame("c", 1))
    assert move(lanes, [2, 3, 2, 2])
    again = sent(lanes, 2)
    assert shown(again) == [(["a0"], [0]), (["b0"], [1])]
    assert all(each.doubtful for each in again)
    assert shown(sent(lanes, 3)) == [(["a1"], [0]), (["b1"], [1])]  # c waits until it is known that no result was forgotten


def test_a_segment_set_apart_waits_without_the_others_and_comes_back_in_order() -> None:
    lanes = lanes_of([1, 1, 1, 1])
    apart = lane_apart(1)
    connect(lanes, 1, apart)
    lanes.add(frame("a", 0, 1))
    lanes.add(frame("b", 1, 2))
    first, second = sent(lanes, 1)
    lanes.set_apart([1])
    assert not lanes.settle(lambda _frame, _parts: None), "b is on its way"
    rest = frame("a", 1)
    lanes.windows[1].refused_in_part(first, rest, free=np.array([1]), again=np.array([1]), told={})
    lanes.windows[1].refused(second)
    assert lanes.settle(lambda _frame, _parts: None)
    lanes.add(frame("c", 0, 1))
    assert shown(sent(lanes, apart)) == [(["a1"], [0]), (["b1"], [1]), (["c1"], [2])]
    assert shown(sent(lanes, 1)) == [(["b2"], [0]), (["c0"], [1])]


def test_a_segment_that_rejoins_follows_its_primary() -> None:
    lanes = lanes_of([1, 1, 1, 1])
    connect(lanes, 1, 2)
    lanes.set_apart([3])
    assert move(lanes, [1, 1, 1, 2])
    lanes.add(frame("a", 3))
    assert sent(lanes, 2) == []
    lanes.rejoin(3)
    assert lanes.settle(lambda _frame, _parts: None)
    assert shown(sent(lanes, 2)) == [(["a3"], [0])]
    assert lanes.unsettled() == []


class Cluster:
    """Primaries with one memory of what was written, and lanes whose connections break and whose segments move."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.primaries = [1] * SEGMENTS
        self.lanes = lanes_of(self.primaries)
        self.written: dict[int, list[str]] = {segment: [] for segment in range(SEGMENTS)}
        self.on_the_way: dict[int, list[NumberedFrame[Names]]] = {1: [], 2: [], 3: []}
        self.added = 0
        self.short: set[int] = set()
        connect(self.lanes, 1, 2, 3)

    def step(self) -> None:
        act = self.chance.choice([self.add, self.add, self.answer, self.answer, self.answer, self.lose, self.move, self.fall_short])
        act()
        self.send()

    def add(self) -> None:
        self.added += 1
        segments = sorted(self.chance.sample(range(SEGMENTS), self.chance.randint(1, SEGMENTS)))
        self.lanes.add(frame(f"{self.added}-", *segments))

    def send(self) -> None:
        self.lanes.settle(lambda _frame, _parts: None)
        for number, window in list(self.lanes.windows.items()):
            if not window.is_connected:
                self.on_the_way[number] = window.resume()
            self.on_the_way.setdefault(number, [])
            self.on_the_way[number] += sent(self.lanes, number)

    def fall_short(self) -> None:
        """Have a segment take no writes, or take them again."""
        self.short ^= {self.chance.randrange(SEGMENTS)}

    def answer(self) -> None:
        """Have a lane's oldest frame answered: blocks of segments that are short are refused, the others are written or not."""
        number = self.chance.choice(list(self.on_the_way))
        waiting, window = self.on_the_way[number], self.lanes.windows[number]
        if not waiting:
            return
        each = waiting.pop(0)
        refused = np.array([block for block, segment in enumerate(each.segments.tolist()) if segment in self.short], np.int64)
        if len(refused):
            self.lanes.set_apart(each.segments[refused].tolist())
        elif number < 0:
            self.lanes.rejoin(lane_apart(number))
        node = number if number > 0 else self.primaries[each.only]
        good = split(each, np.setdiff1d(np.arange(len(each.segments)), refused))
        good.sequences = np.delete(each.sequences, refused)
        if not self.write(node, good):
            window.refused(each)
        elif len(refused):
            rest = split(each, refused)
            window.refused_in_part(each, rest, free=refused, again=refused, told={})
        else:
            window.answered(each)

    def write(self, number: int, each: NumberedFrame[Names]) -> bool:
        """As a node does: all or nothing of a frame, in dense numbers, what is known again is not written twice."""
        rows = list(zip(each.segments.tolist(), each.sequences.tolist(), each.content, strict=True))
        known = [sequence < len(self.written[segment]) and self.written[segment][sequence] == name for segment, sequence, name in rows]
        fits = [sequence == len(self.written[segment]) and self.primaries[segment] == number for segment, sequence, _ in rows]
        for segment, sequence, name in rows:
            assert sequence >= len(self.written[segment]) or self.written[segment][sequence] == name, "a number was given twice"
        if not all(one or other for one, other in zip(known, fits, strict=True)):
            return False
        for (segment, _, name), is_known in zip(rows, known, strict=True):
            if not is_known:
                self.written[segment].append(name)
        return True

    def lose(self) -> None:
        number = self.chance.choice(list(self.on_the_way))
        for each in self.on_the_way[number][: self.chance.randint(0, 3)]:
            self.write(number if number > 0 else self.primaries[each.only], each)
        self.on_the_way[number] = []
        window = self.lanes.windows[number]
        window.lost()
        self.lanes.settle(lambda _frame, _parts: None)
        self.on_the_way[number] = window.resume()

    def move(self) -> None:
        for segment in self.chance.sample(range(SEGMENTS), 2):
            self.primaries[segment] = self.chance.choice([1, 2, 3])
        self.lanes.aim(self.primaries)

    def finish(self) -> None:
        self.short.clear()
        for _ in range(10_000):
            self.send()
            if not any(len(window) for window in self.lanes.windows.values()):
                return
            self.answer()
        raise AssertionError("it does not come to an end")


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(150), deadline=None)
def test_every_block_is_written_once_in_order_wherever_segments_and_connections_go(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(120):
        cluster.step()
    cluster.finish()
    for segment, names in cluster.written.items():
        numbers = [int(name.split("-")[0]) for name in names]
        assert numbers == sorted(set(numbers)), f"segment {segment}"
    assert {int(name.split("-")[0]) for names in cluster.written.values() for name in names} == set(range(1, cluster.added + 1))
