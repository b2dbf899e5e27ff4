"""Members and segments as they were read."""

import pytest

from eventlog.control.metastore import Item, Listing
from eventlog.control.records import CommitPlan, Versioned, encode
from eventlog.control.view import read_nodes, read_segments
from eventlog.errors import CorruptData
from tests.control.worlds import node, segment, view


def listing(**items):
    return Listing(items=tuple(Item(key=key.replace("_", "/"), value=value, revision=5) for key, value in items.items()), revision=9)


def test_records_are_read_by_number():
    found = listing(node_2=encode(node(2)), segment_7=encode(segment(7)), node_1=encode(node(1)))
    assert read_nodes(found) == {2: Versioned(node(2), 5), 1: Versioned(node(1), 5)}
    assert read_segments(found) == {7: Versioned(segment(7), 5)}


def test_a_record_under_another_ones_key_is_corrupt():
    with pytest.raises(CorruptData, match="node/3"):
        read_nodes(listing(node_3=encode(node(2))))
    with pytest.raises(CorruptData, match="segment/3"):
        read_segments(listing(segment_3=encode(segment(4))))


def test_a_view_follows_an_own_commit():
    puts = {"node/1": encode(node(1, ceiling=8)), "segment/0": encode(segment(0, epoch=2)), "writer/x": b"nonce"}
    state = view([node(1), node(2)], [segment(0), segment(1)]).after(CommitPlan(expect={}, puts=puts), 20)
    assert state.nodes == {1: Versioned(node(1, ceiling=8), 20), 2: Versioned(node(2), 10)}
    assert state.segments == {0: Versioned(segment(0, epoch=2), 20), 1: Versioned(segment(1), 10)}


def test_the_names_of_removed_members_are_those_that_nobody_took():
    state = view([node(1), node(2, removed_id=9), node(3, name="old", removed_id=8), node(4, name="old")])
    assert state.removed_names == {"n2"}


def test_the_topology_has_primaries_and_addresses_of_members_and_an_epoch_that_grows_with_each_term():
    state = view([node(1), node(2), node(3, removed_id=9)], [segment(0, owners=(2, 1)), segment(3, owners=(3,), epoch=5)])
    topology = state.topology(4)
    assert (topology.epoch, topology.primaries) == (6, (2, 0, 0, 3))
    assert topology.addresses == {1: "h1:7400", 2: "h2:7400"}
