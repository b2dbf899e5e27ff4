"""Cut networks, in namespaces and by proxies: the minority acknowledges nothing, the majority goes on, nothing is lost or doubled."""

import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.process.network_clusters import AnyNetwork, NetworkCluster
from tests.process.networks import Network
from tests.process.proxied_networks import ProxiedNetwork
from tests.process.trials import Trial, controller_of, most_primaries

IN_NAMESPACES = pytest.param(Network, id="namespaces", marks=pytest.mark.needs_root("networks of our own are made of namespaces"))
BY_PROXIES = pytest.param(ProxiedNetwork, id="proxies")
UNDER_WAY_S = 0.5  # what was on its way when a cable was pulled may still be answered


@pytest.fixture(params=[IN_NAMESPACES, BY_PROXIES])
def network(request: pytest.FixtureRequest) -> Iterator[AnyNetwork]:
    """Hosts for the nodes, two clients, and the test itself."""
    with request.param("n1", "n2", "n3", "client", "other", "test") as network, network.inside("test"):
        yield network


def test_one_node_is_cut_off_in_every_way_and_no_writer_sees_an_error(tmp_path, network):
    with NetworkCluster(tmp_path, network) as cluster, Trial(cluster, tmp_path, wrapper=network.wrapper("client")) as trial:

        def names_of(victim: int) -> tuple[str, list[str]]:
            return f"n{victim + 1}", [f"n{index + 1}" for index in range(3) if index != victim]

        def last() -> None:
            trial.busy()
            time.sleep(1)  # the fault itself: the network stays as it is

        victim, others = names_of(most_primaries(cluster))
        with trial.lasting(f"{victim} is cut off", lambda: network.pull(victim), lambda: network.plug(victim)):
            last()
        cluster.settle()
        victim, others = names_of(most_primaries(cluster))
        with trial.lasting(f"{victim} is not heard", lambda: cluster.mute(victim, others), lambda: cluster.unmute(victim, others)):
            last()
        cluster.settle()
        victim, others = names_of(most_primaries(cluster))
        with trial.lasting(f"{victim} hears nobody", lambda: hear_nobody(cluster, victim, others), lambda: hear(cluster, victim, others)):
            last()
        cluster.settle()
        victim, others = names_of(most_primaries(cluster))
        with trial.lasting(
            f"{victim} and {others[0]} are cut", lambda: network.part(victim, others[0]), lambda: network.join(victim, others[0])
        ):
            last()
        cluster.settle()
        victim, others = names_of(controller_of(cluster))
        with trial.lasting(f"{victim}, the controller, is cut off", lambda: network.pull(victim), lambda: network.plug(victim)):
            last()
        cluster.settle()
        trial.happen("the client is cut off for 2 s", lambda: cut_for(network, "client", 2))
        trial.busy()
        history = trial.verdict()
    assert history.errors() == []


def test_a_line_that_delays_and_loses_packets_costs_time_and_nothing_else(tmp_path, network):
    with NetworkCluster(tmp_path, network) as cluster, Trial(cluster, tmp_path, wrapper=network.wrapper("client")) as trial:
        for role in ("the busiest primary", "the client"):
            name = "client" if role == "the client" else f"n{most_primaries(cluster) + 1}"
            begin = partial(network.narrow, name, kbit_per_s=256, queue_ms=100)
            with trial.lasting(f"the line of {role} is slow and lossy", begin, lambda name=name: network.widen(name)):
                wait_for_loss(network, name)
                trial.busy(operations=20)
            cluster.settle()
            trial.busy()
        history = trial.verdict()
    assert history.errors() == []


def wait_for_loss(network: AnyNetwork, name: str) -> None:
    deadline = time.monotonic() + 60
    while not all(network.held_and_lost(name)):
        assert time.monotonic() < deadline, f"held and lost: {network.held_and_lost(name)}"
        time.sleep(0.05)  # a poll of the kernel's counters; nothing else tells


def hear_nobody(cluster: NetworkCluster, victim: str, others: list[str]) -> None:
    for other in others:
        cluster.mute(other, [victim])


def hear(cluster: NetworkCluster, victim: str, others: list[str]) -> None:
    for other in others:
        cluster.unmute(other, [victim])


def cut_for(network: AnyNetwork, host: str, seconds: float) -> None:
    network.pull(host)
    time.sleep(seconds)  # the fault itself
    network.plug(host)


def test_a_primary_alone_with_its_writers_acknowledges_nothing(tmp_path, network):
    others = [("alone", network.wrapper("other"))]
    with NetworkCluster(tmp_path, network) as cluster, Trial(cluster, tmp_path, wrapper=network.wrapper("client"), others=others) as trial:
        victim = f"n{most_primaries(cluster) + 1}"
        small, large = [victim, "other"], [*({"n1", "n2", "n3"} - {victim}), "client", "test"]
        with trial.lasting(f"{victim} alone", lambda: cluster.part(small, large), lambda: cluster.join(small, large)):
            began = time.monotonic()
            time.sleep(UNDER_WAY_S)
            trial.busy()
            time.sleep(max(0.0, began + 4 - time.monotonic()))  # the fault itself
            ended = time.monotonic()
        cluster.settle()
        trial.others["alone"].busy()
        history = trial.verdict()
    assert history.errors() == []
    assert trial.histories["alone"].acknowledged_between(began + UNDER_WAY_S, ended) == 0
    assert history.acknowledged_between(began + UNDER_WAY_S, ended) > 0
