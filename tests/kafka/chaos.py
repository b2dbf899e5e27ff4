"""Faults by chance over mirrors at work: `python -m tests.kafka.chaos MINUTES [SEED]`; exits with 1 where a topic is not the log.

Three nodes and three brokers, each on a host of its own in a network that can be cut (as root). Nodes and brokers are killed and stand
still, also for longer than a transaction may last; clocks jump, disks are full, segments move; a node reaches no broker, or is not heard by
one, or does not hear it; the progress topic is emptied. The seed decides in which order faults happen, and to whom; each kind happens as
often as the others, for so many minutes, and for FAULTS_MIN faults and EVENTS_MIN events at least. At the end whoever reads committed
records has each event once, those of a segment in their order, and folds them into the entries that there are; `mirror verify` says the
same, and says otherwise when a record is put in by hand.
"""

import asyncio
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aiokafka import AIOKafkaProducer

from benchmarks.peers.kafka import BrokerHost, KafkaBrokers, jars
from eventlog import blocking
from eventlog.errors import EventLogError
from tests.kafka.brokers import do, emptied, until_ready
from tests.kafka.mirrors import Record, check, folded, read
from tests.kafka.writing import Writing
from tests.process.disks import memory_disk, resize
from tests.process.jumping_cluster import JumpingNode
from tests.process.network_clusters import JumpingNetworkCluster
from tests.process.networks import Network

NODES = BROKERS = 3
SEGMENTS, PARTITIONS = 16, 8
CACHES = ("orders", "payments")
ROWS = 1_000
PAUSE_S = 0.1  # between two batches, so that all records can be read at the end
FAULTS_MIN, EVENTS_MIN = 40, 2_000_000
NODE_DISK, BROKER_DISK = "n1/data", "kafka/kafka-1/log"
DISK_BYTES, LEFT_BYTES = 4 << 30, 8 << 20
BROKER_SETTINGS = {"log.index.size.max.bytes": str(1 << 20)}  # by default each partition takes 20 MiB of the disk at once
GONE_S = 60
TRANSACTION_S = 65  # longer than Kafka lets one last
CAUGHT_UP_MS = 300_000
READ_S = 600
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it says each refused connection
PROGRESS_DELETED = "progress: is deleted"
PROGRESS = "__eventlog.mirror"
SETTINGS = {"EVENTLOG_NODE_ALLOW_OUTBOUND": "*:*", "EVENTLOG_NODE_DISK_RESERVE_BYTES": str(32 << 20)}  # brokers are on other hosts


class MirrorChaos:
    """What may happen; each method is one fault from its beginning to its end."""

    def __init__(
        self, directory: Path, cluster: JumpingNetworkCluster, brokers: KafkaBrokers, network: Network, chance: random.Random
    ) -> None:
        self._directory = directory
        self._cluster = cluster
        self._brokers = brokers
        self._network = network
        self._chance = chance

    def faults(self) -> dict[str, Callable[[int], None]]:
        """Return the faults by name; each takes the index of a node, and of a broker."""
        return {
            "node: kill -9": self._cluster.kill,
            "node: kill -9 of two": lambda index: self._cluster.kill(index, (index + 1) % NODES),
            "node: SIGTERM": self._end,
            "node: stands still": lambda index: self._stand_still(index, self._chance.choice([3, 8])),
            "node: stands still for longer than a transaction": lambda index: self._stand_still(index, TRANSACTION_S),
            "node: clock jumps": self._jump,
            "node: reaches no broker": lambda index: self._cut(index, range(BROKERS)),
            "node: is not heard by a broker": lambda index: self._mute(f"n{index + 1}", f"k{index + 1}"),
            "node: does not hear a broker": lambda index: self._mute(f"k{index + 1}", f"n{index + 1}"),
            "node: is drained, and segments move back": self._drain,
            "node: the disk of the first is full": lambda _: self._fill(NODE_DISK),
            "broker: kill -9": lambda index: self._kill_brokers([index], self._chance.choice([1, 5])),
            "broker: kill -9 of all": lambda _: self._kill_brokers(list(range(BROKERS)), self._chance.choice([5, 30])),
            "broker: kill -9 of all for a minute": lambda _: self._kill_brokers(list(range(BROKERS)), GONE_S),
            "broker: stands still": self._broker_stands_still,
            "broker: the disk of the first is full": lambda _: self._fill_broker(),
            "broker: is cut off": self._pull,
            PROGRESS_DELETED: lambda _: do(self._brokers.addresses, emptied(PROGRESS)),
        }

    def _last(self) -> None:
        time.sleep(self._chance.choice([1, 4, 12]))  # the fault itself

    def _end(self, index: int) -> None:
        self._cluster[index].stop()

    def _stand_still(self, index: int, seconds: float) -> None:
        self._cluster.pause(index)
        time.sleep(seconds)
        self._cluster.resume(index)

    def _jump(self, index: int) -> None:
        node = self._cluster[index]
        assert isinstance(node, JumpingNode)
        node.jump(self._chance.choice([-3_600_000, -1_000, 0, 30_000, 3_600_000]))

    def _drain(self, index: int) -> None:
        name, other = f"n{index + 1}", (index + 1) % NODES
        self._cluster.command("admin", "drain", name, node=other)
        self._cluster.command("admin", "rebalance", "start", "--wait", node=other)
        self._cluster.command("admin", "drain", "--cancel", name, node=other)
        self._cluster.command("admin", "rebalance", "start", "--wait", node=other)

    def _fill(self, disk: str) -> None:
        place = self._directory / disk
        resize(place, nbytes=shutil.disk_usage(place).used + LEFT_BYTES)
        self._last()
        resize(place, nbytes=DISK_BYTES)

    def _fill_broker(self) -> None:
        self._fill(BROKER_DISK)
        self._kill_brokers([0], 0)  # it may have ended itself, or use that disk no more

    def _cut(self, index: int, brokers: range) -> None:
        for broker in brokers:
            self._network.part(f"n{index + 1}", f"k{broker + 1}")
        self._last()
        for broker in brokers:
            self._network.join(f"n{index + 1}", f"k{broker + 1}")

    def _mute(self, one: str, towards: str) -> None:
        self._network.mute(one, towards)
        self._last()
        self._network.unmute(one, towards)

    def _kill_brokers(self, indexes: list[int], seconds: float) -> None:
        for index in indexes:
            self._brokers.kill(index)
        time.sleep(seconds)
        for index in indexes:
            self._brokers.start(index)
        asyncio.run(until_ready(self._brokers.addresses))

    def _broker_stands_still(self, index: int) -> None:
        self._brokers.signal(index, signal.SIGSTOP)
        self._last()
        self._brokers.signal(index, signal.SIGCONT)

    def _pull(self, index: int) -> None:
        self._network.pull(f"k{index + 1}")
        self._last()
        self._network.plug(f"k{index + 1}")


def run(directory: Path, *, minutes: float, seed: int) -> int:
    """Let faults happen for so long; print what happened, return the exit code."""
    chance = random.Random(seed)
    hosts = [f"{kind}{number}" for kind in "nk" for number in range(1, NODES + 1)]
    jars()  # while the world is reached
    with ExitStack() as stack:
        for disk in (NODE_DISK, BROKER_DISK):
            stack.enter_context(small_disk(directory / disk))
        network = stack.enter_context(Network(*hosts, "test"))
        stack.enter_context(network.inside("test"))
        on = [BrokerHost(address=network.address(host), wrapper=network.wrapper(host)) for host in hosts if host.startswith("k")]
        brokers = stack.enter_context(KafkaBrokers(directory / "kafka", BROKERS, quick=True, hosts=on, settings=BROKER_SETTINGS))
        asyncio.run(until_ready(brokers.addresses))
        cluster = stack.enter_context(JumpingNetworkCluster(directory, network, count=NODES))
        cluster.balance()
        client = stack.enter_context(blocking.connect(*cluster.addresses))
        topics = {}
        for name in CACHES:
            client.create_cache(name)
            topics[name] = client.mirrors.add(name, kafka=brokers.addresses, partitions=PARTITIONS).mirror.topic
        faults = MirrorChaos(directory, cluster, brokers, network, chance).faults()
        print(f"seed {seed}, {minutes:g} minutes, {len(faults)} kinds of faults", flush=True)
        with ExitStack() as writing:
            writers = [writing.enter_context(Writing(cluster, name, rows=ROWS, pause_s=PAUSE_S)) for name in CACHES]
            end = time.monotonic() + 60 * minutes
            for happened, name in enumerate(in_rounds(sorted(faults), chance)):
                written = ROWS * sum(writer.batches for writer in writers)
                if time.monotonic() > end and happened >= FAULTS_MIN and written >= EVENTS_MIN:
                    break
                index = chance.randrange(NODES)
                print(f"  {happened + 1}: {index + 1} {name}, {written} events, behind {lag_of(client)}", flush=True)
                if name == PROGRESS_DELETED:
                    catch_up(client)  # who begins anew finds nothing until all segments are written again
                faults[name](index)
                cluster.start()
                cluster.settle()
                for writer in writers:
                    writer.until(3)
                if name == PROGRESS_DELETED:
                    catch_up(client)
        wrong = sum(examined(client, name, topics[name], brokers.addresses) for name in CACHES)
        return int(wrong > 0)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk that can be made full; what is on it is kept where it comes to an error."""
    folder.mkdir(parents=True)
    with memory_disk(folder, nbytes=DISK_BYTES):
        try:
            yield
        except BaseException:
            shutil.copytree(folder, folder.with_name(f"{folder.name}-kept"))
            raise


def catch_up(client: blocking.Client) -> None:
    """Wait until all that was written is in Kafka."""
    for name in CACHES:
        status = client.mirrors.status(name, wait_ms=CAUGHT_UP_MS)
        assert not status.is_behind, f"it does not catch up: {status}"


def in_rounds(names: list[str], chance: random.Random) -> Iterator[str]:
    """Yield all names in an order by chance, again and again."""
    while True:
        yield from chance.sample(names, len(names))


def lag_of(client: blocking.Client) -> str:
    """Return how far mirrors are behind, as far as nodes say."""
    found = []
    for name in CACHES:
        try:
            found.append(str(sum(shard.lag_events or 0 for shard in client.mirrors.status(name).shards)))
        except EventLogError as error:
            found.append(error.code)
    return " and ".join(found)


def examined(client: blocking.Client, name: str, topic: str, addresses: str) -> bool:
    """Say what became of one cache's mirror; return whether that is wrong."""
    status = client.mirrors.status(name, wait_ms=CAUGHT_UP_MS)
    if status.is_behind:
        print(f"{name}: violation: it does not catch up: {status}")
        return True
    events = list(client.cache(name).events())
    records = read(addresses, topic, within_s=READ_S)
    print(f"{name}: {len(events)} events, {len(records)} records", flush=True)
    try:
        check(records, events, partitions=PARTITIONS)
        entries = {key: {"value": entry.value} for key, entry in client.cache(name).entries()}
        assert folded(records) == entries, "the records do not fold into the entries"
        assert client.mirrors.verify(name).is_alike, "verify finds a difference"
        asyncio.run(put_in(addresses, topic, records[len(records) // 2]))
        assert not client.mirrors.verify(name).is_alike, "verify does not see a record that was put in by hand"
    except AssertionError as error:
        print(f"{name}: violation: {error}")
        return True
    return False


async def put_in(addresses: str, topic: str, record: Record) -> None:
    """Write a record again, as somebody would who has written it twice."""
    own = [("id", record.id.to_bytes(8)), ("off", record.segment.to_bytes(4) + record.offset.to_bytes(8)), ("kind", record.kind.encode())]
    async with AIOKafkaProducer(bootstrap_servers=addresses) as producer:
        await producer.send_and_wait(topic, record.value, key=record.key, partition=record.partition, headers=own)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what it began: processes end, and disks in memory are given back
    minutes, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(100_000)
    os.environ.update(SETTINGS)
    directory = Path(tempfile.mkdtemp(prefix="eventlog-mirror-chaos-"))
    try:
        code = run(directory, minutes=minutes, seed=seed)
    except AssertionError as error:
        print(f"violation: no progress: {error}")
        code = 1
    if code:
        print(f"what nodes and brokers have left is in {directory}")
    else:
        shutil.rmtree(directory)
        print("violations 0")
    return code


if __name__ == "__main__":
    sys.exit(main())
