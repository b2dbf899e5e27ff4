"""How a process finds the cluster that it is to be a member of: by what its directory remembers, by an option, or by asking a node."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eventlog.control.metastores.location import Location, SqliteLocation, parse_location
from eventlog.control.records import NodeRecord
from eventlog.errors import ConnectionLost, EventLogError, MetastoreLocal, Unavailable, WrongCluster
from eventlog.node.config import NodeConfig, split_address
from eventlog.node.home import Home
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.transport.options import ConnectOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")
_ASK_MS_MAX = 2_000
_JOIN_MS_MAX = 20_000  # a joiner waits for the nodes that it was told of: they may be starting just as well
_PAUSE_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the metadata are, and whether a store may be made there; `cluster` is what nodes that were asked said, or empty."""

    location: Location
    create: bool
    cluster: str = ""


async def find_cluster(config: NodeConfig, home: Home) -> Found:
    """Return where this node's cluster has its metadata. Nodes named by `join` are asked; a directory with data can do without.

    Raises:
        WrongCluster: a node named by `join` belongs to another cluster than the directory.
        MetastoreLocal: the metadata are in a file of another host.
        ConnectionLost: none of the nodes named by `join` answers.
    """
    remembered = home.remembered
    given = parse_location(config.meta) if config.meta and not config.is_managed else None
    location = given or (home.metastore if remembered is not None else None)
    if remembered is not None:
        with suppress(Unavailable):
            if config.join:
                info = await _ask_any(config.join, wait_ms=0)
                if info.cluster != remembered.cluster:
                    raise WrongCluster(where=f"the node at {' or '.join(config.join)}", theirs=info.cluster, ours=remembered.cluster)
        return Found(location=location or config.location, create=False)
    if not config.join:
        return Found(location=location or config.location, create=True)
    info = await _ask_any(config.join, wait_ms=_JOIN_MS_MAX)
    return Found(location=location or reachable(info), create=False, cluster=info.cluster)


def reachable(info: pb.ClusterInfoAnswer) -> Location:
    """Return the location that a node told.

    Raises:
        MetastoreLocal: it is a file, and not one that this process sees as well.
    """
    location = parse_location(info.metastore)
    if isinstance(location, SqliteLocation) and (info.host, info.file) != (host_of(), file_of(location)):
        raise MetastoreLocal(cluster=info.cluster, where=info.metastore)
    return location


def host_of() -> str:
    """Return what tells this machine, since it was started, from others; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def file_of(location: SqliteLocation) -> str:
    """Return what tells a file from others of the machine, whatever paths lead to it; empty if there is none."""
    try:
        found = location.path.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def tell(location: Location, answer: pb.ClusterInfoAnswer) -> None:
    """Write into an answer where the metadata are, and which file that is."""
    answer.metastore = str(location)
    if isinstance(location, SqliteLocation):
        answer.host, answer.file = host_of(), file_of(location)


async def _ask_any(addresses: Sequence[str], *, wait_ms: int) -> pb.ClusterInfoAnswer:
    """Return the first answer of one of the nodes; ask again until there is one, for `wait_ms`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    said: set[tuple[str, str]] = set()
    while True:
        errors: list[EventLogError] = []
        for address in addresses:
            try:
                return await _ask(address)
            except Unavailable as error:
                errors.append(error)
                if (address, str(error)) not in said:
                    log.info("join_waits address=%s error=%s", address, error)
                    said.add((address, str(error)))
        if loop.time() >= deadline:
            whys = [error.why if isinstance(error, ConnectionLost) else str(error) for error in errors] or ["there is none to ask"]
            raise ConnectionLost(address=" or ".join(addresses), why=whys[-1])
        await asyncio.sleep(_PAUSE_MS / 1000)


async def is_up(member: NodeRecord, *, cluster: str) -> bool:
    """Return whether a member answers at its address."""
    try:
        connection = await _connect(member.address)
    except (EventLogError, OSError):
        return False
    connection.close()
    await connection.wait_closed()
    return (connection.hello.cluster, connection.hello.number) == (cluster, member.number)


async def _connect(address: str) -> Connection:
    host, port = split_address(address, option="join")
    return await connect(host, port, options=ConnectOptions(client="joiner", connect_timeout_ms=_ASK_MS_MAX))


async def _ask(address: str) -> pb.ClusterInfoAnswer:
    connection = await _connect(address)
    try:
        reply = await connection.request(Message(cluster_info=pb.ClusterInfo()), timeout_ms=_ASK_MS_MAX)
    finally:
        connection.close()
        await connection.wait_closed()
    return reply.message.cluster_info_answer
