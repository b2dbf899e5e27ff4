"""Faults by chance over mirrors at work: `python -m tests.kafka.chaos MINUTES [SEED]`; exits with 1 where a topic is not the log.

Three nodes and three brokers, each on a host of its own in a network that can be cut (as root). Nodes and brokers are killed and stand
still, also for longer than a transaction may last; clocks jump; a node reaches no broker, or is not heard by one, or does not hear it.
The seed decides which faults happen, in which order and to whom. At the end whoever reads committed records has each event once, those of
a segment in their order; `mirror verify` says the same, and says otherwise when a record is put in by hand.
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
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aiokafka import AIOKafkaProducer

from benchmarks.peers.kafka import BrokerHost, KafkaBrokers, jars
from eventlog import blocking
from eventlog.errors import EventLogError
from tests.kafka.brokers import until_ready
from tests.kafka.mirrors import Record, check, read
from tests.kafka.writing import Writing
from tests.process.jumping_cluster import JumpingNode
from tests.process.network_clusters import JumpingNetworkCluster
from tests.process.networks import Network

NODES = BROKERS = 3
SEGMENTS, PARTITIONS = 16, 8
CACHES = ("orders", "payments")
ROWS = 500
TRANSACTION_S = 65  # longer than Kafka lets one last
CAUGHT_UP_MS = 300_000
READ_S = 600
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it says each refused connection
ALLOWED = "EVENTLOG_NODE_ALLOW_OUTBOUND"


class MirrorChaos:
    """What may happen; each method is one fault from its beginning to its end."""

    def __init__(self, cluster: JumpingNetworkCluster, brokers: KafkaBrokers, network: Network, chance: random.Random) -> None:
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
            "broker: kill -9": lambda index: self._kill_brokers([index], self._chance.choice([1, 5])),
            "broker: kill -9 of all": lambda _: self._kill_brokers(list(range(BROKERS)), self._chance.choice([5, 30])),
            "broker: stands still": self._broker_stands_still,
            "broker: is cut off": self._pull,
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
        network = stack.enter_context(Network(*hosts, "test"))
        stack.enter_context(network.inside("test"))
        on = [BrokerHost(address=network.address(host), wrapper=network.wrapper(host)) for host in hosts if host.startswith("k")]
        brokers = stack.enter_context(KafkaBrokers(directory / "kafka", BROKERS, quick=True, hosts=on))
        asyncio.run(until_ready(brokers.addresses))
        cluster = stack.enter_context(JumpingNetworkCluster(directory, network, count=NODES))
        cluster.balance()
        client = stack.enter_context(blocking.connect(*cluster.addresses))
        topics = {}
        for name in CACHES:
            client.create_cache(name)
            topics[name] = client.mirrors.add(name, kafka=brokers.addresses, partitions=PARTITIONS).mirror.topic
        faults, happened = MirrorChaos(cluster, brokers, network, chance).faults(), 0
        print(f"seed {seed}, {minutes:g} minutes, {len(faults)} kinds of faults", flush=True)
        with ExitStack() as writing:
            writers = [writing.enter_context(Writing(cluster, name, rows=ROWS)) for name in CACHES]
            end = time.monotonic() + 60 * minutes
            while time.monotonic() < end:
                name, index = chance.choice(sorted(faults)), chance.randrange(NODES)
                happened += 1
                print(f"  {happened}: {index + 1} {name}, behind {lag_of(client)} events", flush=True)
                faults[name](index)
                cluster.start()
                cluster.settle()
                for writer in writers:
                    writer.until(3)
        wrong = sum(examined(client, name, topics[name], brokers.addresses) for name in CACHES)
        return int(wrong > 0 or not happened)


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
    minutes, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(100_000)
    os.environ[ALLOWED] = "*:*"  # brokers are on other hosts
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
