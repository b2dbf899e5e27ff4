"""Batches that are laid out here, through aiokafka's producer to a real broker, and read back by other clients."""

import asyncio
import gc
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerIdMapping, InvalidTxnState, KafkaError, ProducerFenced, TopicAuthorizationFailedError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from eventlog.integrations.kafka.broker import AioWriter, pass_over_forgotten, trouble_of
from eventlog.integrations.kafka.protocol import ReadyBatch, builders_of, takes_ready_batches
from eventlog.kafka.envelope import batches_of
from eventlog.kafka.shape import Shape
from eventlog.mirror.broker import Trouble
from eventlog.mirror.shards import outcome_of
from tests.kafka.brokers import READY_S, create_topic
from tests.predicate.rows import events

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 4
SHAPE = Shape(cache="c", cluster="c-1", prefix="p", topic="p.c", version="1.0", is_json=True, has_text_keys=True)
BYTES_MAX = 8_000
APPENDED_MAX = 3_000  # so that one batch is several where its records are appended


def read_of(first: int, count: int):
    numbers = range(first, first + count)
    return events(
        [
            {"key": f"k{number}", "value": None, "before": b"0"} if number % 5 == 0 else {"key": f"k{number}", "value": b"[%d]" % number}
            for number in numbers
        ],
        a_value=1,
    )


def batches(first: int, count: int):
    return batches_of(read_of(first, count), SHAPE, partitions=PARTITIONS, now_ms=1, bytes_max=BYTES_MAX)


async def send(producer: AIOKafkaProducer, topic: str, first: int, count: int, *, is_ready: bool) -> None:
    ready = [
        (batch.partition, builder)
        for batch in batches(first, count)
        for builder in builders_of(producer, batch, is_transactional=True, is_ready=is_ready)
    ]
    await asyncio.gather(*[await producer.send_batch(builder, topic, partition=partition) for partition, builder in ready])


def expected(*reads: tuple[int, int]) -> dict[int, list[tuple[object, ...]]]:
    """Keys, values and headers of each partition, as they were laid out."""
    found: dict[int, list[tuple[object, ...]]] = {partition: [] for partition in range(PARTITIONS)}
    for first, count in reads:
        for batch in batches(first, count):
            records = DefaultRecordBatch(bytes(batch.sealed()))
            found[batch.partition] += [(one.key, one.value, tuple(one.headers), one.timestamp) for one in records]
    return found


async def by_aiokafka(addresses: str, topic: str) -> dict[int, list[tuple[object, ...]]]:
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found: dict[int, list[tuple[object, ...]]] = {partition: [] for partition in range(PARTITIONS)}
    async with AIOKafkaConsumer(bootstrap_servers=addresses, enable_auto_commit=False) as consumer:
        ends = await consumer.end_offsets(places)  # of what is written: markers come a moment after a commit was answered
    async with AIOKafkaConsumer(
        bootstrap_servers=addresses, isolation_level="read_committed", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, records in (await consumer.getmany(timeout_ms=1_000)).items():
                found[place.partition] += [(one.key, one.value, tuple(one.headers), one.timestamp) for one in records]
    return found


def by_confluent(addresses: str, topic: str) -> dict[int, list[tuple[object, ...]]]:
    found: dict[int, list[tuple[object, ...]]] = {partition: [] for partition in range(PARTITIONS)}
    consumer = Consumer(
        {
            "bootstrap.servers": addresses, "group.id": str(uuid.uuid4()), "isolation.level": "read_committed",
            "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([ConfluentPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(READY_S)
        assert message is not None, "the end of each partition is told"
        if message.error():
            ended += 1
            continue
        found[message.partition()].append((message.key(), message.value(), tuple(message.headers()), message.timestamp()[1]))
    consumer.close()
    return found


@pytest.mark.parametrize(("count", "is_ready"), [(20, True), (1_500, True), (1_500, False)])
def test_what_is_committed_is_read_once_and_in_order_and_what_is_aborted_is_not(broker: str, count: int, is_ready: bool) -> None:
    topic = f"t{uuid.uuid4().hex}"

    async def write() -> None:
        await create_topic(broker, topic, partitions=PARTITIONS)
        async with AIOKafkaProducer(bootstrap_servers=broker, transactional_id=topic, acks="all", max_batch_size=APPENDED_MAX) as producer:
            async with producer.transaction():
                await send(producer, topic, 0, count, is_ready=is_ready)
            await producer.begin_transaction()
            await send(producer, topic, 7_000, count, is_ready=is_ready)
            await producer.abort_transaction()
            async with producer.transaction():
                await send(producer, topic, count, count, is_ready=is_ready)

    asyncio.run(write())
    told = expected((0, count), (count, count))
    assert sum(map(len, told.values())) > 2 * count
    assert asyncio.run(by_aiokafka(broker, topic)) == told
    assert by_confluent(broker, topic) == told


def test_appended_records_are_bounded_by_the_producer_and_say_the_same() -> None:
    async def make() -> list[bytes]:
        producer = AIOKafkaProducer(max_batch_size=APPENDED_MAX)
        builders = builders_of(producer, batch, is_transactional=False, is_ready=False)
        await producer.stop()
        assert all(builder.closed() for builder in builders)
        return [bytes(builder._build()) for builder in builders]

    def records(data: bytes) -> list[tuple[object, ...]]:
        return [(one.key, one.value, tuple(one.headers), one.timestamp) for one in DefaultRecordBatch(data)]

    batch = batches(1, 100)[0]
    built = asyncio.run(make())
    assert len(built) > 1
    assert max(map(len, built)) <= APPENDED_MAX
    assert [one for data in built for one in records(data)] == records(bytes(batch.sealed()))


def test_the_installed_aiokafka_asks_a_builder_what_a_ready_batch_answers() -> None:
    assert takes_ready_batches()
    (batch,) = batches(1, 1)
    asked = {name for name in vars(BatchBuilder) if not name.startswith("__")} - {"append", "_serialize"}
    assert asked <= set(dir(ReadyBatch(batch, is_transactional=True)))


def test_a_builder_that_is_asked_something_else_is_told_apart() -> None:
    class Changed(BatchBuilder):
        def _set_producer_state(self, producer: object) -> None:
            pass

    class Gone:
        pass

    assert not takes_ready_batches(Changed)
    assert not takes_ready_batches(Gone)


def test_what_its_sender_did_not_expect_is_told_as_the_broker_told_it() -> None:
    raised = KafkaError("Unexpected error during batch delivery")
    raised.__cause__ = InvalidProducerIdMapping()
    found = trouble_of(raised)
    assert (found.code, outcome_of(found, topic="t").next, outcome_of(found, topic="t").state) == (49, "anew", "starting")
    for cause in (None, OSError(49, "no broker's number")):
        own = KafkaError("of its own")
        own.__cause__ = cause
        assert (trouble_of(own).code, str(trouble_of(own))) == (None, f"KafkaError: {own}")
    fenced = ProducerFenced()
    fenced.__cause__ = InvalidProducerIdMapping()
    assert trouble_of(fenced).code == 90, "what has a number of its own keeps it"


class Refusing:
    """A producer of aiokafka's whose transaction Kafka refuses, if it does, and what else was sent for being in none."""

    def __init__(self, why: KafkaError | None) -> None:
        self._txn_manager = self
        self._end = asyncio.get_running_loop().create_future()
        if why is not None:
            self._end.set_exception(why)

    async def begin_transaction(self) -> None: ...

    async def send(self, *_: object, **__: object) -> asyncio.Future[None]:
        sent = asyncio.get_running_loop().create_future()
        sent.set_exception(InvalidTxnState())
        return sent

    def wait_for_transaction_end(self) -> asyncio.Future[None]:
        return self._end


@pytest.mark.parametrize(("why", "code"), [(TopicAuthorizationFailedError(), 29), (None, 48)])
def test_a_transaction_that_is_refused_says_why_whatever_is_told_first(why: KafkaError | None, code: int) -> None:
    async def act() -> None:
        with pytest.raises(Trouble) as raised:
            await AioWriter(Refusing(why)).write({}, progress_topic="p", progress={b"k": b"v"})
        assert raised.value.code == code

    asyncio.run(act())


def test_what_aiokafka_forgets_is_not_printed_and_all_else_is(caplog: pytest.LogCaptureFixture) -> None:
    async def act() -> None:
        pass_over_forgotten()
        pass_over_forgotten()
        for error in (ProducerFenced(), ValueError("a bug")):
            asyncio.get_running_loop().create_future().set_exception(error)  # which nobody asks for
        gc.collect()

    asyncio.run(act())
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError]


class Silent:
    """A producer to which no broker says anything."""

    def __init__(self) -> None:
        self.aborted = 0

    async def begin_transaction(self) -> None:
        pass

    async def send(self, *_: object, **__: object) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_future()

    async def abort_transaction(self) -> None:
        self.aborted += 1


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_transaction_that_takes_too_long_is_not_given_up_by_its_writer(is_cancelled: bool) -> None:
    async def work() -> None:
        producer = Silent()
        writing = asyncio.create_task(AioWriter(producer, within_s=0.05).write({}, progress_topic="p", progress={b"k": b"v"}))
        if is_cancelled:
            await asyncio.sleep(0)
            writing.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else Trouble):
            await writing
        assert producer.aborted == is_cancelled

    asyncio.run(work())
