from types import SimpleNamespace

import numpy as np

from eventlog.client.members.progress import MemberProgress, ends_of, places_of, position_of
from eventlog.events import Event
from eventlog.groups.record import Place


def event(id_, segment, offset):
    return Event(id=id_, kind_number=0, key_bytes=b"k", value_bytes=b"1", segment=segment, offset=offset, source=None)


def batch(*rows):
    ids, segments, offsets, epochs = (np.array(column) for column in zip(*rows, strict=True))
    return SimpleNamespace(ids=ids, segments=segments, offsets=offsets, epochs=epochs)


def progress(*segments):
    found = MemberProgress()
    found.begin({segment: Place(id=0) for segment in segments})
    return found


def ids(places):
    return {segment: place.id for segment, place in places.items()}


def test_an_event_is_done_when_the_next_one_is_handed_out():
    found = progress(1, 2)
    found.hand_event(event(10, 1, 0))
    assert ids(found.uncommitted(all_handed=False)) == {}
    assert ids(found.uncommitted(all_handed=True)) == {1: 10}
    found.hand_event(event(20, 2, 0))
    assert ids(found.uncommitted(all_handed=False)) == {1: 10}
    found.finish_event()
    assert ids(found.uncommitted(all_handed=False)) == {1: 10, 2: 20}


def test_what_is_committed_is_not_committed_again():
    found = progress(1)
    found.hand_event(event(10, 1, 0))
    found.was_committed(found.uncommitted(all_handed=True))
    assert found.uncommitted(all_handed=True) == {}
    found.was_committed({1: Place(id=5)})
    assert found.committed[1].id == 10


def test_a_batch_is_done_when_the_next_one_is_handed_out():
    found = progress(1, 2)
    found.hand_batch(batch((10, 1, 0, 3), (20, 2, 0, 3), (30, 1, 1, 4)))
    assert found.uncommitted(all_handed=False) == {}
    assert found.uncommitted(all_handed=True) == {1: Place(id=30, next_offset=2, epoch=4), 2: Place(id=20, next_offset=1, epoch=3)}
    found.hand_batch(batch((40, 1, 2, 4)))
    assert ids(found.uncommitted(all_handed=False)) == {1: 30, 2: 20}


def test_what_did_not_match_is_passed_over_once_all_before_it_is_done():
    found = progress(1, 2)
    found.hand_event(event(10, 1, 0))
    found.pass_over({1: Place(id=99), 2: Place(id=99)})
    assert ids(found.uncommitted(all_handed=True)) == {1: 99, 2: 99}
    assert ids(found.uncommitted(all_handed=False)) == {2: 99}


def test_segments_that_are_let_go_are_forgotten_and_others_fetched_again():
    found = progress(1, 2)
    found.fetched({1: Place(id=50), 2: Place(id=50)})
    found.hand_event(event(10, 1, 0))
    found.hand_event(event(20, 2, 0))
    found.drop({2})
    found.rewind({1})
    assert found.owned == {1}
    assert found.fetch[1].id == 10
    found.finish_event()
    assert ids(found.uncommitted(all_handed=True)) == {1: 10}


def test_epochs_are_those_of_the_batch_that_is_handed_out():
    found = progress(1)
    found.know_epochs(batch((10, 1, 0, 3), (20, 1, 1, 5)))
    assert found.place_of(event(20, 1, 1)) == Place(id=20, next_offset=2, epoch=5)


def test_places_become_a_position_and_back():
    places = {3: Place(id=7, next_offset=2, epoch=1), 1: Place(id=9)}
    assert places_of(position_of(places, ("c", 1, 8))) == places
    assert ids(ends_of(batch((30, 1, 1, 0), (10, 1, 0, 0)))) == {1: 30}
