"""How a process finds the cluster that it is to be a member of: by what its directory remembers, by an option, or by asking a node.

A node tells where the metadata are to members, and to a process that proves to know the join token, or to be one of its own user on its
own host: that makes a file which the node can open and which no other user can have made.
"""

import asyncio
import hmac
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes

from eventlog.control.metastores.location import Location, SqliteLocation, parse_location
from eventlog.control.records import NodeRecord
from eventlog.errors import (
    BadConfig,
    ConnectionLost,
    EventLogError,
    JoinRefused,
    MetastoreLocal,
    Unavailable,
    UnsupportedVersion,
    WrongCluster,
)
from eventlog.node.cluster.greeting import PEER_VERSION
from eventlog.node.cluster.peers import is_of_member
from eventlog.node.config import NodeConfig, join_token, split_address
from eventlog.node.home import Home
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection, Exchange
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")
_ASK_MS_MAX = 2_000
_JOIN_MS_MAX = 20_000  # a joiner waits for the nodes that it was told of: they may be starting just as well
_PAUSE_MS = 200
_NONCE = "join"  # under which a connection keeps what a joiner is to prove
_NONCE_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCluster:
    """Where the metadata are, and whether a store may be made there; `cluster` is what nodes that were asked said, or empty."""

    location: Location
    create: bool
    cluster: str = ""


async def find_cluster(config: NodeConfig, home: Home) -> FoundCluster:
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
                info = await first_answer(config.join, partial(_ask, config=None), wait_ms=0)
                if info.cluster != remembered.cluster:
                    raise WrongCluster(where=f"the node at {' or '.join(config.join)}", theirs=info.cluster, ours=remembered.cluster)
        return FoundCluster(location=location or config.location, create=False)
    if not config.join:
        return FoundCluster(location=location or config.location, create=True)
    asker = partial(_ask, config=config if location is None else None)
    info = await first_answer(config.join, asker, wait_ms=_JOIN_MS_MAX)
    return FoundCluster(location=location or reachable(info), create=False, cluster=info.cluster)


# ---------------------------------------------------------------- being asked


class Joiners:
    """Which nodes may be told where the metadata are; `token` is the join token, empty for none."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._looking = asyncio.Semaphore()  # one at a time: a path that somebody names may lead to a disk that does not answer

    async def heard(self, exchange: Exchange) -> bytes | None:
        """Return None where the asking node may be told, else a nonce to prove that with.

        Raises:
            UnsupportedVersion: it is of a version that cannot be a member here.
        """
        asked, state = exchange.message.cluster_info, exchange.connection.state
        if is_of_member(exchange.connection):
            return None
        if asked.version != PEER_VERSION:
            raise UnsupportedVersion(theirs=f"{asked.version or 1} between members", ours=str(PEER_VERSION))
        nonce: bytes = state.pop(_NONCE, b"")
        if nonce and asked.token_proof and self._token and hmac.compare_digest(_token_proof(self._token, nonce), asked.token_proof):
            return None
        if nonce and asked.file:
            async with self._looking:
                if await asyncio.to_thread(is_own, asked.file, nonce):
                    return None
        state[_NONCE] = nonce = token_bytes(_NONCE_BYTES)
        return nonce


def _token_proof(token: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token, b"eventlog join" + nonce, "sha256")


def proof_name(nonce: bytes) -> str:
    return f"join-{nonce.hex()}"


def is_own(name: str, nonce: bytes) -> bool:
    """Return whether a file was made, after `nonce` was told, by a process of this user: nobody else can make one that is so."""
    path, content = Path(name), nonce.hex().encode()
    try:
        if not path.is_absolute() or path.name != proof_name(nonce) or not _is_private(path.lstat()):
            return False  # before it is opened: opening can do something to what is no plain file
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return _is_private(os.fstat(handle)) and os.read(handle, len(content) + 1) == content
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return False


def _is_private(found: os.stat_result) -> bool:
    """Return whether a plain file is this user's alone, under one name: others may link, move or write what is theirs as well."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077 and found.st_nlink == 1


# ---------------------------------------------------------------- places


def reachable(info: pb.ClusterInfoAnswer) -> Location:
    """Return the location that a node told.

    A path says nothing about the host, and two containers of one host share no files: a second file taken for the first would be two
    clusters that believe to be one. Addresses do not tell either, since a host has several and a proxy hides them.

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


async def first_answer(
    addresses: Sequence[str], ask: Callable[[str], Awaitable[pb.ClusterInfoAnswer]], *, wait_ms: int, pause_ms: int = _PAUSE_MS
) -> pb.ClusterInfoAnswer:
    """Return the first answer that `ask` brings from one of the addresses; all are asked again until there is one, for `wait_ms`.

    Raises:
        ConnectionLost: there was none in time; it names all addresses, and what was wrong with the last.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    said: set[tuple[str, str]] = set()
    while True:
        errors: list[EventLogError] = []
        for address in addresses:
            try:
                return await ask(address)
            except Unavailable as error:
                errors.append(error)
                if (address, str(error)) not in said:
                    log.info("join_waits address=%s error=%s", address, error)
                    said.add((address, str(error)))
        if loop.time() >= deadline:
            whys = [error.why if isinstance(error, ConnectionLost) else str(error) for error in errors] or ["there is none to ask"]
            raise ConnectionLost(address=" or ".join(addresses), why=whys[-1])
        await asyncio.sleep(pause_ms / 1000)


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
    return await connect(host, port, options=GreetingOptions(client="joiner", connect_timeout_ms=_ASK_MS_MAX))


async def _ask(address: str, config: NodeConfig | None) -> pb.ClusterInfoAnswer:
    """Return what a node tells; with the configuration of the asking node, after proving that it may hear all of it.

    Raises:
        JoinRefused: the node takes the proof for none.
    """
    connection = await _connect(address)
    try:
        found = await _told(connection, pb.ClusterInfo(version=PEER_VERSION))
        if config is None or found.metastore:
            return found
        if token := join_token(config):
            found = await _told(connection, pb.ClusterInfo(version=PEER_VERSION, token_proof=_token_proof(token, found.nonce)))
        if not found.metastore:
            with _proof_file(config.data.absolute() / proof_name(found.nonce), found.nonce.hex().encode()) as path:
                found = await _told(connection, pb.ClusterInfo(version=PEER_VERSION, file=str(path)))
    finally:
        connection.close()
        await connection.wait_closed()
    if not found.metastore:
        raise JoinRefused(where=address)
    return found


async def _told(connection: Connection, asked: pb.ClusterInfo) -> pb.ClusterInfoAnswer:
    return (await connection.request(Message(cluster_info=asked), timeout_ms=_ASK_MS_MAX)).message.cluster_info_answer


@contextmanager
def _proof_file(path: Path, content: bytes) -> Iterator[Path]:
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise BadConfig(option="data", why=f"{path}: {error.strerror}") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
