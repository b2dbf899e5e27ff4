import pytest

from eventlog.errors import StaleMember
from eventlog.groups.coordinator import join, leave, let_go
from eventlog.groups.record import Commit, CommittedPlace, Member, Place, advance, check_commit, new_group


def commit(member, epoch, *segments, id_=5):
    return Commit(member=member, epoch=epoch, places={segment: Place(id=id_) for segment in segments})


def test_only_the_holder_commits():
    state = join(join(new_group(2), Member(id="a")), Member(id="b"))
    state = let_go(state, "a", state.assigned("a"), epoch=2)
    (own,), (other,) = state.held("a"), state.held("b")
    check_commit("g", state, commit("a", 2, own))
    for refused in (commit("a", 2, other), commit("a", 2, own, other), commit("c", 2, own), commit("a", 2, 9)):
        with pytest.raises(StaleMember):
            check_commit("g", state, refused)


def test_what_was_taken_before_the_segment_was_another_s_does_not_count():
    state = join(new_group(1), Member(id="a"))
    check_commit("g", state, commit("a", 1, 0))
    state = join(leave(join(leave(state, {"a"}), Member(id="b")), {"b"}), Member(id="a"))
    with pytest.raises(StaleMember):
        check_commit("g", state, commit("a", 1, 0))
    check_commit("g", state, commit("a", state.generation, 0))


def test_places_never_go_back():
    before = {0: CommittedPlace(place=Place(id=7)), 1: CommittedPlace(place=Place(id=3))}
    changed = advance(before, commit("a", 1, 0, 1, 2), generation=4, time_ms=9)
    assert {segment: one.place.id for segment, one in changed.items()} == {1: 5, 2: 5}
    assert changed[1].generation == 4
    same = Commit(member="a", epoch=1, places={0: Place(id=7)}, metadata="new")
    assert advance(before, same, generation=4, time_ms=9)[0].metadata == "new"
