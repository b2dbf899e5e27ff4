"""How soon a node with 10 million events, keyed, 1 million live, is ready: after kill -9 in the middle of writing, after a clean stop.

And what of that goes into the search for what the store may have lost: the store as the kill left it, and as a directory of an earlier
version would be, of which nothing is known, is opened beside the node.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, against, bounded, note
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, resident_bytes, scratch
from eventlog.segment.directory import Directory, read_label
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.opening import check_database
from eventlog.segment.rocks.settled import read_settled
from eventlog.segment.rocks.store import open_store

EVENTS = 10 * MILLION
KILLED_SECONDS_AT_MOST = 10
STOPPED_SECONDS_AT_MOST = 3
SEARCH_AT_MOST = 1.1  # a start with it against one without


def run(scale: Scale) -> Iterator[Row]:
    events = scale.of(EVENTS)
    step = min(events, MILLION)
    with scratch() as directory, Node(directory / "data") as node:
        yield note("empty directory", f"{node.started_seconds:.2f} s")
        in_child(traffic.keyed, node.address, "keyed", Load(batch=1_000), phases=[step] * (events // step))
        node.kill()
        shutil.copytree(directory / "data" / "store", directory / "copy")
        node.start()
        yield bounded("after kill -9", value=node.started_seconds, unit="s", at_most=KILLED_SECONDS_AT_MOST)
        search, of_all = in_child(searching, directory / "copy")
        without = node.started_seconds - search
        yield against(
            "after kill -9, against a start that searches for nothing",
            ours=node.started_seconds,
            bare=without,
            unit="s",
            at_most=SEARCH_AT_MOST,
        )
        yield note("search after kill -9", f"{search:.3f} s")
        yield note("search where nothing has settled", f"{of_all:.2f} s")
        stopping = node.stop()
        node.start()
        yield bounded("after a clean stop", value=node.started_seconds, unit="s", at_most=STOPPED_SECONDS_AT_MOST)
        in_child(traffic.keyed, node.address, "keyed", Load(batch=1_000), phases=[step])
        yield note("stopping", f"{stopping:.2f} s")
        yield note("memory after the start and 1 M puts", f"{resident_bytes(node.address.pid) / (1 << 20):.0f} MiB")


def searching(path: Path) -> tuple[float, float]:
    """Return how long the search takes for what a store has lost: above what has settled, and in all of it."""
    label = read_label(path)
    assert label is not None
    begun = perf_counter()
    directory = Directory(path)
    read_settled(directory.settled_file, directory.database, segments=label.segments, token=label.token)
    check_database(directory.database)
    before = perf_counter() - begun
    store = open_store(path, segments=label.segments)
    settled, ends = store.settled, store.ends.ids
    took = {}
    for name, upto in (("nothing", ends + (1 << 40)), ("tail", settled), ("all", np.zeros_like(settled))):
        store.settled = upto
        begun = perf_counter()
        recover(store, keyed=())
        took[name] = perf_counter() - begun
    store.close()
    return before + took["tail"] - took["nothing"], before + took["all"] - took["nothing"]
