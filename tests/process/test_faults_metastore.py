"""A cluster whose metadata are in etcd while members of etcd die and stand still: writes go on as long as leases last, and no longer."""

import asyncio
import signal
import time

import pytest

from eventlog import blocking
from tests.process.clusters import ClusterProcesses
from tests.process.etcds import EtcdCluster, leader_of
from tests.process.trials import CACHE, Trial, most_primaries

pytestmark = pytest.mark.timeout(300)

LEASE_OVER_S = 7  # a lease of 5 s, a renewal under way, a group that was stamped before


def test_members_of_etcd_die_and_stand_still_and_all_of_them_at_once(tmp_path):
    with (
        EtcdCluster(tmp_path / "etcd", members=3) as etcd,
        ClusterProcesses(tmp_path, metastore=f"etcd://{','.join(etcd.endpoints)}") as cluster,
        Trial(cluster, tmp_path) as trial,
    ):

        def leader() -> int:
            return asyncio.run(leader_of(etcd))

        def signal_all(number: int) -> None:
            for member in etcd.members:
                member.signal(number)

        killed = etcd.members[leader()]
        trial.happen("kill -9 of etcd's leader", killed.kill)
        trial.busy()
        killed.start()
        killed.wait()
        stopped = etcd.members[leader()]
        with trial.lasting("etcd's leader stands still", lambda: stopped.signal(signal.SIGSTOP), lambda: stopped.signal(signal.SIGCONT)):
            trial.busy()
            victim = most_primaries(cluster)
            trial.happen("kill -9 of a primary meanwhile", lambda: cluster.kill(victim))
            trial.busy()
            cluster.start()
        cluster.settle()
        went_on = False
        for _ in range(10):  # where the machine stands still too, a node is taken for dead, and that waits for etcd
            with trial.lasting("etcd stands still for a moment", lambda: signal_all(signal.SIGSTOP), lambda: signal_all(signal.SIGCONT)):
                before = trial.load.acknowledged
                time.sleep(3)  # the fault itself
                went_on = trial.load.acknowledged >= before + 10
            trial.busy()
            cluster.settle()
            if went_on:
                break
        assert went_on, "writes need no metadata store for a moment"
        with trial.lasting("etcd stands still for longer", lambda: signal_all(signal.SIGSTOP), lambda: signal_all(signal.SIGCONT)):
            began = time.monotonic()
            time.sleep(LEASE_OVER_S + 2)  # the fault itself
            with blocking.connect(cluster[0].address) as client:
                assert client.cache(CACHE).poll().events, "a new reader is greeted and reads what there is"
            found = cluster.until(lambda status: status.health == "unavailable", node=most_primaries(cluster), within_s=60)
            assert any("metadata store" in advice and "does not answer" in advice for advice in found.advice)
            ended = time.monotonic()
        trial.busy()
        history = trial.verdict()
    assert history.acknowledged_between(began + LEASE_OVER_S, ended) == 0, "nobody acknowledges without a lease"
