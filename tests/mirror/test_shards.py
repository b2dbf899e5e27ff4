"""Each partition has one shard, each shard a home among its own segments, and homes are spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.mirror.book import shards_for
from eventlog.mirror.shards import home_of, homes, segments_of, transactional_id
from tests.mirror.making import mirror

SEGMENTS = st.sampled_from([1, 2, 16, 64, 256, 4_096])


@st.composite
def mirrors(draw):
    segments = draw(SEGMENTS)
    partitions = draw(st.integers(1, min(segments, 300)))
    shards = draw(st.sampled_from([count for count in range(1, partitions + 1) if partitions % count == 0]))
    return segments, mirror(partitions=partitions, shards=shards)


@given(mirrors())
def test_every_segment_is_written_by_one_shard_and_every_partition_too(made):
    segments, one = made
    writers = {}
    for shard in range(one.shards):
        for segment in segments_of(shard, one, segments=segments).tolist():
            assert segment not in writers
            writers[segment] = shard
    assert sorted(writers) == list(range(segments))
    by_partition = {}
    for segment, shard in writers.items():
        assert by_partition.setdefault(segment % one.partitions, shard) == shard


@given(mirrors())
def test_a_home_is_one_of_the_shards_own_segments_and_no_two_have_one(made):
    segments, one = made
    found = homes(one, segments=segments)
    for shard, home in enumerate(found):
        assert home in segments_of(shard, one, segments=segments).tolist()
    assert len(set(found)) == one.shards


def test_homes_are_spread_over_the_range():
    found = [home_of(shard, shards=16, segments=256) for shard in range(16)]
    assert all(16 * shard <= home < 16 * (shard + 1) for shard, home in enumerate(found))


@pytest.mark.parametrize(
    ("partitions", "nodes", "shards"),
    [(1, 1, 1), (3, 1, 3), (16, 1, 4), (16, 3, 4), (24, 3, 6), (16, 4, 8), (17, 3, 1), (24, 6, 12), (32, 99, 16), (100, 5, 10)],
)
def test_two_shards_a_node_share_the_partitions_evenly(partitions, nodes, shards):
    assert shards_for(partitions, nodes=nodes) == shards


def test_kafka_knows_a_shard_whoever_runs_it():
    assert transactional_id("c-1", mirror(name="orders"), 3) == "c-1.orders.3"
