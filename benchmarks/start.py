"""How soon a node with 10 million events, keyed, 1 million live, is ready: after kill -9 in the middle of writing, after a clean stop."""

from collections.abc import Iterator

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, bounded, note
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, resident_bytes, scratch

EVENTS = 10 * MILLION
KILLED_SECONDS_AT_MOST = 10
STOPPED_SECONDS_AT_MOST = 3


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    step = min(events, MILLION)
    with scratch() as directory, Node(directory / "data") as node:
        yield note("empty directory", f"{node.started_seconds:.2f} s")
        in_child(traffic.keyed, node.address, "keyed", Load(batch=1_000), phases=[step] * (events // step))
        node.kill()
        node.start()
        yield bounded("after kill -9", value=node.started_seconds, unit="s", at_most=KILLED_SECONDS_AT_MOST)
        stopping = node.stop()
        node.start()
        yield bounded("after a clean stop", value=node.started_seconds, unit="s", at_most=STOPPED_SECONDS_AT_MOST)
        in_child(traffic.keyed, node.address, "keyed", Load(batch=1_000), phases=[step])
        yield note("stopping", f"{stopping:.2f} s")
        yield note("memory after the start and 1 M puts", f"{resident_bytes(node.address.pid) / (1 << 20):.0f} MiB")
