"""A stranger that knows an address and speaks the protocol as a member would: nothing of the cluster is lost to it, and nothing told."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from eventlog.control.metastores.location import Location, open_metastore, parse_location
from eventlog.control.records import CLUSTER_KEY, ClusterKey, decode
from eventlog.errors import EventLogError
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION
from eventlog.replication.messages import ACK, APPEND, BEGIN
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.clusters import ClusterProcesses, ask
from tests.process.nodes import NodeProcess

SEGMENTS = 16
ENTRIES = 1_040
PLACES = 20
TRIES = 120
EPOCH = (1 << 32) - 2


async def forged(connection: Connection, *, number: int) -> pb.PeerHelloAnswer:
    """Greet as member `number` of the cluster, and prove it with what the other side has proved."""
    hello = pb.PeerHello(
        cluster=connection.hello.cluster, number=number, incarnation="forged", version=PEER_VERSION, nonce=bytes(NONCE_BYTES)
    )
    greeted = (await connection.request(Message(peer_hello=hello), timeout_ms=20_000)).message.peer_hello_answer
    await connection.request(Message(peer_proof=pb.PeerProof(proofs=greeted.proofs)), timeout_ms=20_000)
    return greeted


async def replicate(connection: Connection, rows: np.ndarray, *, recipient: str) -> bytes:
    """Send rows as a primary does, and return what is answered."""
    request = Message(replicate=pb.Replicate(correlation=1, rows=len(rows), recipient=recipient))
    return bytes((await connection.request(request, rows.tobytes(), timeout_ms=20_000)).body)


async def erase(address: str, *, own: int) -> str:
    """Have a node drop all it has: a greeting, "I lead every segment", "here begins a snapshot". Return what hindered it."""
    host, port = address.rsplit(":", 1)
    connection = await connect(host, int(port))
    try:
        greeted = await forged(connection, number=own % 3 + 1)
        rows = np.zeros(SEGMENTS, APPEND)
        rows["segment"], rows["epoch"], rows["previous"], rows["last"] = np.arange(SEGMENTS), EPOCH, 1, 1
        answers = np.frombuffer(await replicate(connection, rows, recipient=greeted.incarnation), ACK)
        rows["flags"], rows["watermark"][answers["segment"]] = BEGIN, answers["end"]
        await replicate(connection, rows, recipient=greeted.incarnation)
    except EventLogError as error:
        return error.code
    finally:
        connection.close()
        await connection.wait_closed()
    return ""


def test_three_frames_of_a_forged_member_erase_nothing(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c", "--format", "bytes")
        rows = b"".join(b'{"k": "%d"}\n' % number for number in range(ENTRIES))
        cluster.command("load", "c", "-", "--key", "k", stdin=rows)
        found = []
        for number, node in enumerate(cluster, 1):
            found.append(asyncio.run(erase(node.address, own=number)))
        cluster.kill()
        cluster.restart_all()
        cluster.settle()
        assert ask(cluster[0].address, Message(size=pb.Size(cache_id=1))).size_answer.size == ENTRIES
        assert found == ["NOT_MEMBER"] * 3
        assert all("greeting_refused from=127.0.0.1:" in node.log_text() for node in cluster)


def test_idle_connections_of_a_stranger_keep_no_operator_out(tmp_path: Path) -> None:
    async def run(node: NodeProcess) -> None:
        host, port = node.address.rsplit(":", 1)
        strangers = [await connect(host, int(port)) for _ in range(PLACES)]
        try:
            for _ in range(TRIES):  # they have to be idle for a while before they give way
                listed = await asyncio.to_thread(node.command, "cache", "list", ok=False)
                if not listed.returncode:
                    break
                await asyncio.sleep(0.5)
            assert listed.returncode == 0
            assert any(stranger.is_closed for stranger in strangers)
        finally:
            for stranger in strangers:
                stranger.close()
                await stranger.wait_closed()

    with NodeProcess(tmp_path / "node", "--connections-max", str(PLACES)) as node:
        asyncio.run(run(node))


def test_busy_connections_of_a_stranger_on_the_same_host_keep_no_operator_out(tmp_path: Path) -> None:
    async def run(node: NodeProcess) -> None:
        host, port = node.address.rsplit(":", 1)
        strangers = [await connect(host, int(port)) for _ in range(PLACES)]
        try:
            waits = pb.Poll(cache_id=1, latest=True, max_events=1, wait_ms=120_000)
            for stranger in strangers:
                stranger.send(Message(poll=waits)).add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            for words in (("admin", "status"), ("admin", "nodes"), ("admin", "segments"), ("top", "--count", "1")):
                await asyncio.to_thread(node.command, *words)
            await asyncio.to_thread(node.command, "admin", "retention", "run", "c", "--dry-run")
            refused = await asyncio.to_thread(node.command, "--timeout", "1s", "put", "c", "k", "v", ok=False)
            assert b"OVERLOADED" in refused.stderr
            assert not any(stranger.is_closed for stranger in strangers), "they are busy, and so they stay"
        finally:
            for stranger in strangers:
                stranger.close()
                await stranger.wait_closed()

    with NodeProcess(tmp_path / "node", "--connections-max", str(PLACES)) as node:
        node.command("cache", "create", "c", "--format", "bytes")
        asyncio.run(run(node))


def test_a_cluster_key_is_replaced_while_writers_write_and_the_one_before_ends(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c", "--format", "bytes")
        location = parse_location(cluster.metastore)
        before = asyncio.run(key_of(location))
        rows = b"".join(b'{"k": "%d"}\n' % number for number in range(20_000))
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(cluster.command, "load", "c", "-", "--key", "k", stdin=rows)
            cluster.command("admin", "cluster-key", "rotate", "--overlap", "10s", node=1)
            refused = cluster.command("admin", "cluster-key", "rotate", node=2, ok=False)
            assert b"OPERATION_REFUSED" in refused.stderr
            asyncio.run(until_ended(location))
            loading.result()
        after = asyncio.run(key_of(location))
        assert (after.previous, len(after.key)) == (None, 32)
        assert after.key != before.key
        cluster.command("put", "c", "k", "v")
        for node in cluster:
            assert "peer_lost" not in node.log_text()
            assert "peer_key_ended" not in node.log_text()
        assert ask(cluster[2].address, Message(size=pb.Size(cache_id=1))).size_answer.size == 20_001


async def key_of(location: Location) -> ClusterKey:
    store = await open_metastore(location, create=False)
    try:
        item = await store.get(CLUSTER_KEY)
    finally:
        await store.close()
    assert item is not None
    return decode(item.value, ClusterKey, where=CLUSTER_KEY)


async def until_ended(location: Location) -> None:
    async with asyncio.timeout(60):
        while (await key_of(location)).previous is not None:  # noqa: ASYNC110 -- another process ends it
            await asyncio.sleep(0.1)  # a poll of the store; nothing else tells
