"""The node of a shard ends, or stands still, in each phase of a transaction: a gate before the broker holds what it asks just then."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventlog import blocking
from eventlog.errors import EventLogError
from tests.kafka.gates import Asked, Gate, Held
from tests.kafka.mirrors import check, folded, read, wait
from tests.process.clusters import ClusterProcesses

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
SEGMENTS, PARTITIONS = 16, 2
ROWS = 300
WITHIN_S = 60
TRANSACTION_S = 120  # within which Kafka gives up what nobody ends: after 60 s, and it looks every 10
FENCED = (47, 90)
FIRST, OF_EVENTS = 0, 1  # a shard's first transaction is that by which it learns where the progress ends
PHASES = {
    "a producer is asked for": (Asked.PRODUCER, False, FIRST),
    "its producer is open": (Asked.PRODUCER, True, FIRST),
    "before the end of the progress is told": (Asked.END, False, FIRST),
    "behind the end of the progress": (Asked.END, True, FIRST),
    "before it begins": (Asked.PARTITIONS, False, OF_EVENTS),
    "before its data": (Asked.DATA, False, OF_EVENTS),
    "behind its data": (Asked.DATA, True, OF_EVENTS),
    "before its commit": (Asked.END, False, OF_EVENTS),
    "behind its commit": (Asked.END, True, OF_EVENTS),
}


class Gated:
    """A cluster, and a mirror of one of its caches into a broker behind a gate."""

    def __init__(self, stack: ExitStack, cluster: ClusterProcesses, gate: Gate, broker: str, name: str) -> None:
        self.cluster = cluster
        self._gate = gate
        self._broker = broker
        self.name = name
        self.client = stack.enter_context(blocking.connect(*cluster.addresses))
        self.cache = self.client.create_cache(name)
        self.topic = self.client.mirrors.add(name, kafka=broker, partitions=PARTITIONS).mirror.topic
        self._round = 0

    def write(self) -> None:
        """Write into all segments, over what is there, and remove some of it, whoever leads them by now."""
        self._round += 1
        rows = [(f"k{row}", {"round": self._round, "row": row}) for row in range(ROWS)]
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                self.cache.put_many(rows)
                self.cache.remove(f"k{self._round}")
            except EventLogError:
                assert time.monotonic() < deadline, "nothing is written any more"
            else:
                return

    def hold(self, asked: Asked, *, is_answer: bool, transaction: int = OF_EVENTS) -> Held:
        """Begin the mirror anew with something to write, and hold what its first shard asks for; return when it has."""
        self.client.mirrors.pause(self.name)
        self.write()
        held = self._gate.hold(asked, who=f".{self.name}.0", is_answer=is_answer, passing=transaction)
        self.client.mirrors.resume(self.name)
        held.wait()
        return held

    def release(self, held: Held) -> None:
        """Let go what is held."""
        self._gate.release(held)

    def owner(self) -> int:
        """Return the index of the node that runs the first shard."""
        return self.cluster.index_of(self.client.mirrors.status(self.name).shards[0].node)

    def until_others_wrote(self) -> None:
        """Wait until all that was written is in Kafka, whichever node writes it."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                wait(self.client, self.name)
            except EventLogError:
                assert time.monotonic() < deadline, "nobody takes over"
            else:
                return

    def judge(self) -> None:
        """The topic is the log, each event once; it folds into the entries, and `verify` says the same."""
        self.write()
        wait(self.client, self.name)
        records = read(self._broker, self.topic)
        check(records, self.cache.events(), partitions=PARTITIONS)
        assert folded(records) == {key: entry.value for key, entry in self.cache.entries()}
        assert self.client.mirrors.verify(self.name).is_alike


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("nodes"), segments=SEGMENTS) as running:
        running.balance()
        yield running


@pytest.fixture
def gated(cluster: ClusterProcesses, gate: Gate, gated_broker: str, name: str) -> Iterator[Gated]:
    with ExitStack() as stack:
        yield Gated(stack, cluster, gate, gated_broker, name)
        cluster.start()
        cluster.settle(live=3)


@pytest.mark.parametrize("phase", PHASES)
def test_a_node_is_killed_and_what_it_asked_comes_late(gated: Gated, phase: str) -> None:
    asked, is_answer, transaction = PHASES[phase]
    for _ in range(2):  # in the first transaction of all, and in a later one
        held = gated.hold(asked, is_answer=is_answer, transaction=transaction)
        gated.cluster.kill(gated.owner())
        gated.until_others_wrote()
        if is_answer and asked is Asked.END:
            assert held.error() == 0, "Kafka has it, and nobody knows"
        gated.release(held)
        gated.cluster.start()
        gated.cluster.settle(live=3)
        gated.judge()


def test_a_node_that_stood_still_is_fenced_when_it_wakes(gated: Gated) -> None:
    for _ in range(2):
        held = gated.hold(Asked.END, is_answer=False)
        gated.cluster.pause(sleeper := gated.owner())
        gated.until_others_wrote()
        gated.release(held)
        assert held.error() in FENCED, "it commits what another has written meanwhile"
        gated.cluster.resume(sleeper)
        gated.cluster.settle(live=3)
        gated.judge()


def test_a_node_that_stood_still_for_longer_than_a_transaction_goes_on(tmp_path: Path, gate: Gate, gated_broker: str, name: str) -> None:
    with ClusterProcesses(tmp_path, segments=SEGMENTS, count=1) as cluster, ExitStack() as stack:
        gated = Gated(stack, cluster, gate, gated_broker, name)
        held = gated.hold(Asked.END, is_answer=False)
        cluster.pause(0)
        seen = read(gated_broker, gated.topic, within_s=TRANSACTION_S)  # which ends when Kafka has given it up
        assert {one.segment % PARTITIONS for one in seen} <= {1}, "nobody has committed what the first shard wrote"
        gated.release(held)
        assert held.error() in FENCED, "it commits what Kafka has given up"
        cluster.resume(0)
        cluster.settle(live=1)
        gated.judge()
