"""Three members of etcd, of which one is killed or stopped: commits and watches go on, and nothing is lost or done twice."""

import asyncio
import signal
from contextlib import aclosing

import pytest

from eventlog.control.metastores import etcd
from eventlog.control.metastores.etcd import EtcdOptions, open_etcd
from eventlog.control.metastores.resolving import ResolvingStore, RetryOptions
from eventlog.errors import MetadataUnavailable
from eventlog.testing.clocks import SeededEntropy
from tests.process.etcds import EtcdCluster, fresh_prefix, leader_of

COMMITS = 60
FAULT_AT = 20
FOR_A_MINUTE = RetryOptions(attempts=120)


@pytest.fixture
def cluster(tmp_path):
    with EtcdCluster(tmp_path, members=3) as cluster:
        yield cluster


async def count_up(cluster, prefix: str, fault) -> tuple[int, list[int]]:
    """Count to COMMITS by compare-and-set while a watch looks on; `fault(leader)` happens on the way. Return the end and what was seen."""
    leader = await leader_of(cluster)
    options = EtcdOptions(
        endpoints=(cluster.endpoints[leader], *(a for a in cluster.endpoints if a != cluster.endpoints[leader])), prefix=prefix
    )
    raw = await open_etcd(options, wait_ms_max=60_000)
    store = ResolvingStore(raw, writer="w", entropy=SeededEntropy(1), retry=FOR_A_MINUTE)
    seen: list[int] = []

    async def look() -> None:
        async with aclosing(store.watch("n", 1)) as watch:
            async for entry in watch:
                seen.extend(int(change.value or b"0") for change in entry.changes)
                if seen[-1] == COMMITS:
                    return

    started = await store.commit({}, puts={"before": b""})
    looking = asyncio.ensure_future(look())
    revision = 0
    for number in range(1, COMMITS + 1):
        if number == FAULT_AT:
            fault(leader)
        revision = await store.commit({"n": revision}, puts={"n": str(number).encode()})  # its own retries find out what happened
    async with asyncio.timeout(60):
        await looking
    found = await store.get("n")
    assert found is not None
    assert found.revision == revision
    assert revision == started + COMMITS, "every commit was carried out once"
    await store.close()
    return int(found.value), seen


def test_a_killed_leader_loses_no_commit_and_no_change_of_a_watch(cluster):
    end, seen = asyncio.run(count_up(cluster, fresh_prefix(), lambda leader: cluster.members[leader].kill()))
    assert end == COMMITS
    assert seen == list(range(1, COMMITS + 1))


def test_a_stopped_leader_is_left_for_another(cluster):
    end, seen = asyncio.run(count_up(cluster, fresh_prefix(), lambda leader: cluster.members[leader].signal(signal.SIGSTOP)))
    assert end == COMMITS
    assert seen == list(range(1, COMMITS + 1))


def test_without_a_majority_a_commit_has_an_unknown_outcome_that_is_found_out_later(cluster):
    async def story() -> None:
        opened = await open_etcd(EtcdOptions(endpoints=cluster.endpoints), wait_ms_max=60_000)
        store = ResolvingStore(opened, writer="w", entropy=SeededEntropy(1), retry=FOR_A_MINUTE)
        first = await store.commit({"k": 0}, puts={"k": b"1"})
        stopped = cluster.members[1:]
        for member in stopped:
            member.signal(signal.SIGSTOP)
        waiting = asyncio.ensure_future(store.commit({"k": first}, puts={"k": b"2"}))
        await asyncio.sleep(1.2)  # two tries have no answer
        assert not waiting.done()
        for member in stopped:
            member.signal(signal.SIGCONT)
        second = await waiting
        found = await store.get("k")
        assert found is not None
        assert (found.value, found.revision) == (b"2", second)
        await store.close()

    asyncio.run(story())


def test_an_endpoint_of_another_cluster_is_told_apart_and_never_taken_for_an_empty_store(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(etcd, "READ_MS_MAX", 1_000)

    async def story(own: EtcdCluster, other: EtcdCluster) -> None:
        assert (await leader_of(own), await leader_of(other)) == (0, 0)
        store = await open_etcd(EtcdOptions(endpoints=(*own.endpoints, *other.endpoints), prefix=fresh_prefix()), wait_ms_max=60_000)
        await store.commit({}, puts={"k": b"1"})
        own.members[0].kill()
        for _ in range(2):
            with pytest.raises(MetadataUnavailable):
                await store.list("")
        assert f"etcd_foreign endpoint={other.endpoints[0]}" in caplog.text
        own.members[0].start()
        own.members[0].wait()
        monkeypatch.setattr(etcd, "READ_MS_MAX", 60_000)
        assert [item.key for item in (await store.list("")).items] == ["k"]
        await store.close()

    with EtcdCluster(tmp_path / "own") as own, EtcdCluster(tmp_path / "other") as other:
        asyncio.run(story(own, other))


def test_nobody_listening_is_said_at_once_and_at_the_end_in_one_line(caplog):
    async def story() -> None:
        with pytest.raises(MetadataUnavailable, match=r"no answer from etcd at 127\.0\.0\.1:1"):
            await open_etcd(EtcdOptions(endpoints=("127.0.0.1:1",)), wait_ms_max=300)

    caplog.set_level("INFO")
    asyncio.run(story())
    assert [record.getMessage() for record in caplog.records if "etcd_waits" in record.getMessage()] == [
        "etcd_waits endpoints=127.0.0.1:1 ms_max=300"
    ]
