"""Batches that are laid out already, sent by aiokafka, whose producer builds its own from single records.

A producer's accumulator asks the builder of a batch five things; `ReadyBatch` answers them for a `RecordBatch`. These are no part of
aiokafka's interface, so the suite sends one to a real broker, within a transaction, and an aiokafka that asks for something else
fails there. `takes_ready_batches` says whether the installed version's own builder answers the same.
"""

from inspect import signature
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder

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
