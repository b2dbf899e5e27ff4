"""What a mirror wrote into Kafka, judged: each event once, those of a segment in order."""

import asyncio

import pytest

from eventlog.mirror.progress import SegmentProgress
from eventlog.testing.kafka import FakeBrokers, FakeKafka
from tests.sim.cluster.mirroring import gone_back_in, undone_in, wrong_in


@pytest.mark.parametrize(
    ("mirrored", "wrong"),
    [
        ({0: [1, 2, 5], 1: [3, 4]}, []),
        ({0: [1, 2, 1]}, ["event 1 of segment 0 is in Kafka more than once"]),
        ({0: [1, 2], 1: [4, 3]}, ["events of segment 1 are not in order in Kafka"]),
    ],
)
def test_each_event_is_in_kafka_once_and_in_order(mirrored, wrong):
    assert wrong_in(mirrored) == wrong


@pytest.mark.parametrize(
    ("places", "is_wrong"),
    [(((1, 5), (2, 5), (2, 9)), False), (((1, 5), (1, 4)), True), (((2, 5), (1, 6)), True)],
    ids=["on and on", "an earlier id", "an earlier term"],
)
def test_progress_never_goes_back(places, is_wrong):
    told = [(b"a", SegmentProgress(cluster="c", generation=1, term=term, id=id_, next=0, epoch=1)) for term, id_ in places]
    assert bool(gone_back_in(told)) is is_wrong
    assert gone_back_in([(b"%d" % number, one) for number, (_, one) in enumerate(told)]) == []  # each key is one by itself


def test_what_kafka_undid_is_nobody_s_fault():
    async def main():
        brokers = FakeBrokers()
        kafka = FakeKafka(brokers)
        await kafka.create("t", partitions=1, settings={})
        assert undone_in(brokers) == set()
        async with kafka.writer("w") as writer:
            await writer.write({}, progress_topic="t", progress={b"k": b"v"})
        [record, _] = brokers.log("t", 0)
        brokers.undone.append((("t", 0), record.transaction))
        assert undone_in(brokers) == set()  # it is no event

    asyncio.run(main())
