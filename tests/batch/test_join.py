"""Joining stored values for readers."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.join import Joined, Packed, join, join_packed, pack
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.batch.views import Block, decode_block, decode_value
from eventlog.ids import ID_STEP
from tests.examples import examples

EVERYTHING = 1 << 62


def block_of(events, *, expiry, before, headers):
    columns = Columns(
        kinds=np.array([event["kind"] for event in events], np.uint8),
        keys=[event["key"] for event in events],
        values=[event["value"] for event in events],
        expiry=np.array([event["expiry"] for event in events], np.int64) if expiry else None,
        before=[event["before"] for event in events] if before else None,
        headers=[event["headers"] for event in events] if headers else None,
    )
    return bytes(build_blocks(columns, np.array([len(events)]))[0])


class Log:
    """Stored values of one cache, and beside them every event as a row."""

    def __init__(self, seed, *, segments=4, groups=5, optional=True, producers=True):
        self.chance = random.Random(seed)
        self.segments, self.data, self.rows = [], [], []
        offsets = dict.fromkeys(range(segments), 0)
        base = 7 << 40
        for _ in range(groups):
            base += self.chance.choice((0, 0, 5)) * ID_STEP
            for segment in sorted(self.chance.sample(range(segments), self.chance.randint(1, segments))):
                count = self.add(segment, base, offsets[segment], optional=optional, producers=producers)
                offsets[segment] += count
                base += max(count, 1) * ID_STEP

    def add(self, segment, base, offset, *, optional, producers):
        chance, sections, bitmap, count, epoch = self.chance, [], 0, 0, self.chance.choice((1, 1, 2))
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            events = [self._event() for _ in range(chance.randint(1, 4))]
            flags = [optional and chance.random() < 0.4 for _ in range(3)]
            for index, event in enumerate(events):
                row = {name: event[name] for name in ("kind", "key", "value")}
                row |= {name: event[name] if flag else empty for (name, empty), flag in zip(OPTIONAL.items(), flags, strict=True)}
                place = count + index
                self.rows.append(row | {"segment": segment, "id": base + place * ID_STEP, "offset": offset + place, "epoch": epoch})
            sections.append(block_of(events, expiry=flags[0], before=flags[1], headers=flags[2]))
            bitmap |= flags[0] | flags[1] << 1 | flags[2] << 2
            count += len(events)
        rows = chance.randint(0, 2) if producers else 0
        table = b"".join((9).to_bytes(8, "little") + bytes(16) for _ in range(rows))
        head = ValueHead(
            flags=int(rows > 0), sections=len(sections), epoch=epoch, count=count, bitmap=bitmap,
            kinds=0, producers=rows, base=base, first_offset=offset,
        )  # fmt: skip
        value = encode_value(head, segment=segment, cache=1, sections=sections, producers=table)
        decode_value(segment, 1, value)  # what is joined below is what the log would accept
        self.segments.append(segment)
        self.data.append(value)
        return count

    def _event(self):
        chance = self.chance
        return {
            "kind": chance.randint(0, 3),
            "key": chance.randbytes(chance.choice((0, 3, 8, 20))),
            "value": chance.randbytes(chance.choice((0, 0, 1, 8, 100))),
            "expiry": chance.choice((0, 123_456)),
            "before": chance.randbytes(chance.choice((0, 5))),
            "headers": chance.randbytes(chance.choice((0, 16))),
        }

    def wanted(self, after, until, by_value=None):
        floor = by_value or dict.fromkeys(range(100), after)
        return sorted((row for row in self.rows if floor[row["segment"]] < row["id"] <= until), key=lambda row: (row["segment"], row["id"]))


OPTIONAL = {"expiry": 0, "before": b"", "headers": b""}


def decoded(joined: Joined) -> Block:
    data = joined.block
    block = decode_block(data)
    assert block.nbytes == len(data)
    assert joined.nbytes == len(data) + joined.runs.nbytes
    assert block.count == joined.events
    return block


def rows_of(joined: Joined):
    block = decoded(joined)
    count = block.count
    expiry = [0] * count if block.expiry is None else block.expiry.tolist()
    before = [b""] * count if block.before is None else block.before.to_list()
    headers = [b""] * count if block.headers is None else block.headers.to_list()
    columns = zip(block.kinds.tolist(), block.keys.to_list(), block.values.to_list(), expiry, before, headers, strict=True)
    names = ("kind", "key", "value", "expiry", "before", "headers")
    rows = [dict(zip(names, row, strict=True)) for row in columns]
    places = [
        {"segment": segment, "id": base + index * ID_STEP, "offset": offset + index, "epoch": epoch}
        for segment, _, run, base, offset, epoch, _ in joined.runs.tolist()
        for index in range(run)
    ]
    return [row | place for row, place in zip(rows, places, strict=True)]


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_every_wanted_event_is_there_once_by_segment_and_id(seed, data):
    log = Log(seed)
    ids = [row["id"] for row in log.rows] or [7 << 40]
    after = data.draw(st.sampled_from([0, *ids])) + data.draw(st.sampled_from((-1, 0, 1)))
    until = data.draw(st.sampled_from([EVERYTHING, *ids])) + data.draw(st.sampled_from((-1, 0, 1)))
    assert rows_of(join(log.segments, log.data, after=after, until=until)) == log.wanted(after, until)


@given(st.integers(0, 1 << 30))
@settings(max_examples=examples(50), deadline=None)
def test_each_value_may_have_its_own_beginning(seed):
    log = Log(seed)
    ids = [row["id"] for row in log.rows] or [0]
    floor = {segment: log.chance.choice(ids) for segment in range(4)}
    after = np.array([floor[segment] for segment in log.segments], np.int64)
    assert rows_of(join(log.segments, log.data, after=after, until=max(ids))) == log.wanted(0, max(ids), floor)


@given(st.integers(0, 1 << 30))
@settings(max_examples=examples(50), deadline=None)
def test_some_of_the_values_can_be_taken_out(seed):
    log = Log(seed)
    packed = pack(log.segments, log.data)
    rows = np.array(sorted(log.chance.sample(range(len(log.data)), log.chance.randint(0, len(log.data)))), np.int64)
    taken = packed.take(rows)
    assert isinstance(taken, Packed)
    expected = join([log.segments[row] for row in rows], [log.data[row] for row in rows], after=0, until=EVERYTHING)
    assert rows_of(join_packed(taken, after=0, until=EVERYTHING)) == rows_of(expected)


def values(*places, epoch=1, count=2):
    """Return values of one segment each; a place is (segment, base, first offset)."""
    event = {"kind": 0, "key": b"k", "value": b"v", "expiry": 0, "before": b"", "headers": b""}
    section = block_of([event] * count, expiry=False, before=False, headers=False)
    return [segment for segment, _, _ in places], [
        encode_value(
            ValueHead(flags=0, sections=1, epoch=epoch, count=count, bitmap=0, kinds=1, producers=0, base=base, first_offset=offset),
            segment=segment,
            cache=1,
            sections=[section],
        )
        for segment, base, offset in places
    ]


BASE = 1 << 40


def test_runs_that_go_on_are_one():
    joined = join(*values((3, BASE, 0), (3, BASE + 2 * ID_STEP, 2), (3, BASE + 4 * ID_STEP, 4)), after=0, until=EVERYTHING)
    assert joined.runs[["segment", "count", "base", "first_offset", "epoch"]].tolist() == [(3, 6, BASE, 0, 1)]


@pytest.mark.parametrize(
    ("second", "epoch"),
    [((4, BASE + 2 * ID_STEP, 2), 1), ((3, BASE + 3 * ID_STEP, 2), 1), ((3, BASE + 2 * ID_STEP, 3), 1), ((3, BASE + 2 * ID_STEP, 2), 2)],
    ids=["another segment", "a gap in the ids", "a gap in the offsets", "another epoch"],
)
def test_runs_that_do_not_go_on_stay_apart(second, epoch):
    one, two = values((3, BASE, 0)), values(second, epoch=epoch)
    joined = join(one[0] + two[0], one[1] + two[1], after=0, until=EVERYTHING)
    assert joined.runs["count"].tolist() == [2, 2]


def test_a_run_cut_at_its_beginning_says_where_it_begins():
    joined = join(*values((3, BASE, 10), count=5), after=BASE + ID_STEP, until=BASE + 3 * ID_STEP)
    assert joined.runs[["segment", "count", "base", "first_offset"]].tolist() == [(3, 2, BASE + 2 * ID_STEP, 12)]


def test_nothing_wanted_is_an_empty_block():
    joined = join(*values((3, BASE, 10)), after=EVERYTHING - 1, until=EVERYTHING)
    assert (joined.events, len(joined.runs), decoded(joined).count) == (0, 0, 0)
    assert decoded(join([], [], after=0, until=EVERYTHING)).count == 0


def test_buffers_are_padded_with_zeros():
    joined = join(*values((3, BASE, 10), (5, BASE + 9 * ID_STEP, 0), count=3), after=0, until=EVERYTHING)
    assert joined.nbytes % 8 == 0
    decoded(joined)  # refuses padding that is not zero
