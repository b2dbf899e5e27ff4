"""The rows of replicas that a primary counts on."""

from eventlog.replication.roster import OWN, Roster
from eventlog.replication.terms import Replica

OWN_REPLICA, SECOND, THIRD, FOURTH = (Replica(number, "disk") for number in (1, 2, 3, 4))


def test_members_of_one_set_never_share_a_slot_though_nobody_waits_for_them_yet():
    roster = Roster(2, OWN_REPLICA)
    slots = roster.slots([OWN_REPLICA, SECOND, THIRD], now_ms=0)
    assert slots[OWN_REPLICA] == OWN
    assert len(set(slots.values())) == 3
    assert roster.slots([THIRD, FOURTH, SECOND], now_ms=0).keys() == {SECOND, THIRD, FOURTH}
    assert len({roster.find(replica) for replica in (SECOND, THIRD, FOURTH)}) == 3


def test_a_slot_that_nothing_depends_on_is_used_again():
    roster = Roster(2, OWN_REPLICA)
    slot = roster.slot(SECOND, now_ms=0)
    assert roster.slot(THIRD, now_ms=0) == slot
    assert roster.find(SECOND) is None


def test_a_slot_that_the_watermark_waits_for_is_kept():
    roster = Roster(2, OWN_REPLICA)
    slots = roster.slots([OWN_REPLICA, SECOND], now_ms=0)
    roster.await_(0, in_sync=set(slots.values()), awaited=set(slots.values()))
    assert roster.slot(THIRD, now_ms=0) != slots[SECOND]
    assert roster.find(SECOND) == slots[SECOND]


def test_segments_share_a_fate_where_they_wait_for_the_same_replicas():
    roster = Roster(4, Replica(1, "a"))
    slots = list(roster.slots([Replica(number, "a") for number in range(2, 12)], now_ms=0).values())
    for segment in range(3):
        roster.await_(segment, in_sync={OWN, slots[0]}, awaited={OWN, slots[0]})
    assert roster.fates() is None
    roster.await_(1, in_sync={OWN, slots[9]}, awaited={OWN, slots[9]})
    fates = roster.fates()
    assert fates is not None
    assert fates[0] == fates[2] != fates[1]
    roster.reset(1)
    assert roster.fates() is None, "nobody waits for anything there"
