"""The network that fault tests use does what it says: who can reach whom, when cables are pulled and roads lead nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.networks import Network

pytestmark = pytest.mark.needs_root
LISTEN = "import socket, sys; s = socket.create_server((sys.argv[1], 7000)); print('ready', flush=True)\nwhile True: s.accept()[0].close()"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])).close()"


def reaches(network: Network, name: str, other: str, *, within_s: float = 60) -> bool:
    command = [*network.wrapper(name), sys.executable, "-c", CONNECT, network.address(other), str(within_s)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_cut_off(network: Network, name: str, other: str) -> bool:
    """Return whether one host does not reach another within a time in which it would."""
    return not reaches(network, name, other, within_s=0.3)


@pytest.fixture
def network():
    with Network("a", "b", "c") as network:
        servers = [
            subprocess.Popen([*network.wrapper(name), sys.executable, "-c", LISTEN, network.address(name)], stdout=subprocess.PIPE)
            for name in "abc"
        ]
        for server in servers:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
        yield network
        for server in servers:
            server.kill()
            server.wait()
            assert server.stdout is not None
            server.stdout.close()


def test_hosts_reach_each_other_until_a_cable_is_pulled(network):
    assert reaches(network, "a", "b")
    network.pull("b")
    assert is_cut_off(network, "a", "b")
    assert is_cut_off(network, "b", "c")
    assert reaches(network, "a", "c")
    network.plug("b")
    assert reaches(network, "a", "b")


def test_a_pair_is_parted_and_joined_and_the_third_reaches_both(network):
    network.part("a", "b")
    assert is_cut_off(network, "a", "b")
    assert reaches(network, "a", "c")
    assert reaches(network, "c", "b")
    network.join("a", "b")
    assert reaches(network, "b", "a")


def test_nothing_is_left_of_a_network():
    with Network("a") as network:
        own = Path(network.wrapper("a")[-1]).name
        assert own in _namespaces()
    assert own not in _namespaces()


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
