"""Committed entries on their way into the store."""

from eventlog.node.writing.overlay import Overlay


def test_the_newest_layer_has_the_last_word():
    overlay = Overlay()
    overlay.push({b"a": b"1", b"b": b"1"}, 10)
    overlay.push({b"a": b"2", b"c": None}, 10)
    assert overlay.find([b"a", b"b", b"c", b"d"]) == ({b"a": b"2", b"b": b"1", b"c": None}, [b"d"])
    assert overlay.within(b"a", b"c") == {b"a": b"2", b"b": b"1"}


def test_the_oldest_layer_goes_first():
    overlay = Overlay()
    overlay.push({b"a": b"1"}, 10)
    overlay.push({b"b": b"2"}, 5)
    overlay.pop_oldest()
    assert overlay.find([b"a", b"b"]) == ({b"b": b"2"}, [b"a"])
    assert (overlay.nbytes, overlay.peak) == (5, 15)
