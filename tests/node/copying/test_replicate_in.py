"""Rows of other members as they reach a node: believed when the metadata store names their sender, and read there if need be."""

import asyncio
import logging

import msgspec
import numpy as np

from eventlog.batch.layout import ValueHead, encode_value
from eventlog.control.records import CommitPlan, ReplicaRecord, encode, segment_key
from eventlog.errors import BadMessage, MetadataUnavailable
from eventlog.ids import ID_STEP
from eventlog.node.cluster.greeting import PeerIdentity
from eventlog.node.cluster.peers import PeerSession
from eventlog.replication.bodies import NOTHING, Carried
from eventlog.replication.commands import Cut
from eventlog.replication.messages import ACK, APPEND, BEGIN, HELD, STALE
from eventlog.segment.keys import cache_range, parse_log_key
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.loops import until
from tests.node.nodes import cache_of, submit, with_node
from tests.node.polling import FakeExchange

ABSURD = (1 << 32) - 2


class Wire:
    """The connection of a member."""

    def __init__(self, node, *, number=2):
        member = PeerIdentity(cluster=node.cluster, number=number, incarnation="b")
        self.state = {"peer": PeerSession(member=member, key=b"")}
        self.is_closed = False

    def flush(self):
        """Nothing is held back."""


def replicate(node, *rows, correlation=1, carried=NOTHING):
    """Have rows arrive from member 2, and values with them."""
    request = pb.Replicate(correlation=correlation, rows=len(rows), recipient=node.member.incarnation)
    exchange = FakeExchange(Message(replicate=request), connection=Wire(node))
    exchange.body = memoryview(b"".join(carried.buffers(np.array(list(rows), APPEND).tobytes())))
    node.incoming.received(exchange)
    return exchange


async def succeeded_by_the_other(node):
    """Have member 2 lead segment 0, and the node not hear of it; return the record."""
    found = node.view.segments[0]
    other = ReplicaRecord(node=2, incarnation="b")
    now = msgspec.structs.replace(
        found.record, owners=(2, node.number), in_sync=(*found.record.in_sync, other), epoch=found.record.epoch + 1, session="else"
    )
    node.metadata.hooks.clear()  # it is behind
    await node.records.carry_out(CommitPlan(expect={segment_key(0): found.revision}, puts={segment_key(0): encode(now)}))
    return now


def looked_up_later(node):
    """Have records be read once the returned event is set."""
    looked_up, segments_now = asyncio.Event(), node.records.segments_now

    async def later(segments):
        await looked_up.wait()
        return await segments_now(segments)

    node.records.segments_now = later
    return looked_up


async def over(exchange):
    await until(lambda: exchange.is_over)
    return exchange.error


def test_a_member_that_no_record_names_changes_nothing_and_has_the_store_read_once(tmp_path, monkeypatch):
    async def act(node):
        cache = await cache_of(node)
        read = []
        segments_now = node.records.segments_now
        monkeypatch.setattr(node.records, "segments_now", lambda segments: read.append(segments) or segments_now(segments))
        ends = node.core.ends.tolist()
        first = replicate(node, *((segment, BEGIN, ABSURD, 5, 10, ends[segment], 0, 0) for segment in range(node.segments)))
        assert isinstance(await over(first), BadMessage)
        for number in range(2, 50):
            try:
                error = await over(replicate(node, (0, 0, ABSURD, 5, 5, 0, 0, 0), correlation=number))
            except BadMessage as refused:
                error = refused
            assert isinstance(error, BadMessage)
        assert len(read) == 1
        assert node.core.leads.all()
        assert node.core.ends.tolist() == ends
        result = await submit(node, cache, [(b"k", b"v")])
        assert not isinstance(result, Exception)

    with_node(tmp_path, act)


def test_a_primary_whose_record_the_watch_has_not_brought_yet_is_believed(tmp_path):
    async def act(node):
        now = await succeeded_by_the_other(node)
        end = node.core.ends.item(0)
        exchange = replicate(node, (0, 0, now.epoch, end, end, 0, 0, 0))
        assert not exchange.is_over
        assert await over(exchange) is None
        assert not node.core.leads[0]
        ((_, rows),) = exchange.answers
        [(segment, status, epoch, held, _, _)] = np.frombuffer(rows, ACK).tolist()
        assert (segment, status, epoch, held) == (0, HELD, now.epoch, end)
        again = replicate(node, (0, 0, now.epoch - 1, end, end, 0, 0, 0), correlation=2)
        assert [row[1] for row in np.frombuffer(again.answers[0][1], ACK).tolist()] == [STALE]

    with_node(tmp_path, act)


def test_what_is_kept_keeps_its_values_though_another_process_of_its_sender_uses_the_number_again(tmp_path):
    async def act(node):
        looked_up = looked_up_later(node)
        now = await succeeded_by_the_other(node)
        end = node.core.ends.item(0)
        base = end + ID_STEP
        head = ValueHead(flags=0, sections=0, epoch=now.epoch, count=0, bitmap=0, kinds=0, producers=0, base=base, first_offset=0)
        carried = Carried(caches=[1], data=[encode_value(head, segment=0, cache=1, sections=[])])
        replicate(node, (0, 0, now.epoch, end, base, 0, 1, 0), carried=carried)
        replicate(node, (0, 0, now.epoch, base, base, 0, 0, 0))  # a question, of the same number
        looked_up.set()
        await until(lambda: node.core.durable.item(0) == base)
        assert [parse_log_key(key)[2] for key, _ in node.store.read_log(*cache_range(0, 1), bytes_max=1)] == [base]

    with_node(tmp_path, act)


def test_what_is_kept_is_given_up_with_its_connection_and_whoever_uses_the_number_again_is_answered(tmp_path):
    async def act(node):
        looked_up = looked_up_later(node)
        now = await succeeded_by_the_other(node)
        end = node.core.ends.item(0)
        former = replicate(node, (0, 0, now.epoch, end, end, 0, 0, 0))
        former.connection.is_closed = True
        again = replicate(node, (0, 0, now.epoch, end, end, 0, 0, 0))
        looked_up.set()
        assert await over(again) is None
        assert not former.is_over

    with_node(tmp_path, act)


def test_an_outage_of_the_metadata_store_keeps_what_has_to_be_looked_up_waiting(tmp_path, monkeypatch):
    async def act(node):
        is_out = asyncio.Event()

        async def out(segments):
            if not is_out.is_set():
                raise MetadataUnavailable(why="out")
            return await segments_now(segments)

        segments_now = node.records.segments_now
        monkeypatch.setattr(node.records, "segments_now", out)
        node.incoming.store_again_s = 0.001
        exchange = replicate(node, (0, 0, ABSURD, 5, 5, 0, 0, 0))
        await asyncio.sleep(0)
        assert not exchange.is_over
        assert node.core.leads.all()
        is_out.set()
        assert isinstance(await over(exchange), BadMessage)

    with_node(tmp_path, act)


def test_logs_that_are_cut_one_by_one_are_one_line(tmp_path, caplog):
    def cuts():
        return [line for line in caplog.messages if line.startswith("logs_cut")]

    async def act(node):
        ends = node.core.ends.tolist()
        for segment in range(node.segments):
            node.incoming.cut([Cut(segment=segment, epoch=node.core.epochs.item(segment), upto=ends[segment])], None)
        await until(cuts)
        assert cuts() == [f"logs_cut segments={node.segments} of={node.segments}"]
        assert node.core.ends.tolist() == ends

    with caplog.at_level(logging.INFO):
        with_node(tmp_path, act)
