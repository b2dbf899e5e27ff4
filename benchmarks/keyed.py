"""A keyed cache of bytes, batches of 1,000 random keys over a million: against bare rocksdict checking, logging and storing the same."""

from collections.abc import Iterator

from benchmarks import baseline, traffic
from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch

RATIO_AT_MOST = 1.5
LOAD = Load(batch=1_000)


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(MILLION, quick=100_000)
    for cache, label in (("keyed", "no before-images"), ("images", "before-images")):
        with scratch() as directory, Node(directory / "data") as node:
            phases = in_child(traffic.keyed, node.address, cache, LOAD, phases=[events, events], live=events)
        groups = sum(phase.requests for phase in phases) / max(sum(phase.groups for phase in phases), 1)
        bare = in_child(baseline.keyed, LOAD, phases=[events, events], frames_per_group=groups, before=cache == "images", live=events)
        for name, ours, least in zip(("first million", "second million"), phases, bare, strict=True):
            yield against(
                f"{label}, {name}",
                ours=ours.us_per_event,
                bare=least.us_per_event,
                unit="us/event of server CPU",
                at_most=RATIO_AT_MOST,
            )
        last = phases[-1]
        yield note(f"{label}, wall", f"{last.events / last.seconds / 1000:.0f} k events/s, {groups:.1f} batches a group")
