"""Stories of a primary whose in-sync set is itself, and the same steps with a backup."""

import numpy as np
import pytest

from eventlog.errors import NotEnoughReplicas, NotPrimary
from eventlog.replication import PrimaryCore

ALL = np.arange(4)


def appointed(members: int = 1, needed: int = 1, epoch: int = 1, ends: int = 10) -> PrimaryCore:
    core = PrimaryCore(4, members)
    core.appoint(ALL, epochs=np.full(4, epoch), ends=np.full(4, ends), in_sync=range(members), needed=needed)
    return core


def adopted() -> PrimaryCore:
    core = appointed()
    core.append_marker(ALL, np.full(4, 20))
    core.acknowledged(0, ALL, np.full(4, 20))
    return core


def test_an_old_tail_is_not_adopted_before_the_marker_of_the_new_epoch_commits():
    core = appointed()
    core.acknowledged(0, ALL, np.full(4, 10))
    assert not core.adopted.any()
    with pytest.raises(NotPrimary):
        core.append(np.array([2]), np.array([30]))


def test_an_empty_tail_needs_the_marker_too():
    core = appointed(ends=0)
    core.acknowledged(0, ALL, np.zeros(4, np.int64))
    assert not core.adopted.any()
    core.append_marker(ALL, np.full(4, 5))
    core.acknowledged(0, ALL, np.full(4, 5))
    assert core.adopted.all()


def test_the_watermark_moves_only_when_the_log_holds_the_group():
    core = adopted()
    core.append(np.array([1, 3]), np.array([30, 40]))
    assert core.watermark.tolist() == [20, 20, 20, 20]
    moved = core.acknowledged(0, np.array([1, 3]), np.array([30, 40]))
    assert moved.tolist() == [1, 3]
    assert core.watermark.tolist() == [20, 30, 20, 40]


def test_an_acknowledgement_beyond_the_end_counts_only_up_to_it():
    core = adopted()
    core.acknowledged(0, np.array([0]), np.array([99]))
    core.append(np.array([0]), np.array([30]))
    assert core.watermark[0] == 20


def test_a_late_acknowledgement_does_not_move_the_watermark_back():
    core = adopted()
    core.append(np.array([0]), np.array([30]))
    core.acknowledged(0, np.array([0]), np.array([30]))
    assert core.acknowledged(0, np.array([0]), np.array([25])).tolist() == []
    assert core.watermark[0] == 30


def test_an_epoch_that_does_not_rise_is_refused():
    core = adopted()
    with pytest.raises(ValueError, match="epoch"):
        core.appoint(np.array([0]), epochs=np.array([1]), ends=np.array([20]), in_sync=[0], needed=1)


def test_who_resigned_appends_nothing():
    core = adopted()
    core.resign(np.array([1]))
    with pytest.raises(NotPrimary):
        core.append(np.array([1]), np.array([30]))
    core.append(np.array([0]), np.array([30]))


def test_the_watermark_waits_for_every_member_in_sync():
    core = appointed(members=2, needed=2)
    core.append_marker(ALL, np.full(4, 20))
    core.acknowledged(0, ALL, np.full(4, 20))
    assert not core.adopted.any()
    core.acknowledged(1, ALL, np.full(4, 20))
    assert core.adopted.all()
    core.append(np.array([0]), np.array([30]))
    core.acknowledged(0, np.array([0]), np.array([30]))
    assert core.watermark[0] == 20
    core.acknowledged(1, np.array([0]), np.array([30]))
    assert core.watermark[0] == 30


def test_fewer_in_sync_than_needed_refuses_the_append():
    core = PrimaryCore(4, 2)
    core.appoint(ALL, epochs=np.full(4, 1), ends=np.zeros(4, np.int64), in_sync=[0, 1], needed=2)
    core.append_marker(ALL, np.full(4, 20))
    core.acknowledged(0, ALL, np.full(4, 20))
    core.acknowledged(1, ALL, np.full(4, 20))
    core.appoint(ALL, epochs=np.full(4, 2), ends=np.full(4, 20), in_sync=[0], needed=1)
    core.append_marker(ALL, np.full(4, 21))
    core.acknowledged(0, ALL, np.full(4, 21))
    core._needed[:] = 2
    with pytest.raises(NotEnoughReplicas) as caught:
        core.append(np.array([3]), np.array([30]))
    assert (caught.value.have, caught.value.need) == (1, 2)
