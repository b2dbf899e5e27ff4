"""One put in flight, synced, through the client library: against fdatasync of the same size and a loopback round trip."""

from collections.abc import Iterator
from statistics import quantiles

from benchmarks import ceilings, floor, traffic
from benchmarks.figures import Row, Scale, against, note
from benchmarks.processes import Node, in_child, scratch

RATIO_AT_MOST = 3.0
PUTS = 4_000
REQUEST_BYTES, ANSWER_BYTES, JOURNAL_BYTES = 250, 40, 280  # of one put of 100 B: frames, and the journal's record


def run(scale: Scale) -> Iterator[Row]:
    count = scale.of(PUTS, quick=500)
    syncs: list[float] = []
    trips: list[float] = []
    puts: list[float] = []
    blocking: list[float] = []
    threaded: list[float] = []
    with scratch() as directory, Node(directory / "data") as node:
        for number in range(3):  # in turn, because the disk has moods
            syncs += in_child(ceilings.syncs, count, size=JOURNAL_BYTES, directory=directory)
            trips += in_child(ceilings.round_trips, count, request_bytes=REQUEST_BYTES, answer_bytes=ANSWER_BYTES)
            blocking += in_child(floor.put_trips, count, request_bytes=REQUEST_BYTES, answer_bytes=ANSWER_BYTES, in_thread=False)
            threaded += in_child(floor.put_trips, count, request_bytes=REQUEST_BYTES, answer_bytes=ANSWER_BYTES, in_thread=True)
            puts += in_child(traffic.put_latencies, node.address, f"keyed-{number}", count=count)
        others = in_child(traffic.latencies, node.address, "others", count=count, others=True)
        del others["put"]
    ours, sync, trip = percentiles(puts), percentiles(syncs), percentiles(trips)
    yield against("put, p50", ours=ours[50], bare=sync[50] + trip[50], unit="us", at_most=RATIO_AT_MOST)
    yield against("put, p99", ours=ours[99], bare=sync[99] + trip[99], unit="us", at_most=None)
    for name, trips_found in (("one blocking loop", blocking), ("a loop and a thread", threaded)):
        least = percentiles(trips_found)
        yield against(f"the least of a server, {name}, p50", ours=least[50], bare=sync[50] + trip[50], unit="us", at_most=None)
    for name, seconds in others.items():
        found = percentiles(seconds)
        yield note(name, f"p50 {found[50]:,.0f} us, p99 {found[99]:,.0f} us")
    for name, found in (("fdatasync", sync), ("loopback round trip", trip)):
        yield note(f"bare {name}", f"p50 {found[50]:.0f} us, p99 {found[99]:.0f} us")


def percentiles(seconds: list[float]) -> dict[int, float]:
    """Return p50 and p99 in microseconds."""
    cuts = quantiles(seconds, n=100)
    return {50: cuts[49] * 1e6, 99: cuts[98] * 1e6}
