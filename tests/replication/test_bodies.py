"""Bodies of messages between replicas: values come as they were sent, and what is damaged or out of order is refused."""

import numpy as np
import pytest

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.batch.stored import Values
from eventlog.errors import BadMessage
from eventlog.node.copying.replicate_copy import pack, seal, unpack, unseal
from eventlog.replication.bodies import Carried, group_values, joined, read_arrived, values_from
from eventlog.replication.columns import FEW_ROWS_MAX
from eventlog.replication.messages import APPEND
from eventlog.segment.keys import log_key


def value(segment, cache, base):
    head = ValueHead(flags=0, sections=0, epoch=1, count=0, bitmap=0, kinds=0, producers=0, base=base, first_offset=5)
    return encode_value(head, segment=segment, cache=cache, sections=[])


def rows(*given):
    table = np.zeros(len(given), APPEND)
    for row, (segment, previous, last, count) in zip(table, given, strict=True):
        row["segment"], row["previous"], row["last"], row["values"], row["epoch"] = segment, previous, last, count, 1
    return table.tobytes()


def body(table, caches, data):
    return b"".join(Carried(caches=caches, data=data).buffers(table))


def test_values_of_many_rows_come_back_with_their_places():
    data = [value(1, 7, 20), value(1, 8, 30), value(4, 7, 25)]
    table = rows((1, 10, 30, 2), (4, 0, 25, 1), (6, 9, 9, 0))
    _, arrived = read_arrived(memoryview(body(table, [7, 8, 7], data)), rows=3)
    assert arrived.segments.tolist() == [1, 1, 4]
    assert arrived.caches.tolist() == [7, 8, 7]
    assert arrived.lasts.tolist() == [20, 30, 25]
    assert arrived.data == data
    assert arrived.of_rows(np.array([1])).data == data[2:]
    assert arrived.of_cache(8).bases.tolist() == [30]


def test_arrivals_joined_are_the_values_of_all_in_their_order():
    data = [value(4, 7, 20), value(1, 8, 30), value(4, 7, 40)]
    segments = np.array([4, 1, 4])
    arrivals = [values_from(segments[at : at + 1], caches, data[at : at + 1]) for at, caches in enumerate(([7], [8], [7]))]
    found, wanted = joined(arrivals), values_from(segments, [7, 8, 7], data)
    for name in ("segments", "caches", "bases", "lasts", "counts", "offsets", "heads"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    assert (found.data, found.cache_ids) == (wanted.data, wanted.cache_ids)


@pytest.mark.parametrize(
    ("table", "data"),
    [
        (rows((1, 10, 30, 1)), [value(2, 7, 20)]),  # of another segment: its checksum says so
        (rows((1, 10, 30, 1)), [value(1, 7, 20)[:-1] + b"x"]),
        (rows((1, 10, 30, 1)), [value(1, 7, 20)[:-8]]),
        (rows((1, 20, 30, 1)), [value(1, 7, 20)]),  # not above what the log ends with
        (rows((1, 10, 19, 1)), [value(1, 7, 20)]),  # above what it is said to end with
        (rows((1, 10, 30, 2)), [value(1, 7, 20), value(1, 7, 20)]),
        (rows((1, 10, 30, 2)), [value(1, 7, 20)]),
        (rows((1, 10, 30, 1), (2, 10, 30, 1)), [value(1, 7, 20), value(3, 7, 20)]),
        (rows((1, 10, 30, 1), (2, 20, 30, 1)), [value(1, 7, 20), value(2, 7, 20)]),
        (rows((1, 10, 30, 1), (2, 10, 30, 1)), [value(1, 7, 20), value(2, 7, 20)[:-8]]),
        (rows((1, 10, 30, 1), (2, 10, 30, 1)), [value(1, 7, 20)]),
        (rows((1, 10, 30, 1)), [value(1, 7, 20), value(2, 7, 20)]),
    ],
)
def test_what_is_damaged_or_out_of_order_is_refused(table, data):
    with pytest.raises(BadMessage):
        read_arrived(memoryview(body(table, [7] * len(data), data)), rows=len(table) // APPEND.itemsize)


@pytest.mark.parametrize("few", [1, 2, FEW_ROWS_MAX])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_few_values_are_seen_as_the_same_values_among_others(count, few):
    block = bytes(build_blocks(Columns(kinds=np.zeros(count, np.uint8), keys=[b"k"] * count, values=[b"v"] * count), np.array([count]))[0])
    head = ValueHead(flags=0, sections=1, epoch=1, count=count, bitmap=0, kinds=1, producers=0, base=2_048, first_offset=5)
    caches = [7 + segment % 2 for segment in range(few)]
    data = [encode_value(head, segment=segment, cache=cache, sections=[block] if count else []) for segment, cache in enumerate(caches)]
    given = [(segment, 10, 9_000, 1) for segment in range(few)]
    sent, alone = read_arrived(memoryview(body(rows(*given), caches, data)), rows=few)
    _, among = read_arrived(memoryview(body(rows(*given, (few, 3, 4, 0)), caches, data)), rows=few + 1)
    assert bytes(sent) == rows(*given)
    for name in ("segments", "caches", "bases", "lasts", "counts", "offsets", "heads"):
        one, other = getattr(alone, name), getattr(among, name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist(), name
    assert (alone.data, alone.cache_ids, alone.bounds.tolist()) == (among.data, among.cache_ids, among.bounds[:-1].tolist())


def test_the_values_of_a_group_stand_segment_by_segment_each_in_the_order_of_ids():
    def values(segments, bases):
        ones = np.ones(len(segments), np.int64)
        data = [b"%d" % base for base in bases]
        return Values(segments=np.array(segments), bases=np.array(bases), counts=ones, data=data, nbytes=0, last_id=bases[-1])

    group = group_values([(3, values([1, 4], [10, 20])), (9, values([0, 4], [30, 40]))])
    assert group.segments.tolist() == [0, 1, 4]
    assert group.last_ids.tolist() == [30, 10, 40]
    assert group.counts.tolist() == [1, 1, 2]
    assert list(group.carried.data) == [b"30", b"10", b"20", b"40"]
    assert list(group.carried.caches) == [9, 3, 3, 9]
    assert list(group.carried.chosen(np.array([2])).data) == [b"20", b"40"]


def test_a_piece_of_a_copy_that_is_damaged_or_of_another_segment_is_refused():
    pairs = [(log_key(3, 1, 10), b"a" * 9), (log_key(3, 2, 11), b"")]
    assert unpack(pack(pairs), segment=3) == pairs
    for piece, segment in ((pack(pairs)[:-1], 3), (pack(pairs), 4), (b"\0" + pack(pairs)[1:], 3)):
        with pytest.raises(BadMessage):
            unpack(piece, segment=segment)
    assert unseal(seal(b"counters")) == b"counters"
