"""Errors as text and as copies."""

import pickle

import pytest

from eventlog.errors import EventsTrimmed, OutcomeUnknown, TimedOut, VersionMismatch, foreign

UNKNOWN = OutcomeUnknown(outcome="unknown", why="the connection was lost")


def test_an_error_shows_its_facts_also_where_only_its_repr_is_printed():
    assert repr(TimedOut(what="Hello", timeout_ms=50)) == "TimedOut(what='Hello', timeout_ms=50)"
    assert repr(ExceptionGroup("two", [UNKNOWN])).count("the connection was lost") == 1


def test_a_repr_can_be_read_back():
    found = eval(repr(UNKNOWN))
    assert (type(found), found.facts(), found.outcome) == (OutcomeUnknown, UNKNOWN.facts(), "unknown")


@pytest.mark.parametrize("error", [UNKNOWN, TimedOut(what="Hello", timeout_ms=50)])
def test_an_error_survives_pickling_with_everything_it_says(error):
    found = pickle.loads(pickle.dumps(error))
    assert str(found) == str(error)
    assert repr(found) == repr(error)


def test_facts_that_an_error_does_not_have_are_refused():
    with pytest.raises(TypeError, match="TimedOut takes what, timeout_ms"):
        TimedOut(what="Hello")


def test_a_missing_entry_to_replace_is_told_without_versions_that_nobody_named():
    assert str(VersionMismatch(key="k", expected=-1, found=0)) == "key 'k' has no entry to replace; put one"
    assert str(VersionMismatch(key="k", expected=7, found=8)) == "key 'k' has version 8 (0: none), not 7; read it again and decide"


def test_where_nothing_is_kept_no_first_id_is_told():
    assert "the first id kept is 9: go on from earliest" in str(EventsTrimmed(first_id=9, lost=3))
    assert str(EventsTrimmed(first_id=0, lost=3)).endswith("nothing after it is kept: go on from earliest")


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise SystemExit(1)


def test_of_what_foreign_code_raises_the_class_is_told_and_the_beginning_of_its_text():
    assert foreign(KeyError("x")) == "KeyError: 'x'"
    assert len(foreign(ValueError("x" * 1_000_000))) < 2_000
    assert foreign(Unspeakable()) == "Unspeakable"
