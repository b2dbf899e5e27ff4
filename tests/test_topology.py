"""The topology that clients route by."""

import pytest

from eventlog.topology import Topology

TOPOLOGY = Topology(epoch=5, primaries=(1, 2, 0, 3), addresses={1: "a:1", 2: "b:2"})


def test_a_segment_is_found_at_its_primary():
    assert [TOPOLOGY.address_of(segment) for segment in (0, 1)] == ["a:1", "b:2"]
    assert TOPOLOGY.segments == 4


def test_a_segment_without_a_known_primary_has_no_address():
    assert TOPOLOGY.address_of(2) is None
    assert TOPOLOGY.address_of(3) is None


def test_a_topology_is_not_changed_in_place():
    with pytest.raises(AttributeError):
        TOPOLOGY.epoch = 6
