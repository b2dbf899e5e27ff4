"""Record batches against aiokafka's own builder, byte by byte, and read back by its reader."""

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch import byte_columns as columns
from eventlog.events import Kind, encode_headers
from eventlog.kafka.records import HEAD, LOOP_MAX, VARINT, EventHeaders, Records, build_batches, varints
from tests.examples import examples

ROOMY = 1 << 30
LETTERS = {Kind.CREATED: b"C", Kind.MODIFIED: b"M", Kind.REMOVED: b"R", Kind.EXPIRED: b"E", Kind.STATE: b"S"}

contents = st.one_of(st.none(), st.binary(max_size=8), st.integers(60, 70).map(bytes), st.integers(8_180, 8_200).map(bytes))
headers = st.one_of(
    st.just({}),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=3),
    st.integers(0, 100).map(lambda count: {f"h{number}": b"v" for number in range(count)}),
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "partition": st.integers(0, 3),
            "timestamp": st.integers(0, 1 << 41),
            "key": contents,
            "value": contents,
            "id": st.integers(0, (1 << 63) - 1),
            "segment": st.integers(0, 4_095),
            "offset": st.integers(0, 1 << 50),
            "kind": st.sampled_from(list(Kind)),
            "headers": headers,
        }
    ),
    max_size=12,
)


def records_of(given_rows, *, in_columns=False):
    pack = columns.of_items if in_columns else list

    def column(name):
        return [row[name] for row in given_rows]

    return Records(
        partitions=np.array(column("partition"), np.int64),
        timestamps=np.array(column("timestamp"), np.int64),
        keys=pack(column("key")),
        values=pack(column("value")),
        headers=EventHeaders(
            ids=np.array(column("id"), np.int64),
            segments=np.array(column("segment"), np.int64),
            offsets=np.array(column("offset"), np.int64),
            kinds=np.array(column("kind"), np.uint8),
            own=pack([encode_headers(row["headers"]) for row in given_rows]) if any(column("headers")) else None,
        ),
    )


def headers_of(row):
    own = ("id", row["id"].to_bytes(8)), ("off", row["segment"].to_bytes(4) + row["offset"].to_bytes(8)), ("kind", LETTERS[row["kind"]])
    return [*own, *row["headers"].items()]


def by_aiokafka(given_rows, *, producer=(-1, -1), sequence=-1, is_transactional=False):
    """One batch a partition."""
    found = []
    for partition in sorted({row["partition"] for row in given_rows}):
        builder = DefaultRecordBatchBuilder(
            2, 0, is_transactional=is_transactional, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence,
            batch_size=ROOMY,
        )  # fmt: skip
        for offset, row in enumerate(row for row in given_rows if row["partition"] == partition):
            builder.append(offset, row["timestamp"], key=row["key"], value=row["value"], headers=headers_of(row))
        found.append(bytes(builder.build()))
    return found


def read(data):
    batch = DefaultRecordBatch(bytes(data))
    assert batch.validate_crc()
    return list(batch)


@pytest.mark.parametrize("repeat", [1, LOOP_MAX])
@settings(deadline=None, max_examples=examples(150))
@given(given_rows=rows)
def test_batches_are_those_of_aiokafka(given_rows, repeat):
    given_rows = sorted(given_rows * repeat, key=lambda row: row["partition"])
    batches = build_batches(records_of(given_rows, in_columns=repeat > 1), bytes_max=ROOMY)
    assert [bytes(batch.sealed()) for batch in batches] == by_aiokafka(given_rows)
    assert [batch.partition for batch in batches] == sorted({row["partition"] for row in given_rows})


@settings(deadline=None, max_examples=examples(100))
@given(given_rows=rows.filter(bool), bytes_max=st.integers(61, 9_000), repeat=st.sampled_from([1, 2, LOOP_MAX]))
def test_a_batch_holds_what_fits_it_and_one_record_at_least(given_rows, bytes_max, repeat):
    given_rows = sorted(given_rows * repeat, key=lambda row: row["partition"])
    batches = build_batches(records_of(given_rows, in_columns=repeat > 1), bytes_max=bytes_max)
    assert [batch.first for batch in batches] == [sum(batch.count for batch in batches[:index]) for index in range(len(batches))]
    assert sum(batch.count for batch in batches) == len(given_rows)
    for batch in batches:
        data, own = batch.sealed(), given_rows[batch.first : batch.first + batch.count]
        assert len(data) == batch.nbytes
        assert batch.count == 1 or len(data) <= bytes_max
        assert {row["partition"] for row in own} == {batch.partition}
        assert [(record.timestamp, record.key, record.value, record.headers) for record in read(data)] == [
            (row["timestamp"], row["key"], row["value"], headers_of(row)) for row in own
        ]


def test_one_by_one_and_in_columns_are_cut_alike():
    row = {"partition": 0, "timestamp": 7, "key": b"k", "value": bytes(50), "id": 1, "segment": 0, "offset": 0, "kind": 0, "headers": {}}
    few = build_batches(records_of([row] * LOOP_MAX), bytes_max=1_000)
    many = build_batches(records_of([row] * (LOOP_MAX + 1), in_columns=True), bytes_max=1_000)
    assert len(few) > 3
    assert [bytes(batch.records) for batch in few[:-1]] == [bytes(batch.records) for batch in many[: len(few) - 1]]


def test_a_value_of_a_megabyte_is_a_record():
    row = {
        "partition": 2,
        "timestamp": 1,
        "key": b"",
        "value": bytes(1 << 20),
        "id": 5,
        "segment": 2,
        "offset": 9,
        "kind": 1,
        "headers": {},
    }
    (batch,) = build_batches(records_of([row]), bytes_max=1_000)
    assert [bytes(batch.sealed())] == by_aiokafka([row])


def test_a_transaction_s_batch_names_its_producer():
    row = {"partition": 0, "timestamp": 1, "key": b"k", "value": b"v", "id": 5, "segment": 0, "offset": 9, "kind": 1, "headers": {}}
    (batch,) = build_batches(records_of([row]), bytes_max=1_000)
    expected = by_aiokafka([row], producer=(77, 3), sequence=41, is_transactional=True)
    assert [bytes(batch.sealed(producer=(77, 3), sequence=41, is_transactional=True))] == expected


def test_the_bytes_are_these():
    row = {
        "partition": 0, "timestamp": 1_700_000_000_123, "key": b"key", "value": None, "id": 0x0102030405060708, "segment": 258, "offset": 3,
        "kind": Kind.REMOVED, "headers": {"h": b"v"},
    }  # fmt: skip
    (batch,) = build_batches(records_of([row]), bytes_max=ROOMY)
    head = "000000000000000000000063ffffffff02________0000000000000000018bcfe5687b0000018bcfe5687b"
    record = "62000000066b65790108046964100102030405060708066f666618000001020000000000000003086b696e64025202680276"
    data = bytes(batch.sealed())
    assert HEAD.size == 61
    assert data[:17].hex() + "________" + data[21:43].hex() == head
    assert data[61:].hex() == record


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_varints_of_columns_are_those_of_one(numbers):
    matrix, mask = varints(np.array(numbers, np.int64))
    assert [row[own].tobytes() for row, own in zip(matrix, mask, strict=True)] == [VARINT[number] for number in numbers]


def test_nothing_makes_no_batch():
    assert build_batches(records_of([]), bytes_max=ROOMY) == []
