"""The metadata store as a process sees it: late, sometimes silent, never wrong."""

import random

import pytest

from eventlog.errors import MetadataConflict, MetadataUnavailable
from tests.sim.loop import virtual_loop
from tests.sim.metadata import METADATA_HOST, HostStore, SharedStore
from tests.sim.network import Network
from tests.sim.scheduler import Process, Scheduler


class Bench:
    """One shared store, and two hosts that use it."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        chance = random.Random(seed)
        self.network = Network(self.scheduler, chance)
        self.shared = SharedStore(self.scheduler)
        process = Process(self.scheduler)
        self.errors: list[Exception] = []
        self.loop = virtual_loop(process, on_error=self.errors.append)
        self.hosts = [HostStore(self.shared, self.network, self.loop, host=host, chance=chance) for host in ("1", "2")]

    def run(self, work, seconds: float = 10.0):
        task = self.loop.create_task(work)
        self.scheduler.run(self.scheduler.now_us + int(seconds * 1e6))
        return task.result()


def test_of_two_that_expect_the_same_revision_one_conflicts():
    bench = Bench()
    one, two = bench.hosts
    assert bench.run(one.commit({"a": 0}, puts={"a": b"1"})) == 1
    with pytest.raises(MetadataConflict):
        bench.run(two.commit({"a": 0}, puts={"a": b"2"}))
    assert bench.run(two.get("a")).value == b"1"


def test_an_outage_is_an_outcome_that_nobody_knows():
    bench = Bench()
    bench.shared.faults.is_out = True
    with pytest.raises(MetadataUnavailable) as refused:
        bench.run(bench.hosts[0].commit({}, puts={"a": b"1"}))
    assert refused.value.outcome == "unknown"
    with pytest.raises(MetadataUnavailable):
        bench.run(bench.hosts[0].get("a"))


def test_a_host_that_is_cut_off_learns_nothing_though_its_commit_may_have_happened():
    bench = Bench()
    bench.network.cut_ways([(METADATA_HOST, "1")])
    with pytest.raises(MetadataUnavailable):
        bench.run(bench.hosts[0].commit({}, puts={"a": b"1"}))
    assert bench.run(bench.hosts[1].get("a")).value == b"1"


def test_unknown_commits_are_done_at_once_or_later_or_never():
    done = {"at once": 0, "later": 0, "never": 0}
    for seed in range(60):
        bench = Bench(seed)
        bench.shared.faults.unknown = 1.0
        with pytest.raises(MetadataUnavailable):
            bench.run(bench.hosts[0].commit({}, puts={"a": b"1"}), seconds=0.502)
        at_once = bench.shared.get("a") is not None
        bench.scheduler.run(5_000_000)
        later = bench.shared.get("a") is not None
        done["at once" if at_once else "later" if later else "never"] += 1
    assert all(count > 5 for count in done.values()), done


def test_a_watch_tells_every_change_in_order_and_waits_for_the_next():
    bench = Bench()
    seen = []
    note = seen.append

    async def watch() -> None:
        async for changes in bench.hosts[1].watch("a", 1):
            note((changes.revision, [change.key for change in changes.changes]))

    bench.loop.start(watch())
    for key in ("a1", "b", "a2"):
        bench.run(bench.hosts[0].commit({}, puts={key: b""}))
    bench.run(bench.hosts[0].commit({}, puts={"b": b""}, deletes=["a1"]))
    assert (seen, bench.errors) == ([(1, ["a1"]), (3, ["a2"]), (4, ["a1"])], [])


def test_a_watch_goes_on_where_it_was_when_the_store_is_back():
    bench = Bench()
    seen = []
    note = seen.append

    async def watch() -> None:
        async for changes in bench.hosts[1].watch("", 1):
            note(changes.revision)

    bench.loop.start(watch())
    bench.scheduler.run(1_000)
    bench.network.cut_ways([(METADATA_HOST, "2")])
    bench.run(bench.hosts[0].commit({}, puts={"a": b""}))
    assert seen == []
    bench.network.mend_ways([(METADATA_HOST, "2")])
    bench.scheduler.run(bench.scheduler.now_us + 1_000_000)
    assert seen == [1]
