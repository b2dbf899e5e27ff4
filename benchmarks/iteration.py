"""Every entry of a cache on three nodes: CPU of client and nodes together, as columns and as objects, against a bare scan of rocksdict."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import uvloop
from rocksdict import Options, Rdict, ReadOptions, WriteBatch

from benchmarks.clusters import cluster
from benchmarks.figures import MILLION, Row, Scale, bounded, note, rate
from benchmarks.inputs import random_values
from benchmarks.processes import Address, cpu_seconds, in_child, scratch

VALUE_BYTES = 100
ROUNDS = 3
COLUMNS_AT_MOST = 1.0  # CPU-seconds a million, of everything; a grid's Java iterator takes 1.0 in batches of 10,000, 1.8 of 1,000
OBJECTS_AT_MOST = 2.5
SHARE_OF_BARE = 0.5  # entries a CPU-second of the nodes
CASES = (
    ("columns, batches of 10,000", 10_000, True),
    ("columns, batches of 1,000", 1_000, True),
    ("objects, batches of 10,000", 10_000, False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterated:
    """What one iteration took."""

    entries: int
    seconds: float
    client_cpu: float
    nodes_cpu: float

    @property
    def cpu_per_million(self) -> float:
        return (self.client_cpu + self.nodes_cpu) / self.entries * MILLION

    @property
    def per_node_cpu_second(self) -> float:
        return self.entries / max(self.nodes_cpu, 0.01)


def run(scale: Scale) -> Iterator[Row]:
    entries = scale.of(MILLION, quick=100_000)
    with scratch() as directory, cluster(directory) as nodes:
        addresses = [node.address for node in nodes]
        in_child(fill, addresses, entries=entries)
        found = in_child(iterate, addresses, rounds=scale.of(ROUNDS, quick=2))
        wheres = in_child(iterate_some, addresses)
    with scratch() as directory:
        bare, sought = in_child(scan, directory, entries=entries, rounds=scale.of(ROUNDS, quick=2))
    for label, _, is_columns in CASES:
        own = found[label]
        bound = COLUMNS_AT_MOST if is_columns else OBJECTS_AT_MOST
        yield bounded(label, value=median(one.cpu_per_million for one in own), unit="CPU-s a million, client and nodes", at_most=bound)
        yield rate(
            f"{label}: nodes",
            per_second=median(one.per_node_cpu_second for one in own),
            unit="entries a CPU-second of the nodes",
            at_least=bare * SHARE_OF_BARE if label == CASES[0][0] else None,
            bare=bare,
        )
        yield note(f"{label}: wall", f"{median(one.entries / one.seconds for one in own) / MILLION:.2f} M entries/s")
    yield rate("the least of a pinned read", per_second=sought, unit="entries a CPU-second", at_least=None, bare=bare)
    yield note("1 of 1,000 keys by prefix of LIKE, columns", f"{wheres.cpu_per_million:.2f} CPU-s a million looked at")


def fill(addresses: Sequence[Address], *, entries: int) -> None:
    """Write entries with keys of 16 bytes, and wait until they are in files or buffers and nothing is under way."""
    import eventlog

    async def write() -> None:
        async with eventlog.connect(*[address.text for address in addresses]) as client:
            cache = await client.create_cache("iterated", format="bytes", before=False)
            values = random_values(10_000, VALUE_BYTES)
            for low in range(0, entries, 10_000):
                await cache.put_many([(f"key-{number:012}", value) for number, value in zip(range(low, low + 10_000), values, strict=True)])
        await asyncio.sleep(2)  # checkpoints and merges come to their end

    uvloop.run(write())


def iterate(addresses: Sequence[Address], *, rounds: int) -> dict[str, list[Iterated]]:
    """Read everything, each way in turn."""
    found: dict[str, list[Iterated]] = {label: [] for label, _, _ in CASES}
    for turn in range(rounds + 1):
        for label, batch, is_columns in CASES:
            own = uvloop.run(_read(addresses, batch=batch, is_columns=is_columns, where=None))
            if turn:
                found[label].append(own)
    return found


def iterate_some(addresses: Sequence[Address]) -> Iterated:
    """Read one entry of a thousand."""
    return uvloop.run(_read(addresses, batch=10_000, is_columns=True, where="key LIKE '%000'"))


async def _read(addresses: Sequence[Address], *, batch: int, is_columns: bool, where: str | None) -> Iterated:
    import eventlog

    async with eventlog.connect(*[address.text for address in addresses]) as client:
        cache = await client.cache("iterated")
        size = await cache.size()
        pids = [address.pid for address in addresses]
        nodes, client_cpu, began = sum(map(cpu_seconds, pids)), time.process_time(), time.monotonic()
        seen = 0
        async with cache.entries(batch_size=batch, batch_bytes=4 << 20, where=where) as rows:
            if is_columns:
                async for found in rows.batches():
                    seen += len(found.keys.offsets) - 1
            else:
                async for _ in rows:
                    seen += 1
        assert where is not None or seen == size, f"{seen} of {size}"
        return Iterated(
            entries=size,
            seconds=time.monotonic() - began,
            client_cpu=time.process_time() - client_cpu,
            nodes_cpu=sum(map(cpu_seconds, pids)) - nodes,
        )


def scan(directory: Path, *, entries: int, rounds: int) -> tuple[float, float]:
    """Return how many rows a CPU-second rocksdict gives, of entries with the same keys and values in three databases.

    First by its quickest walk, which shows what is there now; then by an iterator that keeps to its moment and can be sought again.
    """
    third, values = entries // 3, random_values(1_000, 10 + VALUE_BYTES)
    walked: list[float] = []
    sought: list[float] = []
    for number in range(3):
        database = Rdict(str(directory / f"d{number}"), Options(raw_mode=True))
        batch = WriteBatch(raw_mode=True)
        for row in range(third):
            batch.put(b"segment" + b"key-%012d" % (row * 3 + number), values[row % len(values)])
        database.write(batch)
        database.flush()
        for _ in range(rounds):
            walked.append(_rows_per_cpu_second(database.items()))
            sought.append(_rows_per_cpu_second(_pinned(database)))
        database.close()
    return float(np.median(walked)), float(np.median(sought))


def _rows_per_cpu_second(rows: Iterator[object]) -> float:
    began = time.process_time()
    return sum(1 for _ in rows) / (time.process_time() - began)


def _pinned(database: Rdict) -> Iterator[tuple[bytes, bytes]]:
    iterator = database.iter(ReadOptions())
    key_of, value_of, step = iterator.key, iterator.value, iterator.next
    iterator.seek_to_first()
    for key in iter(key_of, None):
        yield key, value_of()
        step()
