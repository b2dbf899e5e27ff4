"""The topology that clients route by."""

import pytest

from eventlog.topology import Topology

TOPOLOGY = Topology(epoch=5, primaries=(1, 2, 0, 3), addresses={1: "a:1", 2: "b:2"})


def test_it_has_a_primary_for_each_segment():
    assert TOPOLOGY.segments == 4


def test_a_topology_is_not_changed_in_place():
    with pytest.raises(AttributeError):
        TOPOLOGY.epoch = 6
