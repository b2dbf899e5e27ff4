"""Three nodes, three synced copies: events per CPU-second of client and nodes together against Kafka's, and one put against etcd's."""

from collections.abc import Iterator
from statistics import median

from benchmarks import baseline, traffic
from benchmarks.clusters import BATCHES_IN_FLIGHT, Written, cluster, write_batches
from benchmarks.figures import MILLION, Row, Scale, against, bounded, note
from benchmarks.inputs import Load
from benchmarks.latency import percentiles
from benchmarks.peers import etcd, produce
from benchmarks.peers.kafka import KafkaBrokers, KafkaUnavailable, jars
from benchmarks.processes import Node, in_child, scratch

ROUNDS = 4  # as many with ours first as with Kafka first
LOADS = ((Load(batch=1_000), 500_000, 1.0), (Load(batch=10_000), MILLION, 1 / 1.5), (Load(batch=1_000, value_bytes=1024), 100_000, 1.0))
KEYED_CPU_SECONDS_AT_MOST = 10.0  # per million: grids in memory with two copies take 6 to 26
PUTS = 2_000
TOPICS = {True: "synced", False: "plain"}  # by whether every message is flushed before it is acknowledged
FLUSH = ", flush"


def run(scale: Scale) -> Iterator[Row]:
    try:
        jars()
    except KafkaUnavailable as error:
        yield note("Kafka is not compared", str(error))
    else:
        yield from _against_kafka(scale)
    yield from _keyed(scale)
    yield from _latency(scale)


def _against_kafka(scale: Scale) -> Iterator[Row]:
    """Compare on a cluster and on brokers that stay up for all loads, as in production: both are warm, both logs grow alike."""
    with scratch() as theirs, scratch() as directory, KafkaBrokers(theirs, 3) as brokers, cluster(directory) as nodes:
        for flush, topic in TOPICS.items():
            in_child(produce.create_topic, brokers.addresses, topic, replicas=3, flush=flush)
            warm = scale.of(produce.WARM_RECORDS_MIN, quick=produce.WARM_RECORDS)
            found = in_child(produce.warm, brokers.addresses, topic, pids=brokers.pids, records=warm)
            yield note(f"brokers warmed{', flush' if flush else ''}", _warmed(found))
        for load, events, at_most in LOADS:
            ours, peers = _measure(nodes, brokers, load, events=scale.of(events), rounds=scale.of(ROUNDS, quick=2))
            cost = median(written.us_per_event for written in ours)
            costs = {name: median(round_.us_per_event for round_ in produced) for name, produced in peers.items()}
            best = min((name for name in costs if name.endswith(FLUSH)), key=costs.__getitem__)
            yield against(f"{load.label}", ours=cost, bare=costs[best], unit="us/event, all CPU", at_most=at_most)
            for name, produced in peers.items():
                speed = median(round_.records / round_.seconds for round_ in produced) / MILLION
                yield note(f"{load.label}: {name}", f"{_spread([round_.us_per_event for round_ in produced])}, {speed:.2f} M/s")
            speed = median(written.events / written.seconds for written in ours) / MILLION
            yield note(f"{load.label}: ours", f"{_spread([w.us_per_event for w in ours])}, {speed:.2f} M/s, {_split(ours)}")


def _spread(costs: list[float]) -> str:
    return f"{median(costs):.2f} us/event ({min(costs):.2f} to {max(costs):.2f})"


def _warmed(found: list[float]) -> str:
    last = ", ".join(f"{cost:.2f}" for cost in found[-produce.WARM_ROUNDS_ALIKE :])
    return f"{len(found)} rounds, brokers' CPU a record {found[0]:.2f} us in the first, {last} in the last"


def _split(found: list[Written]) -> str:
    client = median(written.client_cpu / written.events for written in found) * 1e6
    return f"client {client:.2f} us/event, nodes {median(written.nodes_cpu / written.events for written in found) * 1e6:.2f}"


def _measure(
    nodes: list[Node], brokers: KafkaBrokers, load: Load, *, events: int, rounds: int
) -> tuple[list[Written], dict[str, list[produce.Produced]]]:
    """Return rounds of ours and of Kafka's clients by turns, in both orders."""
    ours: list[Written] = []
    peers: dict[str, list[produce.Produced]] = {}

    def measure_ours() -> None:
        ours.append(in_child(write_batches, [node.address for node in nodes], load, events=events, state=False))

    def measure_peers() -> None:
        for flush, topic in TOPICS.items():
            for name, function in (("aiokafka send_batch", produce.send_batches), ("confluent", produce.confluent)):
                found = in_child(function, brokers.addresses, topic, pids=brokers.pids, records=events, value_bytes=load.value_bytes)
                peers.setdefault(name + FLUSH * flush, []).append(found)

    for number in range(rounds):
        for measure in (measure_ours, measure_peers) if number % 2 == 0 else (measure_peers, measure_ours):
            measure()
    return ours, peers


def _keyed(scale: Scale) -> Iterator[Row]:
    load, events = Load(batch=1_000), scale.of(MILLION)
    with scratch() as directory, cluster(directory) as nodes:
        found = in_child(write_batches, [node.address for node in nodes], load, events=events, state=True)
    warm = [max(events // 10, load.batch), events]
    primary, backup = (
        in_child(baseline.keyed, load, phases=warm, frames_per_group=BATCHES_IN_FLIGHT, checks=checks)[-1] for checks in (True, False)
    )
    least = primary.us_per_event + 2 * backup.us_per_event
    yield bounded("keyed, 1,000 x 100 B", value=found.us_per_event, unit="CPU-s per million", at_most=KEYED_CPU_SECONDS_AT_MOST)
    yield note("keyed, 1,000 x 100 B: wall", f"{found.events / found.seconds / MILLION:.2f} M/s, {_split([found])}")
    split = f"{primary.us_per_event:.2f} for the first copy, {backup.us_per_event:.2f} for each other one"
    yield note("keyed, 1,000 x 100 B: rocksdict alone", f"{least:.1f} CPU-s per million for three copies: {split}")


def _latency(scale: Scale) -> Iterator[Row]:
    count = scale.of(PUTS, quick=300)
    ours: list[float] = []
    theirs: list[float] = []
    with scratch() as directory, cluster(directory) as nodes, etcd.members(directory / "etcd", 3) as endpoints:
        for number in range(3):  # in turn, because the disk has moods
            ours += in_child(traffic.put_latencies, nodes[number].address, "keyed-puts", count=count)
            theirs += in_child(etcd.put_latencies, endpoints, count=count)
    own, other = percentiles(ours), percentiles(theirs)
    yield against("put, one in flight, p50", ours=own[50], bare=other[50], unit="us", at_most=1.5)
    yield against("put, one in flight, p99", ours=own[99], bare=other[99], unit="us", at_most=2.0)
