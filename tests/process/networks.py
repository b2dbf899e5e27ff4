"""A network of our own, as root: one namespace a host, a bridge between them, cables that can be pulled and roads that end nowhere."""

import ctypes
import itertools
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.process.nodes import NodeProcess

_NETWORK = 0x40000000  # CLONE_NEWNET
_numbers = itertools.count(os.getpid() % 200)


def is_possible() -> bool:
    """Return whether this process may make networks."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


class Cuts(ABC):
    """Faults that are made of others."""

    @abstractmethod
    def mute(self, name: str, towards: str) -> None:
        """Let nothing that one host sends arrive at another; what comes back still arrives."""

    @abstractmethod
    def unmute(self, name: str, towards: str) -> None:
        """End a `mute`."""

    def part(self, name: str, other: str) -> None:
        """Cut the two off from each other, and from nobody else."""
        self.mute(name, other)
        self.mute(other, name)

    def join(self, name: str, other: str) -> None:
        """End a `part`."""
        self.unmute(name, other)
        self.unmute(other, name)


class Network(Cuts):
    """Hosts by name, each in a namespace that is gone at the end of `with`. Nothing leads out of it."""

    def __init__(self, *names: str) -> None:
        number = next(_numbers) % 250
        self._prefix = f"ev{os.getpid() % 100_000}x{number}"
        self._subnet = f"10.{100 + os.getpid() % 100}.{number}"
        self._hosts = {name: at for at, name in enumerate(names, 1)}

    def __enter__(self) -> Self:
        if not is_possible():
            pytest.skip("network namespaces need root and the program ip (Debian, Ubuntu: apt-get install iproute2)")
        try:
            self._build()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _build(self) -> None:
        hub = self._namespace("hub")
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        for name, at in self._hosts.items():
            own = self._namespace(name)
            _run("ip", "netns", "add", own)
            _run("ip", "-n", own, "link", "set", "lo", "up")
            _run("ip", "-n", hub, "link", "add", f"port{at}", "type", "veth", "peer", "name", "eth0", "netns", own)
            _run("ip", "-n", hub, "link", "set", f"port{at}", "master", "bridge", "up")
            _run("ip", "-n", own, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            _run("ip", "-n", own, "link", "set", "eth0", "up")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name in (*self._hosts, "hub"):
            if Path(f"/run/netns/{self._namespace(name)}").exists():
                _run("ip", "netns", "del", self._namespace(name))

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def address(self, name: str) -> str:
        """Return a host's address."""
        return f"{self._subnet}.{self._hosts[name]}"

    def wrapper(self, name: str) -> tuple[str, ...]:
        """Return what to put before a command so that it runs on that host."""
        # not `ip netns exec`, which copies all mounts as well: a disk that another test takes off would stay mounted there
        return ("nsenter", f"--net=/run/netns/{self._namespace(name)}")

    def place(self, name: str, node: NodeProcess) -> str:
        """Put a node on a host; return where it is reached."""
        node.wrapper = self.wrapper(name)
        node.address, node.http = f"{self.address(name)}:7400", f"{self.address(name)}:7480"
        node.options = ("--insecure", *node.options)
        return node.address

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Put the calling thread, and the threads and processes that it starts meanwhile, on a host."""
        with Path("/proc/thread-self/ns/net").open() as before, Path(f"/run/netns/{self._namespace(name)}").open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    # ------------------------------------------------------------ faults

    def pull(self, name: str) -> None:
        """Pull a host's cable: nothing reaches it, nothing leaves it, and nobody is told."""
        _run("ip", "-n", self._namespace("hub"), "link", "set", f"port{self._hosts[name]}", "down")

    def plug(self, name: str) -> None:
        """Put the cable back."""
        _run("ip", "-n", self._namespace("hub"), "link", "set", f"port{self._hosts[name]}", "up")

    def narrow(self, name: str, *, kbit_per_s: int, queue_ms: int) -> None:
        """Let a host's line carry so much, both ways: what exceeds it waits in a queue, and what the queue does not hold is lost."""
        for namespace, device in self._ends(name):
            shape = f"rate {kbit_per_s}kbit burst 4kb latency {queue_ms}ms"
            _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *shape.split())

    def widen(self, name: str) -> None:
        """End a `narrow`."""
        for namespace, device in self._ends(name):
            _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    def held_and_lost(self, name: str) -> tuple[int, int]:
        """Return how often packets had to wait on a narrow line, and how many were lost there."""
        shown = "".join(_run("tc", "-n", namespace, "-s", "qdisc", "show", "dev", device) for namespace, device in self._ends(name))
        lost, held = (sum(map(int, re.findall(rf"{word} (\d+)", shown))) for word in ("dropped", "overlimits"))
        return held, lost

    def _ends(self, name: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self._namespace("hub"), f"port{self._hosts[name]}"), (self._namespace(name), "eth0")

    def mute(self, name: str, towards: str) -> None:
        _run("ip", "-n", self._namespace(name), "route", "add", "blackhole", f"{self.address(towards)}/32")

    def unmute(self, name: str, towards: str) -> None:
        _run("ip", "-n", self._namespace(name), "route", "del", "blackhole", f"{self.address(towards)}/32")


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
