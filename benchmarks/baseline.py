"""Bare rocksdict doing the storage work of a benchmark and nothing else: the node's own options, the node's own groups.

The database is made and opened by the node's opening module, so it is tuned as the node is. A group is what the node made of it in
the run before: so many client batches, their blocks joined to one stored value a segment, byte for byte what the node stores. The
loop is one `write` of ready pairs and one `flush_wal(sync=True)`; whatever is needed to make the pairs is not counted.

Each function is called in a process of its own by `processes.in_child`.
"""

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from rocksdict import WriteBatch, WriteOptions

from benchmarks.inputs import KEYS_LIVE, SEGMENTS, Load, distinct_frames, frames_of, random_keys, random_values
from benchmarks.machine import warm_memory
from benchmarks.processes import background_seconds, kernel_seconds, scratch
from eventlog.batch.build import Columns, WriteFrame, build_blocks, segments_of, take
from eventlog.batch.entries import encode_entry
from eventlog.batch.layout import HAS_PRODUCERS, PRODUCER, ValueHead, encode_value
from eventlog.segment.keys import entry_key, log_key, log_keys
from eventlog.segment.port import StoreOptions
from eventlog.segment.rocks.opening import Database, close_database, create_database, open_database

CACHE = 1
WARM_BYTES = 3 << 30  # more than what a round takes: journal, memtables, files of two levels
_BASE = 1 << 50
_PRODUCER_NUMBER = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What writing took. CPU is that of all threads, RocksDB's included."""

    events: int
    groups: int
    seconds: float
    cpu_seconds: float
    kernel_cpu: float  # of it, what the kernel did
    background_cpu: float  # of it, RocksDB's own threads

    @property
    def us_per_event(self) -> float:
        return self.cpu_seconds / self.events * 1e6


class Stopwatch:
    """CPU of the process and time, without what is done `aside`."""

    def __init__(self) -> None:
        self._background, self._kernel = background_seconds(os.getpid()), kernel_seconds(os.getpid())
        self._cpu, self._time = time.process_time(), time.monotonic()

    @contextmanager
    def aside(self) -> Iterator[None]:
        thread, begun = time.thread_time(), time.monotonic()
        yield
        self._cpu += time.thread_time() - thread
        self._time += time.monotonic() - begun

    def cost(self, *, events: int, groups: int) -> Cost:
        cpu, seconds = time.process_time() - self._cpu, time.monotonic() - self._time
        background = background_seconds(os.getpid()) - self._background
        kernel = kernel_seconds(os.getpid()) - self._kernel
        return Cost(events=events, groups=groups, seconds=seconds, cpu_seconds=cpu, kernel_cpu=kernel, background_cpu=background)


@contextmanager
def opened() -> Iterator[Database]:
    """Give a new database, opened as a node opens its own."""
    with scratch() as directory:
        create_database(directory / "db", [])
        database = open_database(directory / "db", StoreOptions())
        _write_markers(database)
        try:
            yield database
        finally:
            close_database(database)


def _write_markers(database: Database) -> None:
    """Begin every segment with an empty value, as a node does when it starts: the first files are as many as a node's."""
    head = ValueHead(flags=0, sections=0, epoch=1, count=0, bitmap=0, kinds=0, producers=0, base=1, first_offset=0)
    batch = WriteBatch(raw_mode=True)
    batch.set_default_column_family(database.root.get_column_family_handle("log"))
    for segment in range(SEGMENTS):
        batch.put(log_key(segment, 0, 1), encode_value(head, segment=segment, cache=0, sections=[]))
    database.root.write(batch, write_options(journalled=True))


def append(load: Load, *, events: int, frames_per_group: float, joined: bool) -> Cost:
    """Write the groups that `events` in client batches of `load` make, `frames_per_group` batches each on average.

    Each block that a client sends for a segment is a value of its own, or, `joined`, those of a group are one value, as in the node.
    """
    per_group = max(round(frames_per_group), 1)
    frames = frames_of(load, distinct_frames(load))
    made = _values if joined else _values_apart
    variants = [
        made(_blocks_of([frames[(first + at) % len(frames)] for at in range(per_group)])) for first in range(0, len(frames), per_group)
    ]
    groups = max(round(events / (load.batch * per_group)), 1)
    keys = [keys_of(variants[group % len(variants)], group * load.batch * per_group) for group in range(groups)]
    data = [[value for _, _, value in variant] for variant in variants]
    with opened() as database:
        warm_memory(WARM_BYTES)
        options, log = write_options(journalled=True), database.root.get_column_family_handle("log")
        watch = Stopwatch()
        for group in range(groups):
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(log)
            deque(map(batch.put, keys[group], data[group % len(data)]), 0)
            database.root.write(batch, options)
            database.root.flush_wal(sync=True)
        cost = watch.cost(events=groups * load.batch * per_group, groups=groups)
        del log
    return cost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A group of keyed writes, ready to be written."""

    log_keys: list[bytes]
    log_values: list[bytes]
    state_keys: list[Any]
    state_values: list[bytes]


def keyed(
    load: Load,
    *,
    phases: Sequence[int],
    frames_per_group: float,
    before: bool = False,
    live: int = KEYS_LIVE,
    checks: bool = True,
) -> list[Cost]:
    """Check existence (or, as a backup, not), write the log, write the state, group by group; return the cost of each of the phases.

    Keys are random over `live` and the database is empty at first, so the first phase meets ever more keys that are there.
    """
    per_group = max(round(frames_per_group), 1)
    size = load.batch * per_group
    costs, seen, number = [], set[bytes](), 0
    with opened() as database:
        journalled, plain = write_options(journalled=True), write_options(journalled=False)
        log, state = database.root.get_column_family_handle("log"), database.root.get_column_family_handle("state")
        for events in phases:
            groups = max(round(events / size), 1)
            warm_memory(WARM_BYTES)
            watch = Stopwatch()
            for _ in range(groups):
                with watch.aside():
                    group = _group(load, per_group, number, seen=seen if before else None, live=live)
                    number += 1
                if checks:
                    database.state.get(group.state_keys)
                _write(database, group.log_keys, group.log_values, (log, journalled))
                database.root.flush_wal(sync=True)
                _write(database, group.state_keys, group.state_values, (state, plain))
            costs.append(watch.cost(events=groups * size, groups=groups))
        del log, state
    return costs


def _write(database: Database, keys: list[Any], values: list[bytes], where: tuple[Any, WriteOptions]) -> None:
    batch = WriteBatch(raw_mode=True)
    batch.set_default_column_family(where[0])
    deque(map(batch.put, keys, values), 0)
    database.root.write(batch, where[1])


def _group(load: Load, per_group: int, number: int, *, seen: set[bytes] | None, live: int) -> _Group:
    """Return a group of random keys; with `seen`, events carry before-images where their key was seen before."""
    size = load.batch * per_group
    keys = random_keys(size, seed=number, live=live)
    values = random_values(size, load.value_bytes, seed=number % 8)
    segments = segments_of(keys, segments=SEGMENTS)
    blocks = np.arange(size) // load.batch * SEGMENTS + segments
    order = np.argsort(blocks, kind="stable")
    found, counts = np.unique(blocks, return_counts=True)
    data, lengths = build_blocks(take(_columns(keys, values, seen), order), counts)
    ends = np.cumsum(lengths).tolist()
    pieces = [data[low:high] for low, high in zip([0, *ends], ends, strict=False)]
    stored = _values(zip((found % SEGMENTS).tolist(), counts.tolist(), pieces, strict=True))
    rows = order.tolist()
    return _Group(
        log_keys=keys_of(stored, number * size),
        log_values=[value for _, _, value in stored],
        state_keys=[entry_key(segment, CACHE, keys[row]) for segment, row in zip(segments[order].tolist(), rows, strict=True)],
        state_values=[encode_entry(_BASE + number, values[row]) for row in rows],
    )


def _columns(keys: list[bytes], values: list[bytes], seen: set[bytes] | None) -> Columns:
    kinds = np.zeros(len(keys), np.uint8)
    if seen is None:
        return Columns(kinds=kinds, keys=keys, values=values)
    images = [value if key in seen else b"" for key, value in zip(keys, values, strict=True)]
    seen.update(keys)
    return Columns(kinds=kinds, keys=keys, values=values, before=images)


def _blocks_of(frames: list[WriteFrame]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (segment, events, block) of all frames."""
    for frame in frames:
        at = 0
        for segment, _, count, length, _ in frame.table.tolist():
            yield segment, count, frame.blocks[at : at + length]
            at += length


def _values(blocks: Iterable[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return (segment, events, stored value) for each segment that the blocks of a group touch."""
    by_segment: dict[int, list[tuple[int, bytes]]] = {}
    for segment, count, block in blocks:
        by_segment.setdefault(segment, []).append((count, block))
    return [_value(segment, by_segment[segment]) for segment in sorted(by_segment)]


def _values_apart(blocks: Iterable[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return (segment, events, stored value) for each block."""
    return [_value(segment, [(count, block)]) for segment, count, block in blocks]


def _value(segment: int, blocks: list[tuple[int, bytes]]) -> tuple[int, int, bytes]:
    counts = np.array([count for count, _ in blocks])
    rows = np.zeros(len(blocks), PRODUCER)
    rows["producer"], rows["first"] = _PRODUCER_NUMBER, np.cumsum(counts) - counts
    rows["count"] = rows["submitted"] = counts
    count = int(counts.sum())
    head = ValueHead(
        flags=HAS_PRODUCERS,
        sections=len(blocks),
        epoch=1,
        count=count,
        bitmap=0,
        kinds=1,
        producers=len(blocks),
        base=_BASE,
        first_offset=0,
    )
    sections = [block for _, block in blocks]
    return segment, count, encode_value(head, segment=segment, cache=CACHE, sections=sections, producers=rows.tobytes())


def keys_of(values: list[tuple[int, int, bytes]], base: int) -> list[bytes]:
    """Return the log keys of a group whose ids begin `base` events after the first."""
    counts = np.array([count for _, count, _ in values])
    bases = _BASE + (base + np.cumsum(counts) - counts << 10)
    return log_keys([segment for segment, _, _ in values], CACHE, bases.tolist())


def write_options(*, journalled: bool) -> WriteOptions:
    options = WriteOptions()
    options.no_slowdown = True
    options.disable_wal = not journalled  # type: ignore[assignment, method-assign]  # an attribute; the stub says method
    return options
