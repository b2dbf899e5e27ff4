"""What the controller decides, as stories of nodes that come, go and come back."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.control.controller import Controller, ControllerOptions, plan_rebalance
from eventlog.control.operators import RebalanceStart, bytes_to_copy, cancel_rebalance, set_replicas, start_rebalance
from eventlog.control.records import ReplicaRecord
from eventlog.errors import OperationRefused
from tests.control.plays import Play, cluster
from tests.control.worlds import node, replicas, segment
from tests.examples import examples

# ---------------------------------------------------------------- growing up


def test_a_second_and_a_third_member_get_copies_at_once_and_primaries_when_all_is_calm():
    play = cluster(1)
    assert play.records[0].min_in_sync == 1
    play.join(2)
    play.settle()
    assert {record.owners for record in play.records.values()} == {(1, 2)}
    assert {record.min_in_sync for record in play.records.values()} == {2}
    play.join(3)
    play.settle()
    assert play.primaries() == {1: 12, 2: 0, 3: 0}
    play.settle(ms=5_000)
    assert play.primaries() == {1: 4, 2: 4, 3: 4}
    assert {record.min_in_sync for record in play.records.values()} == {2}
    assert play.is_whole()


def test_the_minimum_waits_until_the_set_has_grown():
    play = cluster(1)
    play.join(2)
    play.decide()
    assert {(record.owners, record.min_in_sync) for record in play.records.values()} == {((1, 2), 1)}


def test_members_beyond_the_replicas_get_nothing_until_load_is_evened_out():
    play = cluster(3)
    play.join(4)
    play.settle(ms=5_000)
    assert play.held() == {1: 12, 2: 12, 3: 12, 4: 0}


def test_a_gateway_holds_nothing_and_counts_for_nothing():
    play = cluster(2)
    play.join(3, gateway=True)
    play.settle(ms=5_000)
    assert play.held() == {1: 12, 2: 12, 3: 0}
    assert play.view.replicas == 2


# ---------------------------------------------------------------- dying and coming back


def test_a_dead_primarys_segments_go_to_the_survivors_evenly_and_it_leaves_every_set_in_the_same_pass():
    play = cluster(3, segments=300)
    play.dead.add(2)
    play.commits.clear()
    play.decide()
    assert play.primaries() == {1: 150, 2: 0, 3: 150}
    assert all(replica.node != 2 for record in play.records.values() for replica in record.in_sync)
    assert all(2 in record.owners for record in play.records.values()), "it is wanted back"
    assert len(play.commits) == 3, "appointments first, then the sets of the others"
    moved = [record for record in play.records.values() if record.floor >= 2_000]
    assert len(moved) >= 100


class Counting(Controller):
    """A controller that counts for how many segments it has looked for who leads next."""

    chosen = 0

    def successor(self, *of):
        self.chosen += 1
        return super().successor(*of)


def test_a_dead_node_of_a_large_cluster_is_handled_in_few_commits():
    play = cluster(3, segments=1024)
    play.dead.add(1)
    play.commits.clear()
    led, play.controller = play.primaries()[1], Counting(options=play.controller.options)
    play.decide()
    assert sum(any(key.startswith("node/") for key in plan.puts) for plan in play.commits) == 4
    assert len(play.commits) <= 4 + 8
    assert play.primaries()[1] == 0
    assert play.controller.chosen == led, "a commit plans no more than it takes"


def test_where_it_would_go_below_the_minimum_the_old_primary_stays_in_the_set():
    play = Play([node(1), node(2), node(3)], [segment(0, owners=(1, 2, 3), in_sync=replicas(1, 2))])
    play.dead |= {1, 3}
    play.decide()
    assert (play.records[0].primary, play.records[0].in_sync) == (2, replicas(1, 2))
    play.dead.discard(3)
    play.settle()
    assert play.records[0].in_sync == replicas(2, 3), "once another has grown in it can go"


def test_without_a_living_member_of_the_set_nobody_leads():
    play = Play([node(1), node(2), node(3)], [segment(0, owners=(1, 2, 3), in_sync=replicas(1, 2))])
    play.dead |= {1, 2}
    play.decide()
    assert play.records[0].primary == 1
    play.dead.discard(2)
    play.decide()
    assert play.records[0].primary == 2


def test_a_restarted_primary_gets_another_term_and_nothing_moves():
    play = cluster(3)
    before = play.records
    play.restart(2)
    play.settle()
    for number, record in play.records.items():
        assert record.owners == before[number].owners
        led = before[number].primary == 2
        assert record.epoch == before[number].epoch + led
        assert record.session == ("s2'" if led else before[number].session)


def test_a_node_that_was_dead_for_long_gets_its_copies_back_and_then_its_share_of_primaries():
    play = cluster(3)
    play.dead.add(3)
    play.settle(ms=600_000)
    assert play.primaries() == {1: 6, 2: 6, 3: 0}
    play.restart(3)
    play.settle()
    assert play.is_whole()
    play.settle(ms=5_000)
    assert play.primaries() == {1: 4, 2: 4, 3: 4}


def test_a_lost_disk_is_another_incarnation_never_leads_and_is_filled_again():
    play = cluster(3)
    before = play.records
    play.restart(2, incarnation="empty")
    play.decide()
    assert all(record.primary != 2 for record in play.records.values())
    assert all(replica.node != 2 for record in play.records.values() for replica in record.in_sync)
    assert {set(record.owners) == set(before[number].owners) for number, record in play.records.items()} == {True}
    play.settle()
    assert all(ReplicaRecord(node=2, incarnation="empty") in record.in_sync for record in play.records.values())
    assert play.is_whole()


def meets_damage(play, number):
    play.put(msgspec.structs.replace(play.view.nodes[number].record, unreadable=True))


def test_who_met_a_damaged_file_leads_nothing_that_others_can_lead_and_stays_in_every_set():
    play = cluster(3)
    meets_damage(play, 2)
    play.settle()
    assert play.primaries() == {1: 6, 2: 0, 3: 6}
    assert play.is_whole()
    play.settle(ms=600_000)
    assert play.primaries()[2] == 0
    play.restart(2)
    play.settle(ms=600_000)
    assert play.primaries()[2] == 0, "it is the same directory"
    play.dead.update({1, 3})
    play.settle()
    assert play.primaries() == {1: 0, 2: 12, 3: 0}


def test_of_two_that_met_damaged_files_each_leads_on_what_nobody_else_can_lead():
    play = cluster(2)
    meets_damage(play, 1)
    meets_damage(play, 2)
    before = play.records
    play.settle(ms=600_000)
    assert play.records == before


def test_the_only_copy_on_a_lost_disk_is_led_by_nobody():
    play = cluster(1)
    play.restart(1, incarnation="empty")
    play.settle()
    assert not play.situation.is_led(play.records[0])


def test_who_was_put_out_once_may_be_put_back_by_a_primary_that_reaches_it():
    play = cluster(3)
    play.dead.add(3)
    play.decide()
    led = next(record for record in play.records.values() if record.primary == 1)
    play.put(msgspec.structs.replace(led, in_sync=(*led.in_sync, *replicas(3)), nonce="back"))
    play.decide()
    assert play.records[led.segment].nonce == "back"


def test_nothing_to_do_is_found_out_once():
    play = cluster(3)
    assert play.controller.next_commit(play.situation, nonce="x") is None
    play.looks.clear()
    assert play.controller.next_commit(play.situation, nonce="x") is None
    assert play.looks == []


def test_a_smaller_commit_is_a_prefix_of_the_same_work():
    play = cluster(3, segments=30)
    play.dead.add(1)
    plan = Controller().next_commit(play.situation, nonce="n", records_max=2)
    assert len([key for key in plan.puts if key.startswith("segment/")]) == 2


# ---------------------------------------------------------------- replicas and repair


def test_fewer_replicas_shed_copies_and_more_add_them():
    play = cluster(4, segments=16, replicas=3)
    for wanted in (2, 3, 1):
        want(play, wanted)
        play.settle()
        assert {len(record.owners) for record in play.records.values()} == {wanted}
        assert {record.min_in_sync for record in play.records.values()} == {wanted // 2 + 1}
        assert play.is_whole()


def want(play, replicas):
    if plan := set_replicas(play.view, replicas):
        play.commit(plan)


def test_a_copy_too_many_leaves_only_when_all_that_stay_are_whole():
    play = cluster(4, segments=4, replicas=3)
    record = play.records[0]
    extra = next(number for number in (1, 2, 3, 4) if number not in record.owners)
    grown = msgspec.structs.replace(record, owners=(*record.owners, extra), in_sync=(*record.in_sync, *replicas(extra)), nonce="g")
    backup = record.owners[1]
    play.put(msgspec.structs.replace(grown, in_sync=tuple(item for item in grown.in_sync if item.node != backup)))
    play.decide()
    assert extra in play.records[0].owners
    assert backup not in play.records[0].owners, "the one without a whole copy goes first"


# ---------------------------------------------------------------- moving


def moving(play):
    return {number: record.target for number, record in play.records.items() if record.target}


def begin(play):
    plan = start_rebalance(play.situation, RebalanceStart(bytes_total=0, throttle_bytes=0, now_ms=5), nonce=play.nonce())
    if plan is not None:
        play.commit(plan)


def test_a_rebalancing_fills_a_new_member_and_never_has_fewer_whole_copies():
    play = cluster(3, segments=40)
    play.join(4)
    play.settle()
    begin(play)
    while play.view.rebalance.record.state == "running":
        revision = play.view.revision
        play.decide()
        for record in play.records.values():
            assert len(record.in_sync) >= 3
        play.catch_up()
        assert play.view.revision > revision, "it goes on"
    assert play.held() == {1: 30, 2: 30, 3: 30, 4: 30}
    assert play.primaries() == {1: 10, 2: 10, 3: 10, 4: 10}
    assert not moving(play)
    assert plan_rebalance(play.situation) == {}


@pytest.mark.parametrize("members", [3, 4, 5])
def test_a_rebalancing_gives_a_dead_member_nothing_waits_for_none_and_evens_out_the_rest(members):
    play = cluster(members, segments=16)
    play.dead.add(2)
    play.join(members + 1)
    play.settle()
    assert not [target for target in plan_rebalance(play.situation).values() if 2 in target]
    begin(play)
    play.settle()
    assert play.view.rebalance.record.state == "done"
    assert play.held()[members + 1] > 0
    assert plan_rebalance(play.situation) == {}


def test_only_so_many_segments_are_copied_at_once():
    play = cluster(3, segments=40, options=ControllerOptions(moves_in_flight_max=2, verifies=False))
    play.join(4)
    play.decide()
    begin(play)
    play.decide()
    assert sum(len(record.owners) == 4 for record in play.records.values()) == 2


def test_a_lost_copy_is_made_again_at_once_though_its_segment_waits_for_its_turn_to_move():
    under_way, waiting = segment(0, owners=(1, 2, 3, 4)), segment(1, owners=(2, 1, 5))
    records = [
        msgspec.structs.replace(under_way, target=(1, 2, 4), in_sync=replicas(1, 2, 3), session="s1"),
        msgspec.structs.replace(waiting, target=(2, 1, 6), session="s2"),
    ]
    members = [msgspec.structs.replace(node(number), session=f"s{number}") for number in range(1, 7)]
    play = Play(members, records, options=ControllerOptions(moves_in_flight_max=1, verifies=False))
    play.decide()
    assert play.records[1].owners == (2, 1, 5)
    play.dead.add(5)
    play.put(msgspec.structs.replace(play.view.nodes[5].record, removed_id=1))
    play.decide()
    assert play.records[1].owners == (2, 1, 6)


def test_a_copy_is_verified_before_the_old_owner_leaves():
    play = cluster(3, segments=4, options=ControllerOptions())
    play.join(4)
    begin(play)
    play.settle()
    waiting = [record for record in play.records.values() if record.target]
    assert waiting
    assert all(len(record.owners) == 4 for record in waiting)
    for record in waiting:
        play.verified |= {(record.segment, replica) for replica in record.in_sync if replica.node == 4}
    play.settle()
    assert all(len(record.owners) == 4 for record in play.records.values() if record.target), "the other copies too"
    play.verified |= {(record.segment, replica) for record in waiting for replica in record.in_sync}
    play.settle()
    assert not moving(play)
    assert play.view.rebalance.record.state == "done"


def test_the_next_controller_goes_on_where_the_last_one_stopped():
    play = cluster(3, segments=40, options=ControllerOptions(moves_in_flight_max=3, verifies=False))
    play.join(4)
    play.settle()
    begin(play)
    for _ in range(500):
        play.controller = Controller(options=play.controller.options)
        plan = play.controller.next_commit(play.situation, nonce=play.nonce())
        if plan is not None:
            play.commit(plan)
        elif play.view.rebalance.record.state == "done":
            break
        play.catch_up()
    else:
        raise AssertionError("not done after 500 controllers")
    assert play.held() == {1: 30, 2: 30, 3: 30, 4: 30}


def test_a_target_that_was_removed_is_planned_anew():
    play = cluster(3, segments=4)
    play.put(msgspec.structs.replace(play.records[0], target=(1, 2, 9), nonce="t"))
    play.decide()
    assert play.records[0].target == ()
    assert len(play.records[0].owners) == 3


def test_segments_are_evened_out_by_themselves_when_all_was_calm_for_a_minute():
    play = cluster(3, segments=12)
    play.join(4)
    play.settle()
    assert not play.controller.wants_rebalancing(play.situation)
    play.settle(ms=61_000)
    assert play.controller.wants_rebalancing(play.situation)
    play.dead.add(1)
    play.settle(ms=61_000)
    assert not play.controller.wants_rebalancing(play.situation), "not while a member is away"


def test_what_a_rebalancing_copies_is_the_size_of_what_it_gives_to_those_without_a_copy():
    play = cluster(3, segments=12)
    play.join(4)
    play.settle(ms=61_000)
    sizes = {number: 1_000 + number for number in range(12)}
    plan = plan_rebalance(play.situation)
    assert plan
    moved = {number for number, target in plan.items() if 4 in target}
    assert all(len(set(target) - set(play.records[number].owners)) == (number in moved) for number, target in plan.items())
    assert bytes_to_copy(play.situation, sizes) == sum(sizes[number] for number in moved) > 0


def test_what_was_planned_for_many_segments_is_dropped_when_the_rebalancing_is_called_off():
    play = cluster(3, segments=40)
    play.join(4)
    play.settle()
    begin(play)
    first = play.controller.next_commit(play.situation, nonce=play.nonce(), records_max=5)
    play.commit(first)
    assert len(moving(play)) == 5
    while plan := cancel_rebalance(play.situation, nonce=play.nonce()):
        play.commit(plan)
    play.settle()
    assert not moving(play)
    assert play.held()[4] == 0
    assert play.view.rebalance.record.moves_done == 0, "most had not even begun"


def test_many_changes_are_planned_once_and_what_changed_meanwhile_is_left_out():
    play = cluster(1, segments=250)
    play.join(2)
    play.commit(play.controller.next_commit(play.situation, nonce=play.nonce()))
    other = msgspec.structs.replace(play.records[150], nonce="other")
    play.put(other)
    second = play.controller.next_commit(play.situation, nonce="unused")
    assert "segment/150" not in second.puts
    assert len(second.puts) == 99
    play.commit(second)
    play.settle()
    assert {record.owners for record in play.records.values()} == {(1, 2)}


def test_an_even_load_is_looked_at_once_until_something_changes():
    play = cluster(3, segments=12)
    play.settle(ms=61_000)
    assert not play.controller.wants_rebalancing(play.situation)
    play.looks.clear()
    assert not play.controller.wants_rebalancing(play.situation)
    assert play.looks == []
    play.join(4)
    play.settle()
    play.settle(ms=61_000)
    assert play.controller.wants_rebalancing(play.situation)


# ---------------------------------------------------------------- whatever happens

EVENTS = st.lists(
    st.tuples(st.sampled_from(["die", "restart", "lose", "join", "drain", "calm", "settle", "rebalance", "replicas"]), st.integers(1, 5)),
    max_size=25,
)


def happen(play, kind, number):
    known = number in play.view.members
    if kind == "die" and known:
        play.dead.add(number)
    elif kind == "restart" and known:
        play.restart(number)
    elif kind == "lose" and known and not play.dead and play.is_whole():
        play.restart(number, incarnation=f"lost{play.view.revision}")
    elif kind == "join" and not known:
        play.join(number)
    elif kind == "drain" and known:
        record = play.view.nodes[number].record
        play.put(msgspec.structs.replace(record, draining=not record.draining))
    elif kind == "replicas":
        want(play, min(number, 3))
    elif kind == "rebalance":
        with contextlib.suppress(OperationRefused):
            begin(play)
    else:
        play.settle(ms=10_000 if kind == "calm" else 0)


@given(EVENTS)
@settings(max_examples=examples(150), deadline=None)
def test_whatever_happens_the_rules_hold_and_it_comes_to_rest(events):
    play = cluster(3, segments=6)
    for kind, number in events:
        happen(play, kind, number)
    play.dead.clear()
    play.settle()
    play.settle(ms=10_000)
    assert not moving(play)
    is_led = all(play.situation.is_led(record) for record in play.records.values())
    if is_led and any(member.holds_data for member in play.view.members.values()):
        for record in play.records.values():
            assert len(record.owners) == play.view.replicas
            assert record.min_in_sync == play.view.replicas // 2 + 1
        assert play.is_whole()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_settled_cluster_is_left_alone(count):
    play = cluster(count)
    play.commits.clear()
    play.settle(ms=600_000)
    assert play.commits == []
