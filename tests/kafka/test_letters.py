"""What a topic cannot have is told in its dead letters, and everything else as it would be without."""

import json
from dataclasses import replace

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.kafka.declared import Declared
from eventlog.kafka.envelope import laid_out
from eventlog.kafka.letters import Room, parted, too_large
from eventlog.kafka.shape import Shape
from tests.examples import examples
from tests.predicate.rows import events

SHAPE = Shape(cache="orders", cluster="c-1", prefix="shop", topic="shop.orders", version="1.0", is_json=True, has_text_keys=True)
NUMBERS = Declared({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]})
TYPED = replace(SHAPE, encoding="json-schema", declared=NUMBERS)
WIDE = Room(batch_bytes=100_000, topic_bytes=100_000)
PARTITIONS = 4


def records(batches):
    return [record for batch in batches for record in DefaultRecordBatch(bytes(batch.sealed()))]


def ids(batches):
    """Ids of events, each once: a removal is two records."""
    return list(dict.fromkeys(int.from_bytes(dict(record.headers)["id"]) for record in records(batches)))


def part(given_events, shape, room=WIDE):
    return parted(given_events, shape, partitions=PARTITIONS, now_ms=1, room=room)


def test_where_everything_fits_there_are_none():
    read = events([{"key": "k", "value": b"1"}, {"key": "k", "value": None, "before": b"1"}])
    made = part(read, SHAPE)
    assert made.letters == []
    assert len(records(made.batches)) == 3


@pytest.mark.parametrize("form", ["debezium", "upsert"])
@settings(deadline=None, max_examples=examples(50))
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30), topic_bytes=st.integers(700, 1_000))
def test_each_event_is_in_one_of_the_two_by_its_size(form, sizes, topic_bytes):
    read = events([{"key": f"k{row}", "value": json.dumps("x" * size).encode()} for row, size in enumerate(sizes)])
    shape = replace(SHAPE, form=form)
    made = part(read, shape, Room(batch_bytes=10_000, topic_bytes=topic_bytes))
    assert sorted(ids(made.batches) + ids(made.letters)) == sorted(read.ids.tolist())
    assert all(batch.nbytes <= topic_bytes for batch in made.batches)
    alone = laid_out(read, shape, partitions=PARTITIONS, now_ms=1, bytes_max=1)
    large = {alone.events.ids.item(batch.first) for batch in alone.batches if batch.nbytes > topic_bytes}
    assert set(ids(made.letters)) == large
    assert {read.ids.item(one.row) for one in too_large(alone, read, topic_bytes=topic_bytes)} == large


def test_a_removal_whose_envelope_is_too_large_leaves_no_tombstone_alone():
    read = events([{"key": "k", "value": None, "before": json.dumps("x" * 2_000).encode()}, {"key": "k", "value": b"1"}])
    made = part(read, SHAPE, Room(batch_bytes=1_500, topic_bytes=1_500))
    assert ids(made.letters) == [read.ids.item(0)]
    assert ids(made.batches) == [read.ids.item(1)]


@pytest.mark.parametrize("rows", [[], [0], [3, 4], [6], list(range(7))])
def test_what_does_not_fit_its_type_is_told_with_its_place(rows):
    fits = {"key": "k", "value": b'{"n":1}'}
    read = events([{"key": "k", "value": b'{"n":"one"}'} if row in rows else fits for row in range(7)])
    made = part(read, TYPED)
    assert ids(made.letters) == [read.ids.item(row) for row in rows]
    assert sorted(ids(made.batches)) == [read.ids.item(row) for row in range(7) if row not in rows]
    for row, record in zip(rows, records(made.letters), strict=True):
        told = json.loads(record.value)
        assert record.key == b"k"
        assert told.pop("reason").startswith("value.n is ")
        assert told == {
            "cache": "orders",
            "segment": read.segments.item(row),
            "offset": read.offsets.item(row),
            "event_id": read.ids.item(row),
            "kind": "CREATED",
            "size": 11,
        }


def test_one_may_not_fit_and_another_be_too_large():
    large = json.dumps({"n": 1, "m": "x" * 3_000}).encode()
    lenient = replace(TYPED, declared=Declared({**NUMBERS.avro, "fields": [*NUMBERS.avro["fields"], {"name": "m", "type": "string"}]}))
    read = events([{"key": "k", "value": value} for value in (large, b'{"n":1}', b'{"n":1,"m":""}')])
    made = part(read, lenient, Room(batch_bytes=8_000, topic_bytes=5_000))
    told = [json.loads(record.value)["reason"] for record in records(made.letters)]
    assert len(told) == 2
    assert told[0].endswith("bytes, and the topic takes 5000")
    assert told[1].startswith("value.m is ")
    assert ids(made.batches) == [read.ids.item(2)]
