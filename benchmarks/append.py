"""Appending batches to a cache without state, pipelined over loopback and synced: the CPU of the node against bare rocksdict."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import baseline, traffic
from benchmarks.figures import MILLION, Row, Scale, against, note, rate
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    load: Load
    events: int
    ratio_at_most: float
    per_second_at_least: float | None = None


CASES = (
    _Case(load=Load(batch=1_000), events=5 * MILLION, ratio_at_most=2.2, per_second_at_least=MILLION),
    _Case(load=Load(batch=10_000), events=5 * MILLION, ratio_at_most=1.6, per_second_at_least=2.5 * MILLION),
    _Case(load=Load(batch=1_000, alike=True), events=5 * MILLION, ratio_at_most=1.4),
    _Case(load=Load(batch=100, value_bytes=1024, alike=True), events=500_000, ratio_at_most=1.3),
)


def run(scale: Scale) -> Iterator[Row]:
    for case in CASES:
        events = scale.of(case.events)
        with scratch() as directory, Node(directory / "data") as node:
            ours = in_child(traffic.append, node.address, "append", case.load, events=events)
        bare = in_child(baseline.append, case.load, events=events, frames_per_group=ours.requests_per_group)
        label = case.load.label
        yield against(label, ours=ours.us_per_event, bare=bare.us_per_event, unit="us/event of server CPU", at_most=case.ratio_at_most)
        yield rate(
            f"{label}, rate",
            per_second=ours.events / ours.server_cpu,
            unit="events/server CPU-s",
            at_least=case.per_second_at_least,
            bare=bare.events / bare.cpu_seconds,
        )
        wall = f"{ours.events / ours.seconds / MILLION:.2f} M events/s, {ours.requests_per_group:.1f} batches a group"
        yield note(f"{label}, wall", f"{wall}, client {ours.client_cpu / ours.events * 1e6:.2f} us/event")
