"""Asks brokers which transactions are open in partitions (Kafka protocol, DescribeProducers): aiokafka does not know this request."""

from typing import ClassVar, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from eventlog.mirror.broker import Place

_KEY: Final = 61


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
