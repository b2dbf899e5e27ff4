"""Resident memory of the node after 1, 5 and 10 million events of 100 B, and during a full read by 20 readers at once."""

from collections.abc import Iterator

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, bounded, note
from benchmarks.inputs import Load
from benchmarks.processes import Node, PeakMemory, in_child, resident_bytes, scratch

MARKS = (1, 5, 10)
READERS = 20
MIB = 1 << 20
MIB_AT_MOST = 600


def run(scale: Scale) -> Iterator[Row]:
    for cache, label in (("append", "append-only"), ("keyed", "keyed, 1 M live")):
        with scratch() as directory, Node(directory / "data") as node:
            yield note(f"{label}, empty", f"{resident_bytes(node.address.pid) / MIB:.0f} MiB")
            done = 0
            for mark in MARKS:
                with PeakMemory(node.address.pid) as peak:
                    _write(node, cache, scale.of(mark * MILLION) - scale.of(done * MILLION), seed=done)
                done = mark
                now = resident_bytes(node.address.pid) / MIB
                yield bounded(f"{label}, after {mark} M", value=now, unit="MiB", at_most=MIB_AT_MOST)
                yield bounded(f"{label}, peak while writing to {mark} M", value=peak.bytes / MIB, unit="MiB", at_most=MIB_AT_MOST)
            with PeakMemory(node.address.pid) as peak:
                read = in_child(traffic.read_raw, node.address, cache, readers=READERS)
            yield bounded(f"{label}, peak of {READERS} full reads", value=peak.bytes / MIB, unit="MiB", at_most=MIB_AT_MOST)
            yield note(f"{label}, {READERS} full reads", f"{read.events / MILLION:.0f} M events in {read.seconds:.0f} s")


def _write(node: Node, cache: str, events: int, *, seed: int) -> None:
    if cache == "append":
        in_child(traffic.append, node.address, cache, Load(batch=1_000), events=events)
    else:
        in_child(traffic.keyed, node.address, cache, Load(batch=1_000), phases=[MILLION] * (events // MILLION) or [events], seed=seed)
