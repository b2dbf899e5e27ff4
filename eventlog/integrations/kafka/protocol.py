"""What aiokafka lacks: sending batches that are laid out already, and asking brokers which transactions are open in partitions.

Its producer builds batches of its own from single records. A producer's accumulator asks the builder of a batch five things; `ReadyBatch`
answers them for a `RecordBatch`. These are no part of aiokafka's interface, so the suite sends one to a real broker, within a transaction,
and an aiokafka that asks for something else fails there. `takes_ready_batches` says whether the installed version's own builder answers
the same. Where it does not, records are appended one by one to builders of its own (`TAKES_READY` is False), at about three times the CPU.

Transactions are asked for by DescribeProducers, a request of Kafka's protocol that aiokafka does not know.
"""

from inspect import signature
from typing import Any, ClassVar, Final

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.record.default_records import DefaultRecordBatch

from eventlog.kafka.records import RecordBatch
from eventlog.mirror.broker import Place

_ASKED = {
    "_set_producer_state": ("producer_id", "producer_epoch", "base_sequence"),
    "_build": (),
    "close": (),
    "closed": (),
    "size": (),
    "record_count": (),
}
_KEY: Final = 61


class ReadyBatch:
    """Stands where aiokafka's `BatchBuilder` does."""

    def __init__(self, batch: RecordBatch, *, is_transactional: bool) -> None:
        self._batch = batch
        self._is_transactional = is_transactional
        self._producer = -1, -1
        self._sequence = -1

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer, self._sequence = (producer_id, producer_epoch), base_sequence

    def _build(self) -> bytearray:
        return self._batch.sealed(producer=self._producer, sequence=self._sequence, is_transactional=self._is_transactional)

    def close(self) -> None:
        """Nothing is added to it anyway."""

    def closed(self) -> bool:
        """Return that nothing can be added."""
        return True

    def size(self) -> int:
        """Return how many bytes are sent."""
        return self._batch.nbytes

    def record_count(self) -> int:
        """Return how many records it has."""
        return self._batch.count


def takes_ready_batches(builder: type[Any] = BatchBuilder) -> bool:
    """Return whether aiokafka asks its builder what a ready batch answers."""
    return all(
        callable(asked := getattr(builder, name, None)) and tuple(signature(asked).parameters)[1:] == parameters
        for name, parameters in _ASKED.items()
    )


TAKES_READY: Final = takes_ready_batches()


def builders_of(producer: AIOKafkaProducer, batch: RecordBatch, *, is_transactional: bool, is_ready: bool = TAKES_READY) -> list[Any]:
    """Return what `send_batch` takes for a batch, in the order in which it is to be sent: one object, or a few where records are appended.

    A producer's `max_batch_size` bounds the appended ones, but for one of a single larger record.
    """
    if is_ready:
        return [ReadyBatch(batch, is_transactional=is_transactional)]
    found = [producer.create_batch()]
    for record in DefaultRecordBatch(bytes(batch.sealed())):
        row = {"key": record.key, "value": record.value, "timestamp": record.timestamp, "headers": record.headers}
        if found[-1].append(**row) is None:
            found.append(producer.create_batch())
            assert found[-1].append(**row) is not None, "an empty batch takes any record"
    for builder in found:
        builder.close()
    return found


class _Response(Response):  # type: ignore[misc]  # it has no types
    API_KEY = _KEY
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", CompactString("utf-8")),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _RequestStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _KEY
    API_VERSION = 0
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partition_indexes", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeProducers(Request[_RequestStruct]):  # type: ignore[misc]
    """Which producers have written into some partitions of topics that one broker leads."""

    API_KEY: ClassVar[int] = _KEY

    def __init__(self, partitions: dict[str, list[int]]) -> None:
        self._topics = [(topic, numbers, dict[int, bytes]()) for topic, numbers in partitions.items()]

    def build(self, request_struct_class: type[_RequestStruct]) -> _RequestStruct:
        """Return what goes over the wire."""
        return request_struct_class(self._topics, {})


def open_of(answer: Response, producer_id: int) -> tuple[dict[Place, int], list[tuple[str, int, int]]]:
    """Return where transactions of a producer are open, with the offsets of their first records; and what was refused, by number."""
    found: dict[Place, int] = {}
    refused: list[tuple[str, int, int]] = []
    for topic in answer.to_object()["topics"]:
        for partition in topic["partitions"]:
            place = topic["name"], partition["partition_index"]
            if partition["error_code"]:
                refused.append((*place, partition["error_code"]))
            for producer in partition["active_producers"]:
                if producer["producer_id"] == producer_id and producer["current_txn_start_offset"] >= 0:
                    found[place] = producer["current_txn_start_offset"]
    return found, refused
