"""Segments that nobody leads, as when both nodes with a copy are gone: a mirror goes on with the others of the same shard."""

import itertools
import time
from pathlib import Path

import pytest

from eventlog import blocking
from eventlog.errors import EventLogError
from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.integrations.kafka.mirrors import ROUTE
from tests.kafka.mirrors import check, read, wait
from tests.process.clusters import ClusterProcesses

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
SEGMENTS = 16
HOME = 0  # of the only shard
WITHIN_S = 60


def pair_with_copies(cluster: ClusterProcesses) -> tuple[int, int]:
    """Return two nodes that have the only copies of some segments, and neither of the shard's home nor of where mirrors are kept."""
    owners = [frozenset(map(cluster.index_of, segment.owners)) for segment in cluster.segments_of()]
    needed = {owners[HOME], owners[segment_of(hash_key(route_bytes(ROUTE, by_prefix=True)), SEGMENTS)]}
    return next(pair for pair in itertools.combinations(range(4), 2) if frozenset(pair) in {*owners} - needed)


def keys_of(segments: set[int]) -> list[str]:
    keys = (f"k{number}" for number in range(40 * SEGMENTS))
    return [key for key in keys if segment_of(hash_key(key.encode()), SEGMENTS) in segments]


def put_until(cache: blocking.Cache, keys: list[str]) -> set[int]:
    """Write keys, again where their segments have no new primary yet; return the ids."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return {stored.id for stored in (cache.put(key, "late") for key in keys)}
        except EventLogError:
            assert time.monotonic() < deadline, "others do not take over"


def test_the_others_of_a_shard_go_on(tmp_path: Path, broker: str) -> None:
    with ClusterProcesses(tmp_path, "--replicas", "2", segments=SEGMENTS, count=4) as cluster:
        cluster.balance()
        with blocking.connect(*cluster.addresses) as client:
            cache = client.create_cache("stalled")
            topic = client.mirrors.add("stalled", kafka=broker, partitions=1).mirror.topic
            cache.put_many([(f"k{number}", number) for number in range(200)])
            wait(client, "stalled")
            gone = pair_with_copies(cluster)
            left = next(index for index in range(4) if index not in gone)
            both = {segment.segment for segment in cluster.segments_of(left) if set(map(cluster.index_of, segment.owners)) == set(gone)}
            cluster.kill(*gone)
        with blocking.connect(cluster.addresses[left], timeout_ms=20_000) as client:
            cache = client.cache("stalled")
            ids = put_until(cache, keys_of(set(range(SEGMENTS)) - both)[:60])
            deadline = time.monotonic() + WITHIN_S
            while ids - {record.id for record in read(broker, topic)}:
                assert time.monotonic() < deadline, "what others have is held up"
            [shard] = client.mirrors.status("stalled").shards
            assert (shard.state, "nobody leads segment" in shard.why) == ("running", True), shard
            cluster.start()
            cluster.settle(live=4)
            put_until(cache, keys_of(both)[:20])
            wait(client, "stalled")
            check(read(broker, topic), cache.events(), partitions=1)
            [shard] = client.mirrors.status("stalled").shards
            assert (shard.state, shard.why) == ("running", "")
