"""A member that has proved to be one, over real connections, and then says whatever it likes: refused, and nothing lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from eventlog.batch.layout import ValueHead, encode_value
from eventlog.control.metastores.location import parse_location
from eventlog.errors import EventLogError, NotMember
from eventlog.ids import ID_MAX, ID_STEP, time_of
from eventlog.read import token
from eventlog.read.position import Position
from eventlog.replication.bodies import Carried
from eventlog.replication.columns import Row
from eventlog.replication.messages import ACK, APPEND, BEGIN, CUT, HELD, STALE
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.clusters import ClusterProcesses, ask
from tests.process.member_ends import greet_as_member
from tests.process.nodes import RETENTION_WHEN_TOLD

SEGMENTS = 8
ENTRIES = 1_040
LIAR = 2  # the number of the second node
ABSURD = (1 << 32) - 2
LATE = 1 << 40  # above the number of every message so far
AHEAD_MS_MAX = 60_000
Copies = dict[int, pb.SegmentDescription]


@asynccontextmanager
async def greeted(cluster: ClusterProcesses, index: int, **lies: object) -> AsyncIterator[tuple[Connection, str]]:
    """Yield a connection to a node on which somebody has proved to be the liar, and the incarnation of that node."""
    host, port = cluster[index].address.rsplit(":", 1)
    connection = await connect(host, int(port))
    try:
        answerer = await greet_as_member(connection, parse_location(cluster.metastore), LIAR, **lies)
        yield connection, answerer.incarnation
    finally:
        connection.close()
        await connection.wait_closed()


async def code_of(connection: Connection, message: Message, *body: bytes) -> str:
    """Return the code of the refusal that a request gets, or an empty text."""
    try:
        await connection.request(message, *body, timeout_ms=20_000)
    except EventLogError as error:
        return error.code
    return ""


def loaded(cluster: ClusterProcesses) -> None:
    cluster.command("cache", "create", "c", "--format", "bytes")
    rows = b"".join(b'{"k": "%d"}\n' % number for number in range(ENTRIES))
    cluster.command("load", "c", "-", "--key", "k", stdin=rows)
    cluster.command("listener", "register", "c", "--durable", "--id", "held", "--hold", "1GiB")
    cluster.settle()


def own_segments(cluster: ClusterProcesses, index: int) -> Copies:
    """Return the copies that a node holds."""
    found = ask(cluster[index].address, Message(list_segments=pb.ListSegments(local=True))).list_segments_answer.segments
    return {segment.segment: segment for segment in found}


def terms(cluster: ClusterProcesses, index: int) -> list[tuple[int, str, int]]:
    return [(segment.segment, segment.primary, segment.epoch) for segment in cluster.segments_of(index)]


def check_nothing_is_lost(cluster: ClusterProcesses, *, entries: int = ENTRIES) -> None:
    for index, node in enumerate(cluster):
        assert ask(node.address, Message(size=pb.Size(cache_id=1))).size_answer.size == entries
        assert len(cluster.rows("consume", "c", node=index)) == entries
        assert [row["listener_id"] for row in cluster.rows("listener", "list", node=index)] == ["held"]
    cluster.command("admin", "segments", "--verify")


def table(*rows: Row) -> bytes:
    return np.array(list(rows), APPEND).tobytes()


def lies_of_rows(segment: int, *, epoch: int, end: int, watermark: int) -> dict[str, bytes]:
    """Return what only the segment's primary may say of a log that ends with `end`."""
    base = end + ID_STEP
    head = ValueHead(flags=0, sections=0, epoch=epoch, count=0, bitmap=0, kinds=0, producers=0, base=base, first_offset=1 << 40)
    value = Carried(caches=[1], data=[encode_value(head, segment=segment, cache=1, sections=[])])
    lies = {"append": b"".join(value.buffers(table((segment, 0, epoch, end, base, base, 1, 0))))}
    for name, of in (("known", epoch), ("next", epoch + 1), ("absurd", ABSURD)):
        lies[f"lead, {name} epoch"] = table((segment, 0, of, end, end, end, 0, 0))
        lies[f"begin, {name} epoch"] = table((segment, BEGIN, of, LATE, end, end, 0, 0))
        lies[f"cut, {name} epoch"] = table((segment, CUT, of, end, min(watermark, end) - ID_STEP, 0, 0, 0))
    return lies


async def tell_rows(cluster: ClusterProcesses, index: int, copies: Copies) -> dict[tuple[int, str], str]:
    """Tell a node all of that of each of these segments; return what became of each."""
    found = {}
    async with greeted(cluster, index) as (connection, recipient):
        for segment, copy in copies.items():
            lies = lies_of_rows(segment, epoch=copy.epoch, end=copy.last_id, watermark=copy.high_watermark)
            for number, (name, body) in enumerate(lies.items()):
                replicate = Message(replicate=pb.Replicate(correlation=LATE + number, rows=1, recipient=recipient))
                try:
                    answer = (await connection.request(replicate, body, timeout_ms=20_000)).body
                    found[segment, name] = ",".join(str(row["status"]) for row in np.frombuffer(answer, ACK))
                except EventLogError as error:
                    found[segment, name] = error.code
    return found


async def tell_acknowledgements(cluster: ClusterProcesses, index: int, copies: Copies) -> list[str]:
    """Tell a primary that it is deposed, and that logs reach where nobody's does."""
    rows = [(segment, STALE, ABSURD, 0, 0, 0) for segment in copies]
    rows += [(segment, HELD, copy.epoch, ID_MAX - 1, copy.epoch, 0) for segment, copy in copies.items()]
    async with greeted(cluster, index) as (connection, recipient):
        codes = []
        for row in rows:
            message = Message(acknowledge=pb.Acknowledge(correlation=LATE, recipient=recipient))
            codes.append(await code_of(connection, message, np.array([row], ACK).tobytes()))
        return codes


def requests_of(segments: Sequence[int], *, cluster: str, last_id: int) -> list[Message]:
    """Return what else members ask of each other, each as bad as it can be: everything goes, nothing is committed any more."""
    count, ahead = len(segments), last_id + (1 << 40)
    beyond = token.encode(Position(cluster=cluster, cache_id=1, segments=SEGMENTS, at=ID_MAX - 1))
    return [
        Message(retention_cut=pb.RetentionCut(cache_id=1, id=last_id, held=[pb.RetentionHeld(listener="held", percent=900)])),
        Message(trim_copies=pb.TrimCopies(cache_id=1, segments=segments, ids=[last_id] * count, offsets=[1 << 40] * count)),
        Message(listener_changed=pb.ListenerChanged(id="held")),
        Message(use_listeners=pb.UseListeners(uses=[pb.ListenerUse(id="held", position=b"no token")])),
        Message(use_listeners=pb.UseListeners(uses=[pb.ListenerUse(id="held", position=beyond)])),
        Message(close_up=pb.CloseUp(id=ID_MAX - 1)),
        Message(close_up=pb.CloseUp(id=ahead)),
        Message(beat=pb.Beat(revision=1 << 60, now_ms=1)),
        Message(confirm_epochs=pb.ConfirmEpochs(segments=segments, epochs=[ABSURD] * count)),
        Message(member_closed=pb.MemberClosed(group="g", cache_id=1, member="m", via_node=1, via_connection=1)),
        Message(fetch=pb.Fetch(cache_id=1, segments=segments, after=[0], upto=ahead)),
        Message(see_revision=pb.SeeRevision(revision=1)),
    ]


def test_rows_of_a_member_that_does_not_lead_change_nothing(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, segments=SEGMENTS, environment=RETENTION_WHEN_TOLD) as cluster:
        cluster.spread()
        loaded(cluster)
        before = terms(cluster, 0)
        for index in (0, 2):
            copies = {segment: copy for segment, copy in own_segments(cluster, index).items() if before[segment][1] != f"n{LIAR}"}
            found = asyncio.run(tell_rows(cluster, index, copies))
            assert len(found) > 10
            assert set(found.values()) == {"BAD_MESSAGE"}, found
        assert terms(cluster, 0) == before
        check_nothing_is_lost(cluster)
        cluster.kill()
        cluster.restart_all()
        cluster.settle()
        check_nothing_is_lost(cluster)


def test_what_else_a_lying_member_says_neither_deposes_nor_trims_nor_lifts_ids(tmp_path: Path) -> None:
    async def tell(cluster: ClusterProcesses, index: int, copies: Copies) -> list[str]:
        last_id = max(copy.last_id for copy in copies.values())
        async with greeted(cluster, index) as (connection, _):
            asked = requests_of(sorted(copies), cluster=connection.hello.cluster, last_id=last_id)
            return [await code_of(connection, message) for message in asked]

    with ClusterProcesses(tmp_path, segments=SEGMENTS, environment=RETENTION_WHEN_TOLD) as cluster:
        cluster.spread()
        cluster.command("admin", "drain", f"n{LIAR}")  # whoever leads segment 0 may cut, and balancing could give it to any node
        while cluster.primaries()[0] == LIAR - 1:
            time.sleep(0.1)  # a poll of the node; nothing else tells
        loaded(cluster)
        before, place = terms(cluster, 0), cluster.rows("listener", "describe", "held")[0]["position"]
        for index in (0, 2):
            copies = own_segments(cluster, index)
            asyncio.run(tell_acknowledgements(cluster, index, copies))
            codes = asyncio.run(tell(cluster, index, copies))
            assert codes[0] == "NOT_PRIMARY"
        assert terms(cluster, 0) == before
        assert cluster.rows("listener", "describe", "held")[0]["position"] == place
        check_nothing_is_lost(cluster)
        for index in range(3):
            put = cluster.rows("put", "c", f"after-{index}", "v", node=index)[0]["id"]
            assert isinstance(put, int)
            assert time_of(put) < time_of(max(segment.last_id for segment in cluster.segments_of())) + AHEAD_MS_MAX
        cluster.command("admin", "drain", "--cancel", f"n{LIAR}")
        check_nothing_is_lost(cluster, entries=ENTRIES + 3)
        cluster.kill()
        cluster.restart_all()
        cluster.settle()
        check_nothing_is_lost(cluster, entries=ENTRIES + 3)


@pytest.mark.parametrize("lies", [{"incarnation": "another"}, {"as_number": 3}, {"as_number": 9}], ids=str)
def test_a_right_proof_of_what_no_record_says_is_refused_and_acknowledges_nothing(tmp_path: Path, lies: dict[str, object]) -> None:
    async def act(cluster: ClusterProcesses) -> str:
        with pytest.raises(NotMember):
            async with greeted(cluster, 0, **lies):
                pass
        host, port = cluster[0].address.rsplit(":", 1)
        connection = await connect(host, int(port))  # and who goes on as if it had been greeted
        try:
            rows = np.array([(0, HELD, 1, ID_MAX - 1, 1, 0)], ACK).tobytes()
            return await code_of(connection, Message(acknowledge=pb.Acknowledge(correlation=1, recipient="n1")), rows)
        finally:
            connection.close()
            await connection.wait_closed()

    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        assert asyncio.run(act(cluster)) == "NOT_MEMBER"
        assert "greeting_refused" in cluster[0].log_text()
