"""Clients that lie: whatever they send gets a typed error or a true answer, and the node goes on serving everybody else."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import eventlog
from eventlog.batch.build import Columns, build_write
from eventlog.batch.one import build_one
from eventlog.errors import BadBlock, BadMessage, BadName, ConnectionLost, EventLogError, InvalidArgument, NoState, NotMember, Overloaded
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import BATCH_EVENTS_MAX, LISTENERS_AWAITED_MAX, WORK_WINDOW_MAX
from eventlog.node.config import NodeConfig
from eventlog.node.handlers import TABLE
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.wire import frames
from eventlog.wire.eventlog_pb2 import (
    BYTES,
    AwaitListeners,
    CacheBound,
    CommitGroup,
    CompareCopies,
    DigestSegments,
    GetMany,
    GroupBeat,
    Hello,
    Keys,
    Message,
    RetentionCut,
    RetentionSteps,
    SettleTasks,
    Size,
    Status,
    TakeTasks,
    TrimCopies,
)
from tests.process.member_ends import greet_as_member
from tests.process.nodes import NodeProcess

U32, U64, I63 = (1 << 32) - 1, (1 << 64) - 1, (1 << 63) - 1
SEGMENTS = 256


def lie_to(tmp_path: Path, act: Callable[[Connection, NodeProcess], Awaitable[None]], *options: str) -> None:
    """Let `act` speak to a node with a cache `c` (id 1) as it likes; the node must serve an honest client afterwards."""

    async def run(node: NodeProcess) -> None:
        host, port = node.address.rsplit(":", 1)
        connection = await connect(host, int(port))
        try:
            await asyncio.wait_for(act(connection, node), 60)
        finally:
            connection.close()
            await connection.wait_closed()
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("honest", format="json")
            await cache.put("k", 1)
            assert (await cache.get("k")).value == 1
            assert [event.key async for event in cache.events(from_id=0)] == ["k"]

    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "c", "--format", "bytes", *options)
        asyncio.run(run(node))
        assert node.stop() == 0
        assert "Traceback" not in node.log_text()


async def ask(connection: Connection, message: Message, *body: bytes) -> Message:
    return (await connection.request(message, *body, timeout_ms=20_000)).message


async def code_of(connection: Connection, message: Message, *body: bytes) -> str:
    """Return the code of the error that a request gets, or an empty text."""
    try:
        await ask(connection, message, *body)
    except EventLogError as error:
        return error.code
    return ""


def write_of(body: bytes = b"", *, blocks: int = 1, cache_id: int = 1, producer: int = 0) -> Message:
    message = Message()
    message.write.cache_id, message.write.blocks, message.write.producer_id = cache_id, blocks, producer
    return message


def one(key: bytes, *, sequence: int = 0, segment: int | None = None) -> bytes:
    return build_one(key, b"v", kind=0, segment=segment_of(hash_key(key), SEGMENTS) if segment is None else segment, sequence=sequence)


def test_writes_that_are_not_what_they_say_are_refused_by_name(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        good = one(b"k")
        for blocks in (0, 2, 3, U32):
            assert await code_of(connection, write_of(blocks=blocks), good) == "BAD_MESSAGE"
        assert await code_of(connection, write_of()) == "BAD_MESSAGE"
        assert await code_of(connection, write_of(blocks=U32)) == "BAD_MESSAGE"
        for cache_id in (0, 2, U32):
            assert await code_of(connection, write_of(cache_id=cache_id), good) == "CACHE_NOT_FOUND"
        wrong = (segment_of(hash_key(b"k"), SEGMENTS) + 1) % SEGMENTS
        for segment in (wrong, SEGMENTS, (1 << 16) - 1):
            with pytest.raises(BadBlock) as caught:
                await ask(connection, write_of(), one(b"k", segment=segment))
            assert (caught.value.segment, caught.value.outcome) == (segment, "none")
        for at in range(0, len(good), 4):  # every field set to the largest number
            spoilt = bytearray(good)
            spoilt[at : at + 4] = b"\xff\xff\xff\xff"
            message = write_of(producer=9)
            found = await code_of(connection, message, bytes(spoilt))
            assert found in {"", "BAD_MESSAGE", "BAD_BLOCK"}, (at, found)

        crowded = bytearray(good)
        crowded[4:8] = (BATCH_EVENTS_MAX + 1).to_bytes(4, "little")
        with pytest.raises(BadMessage, match=f"more than {BATCH_EVENTS_MAX} events"):
            await ask(connection, write_of(), bytes(crowded))

    lie_to(tmp_path, act)


def test_conditions_that_make_no_sense_are_refused(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        good = one(b"k")

        def conditional(block: int, key: bytes, *, times: int = 1, **expected: object) -> Message:
            message = write_of()
            for _ in range(times):
                message.write.conditions.add(block=block, key=key, **expected)
            return message

        assert await code_of(connection, conditional(1, b"k", absent=True), good) == "BAD_MESSAGE"
        assert await code_of(connection, conditional(U32, b"k", absent=True), good) == "BAD_MESSAGE"
        assert await code_of(connection, conditional(0, b"k"), good) == "BAD_MESSAGE"
        assert await code_of(connection, conditional(0, b"k", version=0), good) == "BAD_MESSAGE"
        elsewhere = next(
            key for key in (b"%d" % n for n in range(99)) if segment_of(hash_key(key), SEGMENTS) != segment_of(hash_key(b"k"), SEGMENTS)
        )
        assert await code_of(connection, conditional(0, elsewhere, absent=True), good) == "BAD_BLOCK"
        answer = await ask(connection, conditional(0, b"k", times=1_000, absent=True), good)
        assert not answer.write_answer.refusals
        answer = await ask(connection, conditional(0, b"k", times=1_000, version=U64), good)
        assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["VERSION_MISMATCH"]
        answer = await ask(connection, conditional(0, b"k", absent=True), good)
        assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["KEY_EXISTS"]

    lie_to(tmp_path, act)


def test_a_condition_on_a_key_that_nobody_could_write_is_refused_and_its_refusal_fits_a_frame(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        long = b"\xff" * 50_000
        message = write_of()
        message.write.conditions.add(block=0, key=long, present=True)
        assert await code_of(connection, message, one(b"k", segment=segment_of(hash_key(long), SEGMENTS))) == "BAD_BLOCK"
        own = b"\x01" * 4_000
        message = write_of()
        message.write.conditions.add(block=0, key=own, present=True)
        answer = await ask(connection, message, one(own))
        assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["VERSION_MISMATCH"]

    lie_to(tmp_path, act)


def test_producers_with_absurd_numbers_are_answered(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        for producer in (1, I63, 1 << 63, U64):
            answer = await ask(connection, write_of(producer=producer), one(b"k", sequence=U32))
            assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["PRODUCER_UNKNOWN"]
            first = await ask(connection, write_of(producer=producer), one(b"k"))
            assert not first.write_answer.refusals
            again = await ask(connection, write_of(producer=producer), one(b"k"))
            assert again.write_answer.id == first.write_answer.id
            answer = await ask(connection, write_of(producer=producer), one(b"k", sequence=U32))
            assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["SEQUENCE_GAP"]

    lie_to(tmp_path, act)


def test_a_block_sent_again_with_another_number_of_items_is_a_gap(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        await ask(connection, write_of(producer=5), one(b"k"))
        frame = build_write(Columns(kinds=np.zeros(2, np.uint8), keys=[b"k", b"k"], values=[b"1", b"2"]), segments=SEGMENTS)
        answer = await ask(connection, write_of(producer=5), *frame.buffers)
        assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["SEQUENCE_GAP"]

    lie_to(tmp_path, act)


def test_lifespans_without_an_end_are_for_ever(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        for lifespan in (1 << 53, I63):
            columns = Columns(kinds=np.zeros(1, np.uint8), keys=[b"k"], values=[b"v"], expiry=np.array([lifespan]))
            frame = build_write(columns, segments=SEGMENTS)
            assert (await ask(connection, write_of(), *frame.buffers)).write_answer.id
            message = Message()
            message.get.cache_id, message.get.key = 1, b"k"
            assert (await ask(connection, message)).get_answer.value == b"v"
        columns = Columns(kinds=np.zeros(1, np.uint8), keys=[b"k"], values=[b"v"], expiry=np.array([-1]))
        assert await code_of(connection, write_of(), *build_write(columns, segments=SEGMENTS).buffers) == "BAD_BLOCK"

    lie_to(tmp_path, act)


def test_absurd_reads_are_answered_or_refused(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        await ask(connection, write_of(), one(b"k"))
        message = Message()
        message.get.cache_id, message.get.key = 1, b"\x00\xff" * 30_000
        assert not (await ask(connection, message)).get_answer.found
        message = Message()
        message.clear.cache_id, message.clear.limit = 1, U32
        assert (await ask(connection, message)).clear_answer.removed == 1
        for count, body in ((U32, b""), (0, b""), (1, b"\0" * 4), (1, b"\0\0\0\0\xff\xff\xff\xff"), (2, b"\0\0\0\0\5\0\0\0\1\0\0\0x")):
            message = Message()
            message.get_many.cache_id, message.get_many.count, message.get_many.credit = 1, count, U32
            with pytest.raises(BadMessage):
                async for _ in connection.stream(message, body):
                    pass
        for prefix, limit in ((b"\xff" * 5_000, U64), (b"\0", 0)):
            message = Message()
            message.keys.cache_id, message.keys.prefix, message.keys.limit, message.keys.credit = 1, prefix, limit, 1
            assert [item async for item in connection.stream(message)] == []
        for field, value in (("after", U64), ("from_time_ms", U64), ("position", b"\xff" * 1_000), ("position", b"")):
            message = Message()
            message.poll.cache_id, message.poll.max_events, message.poll.max_bytes = 1, U32, U32
            setattr(message.poll, field, value)
            assert await code_of(connection, message) in {
                "",
                "INVALID_ARGUMENT",
                "BAD_MESSAGE",
                "POSITION_MISMATCH",
                "CLOCK_SKEW",
                "EVENTS_TRIMMED",
            }
        message = Message()
        message.poll.cache_id, message.poll.until_id = 1, U64
        message.poll.segments.extend([0, 0, U32])
        assert await code_of(connection, message) in {"INVALID_ARGUMENT", "BAD_MESSAGE"}

    lie_to(tmp_path, act)


def test_a_segment_that_is_asked_for_again_and_again_is_worked_on_once(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        await ask(connection, write_of(), one(b"k"))
        segment = segment_of(hash_key(b"k"), SEGMENTS)
        for message in (Message(compare_copies=CompareCopies()), Message(digest_segments=DigestSegments())):
            getattr(message, message.WhichOneof("kind")).segments.extend([segment] * 30_000)
            answer = await ask(connection, message)
            assert [digest.segment for digest in answer.digest_segments_answer.digests] == [segment]
        for segments in ([segment] * 30_000, [segment, segment], [SEGMENTS], [U32]):
            assert await code_of(connection, Message(size=Size(cache_id=1, segments=segments))) == "BAD_MESSAGE"
            with pytest.raises(BadMessage):
                async for _ in connection.stream(Message(keys=Keys(cache_id=1, segments=segments))):
                    pass
        items = [item async for item in connection.stream(Message(keys=Keys(cache_id=1, segments=[segment, (segment - 1) % SEGMENTS])))]
        assert [item.message.stream_item.entries.count for item in items] == [1]

    lie_to(tmp_path, act)


def test_more_rows_than_there_can_be_are_not_looked_at(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        handed_out_max = SEGMENTS * WORK_WINDOW_MAX
        whose = {"group": "g", "cache_id": 1, "member": "m"}
        ids, rows = np.arange(handed_out_max + 1), [(0, 1, 0, 0, "", 1)] * (handed_out_max + 1)
        take, settle = Message(take_tasks=TakeTasks(**whose)), Message(settle_tasks=SettleTasks(**whose))
        for count, code in ((handed_out_max, "GROUP_NOT_FOUND"), (handed_out_max + 1, "BAD_MESSAGE")):
            take.take_tasks.holding, settle.settle_tasks.tasks = count, count
            assert await code_of(connection, take, ids[:count].tobytes()) == code
            assert await code_of(connection, settle, msgspec.msgpack.encode(rows[:count])) == code
        for count in (100, 101):
            wait = Message(await_listeners=AwaitListeners(cache_id=1, listeners=[f"l{number}" for number in range(count)], wait_ms=1))
            assert await code_of(connection, wait) == ("" if count == LISTENERS_AWAITED_MAX else "INVALID_ARGUMENT")
        commit = Message(commit_group=CommitGroup(**whose, epoch=1, places=SEGMENTS + 1))
        with pytest.raises(BadMessage, match=f"of {SEGMENTS} segments"):
            await ask(connection, commit, bytes(24 * (SEGMENTS + 1)))

    lie_to(tmp_path, act)


def test_millions_of_keys_are_asked_for_as_they_are_come_to(tmp_path):
    async def act(connection: Connection, node: NodeProcess) -> None:
        count = 2_800_000
        before = rss_bytes(node.pid)
        request = Message(get_many=GetMany(cache_id=1, count=count))
        async with connection.stream(request, (2 * np.arange(count + 1, dtype="<i4")).tobytes(), b"ab" * count, credit_bytes=1) as stream:
            assert (await anext(aiter(stream))).message.stream_item.entries.count > 0
            assert rss_bytes(node.pid) - before < 100 << 20

    lie_to(tmp_path, act)


def test_a_member_that_says_nonsense_about_ids_is_refused(tmp_path):
    async def act(connection: Connection, node: NodeProcess) -> None:
        await greet_as_member(connection, NodeConfig(data=node.data).location, 1)
        for fields in ({"segments": [0]}, {"segments": [0], "ids": [1]}, {"segments": [0], "ids": [U64], "offsets": [0]}, {"ids": [1]}):
            assert await code_of(connection, Message(trim_copies=TrimCopies(cache_id=1, **fields))) == "BAD_MESSAGE"
        for message in (
            Message(retention_cut=RetentionCut(cache_id=1, id=U64)),
            Message(retention_steps=RetentionSteps(cache_id=1, after=U64, upto=I63)),
            Message(digest_segments=DigestSegments(segments=[0], after=[CacheBound(cache=1, id=U64)])),
        ):
            assert await code_of(connection, message) == "BAD_MESSAGE"

    lie_to(tmp_path, act)


def test_requests_of_members_are_refused_to_whoever_has_not_proved_to_be_one(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        for kind, handler in TABLE.items():
            if handler.right == "peer":
                message = Message()
                getattr(message, kind).SetInParent()
                with pytest.raises(NotMember, match=f"{kind} is for members"):
                    await ask(connection, message)

    lie_to(tmp_path, act)


def test_a_member_of_a_group_does_not_say_over_which_connection_another_one_speaks(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        for via in ({"via_node": 1}, {"via_connection": 7}, {"via_node": 1, "via_connection": 7}):
            beat = Message(group_beat=GroupBeat(group="g", cache_id=1, member="m", **via))
            assert await code_of(connection, beat) == "BAD_MESSAGE"
        assert await code_of(connection, Message(group_beat=GroupBeat(group="g", cache_id=1, member="m"))) == ""

    lie_to(tmp_path, act)


@pytest.mark.parametrize("name", ["", "..", ".", "/", "a" * 300, "ä", "A", "__x", "\x01" * 60_000, "c\0", "a/../b", "\U0001f600"])
def test_names_that_are_none_are_refused(tmp_path, name):
    async def act(connection: Connection, _: NodeProcess) -> None:
        message = Message()
        message.create_cache.name = name
        with pytest.raises((BadName, EventLogError)) as caught:
            await ask(connection, message)
        assert "BAD_NAME" in (caught.value.code, str(caught.value)[:8])
        for kind, code in (("describe_cache", "CACHE_NOT_FOUND"), ("alter_cache", "BAD_NAME"), ("drop_cache", "BAD_NAME")):
            message = Message()
            getattr(message, kind).name = name
            with pytest.raises(EventLogError) as caught:
                await ask(connection, message)
            assert code in (caught.value.code, str(caught.value)[: len(code)])

    lie_to(tmp_path, act)


def test_options_beyond_their_range_are_refused(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        for option in ("retain_time_ms", "retain_bytes", "retain_events", "lifespan_ms"):
            message = Message()
            message.create_cache.name = "x"
            setattr(message.create_cache.options, option, U64)
            with pytest.raises(InvalidArgument):
                await ask(connection, message)
        message = Message()
        message.create_cache.name, message.create_cache.options.format = "x", BYTES
        for option in ("retain_time_ms", "retain_bytes", "retain_events", "lifespan_ms"):
            setattr(message.create_cache.options, option, I63)
        cache_id = (await ask(connection, message)).cache_answer.cache.id
        assert (await ask(connection, write_of(cache_id=cache_id), one(b"k"))).write_answer.id
        message = Message()
        message.run_retention.cache = "x"
        assert (await ask(connection, message)).run_retention_answer.removed == 0

    lie_to(tmp_path, act)


def test_a_cache_without_state_refuses_what_needs_one(tmp_path):
    async def act(connection: Connection, _: NodeProcess) -> None:
        message = Message()
        message.get.cache_id, message.get.key = 1, b"k"
        assert await code_of(connection, message) == "NO_STATE"
        message = Message()
        message.clear.cache_id = 1
        assert await code_of(connection, message) == "NO_STATE"
        message = Message()
        message.size.cache_id = 1
        assert await code_of(connection, message) == "NO_STATE"
        message = Message()
        message.keys.cache_id = 1
        with pytest.raises(NoState):
            async for _ in connection.stream(message):
                pass
        message = write_of()
        message.write.conditions.add(block=0, key=b"k", absent=True)
        answer = await ask(connection, message, one(b"k"))
        assert [refusal.error.code for refusal in answer.write_answer.refusals] == ["NO_STATE"]
        message = write_of()
        message.write.previous = True
        answer = await ask(connection, message, one(b"k"))
        assert not answer.write_answer.has_previous

    lie_to(tmp_path, act, "--no-state")


async def plain_socket(node: NodeProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection without our client behind it, its Hello said and answered."""
    host, port = node.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(frames.encode(1, Message(hello=Hello(version_min=1, version_max=1)), version=1))
    assert (await next_message(reader)).WhichOneof("kind") == "hello_answer"
    return reader, writer


async def next_message(reader: asyncio.StreamReader) -> Message:
    length, flags = frames.HEADER.unpack(await reader.readexactly(frames.HEADER.size))
    return frames.decode(flags, await reader.readexactly(length), bytes_max=1 << 20, header_bytes_max=1 << 20)[0]


def test_a_kind_from_the_future_is_refused_and_the_connection_goes_on(tmp_path):
    async def act(_: Connection, node: NodeProcess) -> None:
        reader, writer = await plain_socket(node)
        for opaque, content in ((2, b""), (3, bytes.fromhex("ca3e00")), (4, Message(hello=Hello(version_min=1, version_max=1)))):
            writer.write(frames.encode(opaque, content, version=1))
            answer = await next_message(reader)
            assert (answer.opaque, answer.error.code) == (opaque, "BAD_MESSAGE")
        writer.write(frames.encode(5, Message(status=Status()), version=1))
        assert (await next_message(reader)).status_answer.health == "ok"
        writer.close()

    lie_to(tmp_path, act)


def test_two_hundred_silent_connections_do_not_hold_a_writer_up(tmp_path):
    async def act(connection: Connection, node: NodeProcess) -> None:
        host, port = node.address.rsplit(":", 1)
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        writes = [connection.request(write_of(), one(b"k%d" % number), timeout_ms=60_000) for number in range(2_000)]
        answers = await asyncio.gather(*writes)
        assert len({answer.message.write_answer.id for answer in answers}) == 2_000
        for _, writer in silent:
            writer.close()

    lie_to(tmp_path, act)


def test_connections_leave_the_store_the_files_that_it_needs(tmp_path):
    async def flood(node: NodeProcess) -> None:
        host, port = node.address.rsplit(":", 1)
        http_host, http_port = node.http.rsplit(":", 1)
        idle = [await asyncio.open_connection(http_host, int(http_port)) for _ in range(400)]
        async with eventlog.connect(node.address) as client:
            cache = client.cache("c")
            greeted = [await connect(host, int(port)) for _ in range(99)]
            for _ in range(200):
                with pytest.raises((Overloaded, ConnectionLost)):
                    await connect(host, int(port))
            for number in range(24):  # the journal and the tables get new files
                await cache.put_many([(f"{number}/{index}", bytes(4_000)) for index in range(1_000)])
        for connection in greeted:
            connection.close()
        for _, writer in idle:
            writer.close()

    with NodeProcess(tmp_path, wrapper=("sh", "-c", 'ulimit -n 400; exec "$@"', "sh")) as node:
        node.command("cache", "create", "c", "--format", "bytes")
        asyncio.run(flood(node))
        assert node.stop() == 0
        assert "connections_limited asked=4096 max=100 open_files=400" in node.log_text()
        assert "Traceback" not in node.log_text()


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_reader_that_stops_reading_costs_nobody_anything(tmp_path):
    async def act(connection: Connection, node: NodeProcess) -> None:
        columns = Columns(kinds=np.zeros(1_000, np.uint8), keys=[b"%d" % n for n in range(1_000)], values=[bytes(4_000)] * 1_000)
        frame = build_write(columns, segments=SEGMENTS)
        for _ in range(20):
            await ask(connection, write_of(blocks=len(frame.table)), *frame.buffers)
        before = rss_bytes(node.pid)
        stuck = [await plain_socket(node) for _ in range(20)]
        for _, writer in stuck:  # a stream is read by nobody from here on, however much it may send
            message = Message()
            message.watch.poll.cache_id, message.watch.follow, message.watch.credit = 1, True, U32
            writer.write(frames.encode(2, message, version=1))
        for _ in range(20):
            await ask(connection, write_of(blocks=len(frame.table)), *frame.buffers)
        message = Message()
        message.get.cache_id, message.get.key = 1, b"7"
        assert (await asyncio.wait_for(ask(connection, message), 30)).get_answer.found
        assert rss_bytes(node.pid) - before < 300 << 20
        for _, writer in stuck:
            writer.close()

    lie_to(tmp_path, act)
