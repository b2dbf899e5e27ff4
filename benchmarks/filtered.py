"""Filters judged by the node: against reading everything and dropping it, in our client and in aiokafka. CPU of both sides together.

Somebody has read with a filter before, so the node has had seconds to lay history out for such readers; what the first one pays is
reported beside it.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import selecting
from benchmarks.figures import MILLION, Row, Scale, note
from benchmarks.peers import produce
from benchmarks.peers.kafka import KafkaBrokers, KafkaUnavailable, jars
from benchmarks.processes import Address, Node, background_seconds, cpu_seconds, in_child, scratch
from benchmarks.selecting import Selected

EVENTS = MILLION
CASES: dict[str, tuple[str, float]] = {
    "value": ("1 % by a field of the value", 5.0),
    "key": ("0.1 % by key prefix", 30.0),
    "kind": ("10 % by kind", 30.0),
    "promoted": ("1 % by a promoted field", 30.0),
}
_PLAIN, _PROMOTED = "orders", "promoted"
_FIRST_WHERE = "kind <> 'CREATED' AND kind <> 'MODIFIED'"  # the same events, but not the same question
_TIMES = 3  # the least of so many
_FILED_AFTER_SECONDS = 4.0  # nothing more was written for so long
_FILED_SECONDS_MAX = 120.0
_WARM_READS_MAX = 12


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        nbytes = in_child(selecting.write, node.address, _PLAIN, events=events)
        in_child(selecting.write, node.address, _PROMOTED, events=events, promote="value.customer")
        yield note("the log", f"{events:,} events, {nbytes / events:.0f} B of key and value each")
        yield from _asked_before(node, directory / "data" / "columns", events)
        for case, (label, at_least) in CASES.items():
            dropped, ours = _both(node.address, case, events)
            yield _row(f"{label}, against our client", ours, dropped, at_least)
            yield note(f"{label}, split", _split(ours))
            yield _ceiling(node.address, case, dropped)
            if case == "value":
                bare = in_child(selecting.decode_field, min(events, MILLION // 10))
                yield note(
                    "a value judged", f"{ours.servers_cpu / events * 1e9:.0f} ns of the node, msgspec's decode of the field {bare:.0f} ns"
                )
        yield _columns(node.address, events)
    yield from _against_kafka(events)


def _asked_before(node: Node, columns: Path, events: int) -> Iterator[Row]:
    """Be the first to read with a filter, and wait until the node has made files of columns; a log in memory has none made."""
    before = _own_seconds(node)
    first = [in_child(selecting.chosen_by_nodes, node.address, cache, _FIRST_WHERE, events=events) for cache in (_PLAIN, _PROMOTED)]
    yield note("10 % by kind, the first time", f"{first[0].ns_per_event:,.0f} ns/event, from the log as it is written")
    began, size, since = time.monotonic(), -1, time.monotonic()
    while (now := time.monotonic()) < min(since + _FILED_AFTER_SECONDS, began + _FILED_SECONDS_MAX):
        found = _size_of(columns)
        size, since = found, since if found == size else now
        time.sleep(0.25)
    if size <= 0:
        yield note("laid out for filters", "nothing: the node has all of the log in memory")
        return
    spent = _own_seconds(node) - before - sum(read.servers_cpu for read in first)
    per_event = f"{size / events / 2:.0f} B/event on disk, {spent / events / 2 * 1e9:.0f} ns/event of the node, once"
    yield note("laid out for filters", f"{per_event}; {since - began:.1f} s until it was done")


def _size_of(columns: Path) -> int:
    try:
        return sum(file.stat().st_size for file in columns.iterdir())
    except FileNotFoundError:  # replaced by a larger one just now
        return 0


def _own_seconds(node: Node) -> float:
    """Return what a node has used without RocksDB's merging, which goes on after a million writes."""
    return cpu_seconds(node.address.pid) - background_seconds(node.address.pid)


def _both(address: Address, case: str, events: int) -> tuple[Selected, Selected]:
    cache = _PROMOTED if case == "promoted" else _PLAIN
    dropped = _least([in_child(selecting.chosen_by_client, address, cache, case, events=events) for _ in range(_TIMES)])
    wheres = [selecting.where_of(case, again=again) for again in range(_TIMES)]
    ours = _least([in_child(selecting.chosen_by_nodes, address, cache, where, events=events) for where in wheres])
    if ours.found != dropped.found:
        raise RuntimeError(f"the node chose {ours.found} events, the client {dropped.found}")
    return dropped, ours


def _least(reads: list[Selected]) -> Selected:
    return min(reads, key=lambda read: read.ns_per_event)


def _ceiling(address: Address, case: str, dropped: Selected) -> Row:
    """Say what it takes to read what is wanted from a cache that holds nothing else: no filter can take less."""
    cache = f"only-{case}"
    in_child(selecting.write, address, cache, events=dropped.events, only=case)
    alone = _least([in_child(selecting.all_events, address, cache, events=dropped.events) for _ in range(_TIMES)])
    if alone.found != dropped.found:
        raise RuntimeError(f"{alone.found} events are alone, the client chose {dropped.found}")
    times = dropped.ns_per_event / alone.ns_per_event
    return note(f"{CASES[case][0]}, if nothing else were there", f"{alone.ns_per_event:,.0f} ns/event of all, which would be {times:.0f}x")


def _columns(address: Address, events: int) -> Row:
    """Compare reading by columns: who reads so, drops what is not wanted for a few nanoseconds."""
    all_of_them, chosen = (
        _least([in_child(selecting.removals_as_columns, address, _PLAIN, where=where, events=events) for where in wheres])
        for wheres in ([""] * _TIMES, [selecting.where_of("kind", again=_TIMES + again) for again in range(_TIMES)])
    )
    if chosen.found != all_of_them.found:
        raise RuntimeError(f"the node chose {chosen.found} events, the client {all_of_them.found}")
    times = all_of_them.ns_per_event / chosen.ns_per_event
    told = f"{chosen.ns_per_event:,.0f} ns/event, all of them {all_of_them.ns_per_event:,.0f} ns/event: {times:.1f}x"
    return note("10 % by kind, by event_batches", told)


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
        warm = _read_until_still(brokers, events)
        last = ", ".join(f"{read.ns_per_event:,.0f}" for read in warm[-3:])
        yield note("aiokafka, broker warmed", f"{len(warm)} reads, the last {last} ns/event")
        for case in ("value", "key", "kind"):
            theirs = _least([_kafka_read(brokers, case, events) for _ in range(_TIMES)])
            rate = f"{events / theirs.seconds / MILLION:.2f} M events/s"
            client = theirs.client_cpu / events * 1e9
            yield note(f"{CASES[case][0]}, aiokafka getmany", f"{theirs.ns_per_event:,.0f} ns/event, client {client:,.0f}; {rate}")


def _kafka_read(brokers: KafkaBrokers, case: str, events: int) -> Selected:
    return in_child(selecting.kafka_read, brokers.addresses, "orders", case, pids=brokers.pids, events=events)


def _read_until_still(brokers: KafkaBrokers, events: int) -> list[Selected]:
    """Read until three reads in a row cost the broker alike: its JVM compiles what it does often."""
    found: list[Selected] = []
    while len(found) < _WARM_READS_MAX:
        found.append(_kafka_read(brokers, "kind", events))
        last = [read.servers_cpu for read in found[-3:]]
        if len(last) == 3 and max(last) <= min(last) * 1.1:
            break
    return found
