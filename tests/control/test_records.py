"""Records: JSON there and back, and strictness."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.control.records import (
    CacheDroppedRecord,
    CacheNext,
    CacheOptions,
    CacheRecord,
    ClusterIdentity,
    ClusterKey,
    ClusterSettings,
    ControllerRecord,
    LostRange,
    LostRanges,
    Moved,
    NodeRecord,
    RebalanceRecord,
    Record,
    Remembered,
    ReplicaRecord,
    SegmentRecord,
    decode,
    encode,
)
from eventlog.errors import CorruptData
from eventlog.ids import ID_MAX
from tests.control.worlds import node, segment

EXAMPLES = [
    ClusterIdentity(cluster="c", segments=256, created_ms=1),
    node(1023, ceiling=ID_MAX),
    segment(4095, owners=(3, 1, 2), epoch=9, floor=ID_MAX),
    ClusterKey(key=bytes(range(32)), previous=bytes(32), overlap_ms=60_000),
    ControllerRecord(node=3, session="s", nonce="n"),
    LostRanges(segment=9, ranges=(LostRange(epoch=3, after=5, upto=ID_MAX),)),
    RebalanceRecord(state="running", moves_total=7, bytes_total=1 << 40, throttle_bytes=0, started_ms=1, nonce="n"),
    ClusterSettings(),
    CacheOptions(),
    CacheRecord(id=(1 << 32) - 1, name="orders", options=CacheOptions(format="avro", schema='{"type": "long"}'), from_id=7),
    CacheNext(id=1),
    CacheDroppedRecord(name="orders"),
    Moved(to="etcd://h:1"),
    Remembered(cluster="c", incarnation="i", node=0, revision=0),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_is_read_back(record):
    assert decode(encode(record), type(record), where="k") == record


def test_every_kind_of_record_is_tried_here():
    assert {type(example) for example in EXAMPLES} == set(Record.__subclasses__()) - {ReplicaRecord, LostRange}


def test_a_cluster_key_is_not_shown():
    record = ClusterKey(key=bytes(range(32)), previous=b"p" * 32)
    assert "\\x" not in repr(record)
    assert "pp" not in repr(record)


def test_records_of_earlier_versions_are_readable():
    old = b'{"number":1,"name":"n","address":"h:1","incarnation":"i","ceiling":5,"acknowledged":0,"removed_id":0}'
    found = decode(old, NodeRecord, where="k")
    assert (found.session, found.weight, found.holds_data) == ("", 1, True)
    old = b'{"segment":1,"owners":[1],"epoch":2,"in_sync":[{"node":1,"incarnation":"i"}],"floor":5,"min_in_sync":1,"nonce":"x"}'
    assert decode(old, SegmentRecord, where="k").target == ()


def test_fields_with_their_default_are_written():
    assert set(json.loads(encode(CacheOptions()))) == set(CacheOptions.__struct_fields__)


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("change", ["unknown", "missing", "type"])
def test_a_field_too_many_too_few_or_of_another_type_is_corrupt(record, change):
    fields = json.loads(encode(record))
    if change == "unknown":
        fields["more"] = 1
    elif change == "missing" and type(record) not in (CacheOptions, ClusterSettings):
        del fields[next(iter(fields))]
    else:
        fields[next(iter(fields))] = [None]
    with pytest.raises(CorruptData, match="metadata somewhere"):
        decode(json.dumps(fields).encode(), type(record), where="somewhere")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (NodeRecord, "number", 0),
        (NodeRecord, "number", 1024),
        (NodeRecord, "ceiling", -1),
        (NodeRecord, "ceiling", 1 << 63),
        (SegmentRecord, "segment", 4096),
        (SegmentRecord, "epoch", 0),
        (SegmentRecord, "owners", []),
        (SegmentRecord, "in_sync", []),
        (CacheRecord, "id", 0),
        (CacheRecord, "id", 1 << 32),
        (CacheOptions, "retain_bytes", -1),
        (CacheOptions, "format", "xml"),
    ],
)
def test_numbers_outside_their_range_are_corrupt(kind, field, value):
    fields = json.loads(encode(next(example for example in EXAMPLES if type(example) is kind)))
    fields[field] = value
    with pytest.raises(CorruptData):
        decode(json.dumps(fields).encode(), kind, where="k")


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_bytes_are_corrupt_or_another_record_and_nothing_else(record, data):
    whole = bytearray(encode(record))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        try:
            found = decode(damaged, type(record), where="k")
        except CorruptData:
            continue
        assert type(found) is type(record)


def test_records_are_not_changed_in_place():
    record = node(1)
    with pytest.raises(AttributeError):
        record.ceiling = 5
    assert msgspec.structs.replace(record, ceiling=5).ceiling == 5


def test_the_first_owner_is_primary():
    assert segment(1, owners=(3, 1)).primary == 3
