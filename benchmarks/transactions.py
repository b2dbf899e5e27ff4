"""Writing a batch once by a transaction: CPU an event of client and node, beside `put_arrow` of the same rows."""

from collections.abc import Iterator

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.inputs import random_keys, random_values
from benchmarks.processes import Address, Node, in_child, scratch
from benchmarks.traffic import Spent

EVENTS = 2 * MILLION
ROWS = 32_000  # about 4 MiB, as the sink of Spark makes them
VALUE_BYTES = 100


def put(address: Address, cache: str, *, events: int, staged: bool) -> Spent:
    """Write tables of rows: at once, or laid ready and published as one batch."""
    import pyarrow as pa

    from eventlog import blocking

    values = random_values(ROWS, VALUE_BYTES)
    tables = [pa.table({"key": random_keys(ROWS, seed=seed), "value": values}) for seed in range(10)]
    with blocking.connect(address.text) as client:
        target = client.create_cache(cache, format="bytes", key_format="bytes")
        target.put_arrow(tables[0])  # both sides are warm
        traffic.settle(address)
        meter = traffic.Meter(address)
        batches = max(events // ROWS, 1)
        if staged:
            stage = target.stage()
            for number in range(batches):
                stage.put_arrow(tables[number % len(tables)])
            target.publish("t", 0, [stage.staged()])
        else:
            for number in range(batches):
                target.put_arrow(tables[number % len(tables)])
        return meter.spent(events=batches * ROWS, requests=batches)


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        at_once = in_child(put, node.address, "at-once", events=events, staged=False)
        ours = in_child(put, node.address, "staged", events=events, staged=True)
        for side, cpu, least, at_most in (
            ("client", ours.client_cpu, at_once.client_cpu, None),
            ("node", ours.server_cpu, at_once.server_cpu, 2.5),
        ):
            yield against(
                f"laid ready and published, {side}", ours=cpu / events * 1e6, bare=least / events * 1e6, unit="us CPU", at_most=at_most
            )
        yield note("laid ready and published, all in", f"{events / ours.seconds:,.0f} events/s; at once {events / at_once.seconds:,.0f}")
