"""Single puts of 100 B to a keyed cache, 256 in flight over all segments, against bare rocksdict with the same groups."""

from collections.abc import Iterator

from benchmarks import baseline, traffic
from benchmarks.figures import Row, Scale, against, note, rate
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch

DEPTH = 256
EVENTS = 300_000
PER_SECOND_AT_LEAST = 30_000


def run(scale: Scale) -> Iterator[Row]:
    events, live = scale.of(EVENTS), scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        phases = in_child(traffic.puts, node.address, "keyed", phases=[events, events], depth=DEPTH, live=live)
    groups = sum(phase.requests for phase in phases) / max(sum(phase.groups for phase in phases), 1)
    bare = in_child(baseline.keyed, Load(batch=1), phases=[events, events], frames_per_group=groups, live=live)
    for name, ours, least in zip(("most keys new", "most keys there"), phases, bare, strict=True):
        yield rate(
            f"depth {DEPTH}, {name}",
            per_second=ours.events / ours.server_cpu,
            unit="puts/server CPU-s",
            at_least=PER_SECOND_AT_LEAST,
            bare=least.events / least.cpu_seconds,
        )
        yield against(f"depth {DEPTH}, {name}, CPU", ours=ours.us_per_event, bare=least.us_per_event, unit="us/put", at_most=None)
    last = phases[-1]
    yield note("wall", f"{last.events / last.seconds / 1000:.1f} k puts/s, {groups:.0f} puts a group")
