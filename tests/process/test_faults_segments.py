"""A backup that stands still holds up the segments that it has a copy of, and no others, at the same primaries."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

import eventlog
from eventlog.client.reports import SegmentInfo
from eventlog.hashing import hash_key, segment_of
from tests.process.clusters import ClusterProcesses

pytestmark = pytest.mark.timeout(240)
SEGMENTS = 16
WRITES = 10  # of each segment, while others are held up: for a second, until the others call the node dead
SHOWN_WITHIN_S = 120


def keys_by_segment() -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < SEGMENTS:
        key = b"k%d" % number
        found.setdefault(segment_of(hash_key(key), SEGMENTS), key)
        number += 1
    return found


def test_segments_without_a_copy_on_a_node_that_stands_still_are_written_on(tmp_path):
    with ClusterProcesses(tmp_path, "--replicas", "3", segments=SEGMENTS, count=5) as cluster:
        cluster.command("admin", "rebalance", "start", "--wait")
        free, held, seconds = asyncio.run(act(cluster))
    print(f"{free} of {SEGMENTS} segments without a copy: {WRITES} writes of each within {seconds:.2f} s, while {held} others were held up")


def choice_of(found: Sequence[SegmentInfo]) -> tuple[str, list[int], list[int]]:
    """Return a node, the segments without a copy there whose primaries lead others that have one, and these others.

    No segments where no node has any, as while a segment has no primary.
    """
    chosen: tuple[str, list[int], list[int]] = "", [], []
    for victim in sorted({one.primary for one in found if one.primary}):
        held = [one for one in found if victim in one.in_sync and one.primary not in ("", victim)]
        free = [one for one in found if victim not in one.in_sync and one.primary in {other.primary for other in held}]
        beside = [one.segment for one in held if one.primary in {other.primary for other in free}]
        chosen = max(chosen, (victim, [one.segment for one in free], beside), key=lambda choice: len(choice[1]))
    return chosen


async def act(cluster: ClusterProcesses) -> tuple[int, int, float]:
    """Return how many segments went on, beside how many that were held up, and how long that took.

    Where the machine itself stands still for a second, the node that was stopped is called dead, and nothing is held up by it any
    more. Then it is stopped once more: had the free segments been held up too, they would never go on before the others.
    """
    async with eventlog.connect(*cluster.addresses) as client, eventlog.connect(*cluster.addresses) as other_client:
        # writes of one moment share frames, and a frame is answered as one
        caches = [await client.create_cache("c", format="bytes", key_format="bytes"), other_client.cache("c")]
        keys, acked, free_ones, is_over = keys_by_segment(), Counter[int](), set[int](), asyncio.Event()

        async def write(segment: int) -> None:
            while not is_over.is_set():
                await caches[segment not in free_ones].put(keys[segment], b"v")
                acked[segment] += 1

        writers = asyncio.gather(*(write(segment) for segment in range(SEGMENTS)))
        deadline, found = time.monotonic() + SHOWN_WITHIN_S, None
        while found is None:
            assert time.monotonic() < deadline, "segments without a copy do not go on while others are held up"
            assert not writers.done(), writers
            victim, free, held = choice_of(await client.segments())
            if not free or (await client.status()).health != "ok":
                await asyncio.sleep(0.1)
                continue
            free_ones.clear()
            free_ones.update(free)
            await until_written(acked, range(SEGMENTS), writes=20)
            found = await stand_still(cluster, int(victim[1:]) - 1, acked, free=free, held=held)
        is_over.set()
        await writers
        return len(free), len(held), found


async def until_written(acked: Counter[int], segments: Sequence[int], *, writes: int) -> None:
    before = acked.copy()
    while min(acked[segment] - before[segment] for segment in segments) < writes:  # noqa: ASYNC110 -- the writers tell nobody
        await asyncio.sleep(0.01)


async def stand_still(cluster: ClusterProcesses, victim: int, acked: Counter[int], *, free: list[int], held: list[int]) -> float | None:
    """Stop a node until the free segments were written often enough; None where the held ones were let go before."""
    cluster.pause(victim)
    began, before = time.monotonic(), acked.copy()
    try:
        while True:
            # one write of a segment may have had the node's answer before it was stopped
            if any(acked[segment] - before[segment] > 1 for segment in held):
                return None
            if all(acked[segment] - before[segment] >= WRITES for segment in free):
                return time.monotonic() - began
            await asyncio.sleep(0.005)
    finally:
        cluster.resume(victim)
