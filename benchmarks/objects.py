"""Reading a log as objects, one `async for` step an event: against building the same objects from lists that are ready."""

from collections.abc import Iterator

from benchmarks import ceilings, traffic
from benchmarks.figures import MILLION, Row, Scale, against, note, rate
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch

EVENTS = 3 * MILLION
RATIO_AT_MOST = 2.0
PER_SECOND_AT_LEAST = 1.1 * MILLION
PEERS = "aiokafka getmany 1.1 M, aiokafka async for 0.35 M, confluent-kafka 2.1 M events/client CPU-s on such a machine"


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        in_child(traffic.append, node.address, "append", Load(batch=1_000), events=events)
        ours = in_child(traffic.read_objects, node.address, "append")
    bare = in_child(ceilings.objects, scale.of(2 * MILLION))
    stepped = in_child(ceilings.stepped_objects, scale.of(2 * MILLION))
    cost = ours.client_cpu / ours.events
    yield against("async for event", ours=cost * 1e9, bare=bare * 1e9, unit="ns/event of client CPU", at_most=RATIO_AT_MOST)
    yield against("... and bare ones taken by async for", ours=cost * 1e9, bare=stepped * 1e9, unit="ns/event of client CPU", at_most=None)
    yield rate("async for event, rate", per_second=1 / cost, unit="events/client CPU-s", at_least=PER_SECOND_AT_LEAST, bare=1 / bare)
    yield note("server meanwhile", f"{ours.events / ours.server_cpu / MILLION:.2f} M events/server CPU-s")
    yield note("peers", PEERS)
