"""Who writes what: segments to partitions, partitions to shards, and each shard to a home segment, whose primary runs it.

A partition has one shard for ever, and a shard one transactional id, so that whoever takes a shard over fences its predecessor by opening a
producer. Homes are spread over the range of segments: after nodes have joined, the lowest segments are all with those.
"""

import numpy as np

from eventlog.arrays import Ints
from eventlog.mirror.book import Mirror
from eventlog.mirror.letters import PARTITIONS


def home_of(shard: int, *, shards: int, segments: int) -> int:
    """Return the segment at about shard / shards of the range, one of the shard's own."""
    return shard + shards * (shard * (segments // shards) // shards)


def segments_of(shard: int, mirror: Mirror, *, segments: int) -> Ints:
    """Return the segments whose events a shard writes, rising."""
    found: Ints = np.flatnonzero(np.arange(segments) % mirror.partitions % mirror.shards == shard)
    return found


def partitions_of(mirror: Mirror, of: Ints) -> dict[str, list[int]]:
    """Return into which partitions of its topics a shard with the segments `of` writes."""
    data = {mirror.topic: sorted({segment % mirror.partitions for segment in of.tolist()}), mirror.progress_topic: [0]}
    return data | ({mirror.letters_topic: list(range(PARTITIONS))} if mirror.has_letters else {})


def transactional_id(cluster: str, mirror: Mirror, shard: int) -> str:
    """Return by what Kafka knows a shard, whichever node runs it."""
    return f"{cluster}.{mirror.name}.{shard}"


def homes(mirror: Mirror, *, segments: int) -> list[int]:
    """Return the home of each shard."""
    return [home_of(shard, shards=mirror.shards, segments=segments) for shard in range(mirror.shards)]
