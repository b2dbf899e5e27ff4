"""Node numbers: who holds which, and who gets which; and the lease of ids."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.control.membership import Joining, NodeLabels, check_own, free_number, lost_segments, plan_ceiling, plan_join, tombstone
from eventlog.control.records import NodeRecord, Versioned, decode
from eventlog.errors import BadConfig, MemberReplaced, NodeNumbersExhausted
from eventlog.ids import FlakeClock, make_id
from eventlog.testing.clocks import ManualClock
from tests.control.worlds import node, segment


def versioned(*records):
    return {record.number: Versioned(record, 10 + record.number) for record in records}


def join(nodes, *, name="new", address="h:1", incarnation="fresh", number=0, labels=None):
    record, plan = plan_join(
        nodes, Joining(name=name, address=address, incarnation=incarnation, session="s", number=number, labels=labels or NodeLabels())
    )
    assert {key: decode(value, NodeRecord, where=key) for key, value in plan.puts.items()} == {f"node/{record.number}": record}
    return record, plan


def test_the_first_node_gets_number_1():
    record, plan = join({})
    assert record == NodeRecord(number=1, name="new", address="h:1", incarnation="fresh", ceiling=0, session="s")
    assert plan.expect == {"node/1": 0}


def test_the_smallest_number_never_used_is_taken():
    record, plan = join(versioned(node(1), node(2), node(4)))
    assert record.number == 3
    assert plan.expect == {"node/3": 0}


def test_a_data_directory_keeps_its_number_under_another_name_and_address():
    record, plan = join(versioned(node(1), node(2, incarnation="mine", ceiling=77)), incarnation="mine")
    assert (record.number, record.name, record.address, record.ceiling) == (2, "new", "h:1", 77)
    assert plan.expect == {"node/2": 12}


def test_an_empty_directory_under_the_same_name_is_the_same_member_as_a_new_incarnation():
    record, _ = join(versioned(node(1), node(2, name="new", ceiling=77)))
    assert (record.number, record.incarnation, record.ceiling) == (2, "fresh", 77)


def test_labels_are_those_of_the_process_and_draining_is_the_operators():
    drained = msgspec.structs.replace(node(1, name="new"), draining=True, rack="old")
    record, _ = join(versioned(drained), labels=NodeLabels(host_label="h", weight=3))
    assert (record.host_label, record.rack, record.weight, record.gateway, record.draining) == ("h", "", 3, False, True)


def test_a_damaged_file_that_was_met_is_the_directorys():
    met = versioned(msgspec.structs.replace(node(1, name="new", incarnation="mine"), unreadable=True))
    assert join(met, incarnation="mine")[0].unreadable
    assert not join(met)[0].unreadable


def test_a_number_that_is_given_out_again_is_not_draining():
    drained = {number: msgspec.structs.replace(node(number, removed_id=1), draining=True) for number in range(1, 1024)}
    record, _ = join(versioned(*drained.values()))
    assert not record.draining


def test_a_member_cannot_take_another_members_name():
    with pytest.raises(BadConfig, match="node 1"):
        join(versioned(node(1, name="new"), node(2, incarnation="mine")), incarnation="mine")


def test_a_member_is_found_by_its_directory_before_its_name():
    record, _ = join(versioned(node(1, name="other"), node(2, incarnation="mine", name="new")), incarnation="mine")
    assert record.number == 2


def test_a_removed_members_name_is_anybodys():
    record, _ = join(versioned(node(1, name="new", removed_id=5), node(2)))
    assert record.number == 3


@pytest.mark.parametrize("name", ["n1", "other"])
def test_a_removed_members_directory_gets_no_other_number_under_any_name(name):
    with pytest.raises(MemberReplaced) as caught:
        join(versioned(node(1, incarnation="mine", removed_id=5), node(2)), incarnation="mine", name=name)
    assert (caught.value.number, caught.value.name) == (1, "n1")


@pytest.mark.parametrize("holder", [node(1), node(1, removed_id=5)], ids=["member", "tombstone"])
def test_a_directory_whose_number_another_directory_took_gets_no_other_number(holder):
    with pytest.raises(MemberReplaced) as caught:
        join(versioned(holder, node(2)), incarnation="mine", number=1)
    assert (caught.value.number, caught.value.name) == (1, "new")


def test_a_directory_put_back_under_its_name_takes_its_member_over_again():
    record, _ = join(versioned(node(1, name="new"), node(2)), incarnation="mine", number=1)
    assert (record.number, record.incarnation) == (1, "mine")


def full(*, removed):
    return versioned(*(node(number, ceiling=number * 1_000, removed_id=removed.get(number, 0)) for number in range(1, 1024)))


def test_when_all_were_used_the_longest_removed_number_is_taken_with_its_ceiling():
    record, plan = join(full(removed={9: 300, 700: 100, 3: 200}))
    assert (record.number, record.ceiling, record.removed_id) == (700, 700_000, 0)
    assert plan.expect == {"node/700": 710}


def test_the_1024th_member_is_refused_by_number():
    with pytest.raises(NodeNumbersExhausted) as caught:
        join(full(removed={}))
    assert caught.value.limit == 1023


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
def test_a_name_that_cannot_be_printed_is_refused(name):
    with pytest.raises(BadConfig):
        join({}, name=name)


def test_a_tombstone_keeps_its_ceiling():
    assert tombstone(node(4, ceiling=9), removed_id=5) == node(4, ceiling=9, removed_id=5)


@given(st.sets(st.integers(1, 1023)), st.dictionaries(st.integers(1, 1023), st.integers(1, 50)))
def test_a_members_number_is_never_given_out(members, removed):
    nodes = versioned(*(node(number, removed_id=removed.get(number, 0)) for number in members | set(removed)))
    try:
        number = free_number(nodes)
    except NodeNumbersExhausted:
        assert len(members - set(removed)) == 1023
        return
    assert number not in members - set(removed)
    if number in nodes:
        assert len(nodes) == 1023
        assert removed[number] == min(removed.values())


def test_of_five_thousand_members_that_come_and_go_no_id_is_issued_twice():
    """Every number is given out about five times; some stop cleanly, most are killed. Clocks stand still but for jumps, back and forth:
    that ids differ is owed to numbers and to what their records say, not to time.
    """
    random, begun_ms = Random(7), 1_700_000_000_000
    clock = ManualClock(wall_ms=begun_ms)
    nodes, seen, alive = {}, set(), {}
    for member in range(5_000):
        record, _ = plan_join(nodes, Joining(name=f"m{member}", address="h:1", incarnation=f"i{member}", session=f"s{member}"))
        flakes = alive[record.number] = FlakeClock(clock, node=record.number)
        flakes.start_above(record.ceiling)
        nodes[record.number] = Versioned(record, member)
        for number in (record.number, random.choice(list(alive))):
            seen |= issue(nodes, number, alive[number], count=random.randrange(1, 4), seen=seen)
        clock.set_wall(begun_ms + random.randrange(-2_000, 2_000))
        if len(alive) > 30:
            gone = random.choice(list(alive))
            last = alive.pop(gone).last
            left = msgspec.structs.replace(nodes[gone].record, ceiling=last) if random.random() < 0.2 else nodes[gone].record
            nodes[gone] = Versioned(tombstone(left, removed_id=make_id(begun_ms, 0, 0) + member), member)
    assert len(nodes) == 1023
    assert len(seen) > 15_000


def issue(nodes, number, flakes, *, count, seen):
    """Return ids that a member issues, which are not among those `seen`; its record has the ceiling of its lease first."""
    found = nodes[number]
    ceiling = max(found.record.ceiling, flakes.ceiling_wanted())
    nodes[number] = Versioned(msgspec.structs.replace(found.record, ceiling=ceiling), found.revision)
    flakes.set_ceiling(ceiling)
    ids = {flakes.next(1) for _ in range(count)}
    assert len(ids) == count
    assert not ids & seen
    return ids


def test_a_ceiling_is_raised_against_the_revision_of_the_own_record():
    record, plan = plan_ceiling(Versioned(node(3, ceiling=5), 17), 9)
    assert record == node(3, ceiling=9)
    assert plan.expect == {"node/3": 17}
    assert decode(plan.puts["node/3"], type(record), where="") == record


def test_a_damaged_file_that_was_met_stays_in_the_record():
    met, plan = plan_ceiling(Versioned(node(3, ceiling=5), 17), 9, unreadable=True)
    assert met.unreadable
    assert decode(plan.puts["node/3"], type(met), where="") == met
    assert plan_ceiling(Versioned(met, 18), 10)[0].unreadable


def own(found):
    return check_own(found, number=3, name="n3", incarnation="i3", session="")


def test_the_own_record_is_known_by_its_incarnation_and_session():
    found = Versioned(node(3, ceiling=5), 17)
    assert own(found) is found


@pytest.mark.parametrize(
    "found",
    [
        Versioned(node(3, incarnation="other"), 1),
        Versioned(msgspec.structs.replace(node(3), session="later"), 1),
        Versioned(node(3, removed_id=9), 1),
    ],
    ids=["another directory", "another process", "removed"],
)
def test_a_record_that_went_to_another_directory_or_process_or_was_removed_is_fatal(found):
    with pytest.raises(MemberReplaced) as caught:
        own(found)
    assert caught.value.number == 3


def test_what_moved_to_another_primary_or_term_or_vanished_is_lost():
    records = [segment(0), segment(1, owners=(2, 1), epoch=2), segment(2, epoch=5), segment(4, epoch=7)]
    segments = {record.segment: Versioned(record, 1) for record in records}
    assert lost_segments({0: 1, 1: 1, 2: 4, 3: 1, 4: 7}, segments, number=1) == (1, 2, 3)


def test_a_change_within_the_own_term_loses_nothing():
    segments = {0: Versioned(segment(0, owners=(1, 2), epoch=3, nonce="other"), 9)}
    assert lost_segments({0: 3}, segments, number=1) == ()


def test_records_that_were_read_before_the_term_began_do_not_end_it():
    segments = {0: Versioned(segment(0, owners=(2, 1), epoch=4), 9)}
    assert lost_segments({0: 5}, segments, number=1) == ()
