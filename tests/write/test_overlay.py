"""Committed entries on their way into the store."""

from eventlog.write.overlay import Overlay, find_held
from tests.node.writing.roads import store_with

MANY = 20_000  # more than are merged


def group(value: bytes, *, keys: int = MANY) -> list[tuple[bytes, bytes | None]]:
    return [(b"%d" % number, value) for number in range(keys)]


def test_the_newest_group_has_the_last_word():
    overlay = Overlay()
    overlay.push([(b"a", b"1"), (b"b", b"1")], 10)
    overlay.push([(b"a", b"0"), (b"c", None), (b"a", b"2")], 10)
    assert overlay.find([b"a", b"b", b"c", b"d"]) == ({b"a": b"2", b"b": b"1", b"c": None}, [b"d"])
    assert overlay.within(b"a", b"c") == {b"a": b"2", b"b": b"1"}


def test_the_oldest_group_goes_first():
    overlay = Overlay()
    overlay.push(group(b"1"), 10)
    overlay.push(group(b"2", keys=2), 5)
    assert overlay.find([b"0", b"2"]) == ({b"0": b"2", b"2": b"1"}, [])
    overlay.pop_oldest()
    assert overlay.find([b"0", b"2"]) == ({b"0": b"2"}, [b"2"])
    assert (overlay.nbytes, overlay.peak) == (5, 15)


def test_small_groups_go_together_when_the_last_of_them_does():
    overlay = Overlay()
    overlay.push([(b"a", b"1")], 10)
    overlay.push([(b"b", b"2")], 5)
    overlay.pop_oldest()
    assert overlay.find([b"a", b"b"]) == ({b"a": b"1", b"b": b"2"}, [])
    assert overlay.nbytes == 5
    overlay.pop_oldest()
    assert overlay.find([b"a", b"b"]) == ({}, [b"a", b"b"])


def test_what_was_pushed_stays_as_it_was_though_others_are_shown_with_it():
    overlay, first = Overlay(), [(b"a", b"1")]
    overlay.push(first, 1)
    overlay.push([(b"a", b"2")], 1)
    assert overlay.find([b"a"]) == ({b"a": b"2"}, [])
    assert first == [(b"a", b"1")]


def test_what_is_shown_after_somebody_looked_is_seen_as_well():
    overlay = Overlay()
    overlay.push([(b"a", b"1")], 1)
    assert overlay.find([b"a", b"b"]) == ({b"a": b"1"}, [b"b"])
    overlay.push([(b"b", b"2"), (b"a", None)], 1)
    assert overlay.find([b"a", b"b"]) == ({b"a": None, b"b": b"2"}, [])
    assert overlay.within(b"a", b"c") == {b"a": None, b"b": b"2"}


def test_the_memory_of_the_store_is_asked_for_a_few_keys_that_no_group_has():
    overlay, store = Overlay(), store_with([(b"a", b"0"), (b"b", b"1"), *((b"%d" % number, b"") for number in range(100))])
    overlay.push([(b"a", None)], 10)
    assert find_held(overlay, store, [b"a", b"b"]) == ({b"a": None, b"b": b"1"}, [])
    assert find_held(overlay, store, [b"a", b"b", b"c"]) == ({b"a": None}, [b"b", b"c"])
    many = [b"%d" % number for number in range(100)]
    assert find_held(overlay, store, many) == ({}, many)
