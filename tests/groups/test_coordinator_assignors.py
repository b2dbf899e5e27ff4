from hypothesis import given
from hypothesis import strategies as st

from eventlog.groups.coordinator import ASSIGNORS, assign
from eventlog.groups.record import NOBODY, Member

IDS = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1, max_size=8)


@st.composite
def groups(draw):
    members = [Member(id=id_, node=draw(st.integers(0, 3))) for id_ in sorted(draw(IDS))]
    segments = draw(st.integers(1, 40))
    holders = st.sampled_from([NOBODY, *(member.id for member in members)])
    current = tuple(draw(st.lists(holders, min_size=segments, max_size=segments)))
    leaders = draw(st.lists(st.integers(0, 3), min_size=segments, max_size=segments))
    return members, current, leaders


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_segment_goes_to_a_member_and_none_gets_more_than_one_above_another(group, name):
    members, current, leaders = group
    targets = assign(name, members, current, leaders)
    sizes = [targets.count(member.id) for member in members]
    assert sum(sizes) == len(current)
    assert max(sizes) - min(sizes) <= 1


@given(groups(), st.sampled_from(["uniform", "owner"]))
def test_no_more_moves_than_balance_demands(group, name):
    members, current, leaders = group
    targets = assign(name, members, current, leaders)
    moved = sum(before not in (NOBODY, after) for before, after in zip(current, targets, strict=True))
    share, extra = divmod(len(current), len(members))
    counts = sorted((current.count(member.id) for member in members), reverse=True)
    assert moved == sum(max(0, count - share - (place < extra)) for place, count in enumerate(counts))


def test_owner_prefers_who_is_connected_to_the_leader():
    members = [Member(id="a", node=1), Member(id="b", node=2)]
    assert assign("owner", members, (NOBODY,) * 6, [2, 1, 2, 1, 1, 2]) == ("b", "a", "b", "a", "a", "b")
    assert assign("owner", members, ("a",) * 6, [2, 1, 2, 1, 1, 2]) == ("b", "a", "b", "a", "a", "b")


def test_range_keeps_neighbours_together():
    members = [Member(id=id_) for id_ in "abc"]
    assert assign("range", members, (NOBODY,) * 7, []) == ("a", "a", "a", "b", "b", "c", "c")


def test_without_members_nobody_has_anything():
    assert assign("uniform", [], ("a",), []) == (NOBODY,)
