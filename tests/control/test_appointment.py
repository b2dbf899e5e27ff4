"""Appointing primaries: new clusters, restarts, takeovers; floors that never fall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.control.appointment import (
    PRIMARIES_PER_COMMIT_MAX,
    RECORDS_PER_COMMIT_MAX,
    held_alone,
    is_electable,
    next_appointments,
    segments_to_start,
)
from eventlog.control.metastore import OPERATIONS_MAX
from eventlog.control.records import NodeRecord, SegmentRecord, decode
from eventlog.errors import CorruptData, LostDisk
from tests.control.worlds import node, replicas, segment, view


def appoint(state, record, segments, *, nonce="new", revision=100):
    """Carry out all commits; return the view after them and the commits."""
    plans = []
    while plan := next_appointments(state, record, segments=segments, nonce=nonce):
        plans.append(plan)
        state = state.after(plan, revision + len(plans))
    return state, plans


def put_segments(plan) -> dict[int, SegmentRecord]:
    records = [decode(value, SegmentRecord, where=key) for key, value in plan.puts.items() if key.startswith("segment/")]
    return {record.segment: record for record in records}


# ---------------------------------------------------------------- a new cluster


def test_a_new_cluster_belongs_to_its_first_node():
    first = node(1, ceiling=50)
    state_before = view([first])
    state, plans = appoint(state_before, first, range(4))
    assert len(plans) == 1
    assert plans[0].expect == {"node/1": state_before.nodes[1].revision} | {f"segment/{number}": 0 for number in range(4)}
    assert decode(plans[0].puts["node/1"], NodeRecord, where="") == first
    assert state.segments[2].record == SegmentRecord(
        segment=2, owners=(1,), epoch=1, in_sync=replicas(1), floor=50, min_in_sync=1, nonce="new"
    )


@pytest.mark.parametrize(("segments", "commits"), [(1, 1), (100, 1), (101, 2), (256, 3), (4096, 41)])
def test_many_segments_go_in_commits_of_at_most_100(segments, commits):
    first = node(1)
    state, plans = appoint(view([first]), first, range(segments))
    assert len(plans) == commits
    assert all(len(put_segments(plan)) <= RECORDS_PER_COMMIT_MAX for plan in plans)
    assert set(state.segments) == set(range(segments))


# ---------------------------------------------------------------- a restart


def test_a_restarted_primary_is_appointed_again_above_its_own_ceiling():
    own = node(1, ceiling=700)
    state, plans = appoint(view([own], [segment(0, epoch=4, floor=300)]), own, [0])
    assert state.segments[0].record == segment(0, epoch=5, floor=700, nonce="new")
    assert plans[0].expect == {"segment/0": 10, "node/1": 10}
    assert decode(plans[0].puts["node/1"], NodeRecord, where="") == own


def test_a_floor_above_the_ceiling_stays():
    own = node(1, ceiling=700)
    state, _ = appoint(view([own], [segment(0, floor=900)]), own, [0])
    assert state.segments[0].record.floor == 900


def test_commits_of_one_round_expect_the_revisions_that_the_earlier_ones_made():
    own = node(1, ceiling=5)
    _, plans = appoint(view([own], [segment(number) for number in range(150)]), own, range(150))
    assert [plan.expect["node/1"] for plan in plans] == [10, 101]


def test_a_starting_node_is_appointed_to_its_own_segments_and_to_unassigned_ones():
    own = node(1)
    state = view([own, node(2)], [segment(0), segment(1, owners=(2, 1)), segment(2)])
    assert segments_to_start(state, own, segments=4) == [0, 2, 3]


def test_what_nobody_can_lead_is_left_alone_where_the_loss_is_accepted():
    own = node(1, incarnation="empty")
    state = view([own, node(2)], [segment(0, in_sync=replicas(1)), segment(1, owners=(1, 2)), segment(2, owners=(2,))])
    assert segments_to_start(state, own, segments=4, accepts_loss=True) == [3]


def test_a_segment_is_held_alone_unless_another_member_has_it_as_the_directory_that_it_is_now():
    segments = [segment(0, owners=(1, 2)), segment(1, owners=(1, 3)), segment(2, owners=(1, 4)), segment(3), segment(4, owners=(2,))]
    members = [node(1), node(2), node(3, incarnation="another"), node(4, removed_id=9)]
    assert held_alone(view(members, segments), 1) == [1, 2, 3]
    assert held_alone(view([node(1, incarnation="another"), *members[1:]], segments), 1) == [1, 2, 3]


def test_a_segment_is_held_alone_where_the_others_do_not_count():
    state = view([node(1), node(2), node(3)], [segment(0, owners=(1, 2, 3)), segment(1, owners=(1, 2)), segment(2, owners=(1, 3))])
    assert held_alone(state, 1) == []
    assert held_alone(state, 1, others=[2]) == [2]
    assert held_alone(state, 1, others=[]) == [0, 1, 2]


def test_a_directory_that_does_not_hold_its_nodes_events_is_refused():
    own = node(1, incarnation="empty")
    state = view([own], [segment(number, in_sync=replicas(1)) for number in range(3)])
    with pytest.raises(LostDisk, match="segments 0 to 2"):
        segments_to_start(state, own, segments=3)


# ---------------------------------------------------------------- takeovers


def test_a_takeover_expects_and_rewrites_the_old_primarys_record_and_takes_its_ceiling_as_floor():
    old, new = node(1, ceiling=900), node(2, ceiling=100)
    state, plans = appoint(view([old, new], [segment(0, owners=(1, 2, 3), epoch=4, floor=300)]), new, [0])
    assert state.segments[0].record == segment(0, owners=(2, 1, 3), epoch=5, floor=900, in_sync=replicas(1, 2, 3), nonce="new")
    assert plans[0].expect == {"segment/0": 10, "node/1": 10, "node/2": 10}
    assert [decode(plans[0].puts[key], NodeRecord, where="") for key in ("node/1", "node/2")] == [old, new]


def test_two_quick_failovers_keep_the_first_primarys_ceiling():
    first, second, third = node(1, ceiling=900), node(2, ceiling=100), node(3, ceiling=200)
    state = view([first, second, third], [segment(0, owners=(1, 2, 3))])
    state, _ = appoint(state, second, [0], nonce="one")
    state, _ = appoint(state, third, [0], nonce="two", revision=200)
    assert state.segments[0].record.floor == 900, "the second primary never issued, and knew nothing of the first one's ids"
    assert (state.segments[0].record.owners, state.segments[0].record.epoch) == ((3, 2, 1), 3)


def test_restarts_of_a_set_of_one_chain_their_floors():
    state = view([node(1, ceiling=500)], [segment(0)])
    floors = []
    for term, ceiling in enumerate((500, 800, 600)):  # a clean stop lowered the last one
        own = node(1, ceiling=ceiling)
        state = view([own], [state.segments[0].record])
        state, _ = appoint(state, own, [0], nonce=f"term {term}")
        floors.append(state.segments[0].record.floor)
    assert floors == [500, 800, 800]
    assert state.segments[0].record.epoch == 4


def test_segments_of_many_old_primaries_go_in_more_commits():
    nodes = [node(number, ceiling=number) for number in range(1, 62)]
    before = [segment(number, owners=(2 + number % 60, 1)) for number in range(100)]
    state, plans = appoint(view(nodes, before), nodes[0], range(100))
    assert {found.record.primary for found in state.segments.values()} == {1}
    assert all(len(plan.puts) - len(put_segments(plan)) <= PRIMARIES_PER_COMMIT_MAX for plan in plans)
    assert all(len(plan.puts) < OPERATIONS_MAX for plan in plans)


def test_only_an_in_sync_incarnation_is_electable():
    record = segment(0, owners=(1, 2), in_sync=replicas(1))
    assert is_electable(record, node(1))
    assert not is_electable(record, node(1, incarnation="empty"))
    assert not is_electable(record, node(2))
    with pytest.raises(AssertionError):
        appoint(view([node(1), node(2)], [record]), node(2), [0])


def test_a_primary_without_a_record_is_named():
    with pytest.raises(CorruptData, match="node/7"):
        appoint(view([node(1)], [segment(0, owners=(7, 1))]), node(1), [0])


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=300),
    st.lists(st.integers(0, 1 << 40), min_size=60, max_size=60),
    st.integers(0, 1 << 40),
)
def test_every_appointment_obeys_the_rules_whoever_led_before(primaries, ceilings, floor):
    nodes = [node(number, ceiling=ceilings[number - 1]) for number in range(1, 61)]
    candidate = nodes[0]
    before = [
        segment(number, owners=(primary, 1) if primary != 1 else (1,), floor=floor, epoch=number + 1)
        for number, primary in enumerate(primaries)
    ]
    state, plans = appoint(view(nodes, before), candidate, range(len(primaries)))
    for old in before:
        new = state.segments[old.segment].record
        assert new.primary == 1
        assert new.epoch == old.epoch + 1
        assert new.floor == max(floor, ceilings[old.primary - 1])
        assert new.in_sync == old.in_sync
        assert sorted(new.owners) == sorted(old.owners)
    for plan in plans:
        moved = put_segments(plan)
        seen = {1} | {before[number].primary for number in moved}
        assert len(moved) <= RECORDS_PER_COMMIT_MAX
        assert len(seen) <= PRIMARIES_PER_COMMIT_MAX
        assert len(plan.puts) < OPERATIONS_MAX
        assert set(plan.expect) == set(plan.puts) == {f"segment/{number}" for number in moved} | {f"node/{number}" for number in seen}
    assert sum(len(put_segments(plan)) for plan in plans) == len(primaries)
