"""Which replicas could be forced to lead, and which is."""

from eventlog.node.cluster.forcing import candidates_of
from tests.control.plays import Play
from tests.control.worlds import node, replicas, segment

ENDS = {2: (250, 240), 3: (200, 200)}


def lost_cluster() -> Play:
    """Return a cluster whose segment 0 has lost its in-sync set, node 1; 2 and 3 hold it, 4 does not."""
    nodes = [node(number, ceiling=900) for number in (1, 2, 3, 4)]
    play = Play(nodes, [segment(0, owners=(1, 2, 3), in_sync=replicas(1), epoch=4, floor=300)])
    play.dead.add(1)
    return play.decide()


def told(play: Play, only: int) -> list[tuple[str, bool, str, str]]:
    found = candidates_of(play.situation, 0, ENDS, only)
    return [(one.node, one.chosen, one.longer, one.why_not) for one in found]


def test_without_a_node_all_are_told_and_the_longest_log_is_chosen() -> None:
    play = lost_cluster()
    assert told(play, 0) == [("n1", False, "", "the node does not answer"), ("n2", True, "", ""), ("n3", False, "n2", "")]
    assert [(one.last_id, one.upto) for one in candidates_of(play.situation, 0, ENDS, 0)[1:]] == [(250, 900), (200, 900)]


def test_a_node_that_is_named_is_told_alone_and_chosen_where_it_can_lead() -> None:
    play = lost_cluster()
    assert told(play, 2) == [("n2", True, "", "")]
    assert told(play, 3) == [("n3", True, "n2", "")]
    assert told(play, 1) == [("n1", False, "", "the node does not answer")]
    assert told(play, 4) == [("n4", False, "", "n4 does not hold segment 0")]
