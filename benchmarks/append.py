"""Appending batches to a cache without state, pipelined over loopback and synced: the CPU of the node against bare rocksdict."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import baseline, floor, traffic
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
    _Case(load=Load(batch=1_000), events=MILLION, ratio_at_most=2.2, per_second_at_least=MILLION),
    _Case(load=Load(batch=10_000), events=2 * MILLION, ratio_at_most=1.6, per_second_at_least=2.5 * MILLION),
    _Case(load=Load(batch=1_000, alike=True), events=MILLION, ratio_at_most=1.4),
    _Case(load=Load(batch=100, value_bytes=1024, alike=True), events=100_000, ratio_at_most=1.3),
)


ROUNDS = 5  # short, and the middle one counts: a virtual machine's CPU time has moods (machine.warm_memory)


def run(scale: Scale) -> Iterator[Row]:
    for case in CASES:
        ours, sent, bare, least = _measure(case, events=scale.of(case.events), rounds=scale.of(ROUNDS, quick=1))
        label, unit = case.load.label, "us/event of server CPU"
        yield against(label, ours=ours.us_per_event, bare=sent.us_per_event, unit=unit, at_most=case.ratio_at_most)
        yield against(f"{label}, joined", ours=ours.us_per_event, bare=bare.us_per_event, unit=unit, at_most=None)
        yield against(f"{label}, the least of a server", ours=least.us_per_event, bare=sent.us_per_event, unit=unit, at_most=None)
        yield rate(
            f"{label}, rate",
            per_second=ours.events / ours.server_cpu,
            unit="events/server CPU-s",
            at_least=case.per_second_at_least,
            bare=sent.events / sent.cpu_seconds,
        )
        wall = f"{ours.events / ours.seconds / MILLION:.2f} M events/s, {ours.requests_per_group:.1f} batches a group"
        yield note(f"{label}, wall", f"{wall}, client {ours.client_cpu / ours.events * 1e6:.2f} us/event")
        yield against(
            f"{label}, without the kernel",
            ours=(ours.server_cpu - ours.kernel_cpu) / ours.events * 1e6,
            bare=(sent.cpu_seconds - sent.kernel_cpu) / sent.events * 1e6,
            unit="us/event of server CPU",
            at_most=None,
        )


def _measure(case: _Case, *, events: int, rounds: int) -> tuple[traffic.Spent, baseline.Cost, baseline.Cost, baseline.Cost]:
    """Return the middle one of some rounds: ours, bare with the blocks as sent, bare with those of a group joined, floor; in turn."""
    ours: list[traffic.Spent] = []
    sent: list[baseline.Cost] = []
    bare: list[baseline.Cost] = []
    least: list[baseline.Cost] = []
    for _ in range(rounds):
        with scratch() as directory, Node(directory / "data") as node:
            ours.append(in_child(traffic.append, node.address, "append", case.load, events=events))
        for joined, costs in ((False, sent), (True, bare)):
            per_group = ours[-1].requests_per_group
            costs.append(in_child(baseline.append, case.load, events=events, frames_per_group=per_group, joined=joined))
        least.append(in_child(floor.append, case.load, events=events, frames_per_group=ours[-1].requests_per_group))
    ours.sort(key=lambda spent: spent.us_per_event)
    return ours[rounds // 2], _middle(sent), _middle(bare), _middle(least)


def _middle(costs: list[baseline.Cost]) -> baseline.Cost:
    return sorted(costs, key=lambda cost: cost.us_per_event)[len(costs) // 2]
