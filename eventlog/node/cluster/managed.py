"""`--meta managed-etcd`: a node that runs a member of the etcd that holds its cluster's metadata, as its child.

The first node begins with one member. The second node's is a learner, which has no vote; when the third comes, both get one, so
that there never are two voters for longer than that takes. With `managed-etcd:5` the fourth and the fifth go the same way. Later
nodes only use what is there, until a node is removed: then one of them takes its seat. A member lies in the node's
directory and listens beside the node: at its port + 100 for clients, + 200 for other members; these must stay the same.

The child is started again when it dies, and ends with the node. It dies with its parent where the system can arrange that
(`setpriv --pdeathsig`), so a killed node leaves nothing behind that would hold the ports when it starts again.
"""

import asyncio
import logging
import shutil
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eventlog.control.metastores.location import EtcdLocation, Location, open_metastore
from eventlog.errors import BadConfig, MetadataUnavailable
from eventlog.node.cluster.joining import FoundCluster, find_cluster
from eventlog.node.config import PORT_MAX, NodeConfig, split_address
from eventlog.node.home import Home

if TYPE_CHECKING:
    from eventlog.control.metastores.etcd_members import EtcdMember, EtcdMembers

log = logging.getLogger("eventlog.etcd")
CLIENT_PORT_ADDED = 100
PEER_PORT_ADDED = 200
_TOKEN = "eventlog"  # noqa: S105 -- a name, to tell clusters apart
TEND_MS = 10_000  # how often a running node looks whether a seat is free
_QUORUM_S_MAX = 120  # how long a start waits for the members of other nodes
RESTART_MS_MIN = 200
RESTART_MS_MAX = 5_000
STOP_MS_MAX = 5_000
_FLAGS = (
    "--heartbeat-interval=100",
    "--election-timeout=1000",
    "--pre-vote=true",
    "--snapshot-count=10000",
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=10000",
    "--quota-backend-bytes=2147483648",
    "--max-txn-ops=1024",
    "--grpc-keepalive-min-time=1s",
    "--strict-reconfig-check=true",
    "--experimental-initial-corrupt-check=true",
    "--log-level=warn",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSeat:
    """One member: its name, where it listens (`host:port`) for clients and for other members, and where it stores."""

    name: str
    directory: Path
    client: str
    peer: str

    @property
    def has_run(self) -> bool:
        """Whether it is a member already, of the cluster that its directory remembers."""
        return (self.directory / "member").exists()


class EtcdChild:
    """The running member. `restarts` counts how often it died."""

    def __init__(self, command: list[str], *, log_path: Path) -> None:
        self._command = command
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.restarts = 0

    async def start(self) -> None:
        """Start it; when this returns it runs, but may not answer yet."""
        self._process = await self._spawn()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(self._process), name="etcd")

    async def _spawn(self) -> asyncio.subprocess.Process:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as output:
            # A session of its own: Ctrl-C at a terminal ends the node, which ends it after its last commit.
            return await asyncio.create_subprocess_exec(*self._command, stdout=output, stderr=output, start_new_session=True)

    async def _supervise(self, process: asyncio.subprocess.Process) -> None:
        pause_ms = RESTART_MS_MIN
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            code = await process.wait()
            self.restarts += 1
            pause_ms = RESTART_MS_MIN if loop.time() - began > RESTART_MS_MAX / 1000 else min(2 * pause_ms, RESTART_MS_MAX)
            log.warning("etcd_died code=%s restart_ms=%d log=%s", code, pause_ms, self._log_path)
            self._process = process = await self._spawn_again(pause_ms)

    async def _spawn_again(self, pause_ms: int) -> asyncio.subprocess.Process:
        """Start it after a pause, as often as it takes: a full disk or too many open files may be over soon."""
        while True:
            await asyncio.sleep(pause_ms / 1000)
            try:
                return await self._spawn()
            except OSError as error:
                pause_ms = min(2 * pause_ms, RESTART_MS_MAX)
                log.warning("etcd_not_started error=%s restart_ms=%d", error, pause_ms)

    @property
    def pid(self) -> int:
        """The present process's number."""
        assert self._process is not None, "it is started first"
        return self._process.pid

    async def stop(self) -> None:
        """End it: SIGTERM, by which a leader hands over, and SIGKILL if that takes too long."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@dataclass(kw_only=True)
class Managed:
    """What this node does for the metadata: where they are, and the member that it runs, None where there are enough.

    `silent` names the members that did not answer when it last looked.
    """

    seat: EtcdSeat
    members_max: int
    found: FoundCluster
    child: EtcdChild | None
    silent: tuple[str, ...] = ()

    async def location(self) -> Location:
        """Return where the metadata are now: members come and go."""
        location = self.found.location
        assert isinstance(location, EtcdLocation), "it is managed"
        members = _members_of(location)
        try:
            return _with(location, await members.read())
        except MetadataUnavailable:
            return location
        finally:
            await members.close()

    async def tend(self, removed: Collection[str]) -> None:
        """Have the members of the nodes named `removed` go once they have ended, take a seat that is free, and a vote in an odd number.

        Raises:
            MetadataUnavailable: etcd did not do all of it; call again.
        """
        location = await self.location()
        assert isinstance(location, EtcdLocation), "it is managed"
        members = _members_of(location)
        try:
            self.silent = await _free(members, removed)
            if self.child is None:
                self.child = await _sit_down(self.seat, members, members_max=self.members_max)
            if self.child is not None:
                await _vote(self.seat, members)
        finally:
            await members.close()

    async def stop(self, *, is_removed: bool = False) -> None:
        """End the member. That of a removed node goes for good while it has a vote: of two, the other could not let it go alone."""
        if self.child is None:
            return
        if is_removed:
            await self._leave()
        await self.child.stop()

    async def _leave(self) -> None:
        location = await self.location()
        assert isinstance(location, EtcdLocation), "it is managed"
        members = _members_of(location)
        try:
            await members.remove(self.seat.peer)
            log.info("etcd_removed name=%s peer=%s", self.seat.name, self.seat.peer)
        except MetadataUnavailable as error:
            log.warning("etcd_not_removed name=%s peer=%s error=%s", self.seat.name, self.seat.peer, error)  # others do it later
        finally:
            await members.close()


def seat_of(config: NodeConfig, *, name: str, address: str) -> EtcdSeat:
    """Return where this node's member lies and listens.

    Raises:
        BadConfig: there is no room for its ports, or its host has no address.
    """
    host, port = split_address(address, option="listen")
    if port + PEER_PORT_ADDED > PORT_MAX:
        raise BadConfig(option="meta", why=f"managed-etcd needs ports {CLIENT_PORT_ADDED} and {PEER_PORT_ADDED} above {address}")
    try:
        found = socket.gethostbyname(host)  # etcd listens at addresses, not at names
    except OSError as error:
        raise BadConfig(option="advertise", why=f"{host!r} has no address: {error}") from error
    client, peer = f"{found}:{port + CLIENT_PORT_ADDED}", f"{found}:{port + PEER_PORT_ADDED}"
    return EtcdSeat(name=name, directory=config.data.absolute() / "etcd", client=client, peer=peer)


async def open_managed(config: NodeConfig, home: Home, *, seat: EtcdSeat) -> Managed:
    """Start this node's member if it is to have one, and return where the metadata are.

    Raises:
        BadConfig: there is no etcd program, or the cluster has its metadata elsewhere.
        MetadataUnavailable: the members of other nodes do not answer, or did not take this one in.
    """
    if seat.has_run:
        child = await _start(seat, {seat.name: seat.peer}, joins=False)
        known = home.metastore
        location = known if isinstance(known, EtcdLocation) else EtcdLocation((seat.client,))
        managed = _managed(config, seat, FoundCluster(location=location, create=False), child)
    elif home.remembered is None and not config.join:
        child = await _start(seat, {seat.name: seat.peer}, joins=False)
        return _managed(config, seat, FoundCluster(location=EtcdLocation((seat.client,)), create=True), child)
    else:
        found = await find_cluster(config, home)
        if not isinstance(found.location, EtcdLocation):
            raise BadConfig(option="meta", why=f"this cluster has its metadata in {found.location}, not in an etcd of its own")
        managed = _managed(config, seat, found, await _join(seat, found.location, members_max=config.etcd_members_max))
    try:
        await _wait_for_quorum(managed)
        now = await managed.location()
    except BaseException:
        await managed.stop()
        raise
    if managed.child is not None and isinstance(now, EtcdLocation) and seat.client not in now.endpoints:
        now = EtcdLocation((*now.endpoints, seat.client), now.prefix)  # a moment ago it was no member yet
    managed.found = FoundCluster(location=now, create=False, cluster=managed.found.cluster)
    return managed


def _managed(config: NodeConfig, seat: EtcdSeat, found: FoundCluster, child: EtcdChild | None) -> Managed:
    return Managed(seat=seat, members_max=config.etcd_members_max, found=found, child=child)


async def _start(seat: EtcdSeat, cluster: dict[str, str], *, joins: bool, program: str = "") -> EtcdChild:
    command = command_line(program or find_etcd(), seat, cluster=cluster, token=_TOKEN, joins=joins)
    child = EtcdChild(command, log_path=seat.directory.with_suffix(".log"))
    await child.start()
    log.info("etcd_started client=%s peer=%s", seat.client, seat.peer)
    return child


async def _join(seat: EtcdSeat, location: EtcdLocation, *, members_max: int) -> EtcdChild | None:
    """Become a member while there are fewer than `members_max`; the one that makes it an odd number gives all a vote."""
    members = _members_of(location)
    try:
        child = await _sit_down(seat, members, members_max=members_max)
        try:
            if child is not None:
                await _vote(seat, members)
        except BaseException:
            if child is not None:
                await child.stop()
            raise
        return child
    finally:
        await members.close()


async def _sit_down(seat: EtcdSeat, members: "EtcdMembers", *, members_max: int) -> EtcdChild | None:
    """Become a member without a vote, on a seat that has not run: a member of its address is what it was before its directory was lost."""
    await members.remove(seat.peer)  # on an empty directory it would deny what it had acknowledged
    there = await members.read()
    if len(there) >= members_max:
        return None
    program = find_etcd()  # before it is promised to the others
    for learner in [member for member in there if member.is_learner]:
        await members.promote(learner.peer)
    taken = await members.add(seat.peer, members_max=members_max)
    if taken is None:
        return None
    return await _start(seat, {member.name or seat.name: member.peer for member in taken}, joins=True, program=program)


async def _vote(seat: EtcdSeat, members: "EtcdMembers") -> None:
    there = await members.read()
    if len(there) % 2 and any(member.is_learner and member.peer == seat.peer for member in there):
        await members.promote(seat.peer)


async def _free(members: "EtcdMembers", removed: Collection[str]) -> tuple[str, ...]:
    """Remove the members of removed nodes; return the names of others that do not answer.

    One that answers is left for later: through it its node hears that it was removed.
    """
    silent = [member for member in await members.read() if member.clients and not await members.answers(member)]
    for member in silent:
        if member.name in removed:
            await members.remove(member.peer)
            log.info("etcd_removed name=%s peer=%s", member.name, member.peer)
    return tuple(member.name for member in silent if member.name not in removed)


async def _wait_for_quorum(managed: Managed) -> None:
    """Wait until the metadata can be read: the members of nodes that were stopped together come back one by one."""
    deadline = asyncio.get_running_loop().time() + _QUORUM_S_MAX
    while True:
        try:
            store = await open_metastore(managed.found.location, create=False)
            try:
                await store.get("identity")
                return
            finally:
                await store.close()
        except MetadataUnavailable as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            log.info("etcd_waits error=%s", error)


def _members_of(location: EtcdLocation) -> "EtcdMembers":
    try:
        from eventlog.control.metastores.etcd_members import EtcdMembers  # noqa: PLC0415 -- an extra: most nodes do without grpc
    except ImportError:
        raise BadConfig(option="meta", why="etcd needs more packages: pip install 'eventlog[etcd]'") from None
    return EtcdMembers(location.endpoints)


def _with(location: EtcdLocation, members: "Sequence[EtcdMember]") -> EtcdLocation:
    """Return the location with the clients' addresses of all members; those that vote first."""
    ordered = sorted(members, key=lambda member: (member.is_learner, member.name))
    clients = [client for member in ordered for client in member.clients]
    return EtcdLocation(tuple(dict.fromkeys(clients)) or location.endpoints, location.prefix)


def find_etcd(program: str = "etcd") -> str:
    """Return the program's path.

    Raises:
        BadConfig: there is none.
    """
    found = shutil.which(program)
    if found is None:
        raise BadConfig(option="meta", why=f"managed-etcd needs the program {program!r}: install etcd 3.5.14 or newer")
    return found


def command_line(program: str, seat: EtcdSeat, *, cluster: dict[str, str], token: str, joins: bool) -> list[str]:
    """Return how the member is started; `cluster` has every member's name and address for other members, its own too."""
    die_with_parent = shutil.which("setpriv")
    return [
        *([die_with_parent, "--pdeathsig", "TERM"] if die_with_parent else []),
        program,
        f"--name={seat.name}",
        f"--data-dir={seat.directory}",
        f"--listen-client-urls=http://{seat.client}",
        f"--advertise-client-urls=http://{seat.client}",
        f"--listen-peer-urls=http://{seat.peer}",
        f"--initial-advertise-peer-urls=http://{seat.peer}",
        f"--initial-cluster={','.join(f'{name}=http://{peer}' for name, peer in cluster.items())}",
        f"--initial-cluster-token={token}",
        f"--initial-cluster-state={'existing' if joins else 'new'}",
        *_FLAGS,
    ]
