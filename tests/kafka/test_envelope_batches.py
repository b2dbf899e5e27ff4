"""From a read to the batches of a topic's partitions."""

import json
from dataclasses import replace

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from eventlog.ids import time_of
from eventlog.kafka.envelope import batches_of
from eventlog.kafka.records import LOOP_MAX
from eventlog.kafka.shape import Shape
from tests.predicate.rows import events

SHAPE = Shape(cache="c", cluster="c-1", prefix="p", topic="p.c", version="1.0", is_json=True, has_text_keys=True)
RAW = replace(SHAPE, form="raw")
PARTITIONS = 3


def records_in(batches):
    """Every record with its partition, as a consumer gets it."""
    return [(batch.partition, record) for batch in batches for record in DefaultRecordBatch(bytes(batch.sealed()))]


@pytest.mark.parametrize("count", [7, 3 * LOOP_MAX])
def test_each_segment_keeps_its_order_and_each_record_says_of_which_event_it_is(count):
    rows = [
        {"key": f"k{number}", "value": None, "before": b"0"}
        if number % 5 == 0
        else {"key": f"k{number}", "value": b"%d" % number, "headers": {"h": b"v"} if number % 7 == 0 else {}}
        for number in range(count)
    ]
    columns = events(rows, a_value=1)
    batches = batches_of(columns, SHAPE, partitions=PARTITIONS, now_ms=1, bytes_max=4_000)
    assert {batch.partition for batch in batches} == set(range(PARTITIONS))
    found = {}
    for partition, record in records_in(batches):
        headers = dict(record.headers)
        id_ = int.from_bytes(headers["id"])
        segment, offset = int.from_bytes(headers["off"][:4]), int.from_bytes(headers["off"][4:])
        assert (partition, record.timestamp) == (segment % PARTITIONS, time_of(id_))
        found.setdefault(segment, []).append((id_, offset, headers["kind"], headers.get("h"), json.loads(record.key), record.value))
    expected = {}
    places = zip(columns.ids.tolist(), columns.segments.tolist(), columns.offsets.tolist(), strict=True)
    for row, (id_, segment, offset) in zip(rows, places, strict=True):
        own = row.get("headers", {}).get("h")
        kinds = [b"R", b"R"] if row["value"] is None else [b"C"]
        expected.setdefault(segment, []).extend((id_, offset, kind, own, {"_key": row["key"]}) for kind in kinds)
    assert {segment: [one[:5] for one in told] for segment, told in found.items()} == expected
    for told in found.values():
        assert [one[5] is None for one in told] == [
            one[2] == b"R" and index > 0 and told[index - 1][0] == one[0] for index, one in enumerate(told)
        ]


def test_headers_of_an_event_follow_those_that_say_which_it_is():
    (batch,) = batches_of(events([{"key": "k", "value": b"1", "headers": {"a": b"1"}}]), RAW, partitions=1, now_ms=1, bytes_max=99)
    ((_, record),) = records_in([batch])
    assert [name for name, _ in record.headers] == ["id", "off", "kind", "a"]
    assert (record.key, record.value) == (b"k", b"1")


def test_nothing_is_read_nothing_is_laid_out():
    nothing = events([{"key": "k", "value": b"1"}]).take([False])
    assert batches_of(nothing, RAW, partitions=1, now_ms=1, bytes_max=99) == []
