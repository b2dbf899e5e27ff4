"""Every kind of request, asked by a client, by a stranger with a forged greeting, and by a member that leads nothing.

A kind without a row fails: whoever adds a request says here who may ask it.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from eventlog.control.metastores.location import parse_location
from eventlog.errors import EventLogError
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION
from eventlog.node.handlers import TABLE
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.kinds import SHAPES, ExchangeShape
from tests.process.clusters import ClusterProcesses, ask
from tests.process.member_ends import greet_as_member

ENTRIES = 200
ROUNDS = 3
EVERYBODY = {
    *(
        "hello",
        "ping",
        "get_topology",
        "cluster_info",
        "peer_hello",
        "write",
        "stage",
        "publish",
        "clear",
        "get",
        "get_many",
        "keys",
        "size",
        "poll",
        "watch",
    ),
    *("iteration_start", "iteration_next", "iteration_end", "for_each", "log_ends", "last_events", "plan_events", "list_filters"),
    *("near_watch", "near_interest"),
    *("group_beat", "leave_group", "commit_group", "take_tasks", "settle_tasks", "list_groups", "describe_group", "reset_group"),
    *("delete_group", "register_listener", "list_listeners", "alter_listener", "acknowledge_listener", "remove_listener"),
    *("await_listeners", "create_cache", "describe_cache", "alter_cache", "drop_cache", "list_caches", "status", "list_segments"),
    *("run_retention", "check_data", "list_nodes"),
    *("change_cluster", "plan_rebalance", "rebalance_status", "digest_segments", "compare_copies", "force_primary"),
}
"""Whoever reaches the address, as long as there are no users. What they may do with it, the handlers' own tests say."""

MEMBERS = {
    # what a member that leads nothing gets for the worst that it can ask: an answer, or the code of a refusal
    "use_listeners": ({}, ""),
    "listener_changed": ({"id": "there is none"}, ""),
    "retention_steps": ({"cache_id": 1, "steps_max": 1}, "BAD_MESSAGE"),  # it names no segments
    "trim_copies": ({"cache_id": 1, "segments": [0], "ids": [1 << 50], "offsets": [1 << 40]}, ""),
    "count_after": ({"cache_id": 1, "ids": [0]}, "BAD_MESSAGE"),  # likewise
    "read_state": ({"cache_id": 1, "segments": [0]}, ""),
    "confirm_epochs": ({"segments": [0], "epochs": [1]}, ""),
    "beat": ({"revision": 1}, ""),
    "see_revision": ({"revision": 1}, ""),
    "close_up": ({"id": 1}, ""),
    "fetch": ({"cache_id": 1, "segments": [0], "after": [0], "upto": 1}, ""),
    "member_closed": ({"group": "g", "cache_id": 1, "member": "m", "via_node": 1, "via_connection": 1}, ""),
    "group_lag": ({"cache_id": 1}, ""),
    "shift_places": ({"cache_id": 1, "by": 1}, "BAD_MESSAGE"),  # it names no segments
    "replicate": ({"rows": 1, "recipient": "another"}, "BAD_MESSAGE"),
    "acknowledge": ({"recipient": "another"}, "BAD_MESSAGE"),
    "publish_segment": ({"cache_id": 1, "segment": 0, "producer": 1}, "BAD_MESSAGE"),  # no producer of a transaction
    "check_staged": ({"cache_id": 1, "segment": 0}, "BAD_MESSAGE"),  # it names no attempts
    "retention_cut": ({"cache_id": 1, "id": 1 << 50}, "NOT_PRIMARY"),
}
WITHOUT_GREETING = {"peer_proof": "NOT_MEMBER"}  # members' greetings say for themselves who they are of


def request_of(kind: str, fields: dict[str, Any]) -> Message:
    message = Message()
    asked = getattr(message, kind)
    asked.SetInParent()
    for name, value in fields.items():
        getattr(asked, name).extend(value) if isinstance(value, list) else setattr(asked, name, value)
    return message


async def code_of(connection: Connection, kind: str, fields: dict[str, Any]) -> str:
    """Return the code of the refusal that a request gets, or an empty text."""
    message = request_of(kind, fields)
    try:
        if SHAPES[kind] is ExchangeShape.STREAM:
            async for _ in connection.stream(message):
                break
        else:
            await connection.request(message, timeout_ms=20_000)
    except EventLogError as error:
        return error.code
    return ""


async def opened(address: str) -> Connection:
    host, port = address.rsplit(":", 1)
    return await connect(host, int(port))


async def forge(connection: Connection) -> None:
    hello = pb.PeerHello(cluster=connection.hello.cluster, number=2, incarnation="forged", version=PEER_VERSION, nonce=bytes(NONCE_BYTES))
    await connection.request(Message(peer_hello=hello))
    with pytest.raises(EventLogError):
        await connection.request(Message(peer_proof=pb.PeerProof(proofs=[bytes(32)])))


def test_every_kind_of_request_has_a_row() -> None:
    rows = [EVERYBODY, set(MEMBERS), set(WITHOUT_GREETING)]
    assert set(TABLE) == set().union(*rows)
    assert len(TABLE) == sum(map(len, rows))
    assert {kind for kind, handler in TABLE.items() if handler.right == "peer"} == set(MEMBERS)


def test_who_may_ask_what(tmp_path: Path) -> None:
    async def act(cluster: ClusterProcesses, *, leads: int) -> dict[str, tuple[str, str, str]]:
        found = {}
        address, location = cluster[leads].address, parse_location(cluster.metastore)
        for kind, (fields, _) in MEMBERS.items():
            client, stranger, member = [await opened(address) for _ in range(3)]
            await forge(stranger)
            await greet_as_member(member, location, (leads + 1) % 3 + 1)
            found[kind] = tuple([await code_of(one, kind, fields) for one in (client, stranger, member)])
            for connection in (client, stranger, member):
                connection.close()
                await connection.wait_closed()
        everybody = await opened(address)
        for kind in sorted(EVERYBODY - {"hello", "peer_hello", "watch", "near_watch", "change_cluster", "force_primary"}):
            assert await code_of(everybody, kind, {}) != "NOT_MEMBER", kind
        for kind, code in WITHOUT_GREETING.items():
            assert await code_of(everybody, kind, {}) == code
        everybody.close()
        await everybody.wait_closed()
        return found

    with ClusterProcesses(tmp_path, segments=4) as cluster:
        cluster.command("cache", "create", "c", "--format", "bytes")
        cluster.command("load", "c", "-", "--key", "k", stdin=b"".join(b'{"k": "%d"}\n' % number for number in range(ENTRIES)))
        for _ in range(ROUNDS):
            leads = cluster.primaries()[0]
            found = asyncio.run(act(cluster, leads=leads))
            if cluster.primaries()[0] == leads:  # else another node took over in the middle: that happens on a loaded machine
                break
        assert found == {kind: ("NOT_MEMBER", "NOT_MEMBER", code) for kind, (_, code) in MEMBERS.items()}
        for node in cluster:
            assert ask(node.address, Message(size=pb.Size(cache_id=1))).size_answer.size == ENTRIES
            assert "Traceback" not in node.log_text()
