"""What comes after a failure: nothing is given up that goes away by itself, and nothing is tried for ever that needs a person."""

import pytest

from eventlog.errors import (
    BadConfig,
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
from eventlog.mirror.shards import STANDING, TopicReplicas, hindrance, outcome_of, outcome_of_error


@pytest.mark.parametrize(
    ("code", "next_", "state"),
    [
        (None, "anew", "waiting"),
        (7, "anew", "waiting"),
        (3, "anew", "waiting"),
        (19, "anew", "waiting"),
        (20, "anew", "waiting"),
        (5, "anew", "waiting"),
        (15, "anew", "waiting"),
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
        (BadConfig(option="password_file", why="p cannot be read"), "anew", "waiting"),
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


def test_what_is_waited_for_is_said_in_words_that_tell_it_from_a_broker_that_is_away():
    said = {code: outcome_of(Trouble(code, "as it said"), topic="t").why for code in (None, 3, 5, 7, 15, 19, 20)}
    assert said == {
        **dict.fromkeys((None, 7), "Kafka is away: as it said"),
        **dict.fromkeys((5, 15, 19, 20), "Kafka takes no transaction: as it said"),
        3: "topic t is not there",
    }


def test_what_needs_a_person_says_what_to_do():
    assert "eventlog mirror pause orders" in outcome_of_error(EventsTrimmed(first_id=9, lost=3), mirror="orders").why
    assert "--accept-diverged" in outcome_of_error(PositionDiverged(segment=1, after=2, upto=3), mirror="orders").why
    assert "eventlog mirror resume orders" in outcome_of_error(SchemaRefused(subject="t-value", why="no"), mirror="orders").why
    assert "eventlog mirror remove orders --yes" in outcome_of_error(CacheDropped(cache="c"), mirror="orders").why
    assert "max.message.bytes" in outcome_of(Trouble(10, ""), topic="t").why


@pytest.mark.parametrize(
    ("least", "partitions", "said"),
    [
        (2, [(0, 1, 3, 2), (1, 2, 3, 3)], None),
        (2, [(1, 1, 3, 1), (0, 2, 3, 2)], "partition 1 of topic t has 1 in-sync replicas of 3, fewer than its min.insync.replicas of 2"),
        (None, [(0, 1, 3, 1)], None),
        (1, [(0, 1, 1, 1), (1, -1, 2, 2)], "no broker that runs can lead partition 1 of topic t, which has 2 replicas"),
        (2, [(2, 1, 3, 1), (1, -1, 3, 0), (0, 1, 3, 2)], "no broker that runs can lead partition 1 of topic t, which has 3 replicas"),
        (1, [(0, 0, 1, 1)], None),
        (2, [], None),
    ],
)
def test_what_keeps_a_topic_from_taking_records(least, partitions, said):
    found = hindrance(TopicReplicas(topic="t", least=least, partitions=partitions))
    assert (None if found is None else str(found)) == said
    if found is not None:
        assert outcome_of(found, topic="t").why == f"Kafka takes no transaction: {said}"
