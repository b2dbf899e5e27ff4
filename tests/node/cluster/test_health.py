"""What an operator is advised to do."""

import msgspec
import pytest

from eventlog.control.controller import Situation
from eventlog.node.cluster.health import about_copies, about_full_disks, about_members, about_unreached, about_what_stands_still
from tests.control.worlds import node, replicas, segment, view


@pytest.mark.parametrize(("drained", "said"), [((), False), ((3,), True), ((2, 3), True)])
def test_draining_that_leaves_fewer_nodes_than_replicas_is_said(drained, said):
    members = [msgspec.structs.replace(node(number), draining=number in drained) for number in (1, 2, 3)]
    situation = Situation(view=view(members, [segment(0, owners=(1, 2, 3))]))
    found = list(about_members(situation, [segment(0, owners=(1, 2, 3))]))
    expected = f"draining leaves {3 - len(drained)} of the 3 nodes that 3 replicas need: "
    assert any(line.startswith(expected) for line in found) is said


@pytest.mark.parametrize(
    ("in_sync", "dead", "removable"), [((1, 2), (2,), [2]), ((2,), (2,), []), ((2, 3), (2, 3), []), ((1, 2), (2, 3), [2, 3])]
)
def test_removing_a_dead_node_is_advised_where_it_is_not_refused(in_sync, dead, removable):
    members = [node(number) for number in (1, 2, 3)]
    records = [segment(0, owners=(1, 2, 3), in_sync=replicas(*in_sync))]
    found = list(about_members(Situation(view=view(members, records), dead=frozenset(dead)), records))
    assert [line.partition(": ")[0] for line in found] == [f"node n{number} is down" for number in dead]
    advised = [number for number in (1, 2, 3) if any(line.endswith(f"eventlog admin remove n{number}") for line in found)]
    assert advised == removable


@pytest.mark.parametrize(
    ("met", "dead", "said"),
    [
        ((), (), []),
        ((2,), (), ["n2 met a damaged file: look at its disk, then start it again"]),
        ((2,), (1, 3), ["n2 met a damaged file, and no other node that is up"]),
        ((2, 3), (1,), ["n2 met a damaged file, and no", "n3 met a damaged file, and no"]),
        ((2, 3), (), ["n2 met a damaged file: look", "n3 met a damaged file: look"]),
    ],
)
def test_a_damaged_file_that_a_node_met_is_said_and_whether_others_can_fill_it(met, dead, said):
    members = [msgspec.structs.replace(node(number), unreadable=number in met) for number in (1, 2, 3)]
    situation = Situation(view=view(members, [segment(0, owners=(1, 2, 3))]), dead=frozenset(dead))
    found = [line for line in about_members(situation, [segment(0, owners=(1, 2, 3))]) if "damaged" in line]
    assert [line.startswith(f"node {text}") for line, text in zip(found, said, strict=True)] == [True] * len(said)


@pytest.mark.parametrize(("full", "dead", "can_move"), [({2: 7}, (), True), ({2: 7, 3: 9}, (1,), False), ({}, (), False)])
def test_a_full_disk_is_said_with_its_node_and_where_others_have_room(full, dead, can_move):
    situation = Situation(view=view([node(1), node(2), node(3)]), dead=frozenset(dead))
    found = list(about_full_disks(situation, full))
    begin = [f"the data disk of n{number} has {left} bytes left, so it takes no writes" for number, left in full.items()]
    assert [line.partition(":")[0] for line in found] == begin
    assert [line.endswith("eventlog admin drain n2") for line in found[:1]] == [can_move] * len(found[:1])


def test_a_node_that_is_not_reached_and_not_known_to_be_dead_is_named():
    situation = Situation(view=view([node(1), node(2), node(3)]), dead=frozenset({3}))
    assert [line.partition(",")[0] for line in about_unreached(situation, {1})] == ["node n2 is not reached from here"]
    assert not list(about_unreached(situation, {1, 2}))


def test_a_cluster_of_gateways_alone_is_told_what_it_lacks():
    gateway = msgspec.structs.replace(node(1), gateway=True)
    assert list(about_what_stands_still(Situation(view=view([gateway])), [])) == [
        "no node holds data: start one that joins without --gateway"
    ]


def test_fewer_nodes_than_replicas_are_nobodys_mistake_while_none_is_drained():
    assert not list(about_members(Situation(view=view([node(1)], [segment(0)])), [segment(0)]))


@pytest.mark.parametrize(("racks", "said"), [("abcc", False), ("abcd", True), ("    ", True)])
def test_unequal_shares_are_said_where_hosts_and_racks_leave_something_to_move(racks, said):
    members = [msgspec.structs.replace(node(number), rack=rack.strip()) for number, rack in enumerate(racks, 1)]
    records = [segment(number, owners=(1, 2, 3 + number % 2)) for number in range(8)]
    found = list(about_copies(Situation(view=view(members, records)), records))
    assert found == (["nodes hold unequal shares: eventlog admin rebalance plan"] if said else [])
