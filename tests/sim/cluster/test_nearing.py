"""What near caches serve, judged: not older than they promise, and never behind what the same client wrote."""

import pytest

from tests.sim.cluster.nearing import Read, Served

S = 1_000_000


def served(*reads):
    found = Served()
    found.written["k"] += [(1 * S, 10), (3 * S, 30)]
    found.reads += reads
    return found


def read(at_s, version, *, own=0):
    return Read(asked_us=int(at_s * S), key="k", version=version, own=own)


@pytest.mark.parametrize(
    ("at_s", "version", "is_wrong"), [(1.9, 0, False), (2.1, 0, True), (3.9, 10, False), (4.1, 10, True), (4.1, 30, False)]
)
def test_what_is_served_was_true_within_the_staleness(at_s, version, is_wrong):
    assert bool(served(read(at_s, version)).judge({})) is is_wrong


def test_nothing_is_served_where_it_was_removed():
    assert served(read(9, 0)).judge({"k": [40]}) == []
    assert served(read(9, 0)).judge({"k": [20]}) == ["k was served as of 0, and 30 was acknowledged long before"]


def test_what_a_client_wrote_it_reads():
    assert served(read(3.1, 10, own=30)).judge({}) == ["k was served as of 10, and 30 was acknowledged by the same client"]
