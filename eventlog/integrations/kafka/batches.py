"""Batches that are laid out already, sent by aiokafka, whose producer builds its own from single records.

A producer's accumulator asks the builder of a batch five things; `ReadyBatch` answers them for a `RecordBatch`. These are no part of
aiokafka's interface, so the suite sends one to a real broker, within a transaction, and an aiokafka that asks for something else
fails there. `takes_ready_batches` says whether the installed version's own builder answers the same. Where it does not, records are
appended one by one to builders of its own (`TAKES_READY` is False), at about three times the CPU.
"""

from inspect import signature
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from eventlog.kafka.records import RecordBatch

_ASKED = {
    "_set_producer_state": ("producer_id", "producer_epoch", "base_sequence"),
    "_build": (),
    "close": (),
    "closed": (),
    "size": (),
    "record_count": (),
}


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
