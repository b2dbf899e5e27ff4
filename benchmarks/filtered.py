"""Filters judged by the node: against reading everything and dropping it, in our client and in aiokafka. CPU of both sides together."""

from collections.abc import Iterator

from benchmarks import selecting
from benchmarks.figures import MILLION, Row, Scale, note
from benchmarks.peers import produce
from benchmarks.peers.kafka import KafkaBrokers, KafkaUnavailable, jars
from benchmarks.processes import Address, Node, in_child, scratch
from benchmarks.selecting import Selected

EVENTS = MILLION
CASES: dict[str, tuple[str, float]] = {
    "value": ("1 % by a field of the value", 5.0),
    "key": ("0.1 % by key prefix", 30.0),
    "kind": ("10 % by kind", 30.0),
    "promoted": ("1 % by a promoted field", 30.0),
}
_PLAIN, _PROMOTED = "orders", "promoted"


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        nbytes = in_child(selecting.write, node.address, _PLAIN, events=events)
        in_child(selecting.write, node.address, _PROMOTED, events=events, promote="value.customer")
        yield note("the log", f"{events:,} events, {nbytes / events:.0f} B of key and value each")
        dropped: dict[str, Selected] = {}
        for case, (label, at_least) in CASES.items():
            dropped[case], ours = _both(node.address, case, events)
            yield _row(f"{label}, against our client", ours, dropped[case], at_least)
            yield note(f"{label}, split", _split(ours))
            if case == "value":
                bare = in_child(selecting.decode_field, min(events, MILLION // 10))
                yield note(
                    "a value judged", f"{ours.servers_cpu / events * 1e9:.0f} ns of the node, msgspec's decode of the field {bare:.0f} ns"
                )
    yield from _against_kafka(events)


def _both(address: Address, case: str, events: int) -> tuple[Selected, Selected]:
    cache = _PROMOTED if case == "promoted" else _PLAIN
    dropped = in_child(selecting.chosen_by_client, address, cache, case, events=events)
    ours = in_child(selecting.chosen_by_nodes, address, cache, case, events=events)
    if ours.found != dropped.found:
        raise RuntimeError(f"the node chose {ours.found} events, the client {dropped.found}")
    return dropped, ours


def _row(case: str, ours: Selected, theirs: Selected, at_least: float) -> Row:
    ratio = theirs.ns_per_event / ours.ns_per_event
    return Row(
        case=case,
        measured=f"{ours.ns_per_event:,.0f} ns/event",
        bare=f"{theirs.ns_per_event:,.0f} ns/event",
        ratio=ratio,
        target=f">= {at_least:g}x",
        reached=ratio >= at_least,
    )


def _split(ours: Selected) -> str:
    client, server = ours.client_cpu / ours.events * 1e9, ours.servers_cpu / ours.events * 1e9
    wall = f"{ours.events / ours.seconds / MILLION:.2f} M events/s gone through"
    return f"client {client:.0f} ns, node {server:.0f} ns an event of the log; {wall}"


def _against_kafka(events: int) -> Iterator[Row]:
    try:
        jars()
    except KafkaUnavailable as error:
        yield note("aiokafka", f"not measured: {error}")
        return
    with scratch() as directory, KafkaBrokers(directory, 1) as brokers:
        in_child(produce.create_topic, brokers.addresses, "orders", replicas=1, flush=False)
        in_child(selecting.kafka_write, brokers.addresses, "orders", events=events)
        for case in ("value", "key", "kind"):
            theirs = in_child(selecting.kafka_read, brokers.addresses, "orders", case, pids=brokers.pids, events=events)
            rate = f"{events / theirs.seconds / MILLION:.2f} M events/s"
            client = theirs.client_cpu / events * 1e9
            yield note(f"{CASES[case][0]}, aiokafka getmany", f"{theirs.ns_per_event:,.0f} ns/event, client {client:,.0f}; {rate}")
