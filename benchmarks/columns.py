"""Reading a log as columns that a numpy reduction touches: events per CPU-second of client and server, against loopback."""

from collections.abc import Iterator
from typing import Literal

from benchmarks import ceilings, traffic
from benchmarks.figures import MILLION, Row, Scale, note, rate
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch

EVENTS = 5 * MILLION
CASES: tuple[tuple[str, Load, Literal["id", "segment"], float | None], ...] = (
    ("spread log", Load(batch=1_000), "id", 1.5 * MILLION),
    ("spread log, order=segment", Load(batch=1_000), "segment", None),
    ("one-segment log", Load(batch=1_000, alike=True), "id", 4.0 * MILLION),
)


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        for alike in (False, True):
            in_child(traffic.append, node.address, f"append-{alike}".lower(), Load(batch=1_000, alike=alike), events=events)
        for label, load, order, at_least in CASES:
            ours = in_child(traffic.read_columns, node.address, f"append-{load.alike}".lower(), order=order)
            bare = in_child(ceilings.loopback, ours.nbytes)
            for side, cpu, least in (("client", ours.client_cpu, bare.receiver_cpu), ("server", ours.server_cpu, bare.sender_cpu)):
                yield rate(
                    f"{label}, {side}",
                    per_second=ours.events / cpu,
                    unit=f"events/{side} CPU-s",
                    at_least=at_least,
                    bare=ours.events / least,
                )
            size = ours.nbytes / ours.events
            wall = f"{ours.events / ours.seconds / MILLION:.2f} M events/s, {ours.events / ours.requests:.0f} events a batch"
            yield note(f"{label}, wall", f"{wall}, {size:.0f} B an event")
