"""What comes after a failure: nothing is given up that goes away by itself, and nothing is tried for ever that needs a person."""

import pytest

from eventlog.errors import (
    CacheDropped,
    CacheNotFound,
    EventsTrimmed,
    KafkaFailed,
    MirrorTaken,
    NoConnection,
    OutboundRefused,
    PositionDiverged,
    RegistryFailed,
    SchemaRefused,
    Stopping,
    UnfitValue,
)
from eventlog.mirror.broker import Trouble
from eventlog.mirror.outcomes import STANDING, outcome_of, outcome_of_error


@pytest.mark.parametrize(
    ("code", "next_", "state"),
    [
        (None, "anew", "waiting"),
        (7, "anew", "waiting"),
        (3, "anew", "waiting"),
        (19, "anew", "waiting"),
        (20, "anew", "waiting"),
        (22, "yield", "starting"),
        (47, "yield", "starting"),
        (90, "yield", "starting"),
        (45, "anew", "starting"),
        (10, "stop", "halted"),
        (29, "stop", "halted"),
        (53, "stop", "halted"),
        (58, "stop", "halted"),
        (87, "stop", "halted"),
    ],
)
def test_trouble_with_kafka(code, next_, state):
    found = outcome_of(Trouble(code, "as it said"), topic="t")
    assert (found.next, found.state) == (next_, state)
    assert found.why


@pytest.mark.parametrize(
    ("error", "next_", "state"),
    [
        (EventsTrimmed(first_id=9, lost=3), "stop", "trimmed"),
        (PositionDiverged(segment=1, after=2, upto=3), "stop", "diverged"),
        (CacheNotFound(cache="c"), "stop", "ended"),
        (CacheDropped(cache="c"), "stop", "ended"),
        (NoConnection(node="n", why="has none"), "anew", "waiting"),
        (OutboundRefused(node="n", address="a:1", allowed="b:1"), "anew", "waiting"),
        (KafkaFailed(kafka="main", why="no"), "anew", "waiting"),
        (RegistryFailed(registry="main", why="no"), "anew", "waiting"),
        (SchemaRefused(subject="t-value", why="no"), "stop", "halted"),
        (Stopping(), "anew", "waiting"),
        (UnfitValue(segment=1, offset=2, key="k", field="value.a", why="no number"), "stop", "halted"),
        (MirrorTaken(topic="t", mirror="m", cluster="c"), "stop", "halted"),
    ],
)
def test_errors_of_ours(error, next_, state):
    found = outcome_of_error(error, mirror="orders")
    assert (found.next, found.state) == (next_, state)
    assert (found.state in STANDING) is (found.next == "stop")


def test_what_needs_a_person_says_what_to_do():
    assert "eventlog mirror pause orders" in outcome_of_error(EventsTrimmed(first_id=9, lost=3), mirror="orders").why
    assert "--accept-diverged" in outcome_of_error(PositionDiverged(segment=1, after=2, upto=3), mirror="orders").why
    assert "eventlog mirror resume orders" in outcome_of_error(SchemaRefused(subject="t-value", why="no"), mirror="orders").why
    assert "max.message.bytes" in outcome_of(Trouble(10, ""), topic="t").why
