import pytest

from eventlog.errors import StaleMember
from eventlog.groups.coordinator import give, join, join_again, leave, let_go, take_over
from eventlog.groups.record import Commit, Member, Place, check_commit, new_group


def group(*members, segments=4):
    state = new_group(segments)
    for member in members:
        state = join(state, Member(id=member))
    return state


def settled(state):
    """The group after every member has let go of what it is to give up."""
    for member in state.members:
        state = let_go(state, member.id, state.assigned(member.id), epoch=state.generation)
    return state


def test_the_first_member_gets_everything_at_once():
    state = group("a")
    assert state.assigned("a") == {0, 1, 2, 3}
    assert state.given == (1, 1, 1, 1)


def test_a_second_one_gets_its_share_only_when_the_first_has_let_go():
    state = group("a", "b")
    assert state.held("a") == {0, 1, 2, 3}
    assert state.assigned("b") == frozenset()
    assert len(state.assigned("a")) == 2
    state = let_go(state, "a", state.assigned("a"), epoch=2)
    assert len(state.assigned("b")) == 2
    assert {state.given[segment] for segment in state.assigned("b")} == {2}
    assert {state.given[segment] for segment in state.assigned("a")} == {1}


def test_what_a_member_was_given_after_it_spoke_is_not_let_go():
    state = settled(group("a", "b"))
    state = leave(state, {"b"})
    regained = [segment for segment in range(4) if state.given[segment] == state.generation]
    state = join(state, Member(id="c"))
    moving = [segment for segment in regained if state.targets[segment] == "c"]
    assert moving
    before = let_go(state, "a", frozenset(range(4)) - set(regained), epoch=2)
    assert all(before.holders[segment] == "a" for segment in moving), "it spoke before it was told that it had them again"
    after = let_go(state, "a", frozenset(range(4)) - set(regained), epoch=state.generation)
    assert all(after.holders[segment] == "c" for segment in moving)


def test_who_leaves_gives_everything_on():
    state = leave(settled(group("a", "b")), {"a"})
    assert state.assigned("b") == {0, 1, 2, 3}
    assert leave(state, {"stranger"}) is state


def test_a_static_member_that_comes_back_keeps_its_segments_and_fences_what_it_was():
    state = settled(join(group("a"), Member(id="old", instance="i")))
    held = state.held("old")
    again = take_over(state, state.instance("i"), Member(id="new", instance="i"))
    assert again.held("new") == again.assigned("new") == held
    assert {again.given[segment] for segment in held} == {again.generation}
    assert again.held("a") == state.held("a")
    assert again.member("old") is None


def test_nothing_is_given_twice():
    state = settled(group("a", "b"))
    assert give(state) == state


def test_a_member_that_joins_anew_keeps_what_it_has_and_its_earlier_commits_are_fenced():
    state = settled(group("a", "b"))
    held = state.held("a")
    again = join_again(state, "a")
    assert again.held("a") == held
    place = {min(held): Place(id=9)}
    check_commit("g", again, Commit(member="a", epoch=again.generation, places=place))
    with pytest.raises(StaleMember):
        check_commit("g", again, Commit(member="a", epoch=state.generation, places=place))
    check_commit("g", again, Commit(member="b", epoch=state.generation, places={min(state.held("b")): Place(id=9)}))
    assert join_again(state, "stranger") is state


def test_what_a_member_let_go_of_and_is_to_have_after_all_is_given_to_it_anew():
    """It begins again where the group is: a commit of before that comes later would be of events that it is about to get."""
    state = group("a", "b")
    withdrawn = frozenset(range(4)) - state.assigned("a")
    state = leave(state, {"b"})
    assert {state.given[segment] for segment in withdrawn} == {1}
    commit = Commit(member="a", epoch=1, places={segment: Place(id=5) for segment in withdrawn})
    check_commit("g", state, commit)
    after = let_go(state, "a", state.assigned("a") - withdrawn, epoch=2)
    assert after.assigned("a") == {0, 1, 2, 3}
    assert {after.given[segment] for segment in withdrawn} == {state.generation}
    with pytest.raises(StaleMember):
        check_commit("g", after, commit)
    assert let_go(after, "a", after.assigned("a"), epoch=after.generation) is after
