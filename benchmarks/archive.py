"""Archiving a cache, and reading its archive: CPU an event beside pyarrow, which writes, reads or groups the same files alone."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.inputs import Load
from benchmarks.processes import Address, Node, cpu_seconds, in_child, scratch

EVENTS = 3 * MILLION
ROUND_EVENTS = MILLION
EVENTS_A_KEY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a process used for some events."""

    events: int
    cpu: float
    seconds: float

    @property
    def us(self) -> float:
        """CPU an event in us."""
        return self.cpu / self.events * 1e6


def _measured(act: Callable[[], int]) -> Used:
    cpu, begun = time.process_time(), time.monotonic()
    events = act()
    return Used(events=events, cpu=time.process_time() - cpu, seconds=time.monotonic() - begun)


def write(address: Address, path: Path, cache: str = "c") -> Used:
    """Archive a cache in this process, as the command does."""
    from eventlog import blocking
    from eventlog.integrations import archive

    with blocking.connect(address.text) as client:
        return _measured(lambda: archive.archive(client, cache, path, round_events=ROUND_EVENTS).events)


def write_plain(source: Path, target: Path) -> Used:
    """Sort the same events and write them into files, which is all that has to be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from eventlog.integrations import archive

    rounds = [pa.concat_tables([pq.read_table(path) for path in group]) for group in _groups(archive.open(source).files)]
    target.mkdir()

    def act() -> int:
        for number, table in enumerate(rounds):
            ordered = table.sort_by([("segment", "ascending"), ("id", "ascending")])
            pq.write_table(ordered, target / f"{number}.parquet", compression="zstd", compression_level=1, row_group_size=262_144)
        return sum(map(len, rounds))

    return _measured(act)


def _groups(files: list[str]) -> list[list[str]]:
    """Return the files of each round, whose names begin with its ids."""
    found: dict[str, list[str]] = {}
    for path in files:
        found.setdefault(Path(path).name[:39], []).append(path)
    return list(found.values())


def read(path: Path) -> Used:
    """Read an archive in the order of ids, every column."""
    from eventlog.integrations import archive

    found = archive.open(path)
    return _measured(lambda: sum(len(batch) for batch in found.history()))


def read_plain(path: Path) -> Used:
    """Read the same files, every column, in the order in which they lie there."""
    import pyarrow.parquet as pq

    from eventlog.integrations import archive

    files = archive.open(path).files
    return _measured(lambda: sum(len(pq.read_table(file)) for file in files))


def verify(path: Path) -> Used:
    """Prove an archive."""
    from eventlog.integrations import archive

    found = archive.open(path)
    return _measured(lambda: found.verify().events)


def rebuild(address: Address, path: Path) -> Used:
    """Return what it takes to find the entries that `archive.rebuild` writes; a figure is of an entry."""
    from eventlog import blocking
    from eventlog.integrations.archive.folding import fold
    from eventlog.integrations.archive.reading import open_archive

    found = open_archive(path)
    with blocking.connect(address.text) as client:
        return _measured(lambda: len(fold(found, client, "k", found.upto).table))


def rebuild_plain(path: Path) -> Used:
    """Find the same entries by grouping the rows of the same files by key."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from eventlog.integrations import archive

    files = archive.open(path).files

    def act() -> int:
        table = pa.concat_tables([pq.read_table(file, columns=["id", "segment", "kind", "key", "value"]) for file in files])
        last = table.group_by("key").aggregate([("id", "max")]).column("id_max")
        found = table.filter(pc.is_in(table.column("id"), value_set=last.combine_chunks()))
        return len(found.filter(pc.invert(pc.is_in(found.column("kind"), value_set=pa.array(["REMOVED", "EXPIRED"])))))

    return _measured(act)


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    with scratch() as directory, Node(directory / "data") as node:
        in_child(traffic.append, node.address, "c", Load(batch=1_000), events=events)
        table = directory / "table"
        before = cpu_seconds(node.address.pid)
        ours = in_child(write, node.address, table)
        served = cpu_seconds(node.address.pid) - before
        yield against("archive", ours=ours.us, bare=in_child(write_plain, table, directory / "plain").us, unit="us CPU", at_most=2)
        yield note(
            "archive, all in", f"{ours.events / ours.seconds:,.0f} events/s; {served / ours.events * 1e6:.2f} us CPU an event at the node"
        )
        yield against(
            "history, in the order of ids", ours=in_child(read, table).us, bare=in_child(read_plain, table).us, unit="us CPU", at_most=1.2
        )
        yield against("verify", ours=in_child(verify, table).us, bare=in_child(read_plain, table).us, unit="us CPU", at_most=None)
        in_child(traffic.keyed, node.address, "k", Load(batch=1_000), phases=[events], live=max(events // EVENTS_A_KEY, 1))
        keyed = directory / "keyed"
        in_child(write, node.address, keyed, "k")
        entries, plain = in_child(rebuild, node.address, keyed), in_child(rebuild_plain, keyed)
        assert entries.events == plain.events, f"{entries.events} entries, and {plain.events}"
        yield against("rebuild, finding an entry", ours=entries.us, bare=plain.us, unit="us CPU", at_most=2)
