"""What a shard needs of Kafka: the port that a client of Kafka's, and one that only plays it, stand behind."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol, TypeAlias

from eventlog.kafka.records import RecordBatch

RECORD_BYTES_MAX_DEFAULT: Final = 1_048_588  # of a topic of which nothing else is known: Kafka's own for max.message.bytes


Place: TypeAlias = tuple[str, int]
"""A topic, and one of its partitions."""


class Trouble(Exception):
    """What Kafka, or the way to it, did not do. `code` is Kafka's number for it, None where no broker said anything."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code


class TopicRecord(NamedTuple):
    """What is compared of a record: its headers, the last of each name, and whether its value is null. `behind` has the rest, too."""

    headers: Mapping[str, bytes]
    is_null: bool
    key: bytes | None = None
    value: bytes | None = None
    offset: int = -1


class TransactionWriter(Protocol):
    """Writes transactions, one after the other. After trouble it is of no use any more: what became of the last one is in the progress."""

    @property
    def is_worn(self) -> bool:
        """Whether another producer is to go on."""
        ...

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, as far as the writer was told by now; 0 for what it knows nothing of."""
        ...

    async def write(self, batches: Mapping[str, Sequence[RecordBatch]], *, progress_topic: str, progress: Mapping[bytes, bytes]) -> int:
        """Write batches into their topics, and progress: all or nothing for whoever reads committed records.

        Return the offset behind the last record of the progress, 0 without one.

        Raises:
            Trouble: it was not written, or nobody knows.
        """
        ...

    async def left_open(self, topics: Mapping[str, Sequence[int]]) -> dict[Place, int]:
        """Return in which of some partitions a transaction of this writer's id is open, and the offset of its first record there.

        To be asked while the writer has none open: so Kafka has ended it, and not there.
        """
        ...

    async def settle(self, places: Iterable[Place], *, is_commit: bool) -> None:
        """End what was left open in partitions, as committed or as aborted. Raises Trouble: nobody knows whether it has."""
        ...


class Kafka(Protocol):
    """A cluster of Kafka. Everything raises Trouble where Kafka is away or refuses it, and OutboundRefused where it may not be asked."""

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return how many partitions each topic has; those that are not there are left out. Raises Trouble also where nobody leads one."""
        ...

    async def check_writable(self, topics: Sequence[str]) -> None:
        """Raise Trouble that says what keeps topics from taking records, where the brokers know of something."""
        ...

    async def record_bytes_max(self, topic: str) -> int:
        """Return how large a batch of records may be that a topic takes."""
        ...

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offset behind the last record of some partitions of a topic, open transactions included."""
        ...

    async def create(self, topic: str, *, partitions: int, settings: Mapping[str, str], dry_run: bool = False) -> None:
        """Make a topic; one that is there is left as it is. With `dry_run` only raise what making it would."""
        ...

    async def delete(self, topic: str) -> None:
        """Delete a topic; one that is not there is one that was deleted."""
        ...

    async def records(self, topic: str, *, upto: int = 0) -> Mapping[bytes, bytes]:
        """Return the last committed record of each key of a topic with one partition, up to where a broker says that it ends.

        That may be an end of earlier: a broker that is not heard by the others takes itself for the leader that it was. With `upto` all
        before that offset is read in any case.
        """
        ...

    def read(self, topic: str, partitions: int) -> AsyncGenerator[list[TopicRecord], None]:
        """Yield the committed records of all partitions of a topic, up to its end when this is called."""
        ...

    async def behind(self, topic: str, partition: int, begin: int, *, is_committed: bool) -> list[TopicRecord]:
        """Return the records of a partition from offset `begin` on, or the last -`begin`: all of them, or those that are committed."""
        ...

    def writer(self, transactional_id: str) -> AbstractAsyncContextManager[TransactionWriter]:
        """A producer that has fenced all earlier ones of its id, and ended what they left open."""
        ...
