"""The lease of ids."""

import pytest

from eventlog.control.leases import check_own, lost_segments, plan_ceiling
from eventlog.control.records import Versioned, decode
from eventlog.errors import MemberReplaced
from tests.control.worlds import node, segment


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
    return check_own(found, number=3, name="n3", incarnation="i3")


def test_the_own_record_is_known_by_its_incarnation():
    found = Versioned(node(3, ceiling=5), 17)
    assert own(found) is found


@pytest.mark.parametrize(
    "found", [Versioned(node(3, incarnation="other"), 1), Versioned(node(3, removed_id=9), 1)], ids=["other", "removed"]
)
def test_a_record_that_went_to_another_directory_or_was_removed_is_fatal(found):
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
