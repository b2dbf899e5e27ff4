"""What a node tells of its metadata to whom, and what of it is left for others on the disk."""

import asyncio
import hmac
import os
import stat
from pathlib import Path

from eventlog.node.cluster.greeting import PEER_VERSION
from eventlog.node.cluster.joining import is_own, proof_name
from eventlog.node.config import NodeConfig
from eventlog.transport.connect import connect
from eventlog.transport.connection import Exchange
from eventlog.transport.server import Server, ServerOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.member_ends import greet_as_member
from tests.process.nodes import NodeProcess

NONCE = bytes(range(32))


def proof(directory: Path, *, mode: int = 0o600, content: str = NONCE.hex()) -> Path:
    path = directory / proof_name(NONCE)
    path.unlink(missing_ok=True)
    path.write_text(content)
    path.chmod(mode)
    return path


def test_a_file_proves_its_maker_only_if_nobody_else_can_have_made_it(tmp_path: Path) -> None:
    assert is_own(str(proof(tmp_path)), NONCE)
    assert not is_own(str(proof(tmp_path)), NONCE[::-1])
    for path in (proof(tmp_path, mode=0o640), proof(tmp_path, content=""), proof(tmp_path, content=NONCE.hex() + "\n")):
        assert not is_own(str(path), NONCE)
    (tmp_path / "elsewhere").mkdir()
    found = proof(tmp_path).rename(tmp_path / "another name")
    assert not is_own(str(found), NONCE)
    linked = tmp_path / "elsewhere" / proof_name(NONCE)
    linked.symlink_to(found)
    assert not is_own(str(linked), NONCE)
    linked.unlink()
    linked.hardlink_to(found)
    assert not is_own(str(linked), NONCE)
    linked.unlink()
    os.mkfifo(linked, 0o600)
    assert not is_own(str(linked), NONCE)
    assert not is_own("x\0y", NONCE)
    os.chdir(tmp_path)
    proof(tmp_path)
    assert not is_own(proof_name(NONCE), NONCE)


def test_only_members_and_who_has_proved_it_are_told_where_the_metadata_are(tmp_path: Path) -> None:
    async def told(node: NodeProcess) -> None:
        host, port = node.address.rsplit(":", 1)
        connection = await connect(host, int(port))
        try:
            for asked in (pb.ClusterInfo(), pb.ClusterInfo(file="/etc/passwd"), pb.ClusterInfo(token_proof=b"x" * 32)):
                asked.version = PEER_VERSION
                answer = (await connection.request(Message(cluster_info=asked))).message.cluster_info_answer
                assert (answer.cluster, len(answer.nonce)) == (connection.hello.cluster, 32)
                assert [answer.metastore, answer.host, answer.file] == ["", "", ""]
            await greet_as_member(connection, NodeConfig(data=node.data).location, 1)
            answer = (await connection.request(Message(cluster_info=pb.ClusterInfo()))).message.cluster_info_answer
            assert answer.metastore == str(NodeConfig(data=node.data).location)
        finally:
            connection.close()
            await connection.wait_closed()

    with NodeProcess(tmp_path / "one") as one:
        asyncio.run(told(one))


def test_a_join_token_is_proved_and_not_told(tmp_path: Path) -> None:
    token = b"a text of sixteen bytes or more"
    (tmp_path / "token").write_bytes(token + b"\n")

    async def told(address: str, key: bytes) -> str:
        host, port = address.rsplit(":", 1)
        connection = await connect(host, int(port))
        try:
            asked = pb.ClusterInfo(version=PEER_VERSION)
            for _ in range(2):
                answer = (await connection.request(Message(cluster_info=asked))).message.cluster_info_answer
                asked.token_proof = hmac.digest(key, b"eventlog join" + answer.nonce, "sha256")
            return answer.metastore
        finally:
            connection.close()
            await connection.wait_closed()

    with NodeProcess(tmp_path / "one", "--join-token-file", str(tmp_path / "token")) as one:
        assert asyncio.run(told(one.address, token)).endswith("meta.db")
        assert asyncio.run(told(one.address, b"another text of that length")) == ""
        assert asyncio.run(told(one.address, b"")) == ""
        short = NodeProcess(tmp_path / "short", "--join", one.address, "--join-token-file", os.devnull)
        short.spawn()
        assert short.wait() == 2
        assert "BAD_CONFIG: join_token_file: /dev/null holds 0 bytes" in short.log_text()


def test_a_joiner_that_is_told_nothing_says_what_would_help(tmp_path: Path) -> None:
    async def run() -> NodeProcess:
        files = []

        def dispatch(exchange: Exchange) -> None:
            if exchange.kind == "hello":
                exchange.answer(Message(hello_answer=pb.HelloAnswer()))
                return
            if name := exchange.message.cluster_info.file:
                files.append((name, stat.S_IMODE(Path(name).stat().st_mode), Path(name).read_text()))
            exchange.answer(Message(cluster_info_answer=pb.ClusterInfoAnswer(cluster="far", segments=8, nonce=NONCE)))

        server = Server(dispatch, ServerOptions())
        await server.start("127.0.0.1", 0)
        joiner = NodeProcess(tmp_path, "--join", f"127.0.0.1:{server.addresses[0][1]}")
        try:
            joiner.spawn()
            assert await asyncio.to_thread(joiner.wait) == 1
        finally:
            await server.stop(grace_ms=0)
        assert files == [(str(joiner.data / proof_name(NONCE)), 0o600, NONCE.hex())]
        return joiner

    assert "JOIN_REFUSED" in asyncio.run(run()).log_text()


def test_what_a_node_leaves_on_the_disk_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, wrapper=("sh", "-c", 'umask 0; exec "$@"', "sh")) as node:
        node.command("cache", "create", "c", "--format", "bytes")
        node.command("put", "c", "k", "v")
        node.stop()
        made = [path for top in (node.data, tmp_path / "data.meta") for path in (top, *top.rglob("*"))]
        assert {"meta.db", "member.json", "records.json", "node.lock", "ends", "CURRENT"} <= {path.name for path in made}
        assert [(str(path), oct(found)) for path in made if (found := stat.S_IMODE(path.stat().st_mode)) & 0o077] == []
        for path in (node.data, tmp_path / "data.meta" / "meta.db"):  # as earlier versions left them
            path.chmod(0o755 if path.is_dir() else 0o644)
        node.start()
        assert stat.S_IMODE(node.data.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "data.meta" / "meta.db").stat().st_mode) == 0o600


def test_a_ready_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("untouched")
    node = NodeProcess(tmp_path / "one")
    node.directory.mkdir()
    for name in ("ready.json.new", "ready.json"):
        (node.directory / name).symlink_to(theirs)
    with node:
        assert theirs.read_text() == "untouched"
        assert not (node.directory / "ready.json").is_symlink()
