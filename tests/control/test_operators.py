"""What operators ask for: what is committed, what is refused, and what the controller makes of it."""

import msgspec
import pytest

from eventlog.control.controller import Controller, Situation
from eventlog.control.metastore import OPERATIONS_MAX
from eventlog.control.operators import (
    Forced,
    RebalanceStart,
    cancel_rebalance,
    drain,
    end_previous_key,
    force,
    hand_over,
    member_named,
    remove,
    replace,
    rotate_key,
    set_replicas,
    start_rebalance,
    undrain,
    why_not_forced,
)
from eventlog.control.records import LostRange, SegmentRecord, decode
from eventlog.errors import InvalidArgument, OperationRefused
from eventlog.ids import make_id
from tests.control.plays import Play, cluster
from tests.control.worlds import node, replicas, segment, view

NOW_ID = make_id(1_700_000_000_000, 0, 0)


def all_of(play, next_plan):
    """Commit until there is no more; return how many commits it took."""
    for count in range(100):
        plan = next_plan(play.nonce())
        if plan is None:
            return count
        play.commit(plan)
    raise AssertionError("it never ends")


def member(play, number):
    return play.view.nodes[number].record


# ---------------------------------------------------------------- the cluster key


def key_of(play):
    return play.view.key.record


def test_a_replaced_cluster_key_goes_on_to_hold_until_it_is_ended():
    play = cluster(3)
    play.commit(rotate_key(play.view, bytes([1] * 32), overlap_ms=500))
    assert end_previous_key(play.view) is None
    play.commit(rotate_key(play.view, bytes([2] * 32), overlap_ms=500))
    assert (key_of(play).key, key_of(play).previous) == (bytes([2] * 32), bytes([1] * 32))
    assert rotate_key(play.view, bytes([2] * 32), overlap_ms=500) is None, "asked again, as after an answer that was lost"
    with pytest.raises(OperationRefused, match="still valid"):
        rotate_key(play.view, bytes([3] * 32), overlap_ms=500)
    play.commit(end_previous_key(play.view))
    assert (key_of(play).key, key_of(play).previous) == (bytes([2] * 32), None)
    assert end_previous_key(play.view) is None


# ---------------------------------------------------------------- names and settings


def test_a_name_counts_before_the_number_of_another():
    play = cluster(3)
    named = view([msgspec.structs.replace(member(play, number), name=str(4 - number)) for number in (1, 2, 3)])
    assert [member_named(named, name).number for name in ("1", "2", "3")] == [3, 2, 1]


def test_members_are_found_by_name_and_by_number():
    play = cluster(3)
    assert member_named(play.view, "n2").number == member_named(play.view, "2").number == 2
    with pytest.raises(InvalidArgument, match="n1, n2, n3"):
        member_named(play.view, "n9")


def test_replicas_are_set_within_bounds_and_once():
    play = cluster(3)
    for wrong in (0, 8):
        with pytest.raises(InvalidArgument):
            set_replicas(play.view, wrong)
    play.commit(set_replicas(play.view, 2))
    assert set_replicas(play.view, 2) is None
    play.settle()
    assert {len(record.owners) for record in play.records.values()} == {2}


# ---------------------------------------------------------------- draining and replacing


def test_a_drained_member_leads_nothing_first_and_holds_nothing_in_the_end():
    play = cluster(4)
    play.commit(drain(play.situation, member(play, 2)))
    play.decide()
    assert play.primaries()[2] == 0
    assert play.held()[2] > 0
    play.settle()
    assert play.held()[2] == 0
    assert play.is_whole()
    assert {len(record.owners) for record in play.records.values()} == {3}
    assert drain(play.situation, member(play, 2)) is None


def test_with_no_more_members_than_replicas_draining_leaves_fewer_copies():
    play = cluster(3)
    play.commit(drain(play.situation, member(play, 3)))
    play.settle()
    assert play.held()[3] == 0
    assert {(len(record.owners), record.min_in_sync) for record in play.records.values()} == {(2, 2)}


def test_the_last_member_that_holds_data_is_not_drained():
    play = cluster(1)
    play.join(2, gateway=True)
    with pytest.raises(OperationRefused, match="no other member"):
        drain(play.situation, member(play, 1))


def test_what_nobody_who_is_up_can_take_is_neither_drained_nor_given_to_a_dead_member():
    play = cluster(3)
    play.join(4)
    play.dead |= {2, 4}
    with pytest.raises(OperationRefused, match="n4 is down"):
        replace(play.situation, member(play, 1), member(play, 4), nonce="x")
    assert drain(play.situation, member(play, 1)) is not None
    play.dead.add(3)
    with pytest.raises(OperationRefused, match="no other member that holds data is up"):
        drain(play.situation, member(play, 1))


def test_draining_is_called_off_and_the_member_gets_its_share_back():
    play = cluster(3)
    play.commit(drain(play.situation, member(play, 3)))
    play.decide()
    all_of(play, lambda nonce: undrain(play.view, member(play, 3), nonce=nonce))
    assert not any(record.target and 3 not in record.target for record in play.records.values())
    play.settle()
    play.settle(ms=10_000)
    assert play.held() == {1: 12, 2: 12, 3: 12}


def test_a_dead_member_is_replaced_by_another_that_gets_exactly_its_segments():
    play = cluster(4, segments=16)
    play.join(5)
    play.dead.add(2)
    play.settle()
    had = {number for number, record in play.records.items() if 2 in record.owners}
    all_of(play, lambda nonce: replace(play.situation, member(play, 2), member(play, 5), nonce=nonce))
    play.settle()
    assert {number for number, record in play.records.items() if 5 in record.owners} == had
    assert play.held()[2] == 0
    with pytest.raises(OperationRefused):
        replace(play.situation, member(play, 5), member(play, 5), nonce="x")


# ---------------------------------------------------------------- removing


def removal(play, number, nonce):
    found = play.view.members.get(number)
    return found and remove(play.situation, found, removed_id=NOW_ID, nonce=nonce)


def removing(play, number):
    return all_of(play, lambda nonce: removal(play, number, nonce))


def test_a_member_that_was_to_get_a_segment_anyway_does_not_hold_it_twice_after_replacing_another():
    play = cluster(4, segments=1)
    (segment,) = play.records.values()
    (new,) = {1, 2, 3, 4} - set(segment.owners)
    staying, old, leaving = segment.owners
    play.put(msgspec.structs.replace(segment, target=(staying, old, new)))
    all_of(play, lambda nonce: replace(play.situation, member(play, old), member(play, new), nonce=nonce))
    play.settle()
    assert set(play.records[0].owners) == {staying, new, leaving}


def test_a_dead_member_is_removed_its_ceiling_stays_and_others_take_its_place():
    play = cluster(4)
    play.dead.add(2)
    assert removing(play, 2) >= 1
    assert member(play, 2).removed_id == NOW_ID
    assert member(play, 2).ceiling == 2_000
    play.settle()
    assert all(2 not in record.owners for record in play.records.values())
    assert {len(record.owners) for record in play.records.values()} == {3}
    assert play.is_whole()


def test_removing_a_dead_primary_folds_its_ceiling_into_the_floors_first():
    play = cluster(3)
    led = {number for number, record in play.records.items() if record.primary == 2}
    play.dead.add(2)
    removing(play, 2)
    assert {play.records[number].floor for number in led} == {2_000}


def without_the_second(play):
    """Return what a controller commits that knows the second member to be dead, and nothing else."""
    return Controller().next_commit(Situation(view=play.view, dead=frozenset({2})), nonce=play.nonce())


def test_who_does_not_know_that_a_member_was_removed_makes_it_no_primary():
    play = cluster(3)
    late = without_the_second(play)
    assert any(decode(value, SegmentRecord, where="").primary == 3 for key, value in late.puts.items() if key.startswith("segment/"))
    play.dead.add(3)
    removing(play, 3)
    assert "node/3" in play.conflicts(late)


def test_who_does_not_know_that_a_member_leads_again_does_not_remove_it():
    play = cluster(3)
    play.dead.add(3)
    while play.primaries()[3]:
        play.commit(removal(play, 3, play.nonce()))
    late = removal(play, 3, play.nonce())
    assert list(late.puts) == ["node/3"]
    play.commit(without_the_second(play))
    assert play.conflicts(late) == ["node/3"]


def test_three_members_of_which_one_is_removed_have_two_copies():
    play = cluster(3)
    play.dead.add(3)
    play.settle()
    removing(play, 3)
    play.settle()
    assert {(record.owners.__len__(), record.min_in_sync) for record in play.records.values()} == {(2, 2)}
    assert play.is_whole()


def test_a_member_that_is_up_and_holds_segments_is_not_removed():
    play = cluster(3)
    with pytest.raises(OperationRefused, match="eventlog admin drain n2"):
        removing(play, 2)
    play.commit(drain(play.situation, member(play, 2)))
    play.settle()
    removing(play, 2)
    assert 2 not in play.view.members


def test_a_member_that_alone_holds_what_is_committed_is_not_removed_and_the_segments_are_named():
    records = [segment(number, owners=(2, 1), in_sync=replicas(2)) for number in range(12)]
    records = [msgspec.structs.replace(record, min_in_sync=1) for record in records]
    play = Play([node(1), node(2)], records)
    play.dead.add(2)
    with pytest.raises(OperationRefused, match=r"segments 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more: bring it back"):
        removing(play, 2)
    assert 2 in play.view.members


def test_a_member_is_not_removed_while_the_others_of_its_set_are_down():
    for primary in (2, 3):  # whichever of them leads
        others = tuple(number for number in (1, 2, 3) if number != primary)
        play = Play([node(1), node(2), node(3)], [segment(0, owners=(primary, *others), in_sync=replicas(2, 3))])
        play.dead |= {2, 3}
        with pytest.raises(OperationRefused, match="segment 0 is down"):
            removing(play, 2)
        play.dead.remove(3)
        removing(play, 2)
        assert 2 not in play.view.members


# ---------------------------------------------------------------- handing over


def test_a_member_that_stops_leads_nothing_and_what_nobody_else_holds_stays():
    play = cluster(3)
    alone = msgspec.structs.replace(play.records[0], owners=(1,), in_sync=replicas(1), min_in_sync=1, session="s1")
    play.put(msgspec.structs.replace(alone, epoch=play.records[0].epoch + 1))
    all_of(play, lambda nonce: hand_over(play.situation, member(play, 1), nonce=nonce))
    assert [number for number, record in play.records.items() if record.primary == 1] == [0]
    assert all(replica.node != 1 for record in play.records.values() if record.segment for replica in record.in_sync if record.epoch > 3)


# ---------------------------------------------------------------- rebalancing

START = RebalanceStart(bytes_total=1_000, throttle_bytes=50, now_ms=7)


def test_what_is_even_is_not_rebalanced_and_one_runs_at_a_time():
    play = cluster(3)
    assert start_rebalance(play.situation, START, nonce="n") is None
    play.join(4)
    play.commit(start_rebalance(play.situation, START, nonce="n"))
    running = play.view.rebalance.record
    assert (running.state, running.moves_total, running.throttle_bytes) == ("running", 9, 50)
    with pytest.raises(OperationRefused, match="one is running"):
        start_rebalance(play.situation, START, nonce="m")


def test_a_cancelled_rebalancing_leaves_every_segment_whole_and_where_it_was_or_is_going():
    play = cluster(3, segments=40)
    play.join(4)
    play.commit(start_rebalance(play.situation, START, nonce="n"))
    play.decide()
    assert any(len(record.owners) == 4 for record in play.records.values())
    all_of(play, lambda nonce: cancel_rebalance(play.situation, nonce=nonce))
    play.settle()
    assert play.view.rebalance.record.state == "cancelled"
    assert {len(record.owners) for record in play.records.values()} == {3}
    assert not any(record.target for record in play.records.values())
    assert play.is_whole()


def test_a_cancelled_rebalancing_remembers_how_many_segments_had_moved():
    play = cluster(3, segments=40)
    play.join(4)
    play.commit(start_rebalance(play.situation, START, nonce="n"))
    play.decide()  # few are on their way at once
    play.catch_up()
    play.decide()
    left = sum(bool(record.target) for record in play.records.values())
    all_of(play, lambda nonce: cancel_rebalance(play.situation, nonce=nonce))
    record = play.view.rebalance.record
    assert 0 < record.moves_done == record.moves_total - left < record.moves_total


def test_nothing_to_cancel_is_refused():
    with pytest.raises(OperationRefused, match="no rebalancing"):
        cancel_rebalance(cluster(3).situation, nonce="n")


def test_a_cancelled_rebalancing_does_not_keep_a_drained_member():
    play = cluster(4)
    play.commit(drain(play.situation, member(play, 2)))
    play.join(5)
    play.commit(start_rebalance(play.situation, START, nonce="n"))
    play.decide()
    all_of(play, lambda nonce: cancel_rebalance(play.situation, nonce=nonce))
    play.settle()
    assert play.held()[2] == 0


# ---------------------------------------------------------------- forcing


def lost_cluster():
    """Return a cluster whose segment 0 has nobody of its in-sync set left: 1 and 2 are dead, 3 was not in it."""
    play = Play([node(1, ceiling=900), node(2), node(3)], [segment(0, owners=(1, 2, 3), in_sync=replicas(1, 2), epoch=4, floor=300)])
    play.dead |= {1, 2}
    return play.decide()


def test_a_forced_replica_leads_alone_and_what_it_lacks_is_recorded_as_lost():
    play = lost_cluster()
    plan, lost = force(play.situation, [Forced(segment=0, node=3, end=250, committed=240)], nonce="f")
    play.commit(plan)
    assert lost == {0: LostRange(epoch=5, after=240, upto=900)}
    assert play.view.lost_ranges(0) == (lost[0],)
    record = play.records[0]
    assert (record.owners, record.in_sync, record.min_in_sync, record.epoch, record.floor) == ((3, 1, 2), replicas(3), 1, 5, 900)
    play.dead.clear()
    play.settle()
    assert play.is_whole()
    assert play.records[0].min_in_sync == 2


@pytest.mark.parametrize("others", [1, 60])
def test_many_segments_are_forced_in_few_commits_whose_operations_every_store_takes(others):
    """All were led by one node that is gone, or by many: then fewer fit a commit, and none is forgotten."""
    numbers = range(2, others + 2)
    nodes = [node(1), *(node(number, ceiling=900) for number in numbers)]
    held = [(numbers[number % others], 1) for number in range(1_000)]
    play = Play(nodes, [segment(number, owners=owners, in_sync=replicas(owners[0]), epoch=4) for number, owners in enumerate(held)])
    play.dead |= set(numbers)
    left, commits = set(range(1_000)), 0
    while left:
        plan, lost = force(play.situation, [Forced(segment=number, node=1, end=9, committed=9) for number in sorted(left)], nonce="f")
        assert len(plan.puts) < OPERATIONS_MAX
        assert len(plan.expect) < OPERATIONS_MAX
        play.commit(plan)
        commits += 1
        assert lost
        left -= set(lost)
    assert commits <= (20 if others == 1 else 60)
    for number in range(1_000):
        assert (play.records[number].primary, len(play.view.lost_ranges(number))) == (1, 1)


def test_lost_ranges_of_a_segment_are_kept_all():
    play = lost_cluster()
    play.commit(force(play.situation, [Forced(segment=0, node=3, end=250, committed=240)], nonce="f")[0])
    play.dead = {3}
    play.commit(force(play.situation, [Forced(segment=0, node=2, end=200, committed=200)], nonce="g")[0])
    assert [item.after for item in play.view.lost_ranges(0)] == [240, 200]


def test_nothing_is_forced_while_an_in_sync_replica_is_up():
    play = cluster(3)
    with pytest.raises(OperationRefused, match="has a primary"):
        force(play.situation, [Forced(segment=0, node=2, end=1, committed=1)], nonce="f")
    play.dead.add(play.records[0].primary)
    assert "takes over by itself" in why_not_forced(play.situation, play.records[0], member(play, 2))


def test_only_an_owner_that_answers_is_forced():
    play = lost_cluster()
    play.join(4)
    assert "does not hold" in why_not_forced(play.situation, play.records[0], member(play, 4))
    assert "does not answer" in why_not_forced(play.situation, play.records[0], member(play, 2))
    assert "does not answer" in why_not_forced(play.situation, play.records[0], None)
    assert why_not_forced(play.situation, play.records[0], member(play, 3)) == ""
