from eventlog.consume.membership.coordinator import Beat, Coordinator
from eventlog.consume.membership.values import Member, new_group


def coordinator(*members):
    found = Coordinator("g", new_group(4), 0)
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
