"""What is held against a group, each on the smallest history that it must object to."""

from dataclasses import replace

from eventlog.groups.record import CommittedPlace, Member, Place, RecordKey, encode_committed, encode_group, encode_key, new_group
from tests.sim.consumers.history import GroupHistory

A, B = Member(id="a"), Member(id="b")
STATE = replace(new_group(1), generation=3, members=(A, B), targets=("a",), holders=("a",), given=(2,))


def group(state):
    return {encode_key(RecordKey(group="g", cache_id=7, tag="g")): encode_group(state)}


def commit(id_, metadata):
    key = RecordKey(group="g", cache_id=7, tag="p", segment=0)
    return {encode_key(key): encode_committed(CommittedPlace(place=Place(id=id_), metadata=metadata))}


def begun():
    history = GroupHistory(segments=1)
    history.log[0] = [10, 20, 30]
    history.processed(0, [10, 20])
    history.kept(group(STATE))
    return history


def test_a_commit_of_who_has_the_segment_is_well():
    history = begun()
    history.kept(commit(20, "a 2"))
    assert history.violations == []


def test_a_commit_counts_for_nobody_else_and_not_for_an_earlier_epoch():
    for metadata in ("b 3", "a 1"):
        history = begun()
        history.kept(commit(20, metadata))
        assert "counted in segment 0, which a has" in history.violations[0]


def test_nothing_unprocessed_is_committed_and_no_place_goes_back():
    history = begun()
    history.kept(commit(30, "a 3"))
    history.kept(commit(10, "a 3"))
    assert ["nobody has processed 30" in history.violations[0], "went back from 30 to 10" in history.violations[1]] == [True, True]


def test_generations_rise():
    history = begun()
    history.kept(group(replace(STATE, generation=2)))
    assert history.violations == ["generation 2 came after 3"]


def test_two_do_not_read_a_segment_unless_the_session_of_one_is_over():
    history = begun()
    history.begins(0, "a", after=0, awake={"a"})
    history.begins(0, "b", after=0, awake={"b"})
    assert history.violations == []
    history.begins(0, "c", after=0, awake={"b", "c"})
    assert history.violations == ["segment 0 is read by c and by b, whose session goes on"]


def test_who_is_given_a_segment_goes_on_behind_what_is_committed():
    history = begun()
    history.kept(commit(20, "a 2"))
    history.begins(0, "b", after=20, awake={"b"})
    assert history.violations == []
    history.begins(0, "c", after=10, awake={"c"})
    assert history.violations == ["c begins to read segment 0 behind 10, and 20 is committed"]


def test_at_the_end_all_was_processed_and_committed():
    found = begun().check_end()
    assert ["1 events of segment 0 were never processed" in found[0], "is committed up to 0, and ends at 30" in found[1]] == [True, True]
