"""Kafka's record batches and Debezium's envelopes out of a read's columns, beside one call an event: CPU of one process, no broker."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import orjson
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks.figures import MILLION, Row, Scale, against
from benchmarks.processes import in_child
from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.columns import EventColumns, columns_of_values
from eventlog.batch.join import pack
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.events import Kind
from eventlog.ids import ID_STEP, id_before, time_of
from eventlog.kafka.declared import Declared
from eventlog.kafka.envelope import batches_of, rows_of
from eventlog.kafka.records import KIND_LETTERS
from eventlog.kafka.shape import Shape

READ = 10_000
SEGMENTS = 256
A_VALUE = 40  # events a stored value
VALUE_BYTES = 100
IMAGE_BYTES = 200
BATCH_BYTES = 1 << 20
NOW_MS = 1_790_000_000_000
ROUNDS = 9
REPEATED_EVENTS = 40_000  # of small reads, so that a round can be timed
RECORDS_AT_MOST = ENVELOPE_AT_MOST = 0.7
AVRO_AT_MOST = 0.2
SMALL_AT_MOST = 1.0
SHAPE = Shape(cache="orders", cluster="c", prefix="eventlog", topic="eventlog.orders", version="1", is_json=True, has_text_keys=True)
RAW = replace(SHAPE, form="raw")
AVRO = replace(SHAPE, encoding="avro", schema_ids=(1, 2))
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}, {"name": "more", "type": "string"}]}
DECLARED = replace(AVRO, declared=Declared(ORDER))
TEMPLATE = (
    b'{"before":{"_key":"%b",%b,"after":{"_key":"%b",%b,"source":{"version":"1","connector":"eventlog","name":"eventlog","ts_ms":%d,'
    b'"snapshot":"false","db":"c","sequence":"[\\"%d\\",\\"%d\\"]","ts_us":%d000,"ts_ns":%d000000,"table":"orders","segment":%d,'
    b'"offset":%d,"event_id":%d,"kind":"MODIFIED"},"op":"u","ts_ms":%d,"ts_us":%d000,"ts_ns":%d000000,"transaction":null}'
)


def run(scale: Scale) -> Iterator[Row]:
    yield from in_child(_rows, scale.of(ROUNDS, quick=2))


def _rows(rounds: int) -> list[Row]:
    unit, found = "us/record", []
    for partitions in (1, SEGMENTS):
        ours, theirs = _by_turns(rounds, _records(READ, partitions), _appended(READ, partitions), events=READ)
        found.append(
            against(f"records, reads of {READ:,}, {partitions} partitions", ours=ours, bare=theirs, unit=unit, at_most=RECORDS_AT_MOST)
        )
    for count in (1, 10, 100):
        ours, theirs = _by_turns(rounds, _records(count, 1), _appended(count, 1), events=count)
        found.append(against(f"records, reads of {count}", ours=ours, bare=theirs, unit=unit, at_most=SMALL_AT_MOST))
    read = columns(READ, image_bytes=IMAGE_BYTES)
    for name, way, at_most in (("a template", _templates, ENVELOPE_AT_MOST), ("orjson", _dumped, None)):
        ours, theirs = _by_turns(rounds, partial(rows_of, read, SHAPE, now_ms=NOW_MS), partial(way, read), events=READ)
        found.append(against(f"envelopes, against {name}", ours=ours, bare=theirs, unit=unit, at_most=at_most))
    for count in (1, 10, 100):
        few = columns(count, image_bytes=IMAGE_BYTES)
        ours, theirs = _by_turns(rounds, partial(rows_of, few, SHAPE, now_ms=NOW_MS), partial(_templates, few), events=count)
        found.append(against(f"envelopes of reads of {count}, against a template", ours=ours, bare=theirs, unit=unit, at_most=None))
    for name, shape, values in (
        ("envelopes in Avro, against fastavro", AVRO, bytes.decode),
        ("envelopes in Avro of a declared type, against fastavro", DECLARED, orjson.loads),
    ):
        made = partial(rows_of, read, shape, now_ms=NOW_MS)
        ours, theirs = _by_turns(rounds, made, partial(_by_fastavro, read, shape, values), events=READ)
        found.append(against(name, ours=ours, bare=theirs, unit=unit, at_most=AVRO_AT_MOST if shape is AVRO else None))
    return found


def _by_turns(rounds: int, *ways: Callable[[], object], events: int) -> list[float]:
    """Return microseconds of CPU an event of each way, the middle of rounds that take turns."""
    repeat = max(REPEATED_EVENTS // events, 1)
    costs: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for way, own in zip(ways, costs, strict=True):
            began = time.process_time()
            for _ in range(repeat):
                way()
            own.append((time.process_time() - began) / repeat / events * MILLION)
    return [sorted(own)[len(own) // 2] for own in costs]


def columns(count: int, *, image_bytes: int = 0) -> EventColumns:
    """Return a read of events as its node has it: some of each segment, with before-images of `image_bytes` if that is not 0."""
    data, segments = [], []
    for low in range(0, count, A_VALUE):
        part = range(low, min(low + A_VALUE, count))
        segments.append(low // A_VALUE % SEGMENTS)
        values = [_value(number, image_bytes or VALUE_BYTES) for number in part]
        own = Columns(
            kinds=np.full(len(part), Kind.MODIFIED, np.uint8),
            keys=[b"customer-%08d" % number for number in part],
            values=values,
            before=values if image_bytes else None,
        )
        block, _ = build_blocks(own, np.array([len(part)]))
        head = ValueHead(
            flags=0, sections=1, epoch=1, count=len(part), bitmap=own.bitmap, kinds=1 << Kind.MODIFIED, producers=0,
            base=id_before(NOW_MS) + 1 + low * ID_STEP, first_offset=low,
        )  # fmt: skip
        data.append(encode_value(head, segment=segments[-1], cache=1, sections=[block]))
    packed = pack(segments, data)
    return columns_of_values(packed.take(np.argsort(packed.segments, kind="stable")), after=-1, until=(1 << 63) - 1)


def _value(number: int, nbytes: int) -> bytes:
    front = b'{"number":%d,"more":"' % number
    return front + b"x" * (nbytes - len(front) - 2) + b'"}'


def _records(count: int, partitions: int) -> Callable[[], object]:
    read = columns(count)

    def make() -> list[bytearray]:
        found = batches_of(read, RAW, partitions=partitions, now_ms=NOW_MS, bytes_max=BATCH_BYTES)
        return [batch.sealed() for batch in found]

    return make


def _appended(count: int, partitions: int) -> Callable[[], object]:
    """The same records by aiokafka's compiled builder, one call each; a builder a partition, no limit to their sizes."""
    read = columns(count)

    def make() -> list[bytearray]:
        builders: dict[int, tuple[Any, int]] = {}
        places = zip(read.ids.tolist(), read.segments.tolist(), read.offsets.tolist(), read.kinds.tolist(), strict=True)
        rows = zip(places, read.keys.to_list(), read.values.to_list(), strict=True)
        for (id_, segment, offset, kind), key, value in rows:
            builder, number = builders.get(segment % partitions) or (_builder(), 0)
            headers = [("id", id_.to_bytes(8)), ("off", segment.to_bytes(4) + offset.to_bytes(8)), ("kind", _LETTERS[kind])]
            builder.append(number, time_of(id_), key, value, headers)
            builders[segment % partitions] = builder, number + 1
        return [builder.build() for builder, _ in builders.values()]

    return make


_LETTERS = {int(kind): letter for kind, letter in KIND_LETTERS.items()}


def _builder() -> Any:
    return DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 30
    )


def _images(read: EventColumns) -> Iterator[tuple[tuple[int, int, int], bytes, bytes, bytes]]:
    assert read.before is not None, "they have images"
    places = zip(read.ids.tolist(), read.segments.tolist(), read.offsets.tolist(), strict=True)
    return zip(places, read.keys.to_list(), read.values.to_list(), read.before.to_list(), strict=True)


def _templates(read: EventColumns) -> list[tuple[bytes, bytes]]:
    found = []
    for (id_, segment, offset), key, value, before in _images(read):
        at = time_of(id_)
        told = TEMPLATE % (key, before[1:], key, value[1:], at, id_, offset, at, at, segment, offset, id_, NOW_MS, NOW_MS, NOW_MS)
        found.append((b'{"_key":"%b"}' % key, told))
    return found


def _dumped(read: EventColumns) -> list[tuple[bytes, bytes]]:
    found = []
    for place, key, value, before in _images(read):
        name = key.decode()
        told = _told(place, {"_key": name, **orjson.loads(before)}, {"_key": name, **orjson.loads(value)})
        found.append((orjson.dumps({"_key": name}), orjson.dumps(told)))
    return found


def _by_fastavro(read: EventColumns, shape: Shape, values: Callable[[bytes], Any]) -> list[tuple[bytes, bytes]]:
    schemas = [fastavro.parse_schema(orjson.loads(schema)) for schema in (shape.key_schema, shape.value_schema)]
    found = []
    for place, key, value, before in _images(read):
        name, written = key.decode(), []
        rows = [{"_key": name, **one} if isinstance(one, dict) else {"_key": name, "value": one} for one in map(values, (before, value))]
        for schema, given in zip(schemas, ({"_key": name}, _told(place, *rows)), strict=True):
            buffer = BytesIO()
            buffer.write(b"\0\0\0\0\1")
            fastavro.schemaless_writer(buffer, schema, given)
            written.append(buffer.getvalue())
        found.append((written[0], written[1]))
    return found


def _told(place: tuple[int, int, int], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """An envelope as objects."""
    id_, segment, offset = place
    at = time_of(id_)
    source = {
        "version": "1", "connector": "eventlog", "name": "eventlog", "ts_ms": at, "snapshot": "false", "db": "c",
        "sequence": f'["{id_}","{offset}"]', "ts_us": at * 1_000, "ts_ns": at * 1_000_000, "table": "orders", "segment": segment,
        "offset": offset, "event_id": id_, "kind": "MODIFIED",
    }  # fmt: skip
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": "u",
        "ts_ms": NOW_MS,
        "ts_us": NOW_MS * 1_000,
        "ts_ns": NOW_MS * 1_000_000,
        "transaction": None,
    }
