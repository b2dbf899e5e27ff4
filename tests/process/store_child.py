"""Runs a store in a process of its own, to be killed, starved or cut off: `python -m tests.process.store_child STORY PATH [...]`.

Each line on stdout is an acknowledgement: the last id that was synced. What was written is told by the group's number alone, so
whoever opens what is left knows what must be there.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from eventlog.errors import DiskFull, EventLogError
from eventlog.ids import ID_STEP
from eventlog.segment import keys
from eventlog.segment.check import check
from eventlog.segment.memory import open_store as open_memory
from eventlog.segment.port import Identity, Store, StoreOptions
from eventlog.segment.recovery import recover
from eventlog.segment.retention import CacheLog, OwnStep, RetentionLimits, flushed_ceiling, plan_retention
from eventlog.segment.rocks.store import open_store
from eventlog.segment.trimming import find_trims, flush_marks, trim_write
from tests.segment.worlds import Change, World

SEGMENTS = 8
GROUP_IDS = SEGMENTS + 1
IDENTITY = Identity(cluster="c", node=1, incarnation="i")
ROOMY = StoreOptions(identity=IDENTITY)
SMALL = StoreOptions(
    identity=IDENTITY,
    log_buffer_bytes=64 << 10,
    state_buffer_bytes=64 << 10,
    buffers_bytes_max=1 << 20,
    cache_bytes=1 << 20,
    journal_bytes_max=256 << 10,
)


def group_parts(number: int) -> list[tuple[int, int, list[Change]]]:
    """Return what group `number` (from 0) writes: a value in cache 1 of every segment, one of them with a removal."""
    parts: list[tuple[int, int, list[Change]]] = []
    for segment in range(SEGMENTS):
        text = b"%d %d " % (number, segment)
        changes: list[Change] = [(b"key %d" % (number % 50), text * 100)]
        if segment == number % SEGMENTS:
            changes.append((b"key %d" % ((number + 25) % 50), None))
        parts.append((segment, 1, changes))
    return parts


def write_groups(world: World, *, marks_every: int = 10) -> Iterator[int]:
    """Write groups for ever; yield the last id of each, synced."""
    for number in count():
        yield world.group(*group_parts(number))
        if number % marks_every == marks_every - 1:
            world.mark()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tell(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# ---------------------------------------------------------------- stories


def write(path: str, options: StoreOptions, groups: int = 1 << 40) -> World:
    """Write groups and acknowledge each."""
    world = World(open_store(path, segments=SEGMENTS, options=options))
    for number, last in enumerate(write_groups(world), 1):
        tell(last)
        if number >= groups:
            break
    return world


def stop(path: str, groups: str) -> None:
    write(path, SMALL, int(groups)).store.close()


def kill(path: str, groups: str) -> None:
    """Keeps the store alive until the end: a store that is let go of writes everything out."""
    world = write(path, SMALL, int(groups))
    die()
    del world


def young(path: str, groups: str) -> None:
    """All that was written is in the one journal file."""
    world = write(path, ROOMY, int(groups))
    die()
    del world


def rolled(path: str, groups: str) -> None:
    """The log lies in two journal files: flushing the state began the second."""
    world = write(path, ROOMY, int(groups) // 2)
    world.store.flush_state()
    for number in range(int(groups) // 2, int(groups)):
        tell(world.group(*group_parts(number)))
    die()


def again(path: str, groups: str, end: str) -> None:
    """Go on where another process ended: as many groups more, then a kill or a clean stop. The start is that of a node."""
    store = open_store(path, segments=SEGMENTS, options=ROOMY)
    recovery = recover(store, keyed={1})
    assert recovery.refusals == (), recovery.refusals
    store.settle(recovery.ends)
    world = World.going_on(store, recovery)
    first = groups_upto(recovery.last_id)
    for number in range(first, first + int(groups)):
        tell(world.group(*group_parts(number)))
    world.store.flush_state()
    store.settle()
    world.mark()
    world.store.append([], [keys.encode_step(1, world.next_id - ID_STEP, 1, 1)])
    world.store.sync(world.ends)
    if end == "kill":
        die()
    world.store.close()


def torn(path: str, groups: str) -> None:
    """As `young`, and killed in the middle of one more group that was never synced."""
    world = write(path, ROOMY, int(groups))
    world.group(*group_parts(int(groups)), sync=False)
    die()


def stubborn(path: str) -> None:
    """Write until something fails, then try everything again, read, and close."""
    world = World(open_store(path, segments=SEGMENTS, options=ROOMY))
    for number in count():
        try:
            tell(world.group(*group_parts(number)))
        except EventLogError as error:
            tell(f"{error.code} {error.outcome}")
            break
    attempts: list[Callable[[], object]] = [
        lambda: world.group(*group_parts(0)),
        lambda: world.store.sync(world.ends),
        lambda: world.store.apply([(b"k", b"v")]),
        lambda: world.store.trim([], []),
        world.store.flush_state,
    ]
    for attempt in attempts:
        try:
            attempt()
            tell("went on")
        except EventLogError as error:
            tell(error.code)
    tell(f"read {len(read_all(world.store))}")
    world.store.close()


def fill(path: str, ballast: str) -> None:
    """Write until the disk is full, and on when `ballast` is gone."""
    world = World(open_store(path, segments=SEGMENTS, options=SMALL))
    number, refused = 0, 0
    deadline = time.monotonic() + 60
    while refused < 3 or number < 2_000:
        try:
            tell(world.group(*group_parts(number), apply=False))  # one step that may be refused: the state is made of the log
            number += 1
            if refused and number % 50 == 0:
                break
        except DiskFull as error:
            refused += 1
            if refused == 1:
                tell(f"{error.code} {world.store.free_bytes()}")
                tell(f"read {len(read_all(world.store)) - number * SEGMENTS}")
            if refused == 3:
                Path(ballast).unlink()
            assert time.monotonic() < deadline, "the disk has space, and nothing is written"
            time.sleep(0.1)
    tell("resumed")
    die()


def trim(path: str, how: str) -> None:
    """Retention, killed between its trim and the next flush. `hasty` leaves the flush before it out."""
    world = write(path, ROOMY, 40)
    world.mark()
    store = world.store
    if how == "hasty":
        marks, _ = keys.decode_marks(store.get_many(keys.applied_keys(SEGMENTS)), SEGMENTS)
    else:
        marks = flush_marks(store)
    for number in range(40, 60):
        tell(world.group(*group_parts(number)))
    world.mark()
    log = CacheLog(trimmed=OwnStep(0, 0, 0), steps=world.steps[1], now=world.steps[1][-1])
    plan = plan_retention(1, log, RetentionLimits(nothing=True), physical_ms=0, ceiling=flushed_ceiling(marks, world.ends.ids))
    trims = find_trims(store, plan, recover(store, keyed={1}).caches[1].trimmed_ids)
    store.trim(*trim_write(trims))
    store.sync(world.ends)
    tell(f"trimmed {plan.cut.id}")
    die()


def last_acknowledged(lines: list[str]) -> int:
    return max((int(line) for line in lines if line.isdigit()), default=0)


# ---------------------------------------------------------------- looking at what is left


def expected_world(groups: int) -> World:
    """Return the first `groups` groups, in memory."""
    world = World(open_memory("", segments=SEGMENTS))
    for number in range(groups):
        world.group(*group_parts(number))
    return world


def expected(groups: int) -> dict[bytes, bytes]:
    """Return the log pairs of the first `groups` groups."""
    return expected_world(groups).log


def expected_state(groups: int) -> dict[bytes, bytes]:
    """Return the entries after the first `groups` groups."""
    return expected_world(groups).state


def groups_upto(last_id: int) -> int:
    """Return how many groups have all their ids at or below `last_id`."""
    return last_id // ID_STEP // GROUP_IDS


def read_all(store: Store) -> dict[bytes, bytes]:
    return dict(store.read_log(b"", b"\xff" * 16, bytes_max=1 << 40))


def faults(store: Store, *, keyed: tuple[int, ...] = (1,)) -> list[str]:
    return [str(finding) for finding in check(store, keyed=keyed)]


if __name__ == "__main__":
    stories = {"stop": stop, "kill": kill, "young": young, "rolled": rolled, "torn": torn, "trim": trim, "stubborn": stubborn, "fill": fill}
    stories["again"] = again
    stories.get(sys.argv[1], lambda path: write(path, SMALL))(*sys.argv[2:])
