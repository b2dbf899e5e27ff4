"""Events of stored values as columns, and the rows that matched as a reader's block."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.columns import EventColumns, columns_of_joined, columns_of_values, join_events
from eventlog.batch.join import pack
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.batch.marks import PROMOTED
from eventlog.batch.sections import encode_promoted
from eventlog.batch.texts import Texts
from eventlog.batch.views import decode_block, decode_value
from tests.batch.test_join import EVERYTHING, Log, rows_of
from tests.examples import examples


def columns_of(log: Log, *, after=0, until=EVERYTHING) -> EventColumns:
    packed = pack(log.segments, log.data)
    return columns_of_values(packed.take(np.argsort(packed.segments, kind="stable")), after=after, until=until)


def rows_in(columns: EventColumns) -> list[dict[str, object]]:
    count = len(columns)
    found = {
        "kind": columns.kinds.tolist(),
        "key": columns.keys.to_list(),
        "value": columns.values.to_list(),
        "expiry": [0] * count if columns.expiry is None else columns.expiry.tolist(),
        "before": [b""] * count if columns.before is None else columns.before.to_list(),
        "headers": [b""] * count if columns.headers is None else columns.headers.to_list(),
        "segment": columns.segments.tolist(),
        "id": columns.ids.tolist(),
        "offset": columns.offsets.tolist(),
        "epoch": columns.epochs.tolist(),
    }
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_columns_hold_every_wanted_event(seed, data):
    log = Log(seed)
    ids = [row["id"] for row in log.rows] or [7 << 40]
    after, until = data.draw(st.sampled_from([0, *ids])) - 1, data.draw(st.sampled_from([EVERYTHING, *ids])) + 1
    assert rows_in(columns_of(log, after=after, until=until)) == log.wanted(after, until)


@given(st.integers(0, 1 << 30))
@settings(max_examples=examples(100), deadline=None)
def test_rows_that_are_taken_are_joined_as_they_are(seed):
    log = Log(seed)
    columns, wanted = columns_of(log), log.wanted(0, EVERYTHING)
    mask = np.array([log.chance.random() < 0.4 for _ in wanted], bool)
    expected = [row for row, mark in zip(wanted, mask.tolist(), strict=True) if mark]
    taken = columns.take(mask)
    assert rows_in(taken) == expected
    joined = join_events(taken)
    assert rows_of(joined) == expected
    rest = join_events(columns.take(~mask))
    again = columns_of_joined([joined, rest])
    assert rows_in(again) == expected + rows_of(rest)
    assert rows_of(join_events(again.take(np.arange(len(expected))))) == expected


def test_values_of_a_projection_stand_for_their_own():
    log = Log(3)
    columns = columns_of(log).take(np.array([0, 2]))
    joined = join_events(columns, values=(np.array([0, 1, 3], "<i4").tobytes(), b"abb"))
    assert [row["value"] for row in rows_of(joined)] == [b"a", b"bb"]


@given(st.lists(st.binary(max_size=20), max_size=30), st.binary(max_size=12), st.integers(0, 9))
def test_texts_are_compared_as_bytes_are(items, other, pad):
    data = bytes(pad) + b"".join(items)
    sizes = np.array([len(item) for item in items], np.int64)
    texts = Texts(data=data, starts=pad + np.cumsum(sizes) - sizes, sizes=sizes)
    assert texts.to_list() == items
    for text in [other, *items[:3], *[item[:9] for item in items[:3]]]:
        assert texts.equals(text).tolist() == [item == text for item in items]
        assert texts.starts_with(text).tolist() == [item.startswith(text) for item in items]
    for wanted in (items[:2], items[:15], [other]):
        assert texts.is_in(wanted).tolist() == [item in wanted for item in items]


def promoted_value(segment: int, base: int, fields: dict[str, list[bytes]] | None, *, count: int) -> bytes:
    block = bytearray(
        build_blocks(Columns(kinds=np.zeros(count, np.uint8), keys=[b"k"] * count, values=[b"{}"] * count), np.array([count]))[0]
    )
    bitmap = 0
    if fields is not None:
        column = encode_promoted(fields)
        bitmap = PROMOTED
        head = np.frombuffer(block[:16], "<u4").copy()
        head[1] |= bitmap
        block = head.tobytes() + len(column).to_bytes(8, "little") + block[16:] + column
    where = ValueHead(flags=0, sections=1, epoch=1, count=count, bitmap=bitmap, kinds=1, producers=0, base=base, first_offset=0)
    value = encode_value(where, segment=segment, cache=1, sections=[block])
    decode_value(segment, 1, value)
    return value


@given(st.integers(0, 1 << 30))
def test_a_promoted_field_is_found_among_others(seed):
    chance = random.Random(seed)
    values, expected = [], []
    for segment in range(chance.randint(1, 4)):
        count = chance.randint(1, 5)
        names = ["value.x", *chance.sample(["value.a", "value.b", "value.c"], chance.randint(0, 3))]
        chance.shuffle(names)
        fields = {name: [chance.randbytes(chance.choice((0, 3, 9))) for _ in range(count)] for name in names}
        values.append(promoted_value(segment, 1 << 40, fields, count=count))
        expected += fields["value.x"]
    columns = columns_of_values(pack(range(len(values)), values), after=0, until=EVERYTHING)
    found = columns.promoted("value.x")
    assert found is not None
    assert found.to_list() == expected
    assert columns.promoted("value.nothing") is None
    assert decode_block(join_events(columns).block).promoted is None  # clients do not get them


def test_a_field_that_one_value_lacks_is_not_there():
    values = [promoted_value(0, 1 << 40, {"value.x": [b"1"]}, count=1), promoted_value(1, 1 << 40, None, count=1)]
    columns = columns_of_values(pack([0, 1], values), after=0, until=EVERYTHING)
    assert columns.promoted("value.x") is None
    assert columns.take(np.array([0])).keys.to_list() == [b"k"]
