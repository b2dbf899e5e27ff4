"""What readers were given, judged: exactly what matches, a state that is one, and a query's entries."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.sim.cluster.history import History
from tests.sim.cluster.reading import Filtered, Querying, StateFirst


def world():
    return SimpleNamespace(history=History(2), reached=Counter(), chance=random.Random(1), client_loop=lambda _name: None)


def event(id_, key, kind="MODIFIED", n=None, **more):
    value = None if n is None else {"n": n}
    return SimpleNamespace(id=id_, key=key, kind=kind, value=value, maybe_repeated=False, **more)


LOG = [event(1, "a1", "CREATED", 3), event(2, "b1", "CREATED", 2), event(3, "a1", "REMOVED"), event(4, "b1", "MODIFIED", 3)]


@pytest.mark.parametrize(
    ("where", "seen", "is_right"),
    [
        ("value.n = 3", [1, 4], True),
        ("value.n = 3", [1], False),
        ("value.n = 3", [1, 2, 4], False),
        ("value.n = 3", [1, 1, 4], False),
        ("kind = 'REMOVED'", [3], True),
        ("value.n >= 2 AND key LIKE 'a%'", [1], True),
        ("", [1, 2, 3, 4], True),
    ],
)
def test_a_reader_with_a_filter_has_seen_what_matches_and_nothing_else(where, seen, is_right):
    reader = Filtered(world(), 1, where)
    reader.seen += seen
    assert (reader.differs(LOG) == "") is is_right


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([event(1, "a1", "STATE", 3), event(1, "a1", "STATE", 3)], "entry a1 was told twice with the state"),
        ([event(1, "a1", "STATE", 3), event(1, "a1", "CREATED", 3)], "event 1 of a1 was told again: its version 1 is known"),
        ([event(2, "a1", "MODIFIED", 3)], "a1 was MODIFIED at 2, and its version 0 was known"),
        ([event(1, "a1", "STATE", 3), event(2, "a1", "CREATED", 3)], "a1 was CREATED at 2, and its version 1 was known"),
    ],
)
def test_state_and_tail_tell_everything_once(events, wrong):
    reader = StateFirst(world(), 1)
    for one in events:
        reader.take(one)
    assert reader.world.history.violations == [wrong]


def test_what_state_and_tail_make_is_the_state():
    reader = StateFirst(world(), 1)
    for one in (event(1, "a1", "STATE", 3), event(2, "b1", "CREATED", 2), event(3, "a1", "EXPIRED")):
        reader.take(one)
    assert reader.world.history.violations == []
    assert reader.differs({"b1": (2, {"n": 2})}) == ""
    assert reader.differs({}) == "state and what came after it are not the state: 1 keys differ, the first b1"


def test_a_query_has_the_entries_that_match():
    reader = Querying(world(), 1, "value.n = 3")
    for key, change, n in (("a1", "JOINED", 3), ("b1", "JOINED", 3), ("a1", "LEFT", None)):
        reader.take(SimpleNamespace(key=key, change=change, value={"n": n}, position="p"))
    assert reader.world.history.violations == []
    assert reader.differs({"a1": (3, {"n": 2}), "b1": (2, {"n": 3})}) == ""
    assert reader.differs({"a1": (3, {"n": 3}), "b1": (2, {"n": 3})}) != ""
    reader.take(SimpleNamespace(key="b1", change="JOINED", value={"n": 3}, position="p"))
    assert reader.world.history.violations == ["a query was told JOINED of b1, which is True in it"]
