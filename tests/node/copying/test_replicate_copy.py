"""Both ends of copies, where something goes wrong."""

import asyncio
import copy
import threading
from dataclasses import replace

import msgspec
import pytest

from eventlog.batch.entries import decode_entry, encode_entry
from eventlog.errors import ClientClosed, CorruptData
from eventlog.node.copying.replicate import Receipt
from eventlog.node.copying.replicate_copy import COUNTERS, LOG, STATE, CacheCounters, Counters, pack, seal, unseal
from eventlog.node.state.checkpoint import load_marks
from eventlog.replication import EpochStart, Replica
from eventlog.replication.commands import BeginInstall, CloseSnapshot, EndInstall, InstallPart, OpenSnapshot, ReadSnapshot
from eventlog.segment.keys import entry_key, producer_key
from eventlog.segment.memory import MemoryStore
from eventlog.segment.recovery import recover
from eventlog.state.producers import ProducerTable
from eventlog.wire.eventlog_pb2 import Message
from tests.node.nodes import cache_of, submit, with_node
from tests.node.polling import FakeExchange
from tests.stores import open_stepped

READ = ReadSnapshot(to=Replica(2, "first"), segment=0, transfer=7, part=0, bytes_max=1)


async def until_idle():
    while any(task.get_name() == "copy" for task in asyncio.all_tasks()):  # noqa: ASYNC110 -- nothing tells that the last step is done
        await asyncio.sleep(0)


async def open_copy(node, *, transfer=7, segment=0):
    """Have a copy for member 2 begin; return its pin."""
    opened = asyncio.get_running_loop().create_future()
    node.replicas.core.snapshot_opened = lambda _, *, pin, now_ms: opened.set_result(pin) or []  # noqa: ARG005 - the names of the original
    node.copies.commands()[OpenSnapshot](OpenSnapshot(to=Replica(2, "first"), segment=segment, epoch=1, transfer=transfer))
    return await opened


async def read_whole(node):
    """Return all pieces of the open copy."""
    pieces = []
    while not pieces or pieces[-1][0] != COUNTERS:
        pieces.append(await node.copies.next_piece(replace(READ, bytes_max=1 << 20)))
    return pieces


def counters_of(*caches):
    """The last piece of a copy."""
    return COUNTERS, seal(msgspec.msgpack.encode(Counters(caches=list(caches))))


async def install(node, *pieces, transfer=7):
    """Have pieces of a copy arrive from member 2, and be stored."""
    receipt = Receipt(exchange=FakeExchange(Message()), name=(Replica(2, "first"), 1), given=list(pieces))
    node.copies.commands()[InstallPart](InstallPart(segment=0, epoch=1, transfer=transfer, part=0), receipt)
    await until_idle()


class Damaged:
    """A state that can be read at the fourth attempt, or never."""

    def __init__(self, state, *, reads):
        self.left = reads
        self.is_read = asyncio.Event()
        self._state = state
        self._loop = asyncio.get_running_loop()

    def read(self, *span, **limits):
        self.left -= 1
        if self.left:
            raise CorruptData(where="state", why="a file cannot be read")
        self._loop.call_soon_threadsafe(self.is_read.set)
        return self._state.read(*span, **limits)

    def close(self):
        self._state.close()


def test_a_copy_that_cannot_be_read_is_tried_again_while_somebody_waits_for_it(tmp_path):
    async def act(node):
        node.mending.again_ms = 1
        copies, opened = node.copies, []
        for transfer, reads in ((7, 4), (8, -1)):
            opened.append(Damaged(node.store.snapshot(), reads=reads))
            node.store.instead["snapshot"] = lambda _: opened[-1]
            await open_copy(node, transfer=transfer)
            kind, _ = await copies.next_piece(replace(READ, transfer=transfer, bytes_max=1 << 20))
            assert kind == LOG
        damaged, closed = opened
        copies.commands()[ReadSnapshot](READ)
        await damaged.is_read.wait()
        copies.commands()[ReadSnapshot](replace(READ, transfer=8))
        while closed.left > -4:  # noqa: ASYNC110 -- it has no event
            await asyncio.sleep(0.001)
        copies.commands()[CloseSnapshot](CloseSnapshot(segment=0, transfer=8))
        await until_idle()

    with_node(tmp_path, act, engine=open_stepped)


def test_a_replica_that_is_dropped_while_the_end_of_its_copy_is_written_is_gone_afterwards(tmp_path):
    end = EndInstall(segment=0, epoch=1, transfer=7, pin=1 << 40, end_epoch=1, history=(EpochStart(1, 1, 0),))

    async def act(node):
        goes_on = asyncio.Event()

        async def learn_late():
            await goes_on.wait()

        node.learn_caches = learn_late
        copies = node.copies
        await install(node, counters_of())
        copies.commands()[EndInstall](end, None)
        dropped = asyncio.create_task(node.takeover.discard([0]))
        for _ in range(100):
            await asyncio.sleep(0)  # as far as it gets
        goes_on.set()
        await dropped
        await until_idle()
        assert node.storage.ends.ids[0] == 0
        assert recover(node.store, keyed=[]).ends.ids[0] == 0
        assert load_marks(node.store)[0][0] == 0

    with_node(tmp_path, act)


def test_what_is_dropped_is_marked_so_on_disk_although_the_mark_was_another_tasks_to_write(tmp_path):
    async def act(node):
        await node.checkpoints.write()
        assert load_marks(node.store)[0][0] > 0
        goes_on, marked = threading.Event(), []

        def apply_late(apply, puts):
            goes_on.wait(10)
            apply(puts)

        def note_and_flush(flush):
            marked.append(load_marks(node.store)[0][0])
            flush()

        node.store.instead["flush_state"] = note_and_flush
        written, loop = [], asyncio.get_running_loop()

        def write_late():
            node.store.instead["apply"] = apply_late
            written.append(loop.create_task(node.checkpoints.write()))

        def drop(drop, *of):
            drop(*of)
            loop.call_soon_threadsafe(write_late)

        node.store.instead["drop"] = drop
        dropped = asyncio.create_task(node.takeover.discard([0]))
        while not written:  # noqa: ASYNC110 -- the storage thread has no event for it
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # what does not wait for the mark goes on meanwhile
        goes_on.set()
        await asyncio.gather(dropped, *written)
        assert marked == [0]

    with_node(tmp_path, act, engine=open_stepped)


def test_the_producers_of_a_copy_are_those_of_its_pin(tmp_path):
    """Else whoever leads with it would answer a block that comes again with the result of an event that is not there."""

    async def act(node):
        cache = await cache_of(node)
        await submit(node, cache, [(b"k", b"1")], producer=5)
        known = dict(cache.producers.export(0))
        await open_copy(node)
        await submit(node, cache, [(b"k", b"2")], producer=5, sequence=1)
        await node.checkpoints.write()
        *_, (_, last) = await read_whole(node)
        counted = msgspec.msgpack.decode(unseal(last), type=Counters).caches
        [found] = [one for one in counted if one.cache_id == cache.cache_id]
        assert dict(found.producers) == known != dict(cache.producers.export(0))

    with_node(tmp_path, act, segments=1)


def test_what_is_copied_of_producers_is_in_the_store_when_the_copy_ends(tmp_path):
    async def act(node):
        cache, other = await cache_of(node), ProducerTable(node.segments)
        at = int(node.core.ends.max())
        other.learn_one(5, segment=0, sequence=7, id_=at, kind=0)
        [(_, row)] = other.export(0)
        found = CacheCounters(
            cache_id=cache.cache_id, next_offset=1, trimmed_id=0, trimmed_offset=-1, live=0, may_expire=False, producers=[(5, row)]
        )
        await install(node, counters_of(found))
        node.copies.commands()[EndInstall](
            EndInstall(segment=0, epoch=1, transfer=7, pin=at, end_epoch=1, history=(EpochStart(1, 1, 0),)), None
        )
        await until_idle()
        assert node.store.get_many([producer_key(0, cache.cache_id, 5)]) == [row]
        assert list(cache.producers.export(0)) == [(5, row)]

    with_node(tmp_path, act)


def test_a_copy_whose_end_is_on_disk_has_its_state_there_too(tmp_path):
    """A crash right after the end finds a whole segment: what its state holds must not be gone with the process."""

    async def act(node):
        cache = await cache_of(node)
        pin, key = int(node.core.ends.max()), entry_key(0, cache.cache_id, b"k")
        rows = [(key, encode_entry(pin, b"v"))]
        await install(node, (STATE, pack(rows)), counters_of())
        node.copies.commands()[EndInstall](
            EndInstall(segment=0, epoch=1, transfer=7, pin=pin, end_epoch=1, history=(EpochStart(1, 1, 0),)), None
        )
        await until_idle()
        after = copy.deepcopy(node.store.disk)
        after.crash()
        assert after.ends.ids[0] == pin
        assert after.state.rows.get(key) == rows[0][1]
        assert load_marks(MemoryStore(after))[0][0] == pin

    with_node(tmp_path, act)


def test_a_copy_of_which_a_piece_came_damaged_is_no_replica_and_the_next_one_is(tmp_path):
    """Its primary sends several pieces at once, and the end behind them: none of it may count, however sound it is."""

    async def act(node):
        cache = await cache_of(node)
        pin, key = int(node.core.ends.max()), entry_key(0, cache.cache_id, b"k")
        rows = [(key, encode_entry(pin, b"v"))]
        sound = bytearray(pack(rows))
        end = EndInstall(segment=0, epoch=1, transfer=7, pin=pin, end_epoch=1, history=(EpochStart(1, 1, 0),))
        damaged = (STATE, bytes([*sound[:-1], sound[-1] ^ 1]))
        receipt = Receipt(exchange=FakeExchange(Message()), name=(Replica(2, "first"), 1), given=[damaged])
        node.copies.commands()[InstallPart](InstallPart(segment=0, epoch=1, transfer=7, part=0), receipt)
        await install(node, counters_of())
        node.copies.commands()[EndInstall](end, None)
        await until_idle()
        assert node.copies.installed == 0
        assert receipt.due == 1  # nothing goes on for the message that brought it
        await install(node, (STATE, bytes(sound)), counters_of(), transfer=8)
        node.copies.commands()[EndInstall](replace(end, transfer=8), None)
        await until_idle()
        assert node.copies.installed == 1
        assert node.store.get_many([key]) == [rows[0][1]]

    with_node(tmp_path, act)


async def pieces_of(node, segment):
    """Return the pieces of a copy, and its pin; entries change, come and go between its beginning and its being read."""
    cache = await cache_of(node)
    for row in [(b"changed", b"old"), (b"removed", b"old")]:
        await submit(node, cache, [row])
    pin = await open_copy(node, segment=segment)
    for row in [(b"changed", b"new"), (b"removed", None), (b"added", b"new")]:
        await submit(node, cache, [row])
    await node.storage.run(lambda: None)
    pieces = await read_whole(node)
    node.copies.commands()[CloseSnapshot](CloseSnapshot(segment=segment, transfer=7))
    return pin, pieces


def test_a_copy_s_state_is_that_of_its_log_whatever_was_written_while_it_was_made(tmp_path):
    """Whoever is forced to lead with the copy alone answers what the log says, and not what was lost with the primary."""
    pin, pieces = with_node(tmp_path / "primary", lambda node: pieces_of(node, 0), segments=1)

    async def act(node):
        cache, copies = await cache_of(node), node.copies
        copies.commands()[BeginInstall](BeginInstall(segment=0, epoch=1, transfer=7, pin=pin), None)
        await until_idle()
        await install(node, *pieces)
        copies.commands()[EndInstall](
            EndInstall(segment=0, epoch=1, transfer=7, pin=pin, end_epoch=1, history=(EpochStart(1, 1, 0),)), None
        )
        await until_idle()
        found = {}
        for key in (b"changed", b"removed", b"added"):
            data = await node.entries.get(entry_key(0, cache.cache_id, key))
            found[key] = data and bytes(decode_entry(data).value)
        assert found == {b"changed": b"old", b"removed": b"old", b"added": None}
        assert cache.live.tolist() == [2]

    with_node(tmp_path / "copy", act, segments=1)


def test_copies_that_begin_together_look_at_one_moment_that_is_let_go_with_the_last_of_them(tmp_path):
    async def act(node):
        copies, taken = node.copies, []
        node.store.instead["snapshot"] = lambda take: taken.append(take()) or taken[-1]
        for transfer in (7, 8, 9):
            copies.commands()[OpenSnapshot](OpenSnapshot(to=Replica(2, "first"), segment=transfer - 7, epoch=1, transfer=transfer))
        copies.commands()[CloseSnapshot](CloseSnapshot(segment=2, transfer=9))  # before it has begun
        await until_idle()
        [moment] = taken
        reads = [replace(READ, segment=transfer - 7, transfer=transfer) for transfer in (7, 8, 9)]
        assert [await copies.next_piece(read) is not None for read in reads] == [True, True, False]
        copies.commands()[CloseSnapshot](CloseSnapshot(segment=0, transfer=7))
        moment.read(b"", b"\xff", rows_max=1, bytes_max=1)
        copies.commands()[CloseSnapshot](CloseSnapshot(segment=1, transfer=8))
        with pytest.raises(ClientClosed):
            moment.read(b"", b"\xff", rows_max=1, bytes_max=1)

    with_node(tmp_path, act, engine=open_stepped)
