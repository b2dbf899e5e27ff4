"""A segment's work, handed out, settled, lost and found again: by a model that knows the order of every key."""

import random

import pytest
from msgspec import msgpack

from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.groups.record import Place
from eventlog.groups.work import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    KeptEvent,
    QueuedEvent,
    SegmentQueue,
    backoff_ms,
    decode_known,
    encode_known,
)
from eventlog.ids import AGREED_WITHIN_MS
from eventlog.limits import WORK_WINDOW_MAX

START = Place(id=0, next_offset=0)


def task(number, key=b"k"):
    return QueuedEvent(id=number, key=key, place=Place(id=number, next_offset=number), nbytes=1)


def queue(*tasks):
    found = SegmentQueue(place=START, read=START)
    found.take_in(tasks, Place(id=max((one.id for one in tasks), default=0), next_offset=99))
    return found


def ready(found, now_ms=0, limit=99):
    return [one.id for one in found.ready(now_ms, limit)]


def test_a_key_s_events_come_one_at_a_time_in_their_order():
    found = queue(task(1, b"a"), task(2, b"a"), task(3, b"b"))
    assert ready(found) == [1, 3]
    found.hand(found.tasks[1], "m")
    assert ready(found) == [3]
    found.finish(found.held(1, "m"))
    assert ready(found) == [2, 3]
    assert ready(found, limit=1) == [2]


def test_the_position_moves_behind_what_is_done_without_a_gap():
    found = queue(task(1, b"a"), task(2, b"b"), task(3, b"c"))
    found.finish(found.tasks[2])
    assert found.place.id == 0
    assert [one.id for one in found.kept() if one.is_done] == [2]
    found.finish(found.tasks[1])
    assert found.place.id == 2
    found.finish(found.tasks[3])
    assert (found.place, found.kept(), found.nbytes) == (found.read, [], 0)


def test_what_waits_is_ready_when_its_time_has_come_and_keeps_its_key_waiting():
    found = queue(task(1), task(2))
    found.hand(found.tasks[1], "m")
    found.again(found.tasks[1], 500)
    assert ready(found, 499) == []
    assert found.next_ms() == 500
    assert ready(found, 500) == [1]


def test_what_nobody_has_seen_was_not_delivered():
    found = queue(task(1))
    found.hand(found.tasks[1], "m")
    found.give_back(found.tasks[1])
    assert found.tasks[1].deliveries == 0
    assert found.kept() == []


def test_members_that_are_gone_have_nothing():
    found = queue(task(1, b"a"), task(2, b"b"))
    found.hand(found.tasks[1], "m")
    found.hand(found.tasks[2], "n")
    assert [one.id for one in found.release(lambda member: member == "m")] == [1]
    assert found.held(1, "m") is None
    assert found.held(2, "n") is not None


def test_the_window_is_bounded():
    found = queue(*(task(number, b"%d" % number) for number in range(1, WORK_WINDOW_MAX + 1)))
    assert found.room == 0
    found.finish(found.tasks[5])
    assert found.room == 0, "what is done out of turn takes room, too"
    found.finish(found.tasks[1])
    assert found.room == 1


def test_what_retention_took_is_done():
    found = SegmentQueue.load(START, [KeptEvent(id=1, deliveries=2), KeptEvent(id=3, is_done=True)])
    found.take_in([task(5)], Place(id=6))
    assert found.known == {}
    assert ready(found) == [5]


def test_the_back_off_doubles_up_to_a_bound():
    assert [backoff_ms(count) for count in (1, 2, 3)] == [BACKOFF_MS_MIN, 2 * BACKOFF_MS_MIN, 4 * BACKOFF_MS_MIN]
    assert backoff_ms(1_000) == BACKOFF_MS_MAX


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_every_event_is_done_once_in_the_order_of_its_key(seed):
    """Random steps; the coordinator dies between any two, and what it kept is what the next one begins with."""
    chance = random.Random(seed)
    log = [(number, b"%d" % chance.randrange(5)) for number in range(1, 60)]
    done: list[int] = []
    found, now = SegmentQueue(place=START, read=START), 0
    counts = dict.fromkeys(range(1, 60), 0)
    for _ in range(2_000):
        step = chance.choice(["read", "hand", "hand", "finish", "finish", "again", "lose", "die"])
        held = [one for one in found.tasks.values() if one.member]
        if step == "read":
            rows = [row for row in log if row[0] > found.read.id][: chance.randint(1, 9)]
            if rows:
                found.take_in([task(*row) for row in rows], Place(id=rows[-1][0]))
        elif step == "hand" and (now_ready := found.ready(now, 3)):
            one = chance.choice(now_ready)
            found.hand(one, chance.choice("mn"))
            counts[one.id] += 1
            assert one.deliveries == counts[one.id]
        elif step == "finish" and held:
            one = chance.choice(held)
            done.append(one.id)
            found.finish(one)
        elif step == "again" and held:
            found.again(chance.choice(held), now + chance.randrange(20))
        elif step == "lose":
            found.release(lambda member: member == "m")
        elif step == "die":
            found = SegmentQueue.load(
                found.place, decode_known(encode_known(found.kept(), now_ms=now, agreed_ms=now), now_ms=now, agreed_ms=now)
            )
        now += 5
    assert sorted(done) == sorted(set(done))
    assert len(done) > 40
    keys = dict(log)
    for key in set(keys.values()):
        own = [number for number in done if keys[number] == key]
        assert own == sorted(own)
        assert own == [number for number, other in log if other == key][: len(own)]
    assert all(number in done for number in range(1, found.place.id + 1))


def test_forged_records_are_refused():
    for data in (b"", b"\x07"):
        with pytest.raises(UnsupportedFormat):
            decode_known(data, now_ms=0, agreed_ms=0)
    for data in (
        b"\x01",
        b"\x01\xc1",
        b"\x01\x91\x91\x01",
        b"\x02\x90",
        b"\x02\x92\x01\x91\x91\x01",
        b"\x02\x92\x01\x91\x94\x01\x01\xa0\xa0",
    ):
        with pytest.raises(CorruptData):
            decode_known(data, now_ms=0, agreed_ms=0)


WAITS = KeptEvent(id=1, deliveries=1, ready_ms=5_000 + 60_000)  # for a minute, at 5,000 of the clock of the coordinator that wrote it


@pytest.mark.parametrize(
    ("passed_ms", "left_ms"),
    [
        (0, 60_000),
        (AGREED_WITHIN_MS, 60_000),  # that much the two clocks may be apart: perhaps nothing has passed
        (30_000, 40_000),
        (60_000 + AGREED_WITHIN_MS - 1, 1),
        (60_000 + AGREED_WITHIN_MS, 0),
        (86_400_000, 0),
        (-3_600_000, 60_000),
    ],
)
def test_the_next_coordinator_goes_on_with_what_is_left_of_a_delay(passed_ms, left_ms):
    data = encode_known([WAITS], now_ms=5_000, agreed_ms=1_700_000_000_000)
    [found] = decode_known(data, now_ms=77, agreed_ms=1_700_000_000_000 + passed_ms)
    assert found.ready_ms == (77 + left_ms if left_ms else 0)


@pytest.mark.parametrize(("kept_ms", "loaded_ms"), [(None, 1_700_000_000_000), (1_700_000_000_000, None), (None, None)])
def test_a_delay_goes_on_as_it_was_kept_where_the_time_is_not_known(kept_ms, loaded_ms):
    data = encode_known([WAITS], now_ms=5_000, agreed_ms=kept_ms)
    assert [one.ready_ms for one in decode_known(data, now_ms=77, agreed_ms=loaded_ms)] == [77 + 60_000]


def test_what_waits_no_more_when_it_is_kept_is_ready_at_once():
    data = encode_known([WAITS], now_ms=WAITS.ready_ms, agreed_ms=1_700_000_000_000)
    assert [one.ready_ms for one in decode_known(data, now_ms=77, agreed_ms=0)] == [0]


def test_what_was_kept_with_times_of_the_wall_clock_is_read():
    now_ms = 1_700_000_000_000
    data = b"\x01" + msgpack.encode([[1, -1], [2, 1, "m", 0], [3, 2, "", now_ms + 500]])
    found = decode_known(data, now_ms=77, agreed_ms=now_ms)
    assert found == [
        KeptEvent(id=1, is_done=True),
        KeptEvent(id=2, deliveries=1, member="m"),
        KeptEvent(id=3, deliveries=2, ready_ms=77 + 500),
    ]
    assert [one.ready_ms for one in decode_known(data, now_ms=77, agreed_ms=None)] == [0, 0, 0]
