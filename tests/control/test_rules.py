"""Changes of a segment's record, and their refusals."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.control.records import ReplicaRecord
from eventlog.control.rules import SegmentRules, appoint, disown, grow, own, settle, shrink, without
from eventlog.errors import NotEnoughReplicas, NotPrimary
from tests.control.worlds import node, replicas, segment

THREE = segment(7, owners=(1, 2, 3), epoch=4, floor=300)


def test_a_term_has_the_next_epoch_a_floor_above_the_old_primary_and_the_session_of_the_new_one():
    new = msgspec.structs.replace(node(2, ceiling=100), session="s2")
    record = appoint(THREE, new, old_primary=node(1, ceiling=900), nonce="n", gone=replicas(1))
    assert (record.owners, record.epoch, record.floor, record.session, record.nonce) == ((2, 1, 3), 5, 900, "s2", "n")
    assert record.in_sync == replicas(2, 3)


def test_a_takeover_that_would_leave_too_few_keeps_the_old_primary_in_the_set():
    two = msgspec.structs.replace(THREE, in_sync=replicas(1, 2))
    assert appoint(two, node(2), old_primary=node(1), nonce="n", gone=replicas(1)).in_sync == replicas(1, 2)


def test_of_many_gone_the_backups_leave_first_and_the_new_primary_never():
    record = appoint(THREE, node(2), old_primary=node(1), nonce="n", gone=replicas(1, 2, 3))
    assert record.in_sync == replicas(1, 2)


def test_only_this_incarnation_may_lead():
    assert SegmentRules.may_lead(THREE, node(2))
    assert not SegmentRules.may_lead(THREE, node(2, incarnation="empty"))
    assert not SegmentRules.may_lead(THREE, node(4))


def test_a_term_does_not_outlive_its_process():
    led = msgspec.structs.replace(THREE, session="now")
    assert SegmentRules.is_served(led, msgspec.structs.replace(node(1), session="now"))
    assert not SegmentRules.is_served(led, msgspec.structs.replace(node(1), session="later"))


def test_a_set_shrinks_to_its_minimum_and_no_further():
    record = shrink(THREE, replicas(3), epoch=4, nonce="n")
    assert (record.in_sync, record.nonce, record.owners) == (replicas(1, 2), "n", (1, 2, 3))
    with pytest.raises(NotEnoughReplicas) as caught:
        shrink(record, replicas(2), epoch=4, nonce="m")
    assert (caught.value.have, caught.value.need) == (1, 2)


def test_who_is_no_primary_any_more_changes_nothing():
    with pytest.raises(NotPrimary):
        shrink(THREE, replicas(3), epoch=3, nonce="n")
    with pytest.raises(NotPrimary):
        grow(THREE, ReplicaRecord(node=2, incarnation="i2"), epoch=5, nonce="n")


def test_a_new_incarnation_takes_the_place_of_the_old_one():
    record = grow(THREE, ReplicaRecord(node=2, incarnation="empty"), epoch=4, nonce="n")
    assert record.in_sync == (*replicas(1, 3), ReplicaRecord(node=2, incarnation="empty"))


def test_a_replica_that_is_no_owner_does_not_join():
    with pytest.raises(NotPrimary):
        grow(THREE, ReplicaRecord(node=4, incarnation="i4"), epoch=4, nonce="n")


def test_who_owns_it_no_more_is_not_in_sync_either():
    assert own(THREE, (1, 2, 4), nonce="n").in_sync == replicas(1, 2)
    with pytest.raises(NotEnoughReplicas):
        own(msgspec.structs.replace(THREE, in_sync=replicas(1, 2)), (1, 3), nonce="n")
    with pytest.raises(AssertionError):
        own(THREE, (2, 1, 3), nonce="n")


@pytest.mark.parametrize(
    ("in_sync", "minimum", "replicas_wanted", "settled"),
    [
        ((1, 2, 3), 1, 3, 2),
        ((1,), 1, 3, 1),
        ((1, 2), 1, 5, 2),
        ((1,), 2, 3, 2),
        ((1, 2), 2, 1, 1),
        ((1, 2, 3), 3, 3, 2),
    ],
)
def test_the_minimum_follows_the_majority_as_far_as_the_set_has_grown(in_sync, minimum, replicas_wanted, settled):
    record = msgspec.structs.replace(THREE, in_sync=replicas(*in_sync), min_in_sync=minimum)
    assert settle(record, replicas_wanted, staying={1, 2, 3}, nonce="n").min_in_sync == settled


@pytest.mark.parametrize(("staying", "settled"), [({3}, 2), ({2, 3}, 1), ({1, 2}, 1), (set(), 2)])
def test_the_minimum_falls_only_when_enough_of_the_set_stay(staying, settled):
    record = msgspec.structs.replace(THREE, in_sync=replicas(1, 2), min_in_sync=2)
    assert settle(record, 1, staying=staying, nonce="n").min_in_sync == settled


def test_a_removed_member_leaves_even_where_a_dead_one_has_to_stay():
    two = msgspec.structs.replace(THREE, in_sync=replicas(1, 2))
    assert without(two, replicas(2), nonce="n") == two
    record = disown(two, {2}, replicas=2, nonce="n")
    assert (record.owners, record.in_sync, record.min_in_sync) == ((1, 3), replicas(1), 1)


def test_a_removed_member_that_alone_holds_what_is_committed_stays():
    alone = msgspec.structs.replace(THREE, owners=(2, 1), in_sync=replicas(1), min_in_sync=1)
    assert disown(alone, {1}, replicas=2, nonce="n") == alone
    assert disown(THREE, {1}, replicas=2, nonce="n") == THREE, "its primary first"


@given(
    st.sets(st.integers(1, 5), min_size=1),
    st.integers(1, 3),
    st.sets(st.integers(1, 5)),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)
def test_no_change_breaks_the_invariants_of_a_record(in_sync, minimum, gone, floor, ceiling):
    minimum = min(minimum, len(in_sync))
    before = msgspec.structs.replace(
        segment(0, owners=(1, 2, 3, 4, 5), floor=floor), in_sync=replicas(*sorted(in_sync)), min_in_sync=minimum
    )
    new = node(min(in_sync))
    after = appoint(before, new, old_primary=node(1, ceiling=ceiling), nonce="n", gone=replicas(*gone))
    assert len(after.in_sync) >= minimum
    assert set(after.in_sync) <= set(before.in_sync)
    assert new.replica in after.in_sync
    assert (after.epoch, after.floor) == (before.epoch + 1, max(floor, ceiling))
    assert set(after.owners) == set(before.owners)
