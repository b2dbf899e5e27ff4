"""etcd for tests: the one named by EVENTLOG_TEST_ETCD, one on PATH, that of our image where a container engine answers, else that of
Debian's package. The last two are unpacked into `.build/` and run as processes of the test, which stops and kills them."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from eventlog.control.metastores import etcd, etcd_pb2
from eventlog.control.metastores.etcd import STATUS, Endpoints
from tests.ports import free_port

TOP = Path(__file__).resolve().parents[2]
UNPACKED = TOP / ".build" / "etcd"
BINARY = Path("usr/bin/etcd")  # in the package, and in the image
READY_S = 60
FLAGS = ("--heartbeat-interval=100", "--election-timeout=1000", "--log-level=error", "--auto-compaction-retention=0")


def etcd_binary() -> Path:
    """Return the program: from PATH, else from our image or Debian's package, fetched once."""
    if found := shutil.which("etcd"):
        return Path(found)
    binary = UNPACKED / BINARY
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        if engine_answers():
            copy_from_image(binary)
        else:
            _unpack_package()
    return binary


def engine_answers() -> bool:
    """Return whether a container engine runs here. Asked by another process: the library leaves a socket open where none does."""
    ask = "import docker; docker.from_env(timeout=5).ping()"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False).returncode == 0


def copy_from_image(binary: Path) -> None:
    """Take the program out of the image that docker/compose.yaml runs."""
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.image import DockerImage

    image = DockerImage(path=TOP / "docker", dockerfile_path="etcd.Dockerfile", clean_up=False)
    with image, DockerContainer(str(image)) as container:
        container.copy_from_container(f"/{BINARY}", binary)
    binary.chmod(0o755)


def _unpack_package() -> None:
    _fetch_package()
    package = next(UNPACKED.glob("etcd-server_*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, UNPACKED], check=True)


def _fetch_package() -> None:
    fetch = ["apt-get", "download", "etcd-server"]
    if subprocess.run(fetch, cwd=UNPACKED, capture_output=True, check=False).returncode == 0:
        return
    subprocess.run(["apt-get", "update"], capture_output=True, check=False)  # a new machine has no package lists yet
    done = subprocess.run(fetch, cwd=UNPACKED, capture_output=True, text=True, check=False)
    if done.returncode:
        why = "etcd is needed: put it on PATH, name one with EVENTLOG_TEST_ETCD, or make `apt-get download etcd-server` work"
        raise AssertionError(f"{why}\n{done.stderr}")


class EtcdProcess:
    """One member as a process of this test."""

    def __init__(self, directory: Path, *, name: str = "e1", peers: dict[str, str] | None = None, client: str = "") -> None:
        self.name = name
        self.directory = directory / name
        self.address = client or f"127.0.0.1:{free_port()}"
        self.peers = peers or {name: f"http://127.0.0.1:{free_port()}"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with what it had stored if it ran before."""
        self.directory.mkdir(parents=True, exist_ok=True)
        url = f"http://{self.address}"
        command = [
            str(etcd_binary()),
            f"--name={self.name}",
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={self.peers[self.name]}",
            f"--initial-advertise-peer-urls={self.peers[self.name]}",
            "--initial-cluster=" + ",".join(f"{name}={peer}" for name, peer in self.peers.items()),
            f"--initial-cluster-token={self.directory.parent.name}",
            *FLAGS,
        ]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"ETCD_UNSUPPORTED_ARCH": ""})

    def wait(self) -> None:
        """Wait until it listens."""
        assert self._process is not None
        host, port = self.address.split(":")
        deadline = time.monotonic() + READY_S
        while True:
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2000:]
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, "etcd does not listen"
                time.sleep(0.02)  # nothing else tells
            else:
                return

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(READY_S)
            self._process = None


class EtcdCluster:
    """One or more members, running inside `with`."""

    def __init__(self, directory: Path, members: int = 1) -> None:
        peers = {f"e{number}": f"http://127.0.0.1:{free_port()}" for number in range(1, members + 1)}
        self.members = [EtcdProcess(directory, name=name, peers=peers) for name in peers]

    @property
    def endpoints(self) -> tuple[str, ...]:
        """`host:port` of every member."""
        return tuple(member.address for member in self.members)

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self.members:
            if member._process is not None:
                member.signal(signal.SIGCONT)
            member.kill()


async def leader_of(cluster: EtcdCluster) -> int:
    """Return the place of the member that leads."""
    calls = Endpoints(cluster.endpoints)
    try:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            answers = await calls.ask_each(STATUS, etcd_pb2.StatusRequest())
            for place, address in enumerate(cluster.endpoints):
                found = answers.get(address)
                if found is not None and found.leader == found.header.member_id:
                    return place
            await asyncio.sleep(0.05)
    finally:
        await calls.close()
    raise AssertionError("nobody leads")


def wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process wait for etcd's answers for as long as a machine that stands still may make it."""
    for module, name in ((etcd, "TRY_MS"), (etcd, "READ_MS_MAX"), (etcd, "RENEW_MS_MAX")):
        monkeypatch.setattr(module, name, READY_S * 1000)


def named_endpoints() -> tuple[str, ...]:
    """Return the endpoints that the environment names for tests, none if it names none."""
    return tuple(filter(None, os.environ.get("EVENTLOG_TEST_ETCD", "").split(",")))


def fresh_prefix() -> str:
    """Return a prefix under which nobody has put anything."""
    return f"test-{uuid.uuid4().hex}/"
