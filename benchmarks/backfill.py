"""Archiving a cache of many events beside one of a tenth of these, and one on three nodes beside one on one node: what an event costs.

Rounds are of a million events. `--events` says how many are few. Nothing is measured twice; the machine has to have ten times their room.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks import traffic
from benchmarks.archive import Used, write
from benchmarks.clusters import cluster, write_batches
from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.inputs import Load
from benchmarks.processes import Address, Node, background_seconds, cpu_seconds, in_child, scratch

EVENTS = MILLION
TIMES = 10
AT_MOST = 1.1


def archived(addresses: list[Address], path: Path, cache: str) -> tuple[Used, float]:
    """Return what archiving took here, and the CPU of all nodes for an event, in us, without what RocksDB does behind the writes."""

    def spent() -> float:
        return sum(cpu_seconds(address.pid) - background_seconds(address.pid) for address in addresses)

    before = spent()
    ours = in_child(write, addresses[0], path, cache)
    return ours, (spent() - before) / ours.events * MILLION


def run(scale: Scale) -> Iterator[Row]:
    """Yield rows for many events, and for three nodes."""
    few, load = scale.events or scale.of(EVENTS), Load(batch=1_000)
    with scratch() as directory, Node(directory / "data") as node:
        in_child(traffic.append, node.address, "few", load, events=few)
        one, one_served = archived([node.address], directory / "few", "few")
        in_child(traffic.append, node.address, "many", load, events=TIMES * few)
        many, many_served = archived([node.address], directory / "many", "many")
    for name, ours, bare in (("archiver", many.us, one.us), ("node", many_served, one_served)):
        yield against(f"{TIMES * few:,} events beside {few:,}, {name}", ours=ours, bare=bare, unit="us CPU", at_most=AT_MOST)
    with scratch() as directory, cluster(directory) as nodes:
        addresses = [node.address for node in nodes]
        in_child(write_batches, addresses, load, events=few, state=False)
        three, three_served = archived(addresses, directory / "three", "w")
    for name, ours, bare in (("archiver", three.us, one.us), ("nodes", three_served, one_served)):
        yield against(f"{few:,} events of three nodes beside one, {name}", ours=ours, bare=bare, unit="us CPU", at_most=AT_MOST)
    for name, used in ((f"{few:,} events", one), (f"{TIMES * few:,} events", many), (f"{few:,} events of three nodes", three)):
        yield note(f"{name}, all in", f"{used.events / used.seconds:,.0f} events/s")
