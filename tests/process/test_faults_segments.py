"""A backup that stands still holds up the segments that it has a copy of, and no others, at the same primaries."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

import eventlog
from eventlog.client.values import SegmentInfo
from eventlog.hashing import hash_key, segment_of
from tests.process.clusters import ClusterProcesses

pytestmark = pytest.mark.timeout(120)
SEGMENTS = 16
BEFORE_S, PAUSED_S = 1.0, 0.8  # below what makes others call the node dead


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
        story = asyncio.run(act(cluster))
    free, before, paused, longest = story
    print(f"{len(free)} of {SEGMENTS} segments without a copy: {before} writes/s before, {paused} meanwhile; others waited {longest:.2f} s")
    assert longest >= PAUSED_S / 2, "the fault held up what it should"
    assert paused >= before / 3


def choice_of(found: Sequence[SegmentInfo]) -> tuple[str, list[int]]:
    """Return a node, and the segments without a copy there whose primaries lead others that have one; none where nobody does both."""
    chosen: tuple[str, list[int]] = "", []
    for victim in sorted({one.primary for one in found}):
        busy = {one.primary for one in found if victim in one.in_sync and one.primary != victim}
        free = [one.segment for one in found if victim not in one.in_sync and one.primary in busy]
        chosen = max(chosen, (victim, free), key=lambda pair: len(pair[1]))
    return chosen


async def act(cluster: ClusterProcesses) -> tuple[list[int], int, int, float]:
    async with eventlog.connect(*cluster.addresses) as client, eventlog.connect(*cluster.addresses) as other_client:
        cache = await client.create_cache("c", format="bytes", key_format="bytes")
        other_cache = other_client.cache("c")  # writes of one moment share frames, and a frame is answered as one
        victim, free = choice_of(await client.segments())
        assert free
        keys, acked, is_over = keys_by_segment(), Counter[int](), False
        waited = dict.fromkeys(range(SEGMENTS), 0.0)

        async def write(segment: int) -> None:
            own = cache if segment in free else other_cache
            while not is_over:
                began = time.monotonic()
                await own.put(keys[segment], b"v")
                waited[segment] = max(waited[segment], time.monotonic() - began)
                acked[segment] += 1

        def count() -> int:
            return sum(acked[segment] for segment in free)

        writers = [asyncio.create_task(write(segment)) for segment in range(SEGMENTS)]
        while min(acked[segment] for segment in range(SEGMENTS)) < 20:  # noqa: ASYNC110 -- until all are warm
            await asyncio.sleep(0.01)
        warm = count()
        await asyncio.sleep(BEFORE_S)
        before = (count() - warm) / BEFORE_S
        cluster.pause(int(victim[1:]) - 1)
        began, at_pause = time.monotonic(), count()
        await asyncio.sleep(PAUSED_S)
        paused = (count() - at_pause) / (time.monotonic() - began)
        cluster.resume(int(victim[1:]) - 1)
        is_over = True
        await asyncio.gather(*writers)
        return free, int(before), int(paused), max(waited[segment] for segment in range(SEGMENTS))
