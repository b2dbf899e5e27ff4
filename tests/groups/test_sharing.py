"""The steps of shared work, one after the other, without a coordinator around them."""

from dataclasses import replace

import pytest

from eventlog.errors import BadValue, InvalidArgument, StaleMember
from eventlog.groups.record import NOBODY, GroupState, Member, Place
from eventlog.groups.sharing import (
    AGAIN,
    BURY_AGAIN_MS,
    DONE,
    GIVEN_BACK,
    REJECTED,
    STILL_READS,
    Moment,
    Settled,
    ShareChanges,
    Sharing,
    Wanted,
)
from eventlog.groups.work import Row, decode_known
from eventlog.limits import ANSWER_BYTES_MAX, WORK_WINDOW_MAX

START = Place(id=0, next_offset=0)
REFUSED = BadValue(key="k", why="the cache of dead letters takes no such value")


class Group:
    """A group as far as its steps see it."""

    id = ("g", 1)

    def __init__(self, *members: str, segments: int = 1, **options: object) -> None:
        self.state = GroupState(segments=segments, mode="work", generation=1, members=tuple(Member(id=name) for name in members), **options)
        self.places = dict.fromkeys(range(segments), START)

    def key(self, tag: str, segment: int = 0) -> bytes:
        return f"{tag}{segment}".encode()

    def place(self, segment: int) -> Place:
        return self.places[segment]


def row(number: int, key: bytes = b"", value: bytes = b"") -> Row:
    place = Place(id=number, next_offset=number)
    return Row(segment=0, place=place, kind=1, key=key or b"k%d" % number, value=value, before=None, headers=None)


def sharing(group: Group, *rows: Row) -> Sharing:
    found = Sharing(group, {})
    if rows:
        found.arrived(rows, {0: rows[-1].place}, now_ms=0)
    return found


def take(
    work: Sharing, member: str = "m", *, sequence: int = 1, limit: int = 10, holding: tuple[int, ...] = (), now_ms: int = 0
) -> list[int]:
    wanted = Wanted(sequence=sequence, limit=limit, holding=frozenset(holding))
    return [task.id for task, _ in work.take(member, wanted, ShareChanges(), now_ms=now_ms)]


def settle(work: Sharing, *settled: tuple[int, int], member: str = "m", now_ms: int = 0, after_ms: int = -1) -> ShareChanges:
    changes = ShareChanges()
    work.settle(member, [Settled(segment=0, id=id_, verdict=said, after_ms=after_ms) for id_, said in settled], changes, now_ms=now_ms)
    return changes


def test_an_answer_has_as_many_events_as_fit_it_and_one_at_least():
    large = bytes(ANSWER_BYTES_MAX // 2 - 1_000)
    work = sharing(Group("m"), row(1, value=bytes(ANSWER_BYTES_MAX + 1)), row(2, value=large), row(3, value=large), row(4))
    assert take(work) == [1]
    assert take(work, sequence=2, holding=(1,)) == [2, 3, 4]


def test_no_more_of_a_segment_is_at_hand_than_its_window_holds():
    rows = [row(number) for number in range(1, WORK_WINDOW_MAX + 10)]
    work = sharing(Group("m"), *rows)
    queue = work.queues[0]
    assert (len(queue.tasks), queue.read.id) == (WORK_WINDOW_MAX, WORK_WINDOW_MAX)
    assert work.next_places() == ({}, False)
    taken = take(work, limit=WORK_WINDOW_MAX)
    settle(work, *((id_, DONE) for id_ in taken))
    places, _ = work.next_places()
    assert places == {0: queue.read}
    assert work.arrived(rows, {0: rows[-1].place}, now_ms=0)
    assert list(queue.tasks) == [one.place.id for one in rows[WORK_WINDOW_MAX:]]


def test_what_a_lost_member_had_for_the_last_time_waits_for_its_dead_letter():
    group = Group("m", deliveries_max=1)
    work = sharing(group, row(1))
    assert take(work) == [1]
    group.state = replace(group.state, members=(Member(id="other"),))
    changes = ShareChanges()
    assert work.has_any(lambda member: member == "m")
    work.release(lambda member: member == "m", changes)
    assert list(changes.dead) == [1]
    work.buried(changes, {1: REFUSED}, [], now_ms=0)
    assert take(work, "other", now_ms=BURY_AGAIN_MS - 1) == []
    assert work.next_ms == BURY_AGAIN_MS
    changes = ShareChanges()
    assert work.take("other", Wanted(sequence=2, limit=1), changes, now_ms=BURY_AGAIN_MS) == []
    assert list(changes.dead) == [1]
    work.buried(changes, {}, [], now_ms=BURY_AGAIN_MS)
    assert not work.queues[0].tasks


def test_a_member_keeps_what_it_rejected_and_what_could_not_be_buried():
    work = sharing(Group("m"), row(1), row(2))
    assert take(work) == [1, 2]
    changes = settle(work, (1, REJECTED), (2, REJECTED))
    assert list(changes.dead) == [1, 2]
    work.buried(changes, {1: REFUSED}, [], now_ms=0)
    assert list(work.queues[0].tasks) == [1]
    assert work.queues[0].tasks[1].member == "m"


def test_what_is_not_settled_in_time_is_another_member_s_and_the_first_is_told():
    work = sharing(Group("m", "other", ack_timeout_ms=1_000), row(1))
    assert take(work) == [1]
    assert take(work, "other", now_ms=999) == []
    assert work.next_ms == 1_000
    assert take(work, "other", sequence=2, now_ms=1_000) == [1]
    with pytest.raises(StaleMember, match="1 of 1"):
        settle(work, (1, DONE))
    settle(work, (1, DONE), member="other")
    settle(work, (1, DONE))  # said once more it is true by now


def test_what_is_said_twice_of_one_delivery_happens_once():
    work = sharing(Group("m", "other"), row(1))
    again = Settled(segment=0, id=1, verdict=AGAIN, after_ms=100, deliveries=1)

    def say(settled: Settled, *, now_ms: int) -> None:
        work.settle("m", [settled], ShareChanges(), now_ms=now_ms)

    assert take(work) == [1]
    say(again, now_ms=0)
    say(again, now_ms=50)
    assert work.next_ms == 100, "the second time moved nothing"
    assert take(work, sequence=2, now_ms=100) == [1]
    say(again, now_ms=100)
    say(Settled(segment=0, id=1, verdict=GIVEN_BACK, deliveries=1), now_ms=100)
    assert work.queues[0].held(1, "m") is not None, "what is said of the first delivery is not about the second"
    say(replace(again, deliveries=2), now_ms=100)
    assert take(work, "other", now_ms=200) == [1]
    with pytest.raises(StaleMember):
        say(replace(again, deliveries=2), now_ms=200)
    assert work.queues[0].tasks[1].deliveries == 3


def test_an_answer_that_got_lost_is_handed_out_again_without_counting():
    work = sharing(Group("m", "other"), row(1), row(2))
    assert take(work, limit=2) == [1, 2]
    assert take(work, sequence=2, holding=(1,)) == [2]
    assert work.queues[0].tasks[2].deliveries == 1
    settle(work, (2, GIVEN_BACK))
    assert take(work, sequence=1) == [], "a request that was overtaken gets nothing"
    assert take(work, "other") == [2]


def test_what_is_kept_is_the_position_and_what_is_known_above_it():
    group = Group("m", segments=1)
    work = sharing(group, row(1), row(2), row(3))
    assert take(work, limit=3) == [1, 2, 3]
    settle(work, (1, DONE), (3, DONE))
    settle(work, (2, AGAIN), after_ms=500)
    keeping = work.keeping({0}, Moment(now_ms=0, agreed_ms=7_000, physical_ms=9_000))
    assert keeping.moved[0].place.id == 1
    assert set(keeping.puts) == {b"p0", b"w0"}
    again = Sharing(group, {0: decode_known(keeping.puts[b"w0"], now_ms=0, agreed_ms=7_000)})
    assert again.is_known(0, 2)
    assert again.is_known(0, 3)
    assert not again.is_known(0, 1)
    group.places[0] = keeping.moved[0].place
    settle_all = sharing(group, row(1), row(2))
    take(settle_all)
    settle(settle_all, (1, DONE), (2, GIVEN_BACK))
    assert settle_all.queues[0].tasks[2].member == NOBODY


def test_a_segment_that_is_not_there_is_refused():
    work = sharing(Group("m"), row(1))
    with pytest.raises(InvalidArgument, match="segment 5 of 1"):
        work.settle("m", [Settled(segment=5, id=1, verdict=DONE)], ShareChanges(), now_ms=0)
    with pytest.raises(StaleMember, match="session has ended"):
        take(work, "nobody")


def test_segments_that_stand_still_are_read_by_themselves_now_and_then():
    work = Sharing(Group("m", segments=3), {})
    work.arrived([], dict.fromkeys(range(3), Place(id=1, next_offset=0)), still=(2,), now_ms=0)
    asked = [(sorted(places), is_aside) for places, is_aside in (work.next_places() for _ in range(STILL_READS))]
    assert asked == [([0, 1], False)] * (STILL_READS - 1) + [([2], True)]
