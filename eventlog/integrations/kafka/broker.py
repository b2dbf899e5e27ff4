"""One shard's way into Kafka by aiokafka: topics, the progress that was committed, and transactions.

Everything that goes wrong is a `Trouble` with Kafka's own number for it, if a broker named one, so that what to do next is decided without
knowing aiokafka. Each wait has an end: a broker that takes a connection and says nothing more is one that is away.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    AuthenticationFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    ProducerClosed,
    ProducerFenced,
    RecordTooLargeError,
    RequestTimedOutError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    for_code,
)

from eventlog.errors import KafkaFailed
from eventlog.integrations.kafka.protocol import DescribeProducers, builders_of, open_of
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.kafka.records import RecordBatch
from eventlog.limits import MIRROR_BATCH_BYTES_MAX
from eventlog.mirror.broker import RECORD_BYTES_MAX_DEFAULT, Place, TopicRecord, Trouble
from eventlog.mirror.shards import HANGING, NO_COORDINATOR, NO_LEADER, NOT_ALLOWED, OTHER_TOPIC, UNKNOWN_TOPIC, TopicReplicas, hindrance
from eventlog.node.outbound import KafkaConnection, Outbound, secret

WAIT_S: Final = 8.0  # for one thing asked of Kafka: whoever adds a mirror hears within a client's ten seconds what is wrong
PATIENT_S: Final = 30.0  # where nobody waits: for a predecessor's transaction to end, and all progress to be read
TRANSACTION_S: Final = 45.0  # below the timeout by which Kafka gives a transaction up itself
_TRANSACTION_MS: Final = 60_000
_AGAIN_S: Final = 0.1
_NEXT_BROKER_MS: Final = 2_000  # one that stands still takes connections and says nothing
_STANDS_S: Final = 25.0  # less than `PATIENT_S`, so that it is told what is waited for
_CLOSE_S: Final = 5.0
_READ_MS: Final = 200
_TOPIC_EXISTS: Final = 36
_RECORD_BYTES_MAX: Final = "max.message.bytes"
_IN_SYNC_MIN: Final = "min.insync.replicas"
_MOVING: Final = frozenset({UNKNOWN_TOPIC, NO_LEADER, 6})  # a partition has another leader, or one that has not heard of it yet
_TRANSACTIONS: Final = "__transaction_state"  # the brokers' own topic
_CODES: Final = {ProducerFenced: 90, RecordTooLargeError: 10, AuthenticationFailedError: 58}
"""Numbers of what aiokafka says in words of its own."""
RECORDS_MAX: Final = 1 << 30  # of one producer: its sequences turn negative behind 2^31 records of a partition, which Kafka refuses


Answer = TypeVar("Answer")
_MET_MAX: Final = 8  # tasks of a producer have the context in which it began, and meet the same for as long as its brokers are away
_met: "ContextVar[deque[BaseException] | None]" = ContextVar("met", default=None)


class _Hearing(logging.Handler):
    """Prints nothing: whatever aiokafka meets is told, once and with what to do, by whoever asked it.

    Why it cannot begin with a broker it says in its log alone, so that is kept for whoever waits for it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if (met := _met.get()) is not None and isinstance(record.args, tuple):
            met.extend(one for one in record.args if isinstance(one, BaseException))


_log = logging.getLogger("aiokafka")
_log.setLevel(logging.ERROR)
_log.propagate = False
_log.addHandler(_Hearing())


def _why_none(met: Iterable[BaseException]) -> str:
    """Return why aiokafka has no broker to begin with, from what it said of those that it asked."""
    for one in met:
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"the certificate of its broker is not trusted ({one.verify_message}): is it of the ca-file of [kafka.NAME]?"
        if isinstance(one, AuthenticationFailedError | SaslAuthenticationFailed):
            return "its broker does not take the user and the password of [kafka.NAME]"
        if isinstance(one, UnsupportedSaslMechanismError):
            return "its broker does not take the mechanism of [kafka.NAME]"
    return "no broker answers there: it is away, or wants to be spoken to in another way (security of [kafka.NAME])"


def trouble_of(error: BaseException, met: Iterable[BaseException] = ()) -> Trouble:
    """Return an error of aiokafka's, or of a socket, as trouble; `met` are errors that it did not raise."""
    if isinstance(error, TimeoutError):
        return Trouble(None, "no answer in time")
    if isinstance(error, KafkaConnectionError):
        return Trouble(None, _why_none(met))
    if type(error) is KafkaError and isinstance(error.__cause__, KafkaError):
        error = error.__cause__  # aiokafka's sender says of what it does not expect only that there was something
    own = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    code = own or (getattr(error, "errno", None) if isinstance(error, KafkaError) else None)
    return Trouble(code if isinstance(code, int) and code > 0 else None, f"{type(error).__name__}: {error}"[:500])


def pass_over_forgotten() -> None:
    """Have the running loop not print errors that aiokafka's own tasks forget: who asked for the transaction has heard of them."""
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_unless_forgotten)


def _unless_forgotten(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KafkaError):
        loop.default_exception_handler(context)


@asynccontextmanager
async def _told(within_s: float = WAIT_S) -> AsyncIterator[None]:
    met = deque[BaseException](maxlen=_MET_MAX)
    before = _met.set(met)
    try:
        async with asyncio.timeout(within_s):
            yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise trouble_of(error, met) from error
    finally:
        _met.reset(before)


class AioKafka:
    """A cluster of Kafka as one node reaches it."""

    def __init__(self, name: str, outbound: Outbound, reads: SharedReads[Mapping[bytes, bytes]]) -> None:
        """Take the name of a connection, or a broker's address, and what is read for all shards of the node. Raises NoConnection."""
        self._connection: KafkaConnection = outbound.connection(name)
        self._outbound = outbound
        self._reads = reads
        self.name = name
        self.stands_s = _STANDS_S

    async def options(self) -> dict[str, Any]:
        """Return how clients connect, secrets read now.

        Raises:
            OutboundRefused, KafkaFailed: an address is not allowed, or does not resolve.
            BadConfig: a file cannot be read.
        """
        return await asyncio.to_thread(self._options)

    def _options(self) -> dict[str, Any]:
        found = self._connection
        for address in found.addresses:
            host, _, port = address.rpartition(":")
            self._outbound.check(host.strip("[]"), int(port))
        options: dict[str, Any] = {"bootstrap_servers": found.addresses, "security_protocol": found.security, **found.settings}
        if found.security.startswith("SASL"):
            options |= {
                "sasl_mechanism": found.mechanism,
                "sasl_plain_username": found.user,
                "sasl_plain_password": secret(found.password_file, option="password_file"),
            }
        if found.security.endswith("SSL"):
            try:
                options["ssl_context"] = ssl.create_default_context(cafile=found.ca_file or None)
                if found.cert_file:
                    options["ssl_context"].load_cert_chain(found.cert_file, found.key_file)
            except (OSError, ssl.SSLError) as error:
                raise KafkaFailed(kafka=self.name, why=f"its certificates cannot be used: {error}") from error
        return options

    def _check_brokers(self, client: Any) -> None:
        """Refuse brokers that Kafka itself names, where this node may not connect to them. Blocks while names resolve."""
        for broker in client.cluster.brokers():
            self._outbound.check(broker.host, broker.port)

    @asynccontextmanager
    async def _admin(self, **settings: Any) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**await self.options() | settings)
        try:
            async with _told():
                await admin.start()
                await asyncio.to_thread(self._check_brokers, admin._client)  # noqa: SLF001 -- the client it is made of
            yield admin
        finally:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await admin.close()

    # ------------------------------------------------------------ topics

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return how many partitions each topic has; those that are not there are left out.

        Raises:
            Trouble: Kafka is away, or does not say, or nobody leads one of them.
        """
        async with self._admin() as admin, _told():
            found = await _answered(lambda: admin.describe_topics(list(topics)))
        for topic in found:
            if topic["error_code"] not in {0, UNKNOWN_TOPIC}:
                raise trouble_of(for_code(topic["error_code"])(topic["topic"]))
        for topic in found:
            rows = [(one["partition"], one["leader"], len(one["replicas"]), len(one["isr"])) for one in topic["partitions"]]
            if (hindered := hindrance(TopicReplicas(topic=topic["topic"], least=None, partitions=rows))) is not None:
                raise hindered
        return {topic["topic"]: len(topic["partitions"]) for topic in found if not topic["error_code"]}

    async def check_writable(self, topics: Sequence[str]) -> None:
        """Raise Trouble that says what keeps topics, and the brokers' own one of transactions, from taking records."""
        async with self._admin(request_timeout_ms=_NEXT_BROKER_MS) as admin, _told():
            asked = [*topics, _TRANSACTIONS]
            found = {one["topic"]: one for one in await _answered(lambda: admin.describe_topics(asked))}
            for name in asked:
                least = None
                with suppress(Trouble):  # it is not there, or this user may not ask
                    least = await _setting(admin, name, _IN_SYNC_MIN)
                rows = found[name]["partitions"]
                partitions = [(part["partition"], part["leader"], len(part["replicas"]), len(part["isr"])) for part in rows]
                if (hindered := hindrance(TopicReplicas(topic=name, least=least, partitions=partitions))) is not None:
                    raise hindered
        for topic in topics:
            if code := found[topic]["error_code"]:
                raise Trouble(code, f"topic {topic}: {for_code(code).__name__}")
        if found[_TRANSACTIONS]["error_code"] == UNKNOWN_TOPIC:
            why = f"the brokers have no topic {_TRANSACTIONS}: are there fewer of them than its transaction.state.log.replication.factor?"
            raise Trouble(NO_COORDINATOR, why)

    async def record_bytes_max(self, topic: str) -> int:
        """Return how large a batch of records may be that a topic takes.

        Raises:
            Trouble: Kafka is away, or does not say.
        """
        async with self._admin() as admin, _told():
            found = await _setting(admin, topic, _RECORD_BYTES_MAX)
        return RECORD_BYTES_MAX_DEFAULT if found is None else found

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offset behind the last record of some partitions of a topic, open transactions included. Raises Trouble."""
        places = [TopicPartition(topic, number) for number in partitions]
        async with _told(), self._consumer("read_uncommitted", *places) as consumer:
            return {place.partition: end for place, end in (await consumer.end_offsets(places)).items()}

    async def create(self, topic: str, *, partitions: int, settings: Mapping[str, str], dry_run: bool = False) -> None:
        """Make a topic with as many replicas as the brokers give by default; one that is there is left as it is.

        Returns when the brokers know of it. With `dry_run` they are only asked whether they would make it.

        Raises:
            Trouble: Kafka does not.
        """
        made = NewTopic(topic, partitions, -1, replica_assignments={}, topic_configs=dict(settings))
        async with self._admin() as admin, _told():
            answer = await admin.create_topics([made], validate_only=dry_run)
        for name, code, *rest in answer.topic_errors:
            if code not in {0, _TOPIC_EXISTS}:
                raise Trouble(code, f"topic {name} cannot be made: {' '.join(filter(None, rest)) or for_code(code).__name__}")
        if dry_run:
            return
        async with _told():
            while not await self._is_there(topic):  # noqa: ASYNC110 -- nothing but asking tells
                await asyncio.sleep(_AGAIN_S)

    async def _is_there(self, topic: str) -> bool:
        try:
            return topic in await self.partitions([topic])
        except Trouble as trouble:
            if trouble.code != NO_LEADER:  # which one that has just been made may not have yet
                raise
            return False

    async def delete(self, topic: str) -> None:
        """Delete a topic; one that is not there is one that was deleted. Raises Trouble."""
        async with self._admin() as admin, _told():
            answer = await admin.delete_topics([topic])
        for name, code in answer.topic_error_codes:
            if code not in {0, UNKNOWN_TOPIC}:
                raise Trouble(code, f"topic {name} cannot be deleted: {for_code(code).__name__}")

    # ------------------------------------------------------------ progress

    async def records(self, topic: str, *, upto: int = 0) -> Mapping[bytes, bytes]:
        """Return the last committed record of each key of a topic with one partition; others may be given the same mapping.

        Read up to `upto`, and to its end as a broker says it when this is called or later, open transactions of others included: what
        they leave open hides what is behind it. The client does not say in which epoch it takes a broker for the leader, so one that was
        it before says an end of then.

        Raises:
            Trouble: Kafka is away, or does not say.
        """
        return await self._reads.get((self.name, topic), lambda least: self._records(topic, least), upto=upto)

    async def _records(self, topic: str, least: int) -> Mapping[bytes, bytes]:
        place = TopicPartition(topic, 0)
        found: dict[bytes, bytes] = {}
        async with _told(PATIENT_S), self._consumer("read_uncommitted", place) as consumer:
            end = max(least, (await consumer.end_offsets([place]))[place])
        async with _told(PATIENT_S), self._consumer("read_committed", place) as consumer:
            await consumer.seek_to_beginning(place)
            going = _Going(self.stands_s)
            while (at := await consumer.position(place)) < end:
                going.check({place: at})
                for record in (await consumer.getmany(place, timeout_ms=_READ_MS)).get(place, ()):
                    if record.value is None:
                        found.pop(record.key, None)
                    else:
                        found[record.key] = record.value
        return found

    async def read(self, topic: str, partitions: int) -> AsyncGenerator[list[TopicRecord], None]:
        """Yield the committed records of all partitions of a topic, up to its end when this is called.

        Raises:
            Trouble: Kafka is away, or does not say.
        """
        places = [TopicPartition(topic, number) for number in range(partitions)]
        async with _told(), self._consumer("read_uncommitted", *places) as consumer:
            ends = await consumer.end_offsets(places)
        async with self._consumer("read_committed", *places) as consumer:
            async with _told():
                await consumer.seek_to_beginning(*places)
            going = _Going(self.stands_s)
            while left := [place for place in places if await consumer.position(place) < ends[place]]:
                going.check({place: await consumer.position(place) for place in left})
                async with _told(PATIENT_S):
                    found = await consumer.getmany(*left, timeout_ms=_READ_MS)
                yield [
                    TopicRecord(headers=dict(record.headers), is_null=record.value is None)
                    for place, records in found.items()
                    for record in records
                    if record.offset < ends[place]
                ]

    async def behind(self, topic: str, partition: int, begin: int, *, is_committed: bool) -> list[TopicRecord]:
        """Return the records of a partition from offset `begin` on, or the last -`begin`: all of them, or those that are committed.

        Raises:
            Trouble: Kafka is away, or does not say.
        """
        place = TopicPartition(topic, partition)
        found: list[TopicRecord] = []
        async with _told(PATIENT_S), self._consumer("read_committed" if is_committed else "read_uncommitted", place) as consumer:
            end = (await consumer.end_offsets([place]))[place]
            first = (await consumer.beginning_offsets([place]))[place]
            consumer.seek(place, max(first, begin if begin >= 0 else end + begin))
            while await consumer.position(place) < end:
                some = (await consumer.getmany(place, timeout_ms=_READ_MS)).get(place, ())
                found += [
                    TopicRecord(headers=dict(one.headers), is_null=one.value is None, key=one.key, value=one.value, offset=one.offset)
                    for one in some
                ]
        return found

    @asynccontextmanager
    async def _consumer(self, isolation: str, *places: TopicPartition) -> AsyncIterator[Any]:
        own = {"enable_auto_commit": False, "auto_offset_reset": "none"}  # by default one that leaves the log goes on at its end
        consumer = AIOKafkaConsumer(isolation_level=isolation, **own, **await self.options())
        try:
            await consumer.start()
            consumer.assign(places)
            yield consumer
        finally:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await consumer.stop()

    # ------------------------------------------------------------ writing

    @asynccontextmanager
    async def writer(self, transactional_id: str) -> AsyncIterator["AioWriter"]:
        """A producer that has fenced all earlier ones of its id, and ended what they left open.

        Raises:
            Trouble: Kafka is away, or refuses it.
        """
        pass_over_forgotten()
        producer = AIOKafkaProducer(
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            acks="all",
            max_batch_size=MIRROR_BATCH_BYTES_MAX,
            **await self.options(),
        )
        try:
            async with _told(PATIENT_S):
                await producer.start()
                await asyncio.to_thread(self._check_brokers, producer.client)
            yield AioWriter(producer)
        finally:
            await _end(producer)


async def _end(producer: AIOKafkaProducer) -> None:
    """End a producer. While brokers are away it would go on with what they have not taken: after a while all of its tasks are cancelled."""
    sender = producer._sender  # noqa: SLF001 -- what `stop` leaves behind when it is cut off
    try:
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await producer.stop()
    finally:
        if left := [task for task in asyncio.all_tasks() if _is_of(task, sender)]:  # it has no list of them
            for task in left:
                task.cancel()
            producer._message_accumulator.fail_all(ProducerClosed())  # noqa: SLF001 -- so that nobody waits for it
            ended = asyncio.create_task(producer.client.close(), name="producer end")
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.shield(ended)


def _is_of(task: "asyncio.Task[Any]", sender: object) -> bool:
    """Return whether a task runs a method of a sender's."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and sender is not None and frame.f_locals.get("self") is sender


class _Going:
    """Sees that reading goes on: a transaction that nobody ends keeps readers of committed records where it begins."""

    def __init__(self, stands_s: float) -> None:
        self._stands_s = stands_s
        self._at: dict[TopicPartition, int] = {}
        self._since = asyncio.get_running_loop().time()

    def check(self, at: dict[TopicPartition, int]) -> None:
        """Take where reading is. Raises Trouble that names the places, where that has not changed for too long."""
        now = asyncio.get_running_loop().time()
        if at != self._at:
            self._at, self._since = at, now
        elif now - self._since > self._stands_s:
            named = ", ".join(f"partition {place.partition} of {place.topic} at offset {offset}" for place, offset in sorted(at.items()))
            raise Trouble(
                HANGING, f"a transaction is open in {named}, and its writer does not end it: is the mirror that wrote it running?"
            )


async def _answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what any broker answers: the client asks one by chance, which may be one that is away."""
    while True:
        try:
            return await ask()
        except (NodeNotReadyError, RequestTimedOutError):
            await asyncio.sleep(_AGAIN_S)


async def _setting(admin: AIOKafkaAdminClient, topic: str, name: str) -> int | None:
    """Return a number that is set for a topic, None where the broker knows of none. Raises Trouble: it does not say."""
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: None})
    (answer,) = await _answered(lambda: admin.describe_configs([asked]))
    ((code, text, _kind, _name, entries),) = answer.resources
    if code:
        raise Trouble(code, f"topic {topic}: {text or for_code(code).__name__}")
    return next((int(value) for found, value, *_ in entries if found == name), None)


class AioWriter:
    """Writes transactions, one after the other. After trouble it is of no use any more: what became of the last one is in the progress."""

    def __init__(self, producer: AIOKafkaProducer, *, within_s: float = TRANSACTION_S) -> None:
        """Take a producer that has begun; a transaction may take `within_s`."""
        self._producer = producer
        self._within_s = within_s
        self.records = 0
        self._ends: dict[Place, int] = {}

    @property
    def is_worn(self) -> bool:
        """Whether another producer is to go on: the sequences of this one come to their end."""
        return self.records >= RECORDS_MAX

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, as brokers said when the client asked them last (`metadata_max_age_ms`)."""
        return len(self._producer.client.cluster.partitions_for_topic(topic) or ())

    async def write(self, batches: Mapping[str, Sequence[RecordBatch]], *, progress_topic: str, progress: Mapping[bytes, bytes]) -> int:
        """Write batches into their topics, and progress: all or nothing for whoever reads committed records.

        Return the offset behind the last record of the progress, 0 without one.

        Raises:
            Trouble: it was not written, or nobody knows.
        """
        producer = self._producer
        try:
            async with asyncio.timeout(self._within_s) as limit:
                await producer.begin_transaction()
                try:
                    await self._send(batches, progress_topic=progress_topic, progress=progress)
                except asyncio.CancelledError:
                    if limit.expired():
                        raise  # a partition may have no leader, and would not hear of the end: whoever comes next waits for one
                    with suppress(KafkaError, OSError, TimeoutError):
                        async with asyncio.timeout(_CLOSE_S):
                            await producer.abort_transaction()
                    raise
                except KafkaError as error:
                    if (first := _refusal(producer)) is not None:
                        raise first from error
                    raise
                await producer.commit_transaction()
        except (KafkaError, OSError, TimeoutError) as error:
            raise trouble_of(error) from error
        self.records += sum(batch.count for some in batches.values() for batch in some) + len(progress)
        return self._ends[(progress_topic, 0)] if progress else 0

    async def left_open(self, topics: Mapping[str, Sequence[int]]) -> dict[Place, int]:
        """Return in which of some partitions a transaction of this writer's id is open, and the offset of its first record there.

        Where brokers do not say, or not to this user, there is none as far as anybody knows.

        Raises:
            Trouble: Kafka is away, or nobody leads a partition for a while.
        """
        async with _told():
            while True:
                try:
                    return await self._left_open(topics)
                except IncompatibleBrokerVersion:
                    return {}  # brokers from before 2.8 do not know the question, and had no such faults
                except Trouble as trouble:
                    if trouble.code not in _MOVING:
                        raise
                await self._producer.client.force_metadata_update()
                await asyncio.sleep(_AGAIN_S)

    async def _left_open(self, topics: Mapping[str, Sequence[int]]) -> dict[Place, int]:
        client, own = self._producer.client, self._producer._txn_manager.producer_id  # noqa: SLF001 -- nothing else tells it
        led: dict[int | None, dict[str, list[int]]] = {}
        for topic, numbers in topics.items():
            await self._producer.partitions_for(topic)  # so that the client knows the leaders
            for number in numbers:
                leader = client.cluster.leader_for_partition(TopicPartition(topic, number))
                led.setdefault(leader, {}).setdefault(topic, []).append(number)
        found: dict[Place, int] = {}
        for leader, partitions in led.items():
            if leader is None or leader < 0:
                raise Trouble(NO_LEADER, f"nobody leads a partition of {', '.join(partitions)}")
            await client.ready(leader)
            opened, refused = open_of(await client.send(leader, DescribeProducers(partitions)), own)
            found |= opened
            for topic, number, code in refused:
                if code != NOT_ALLOWED:
                    raise Trouble(code, f"partition {number} of topic {topic}: {for_code(code).__name__}")
        return found

    async def settle(self, places: Iterable[Place], *, is_commit: bool) -> None:
        """End what was left open in partitions, as committed or as aborted: by a transaction that touches them, and writes nothing.

        Raises:
            Trouble: nobody knows whether it has.
        """
        producer = self._producer
        async with _told(self._within_s):
            await producer.begin_transaction()
            for topic, number in places:
                producer._txn_manager.maybe_add_partition_to_txn(TopicPartition(topic, number))  # noqa: SLF001 -- only sending does else
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())

    async def _send(self, batches: Mapping[str, Sequence[RecordBatch]], *, progress_topic: str, progress: Mapping[bytes, bytes]) -> None:
        producer = self._producer
        sent: list[asyncio.Future[Any]] = []

        def wait_for(answer: asyncio.Future[Any]) -> None:
            answer.add_done_callback(_heard)  # one that fails ends this before the others were waited for
            sent.append(answer)

        for topic, some in batches.items():
            for batch in some:
                for builder in builders_of(producer, batch, is_transactional=True):
                    wait_for(await producer.send_batch(builder, topic, partition=batch.partition))
        for key, value in progress.items():
            wait_for(await producer.send(progress_topic, key=key, value=value, partition=0))
        for written in await asyncio.gather(*sent):
            place = written.topic, written.partition
            if written.offset < self._ends.get(place, 0):
                raise Trouble(OTHER_TOPIC, f"partition {written.partition} of {written.topic} begins anew")
            self._ends[place] = written.offset + 1


def _refusal(producer: AIOKafkaProducer) -> BaseException | None:
    """Return why Kafka refused a transaction, None where it did not.

    Nothing more goes into one that was refused, and what is on its way to other partitions is refused for being in none: only the end of
    the transaction says why.
    """
    end = producer._txn_manager.wait_for_transaction_end()  # noqa: SLF001 -- a commit of it may fail for another reason
    return end.exception() if end.done() and not end.cancelled() else None


def _heard(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()
