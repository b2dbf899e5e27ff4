import pytest

from eventlog.errors import StaleMember
from eventlog.groups.coordinator import Beat, Coordinator
from eventlog.groups.record import Commit, Member, Place, check_commit, new_group


def coordinator(*members, segments=4):
    found = Coordinator("g", new_group(segments), 0)
    for member in members:
        say(found, member)
    return found


def say(coordinator, member, *, epoch=0, owned=()):
    """Have a member speak; return what it is told."""
    coordinator.adopt(coordinator.beat(Beat(member=Member(id=member), epoch=epoch, owned=frozenset(owned)), 0), 0)
    return coordinator.told(member)


def test_what_a_member_says_late_of_segments_that_it_has_again_gives_nothing_away():
    found = coordinator("a", "b")
    shared = found.told("a")
    found.adopt(found.leave("b"), 0)  # before a has said that it let go
    again = found.told("a")
    assert again.assigned == {0, 1, 2, 3}
    say(found, "c")
    moving = again.assigned - found.told("a").assigned
    assert moving - shared.assigned
    say(found, "a", epoch=shared.epoch, owned=shared.assigned)
    assert all(found.state.holders[segment] == "a" for segment in moving), "it said that before it was told to go on with them"
    assert found.is_news(Beat(member=Member(id="a"), epoch=shared.epoch, owned=found.told("a").assigned)), "so that it says it again"
    told = found.told("a")
    say(found, "a", epoch=told.epoch, owned=told.assigned)
    assert all(found.state.holders[segment] == "c" for segment in moving)


def test_a_coordinator_that_has_just_begun_waits_for_who_speaks_of_the_present():
    before = coordinator("a", "b")
    told, early = before.told("a"), before.told("a").epoch - 1
    found = Coordinator("g", before.state, 0)
    say(found, "a", epoch=early, owned=told.assigned)
    assert found.state == before.state
    say(found, "a", epoch=told.epoch, owned=told.assigned)
    assert found.told("b").assigned == {0, 1, 2, 3} - told.assigned


def test_a_segment_that_a_member_was_given_after_it_spoke_is_not_released_by_what_it_said():
    found = coordinator("a", "b", "c", segments=6)
    say(found, "a", epoch=found.told("a").epoch, owned={0, 1})
    spoken = found.told("a")
    found.adopt(found.leave("b"), 0)
    found.adopt(found.leave("c"), 0)
    again = found.told("a")
    assert again.assigned > spoken.assigned == {0, 1}
    say(found, "d")
    kept = found.told("a").assigned - spoken.assigned
    assert kept, "of what it was given again some is not moved on"
    say(found, "a", epoch=spoken.epoch, owned=spoken.assigned)
    check_commit("g", found.state, Commit(member="a", epoch=again.epoch, places={segment: Place(id=9) for segment in kept}))


def test_a_member_that_joins_again_under_its_id_keeps_what_it_has_and_its_earlier_commits_are_refused():
    found = coordinator("a")
    before = found.told("a")
    say(found, "a", epoch=before.epoch, owned=before.assigned)
    after = say(found, "a")
    assert after.assigned == before.assigned
    early, late = (Commit(member="a", epoch=told.epoch, places={0: Place(id=9)}) for told in (before, after))
    with pytest.raises(StaleMember):
        check_commit("g", found.state, early)
    check_commit("g", found.state, late)


def test_a_static_members_new_process_keeps_what_it_has_and_commits_of_the_former_one_are_refused():
    found = coordinator()
    former, later = (Member(id=name, instance="till 4") for name in ("a", "b"))
    found.adopt(found.beat(Beat(member=former), 0), 0)
    epoch = found.told("a").epoch
    found.adopt(found.beat(Beat(member=later), 0), 0)
    assert found.told("b").assigned == {0, 1, 2, 3}
    with pytest.raises(StaleMember):
        check_commit("g", found.state, Commit(member="b", epoch=epoch, places={0: Place(id=9)}))
