"""The networks that fault tests use do what they say: who hears whom, when cables are pulled and hosts are muted."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.network_clusters import AnyNetwork
from tests.process.networks import Network
from tests.process.proxied_networks import ProxiedNetwork

LISTEN = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
print(listening.getsockname()[1], flush=True)
while True:
    connection = listening.accept()[0]
    connection.sendall(connection.recv(1))
    connection.close()
"""
CALL = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
with socket.create_connection((host, int(port)), timeout=float(sys.argv[2])) as connection:
    connection.sendall(b"?")
    assert connection.recv(1) == b"?"
"""


class Hosts:
    """A network in which a process on every host answers whoever calls."""

    def __init__(self, network: AnyNetwork, addresses: dict[str, str]) -> None:
        self.network = network
        self._addresses = addresses

    def reaches(self, name: str, other: str, *, within_s: float = 60) -> bool:
        command = [*self.network.wrapper(name), sys.executable, "-c", CALL, self._addresses[other], str(within_s)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def is_cut_off(self, name: str, other: str) -> bool:
        """Return whether one host is not answered by another within a time in which it would be."""
        return not self.reaches(name, other, within_s=0.3)


@contextmanager
def listening(network: AnyNetwork, name: str, address: str, port: int) -> Iterator[str]:
    command = [*network.wrapper(name), sys.executable, "-c", LISTEN, address, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"{address}:{int(server.stdout.readline())}"
        server.kill()


@pytest.fixture
def in_namespaces() -> Iterator[Hosts]:
    with (
        Network("a", "b", "c") as network,
        listening(network, "a", network.address("a"), 7000) as a,
        listening(network, "b", network.address("b"), 7000) as b,
        listening(network, "c", network.address("c"), 7000) as c,
    ):
        yield Hosts(network, {"a": a, "b": b, "c": c})


@pytest.fixture
def by_proxies() -> Iterator[Hosts]:
    with (
        ProxiedNetwork("a", "b", "c") as network,
        listening(network, "a", "127.0.0.1", 0) as a,
        listening(network, "b", "127.0.0.1", 0) as b,
        listening(network, "c", "127.0.0.1", 0) as c,
    ):
        for name, address in (("a", a), ("b", b), ("c", c)):
            network.lead(name, lambda address=address: address)  # type: ignore[misc]
        yield Hosts(network, {name: network.address(name) for name in "abc"})


@pytest.fixture(
    params=[
        pytest.param("in_namespaces", marks=pytest.mark.needs_root("networks of our own are made of namespaces")),
        "by_proxies",
    ]
)
def hosts(request: pytest.FixtureRequest) -> Hosts:
    found: Hosts = request.getfixturevalue(request.param)
    return found


def test_hosts_reach_each_other_until_a_cable_is_pulled(hosts):
    assert hosts.reaches("a", "b")
    hosts.network.pull("b")
    assert hosts.is_cut_off("a", "b")
    assert hosts.is_cut_off("b", "c")
    assert hosts.reaches("a", "c")
    hosts.network.plug("b")
    assert hosts.reaches("a", "b")


def test_a_pair_is_parted_and_joined_and_the_third_reaches_both(hosts):
    hosts.network.part("a", "b")
    assert hosts.is_cut_off("a", "b")
    assert hosts.reaches("a", "c")
    assert hosts.reaches("c", "b")
    hosts.network.join("a", "b")
    assert hosts.reaches("b", "a")


def test_who_is_muted_is_not_heard_where_it_is_muted(hosts):
    hosts.network.mute("a", "b")
    assert hosts.is_cut_off("a", "b")
    assert hosts.is_cut_off("b", "a"), "the answer does not arrive"
    assert hosts.reaches("a", "c")
    hosts.network.unmute("a", "b")
    assert hosts.reaches("a", "b")


@pytest.mark.needs_root("networks of our own are made of namespaces")
def test_nothing_is_left_of_a_network_in_namespaces():
    with Network("a") as network:
        own = Path(network.wrapper("a")[-1]).name
        assert own in _namespaces()
    assert own not in _namespaces()


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
