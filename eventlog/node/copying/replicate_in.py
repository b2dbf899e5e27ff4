"""What other primaries send: checked, compared by the core, written by the storage thread, acknowledged when it is on disk.

What happens to many segments in one moment is logged as one line (`Tally`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.control.cluster import ClusterRecords
from eventlog.errors import BadMessage, ConnectionLost, DiskFull, EventLogError, MetadataLost, MetadataUnavailable, Overloaded, StoreFenced
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.peers import Peers, peer_of
from eventlog.node.copying.replicate import Receipt, Replicas
from eventlog.node.disk import DiskWatch
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.closing import Closing
from eventlog.node.state.following import Followed
from eventlog.node.writing.storage import Append, StorageThread
from eventlog.replication import Message, Replica
from eventlog.replication import commands as asked
from eventlog.replication.bodies import Arrived, read_arrived, read_pieces
from eventlog.replication.messages import APPEND, CHUNK
from eventlog.segment.keys import encode_end, encode_epoch, log_key
from eventlog.segment.port import Pair
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb

log = logging.getLogger("eventlog.node")
_STORE_AGAIN_S = 0.2
_FOLLOW_WITHIN_S = 0.02
_FOLLOW_BYTES = 256 << 10  # more is worth a step of its own


_TALLY_MS = 250


class Discarding(Protocol):
    """What deletes copies."""

    async def discard(self, segments: list[int]) -> None:
        """Delete everything stored of `segments`."""
        ...


class IncomingGround(Protocol):
    """What this module needs of the node."""

    disk: DiskWatch
    storage: StorageThread
    peers: Peers
    records: ClusterRecords
    closing: Closing
    followed: Followed
    reads: Reads
    forwarding: Forwarding

    @property
    def takeover(self) -> Discarding: ...

    def own(self, task: "asyncio.Task[Any]") -> None: ...

    def fatal(self, error: EventLogError) -> None: ...


class IncomingAppends:
    """The backup's side of the shell."""

    def __init__(self, node: IncomingGround, replicas: Replicas) -> None:
        self._replicas = replicas
        self._node = node
        self._asked: dict[tuple[Replica, int], Receipt] = {}
        self._kept: dict[Message, Receipt] = {}  # messages that wait for records; their bytes count where they came from
        self._tally = Tally(of=lambda: int(self._replicas.core.holds.sum()))
        self._late: list[asked.Learned] = []
        self._is_follow_due = False
        self.store_again_s = _STORE_AGAIN_S
        self.damaged = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return what is carried out here."""
        return {
            asked.Acknowledge: self._answer,
            asked.Write: self._write,
            asked.Learned: self._learned,
            asked.LookUp: self._look_up,
            asked.Keep: self._keep,
            asked.Take: self._take_kept,
        }

    # ------------------------------------------------------------ messages

    def received(self, exchange: Exchange) -> None:
        """Take a primary's rows and values.

        Raises:
            BadMessage: it is damaged, or meant for another directory; nothing of it counts.
            DiskFull: there is no room for values.
        """
        sender = _sender(exchange)
        request = exchange.message.replicate
        self._check_recipient(request.recipient)
        try:
            rows, arrived = read_arrived(exchange.body, rows=request.rows)
        except BadMessage:
            self.damaged += 1
            raise
        if arrived.data and self._node.disk.is_full:
            raise self._node.disk.refusal()
        given: Arrived | list[tuple[int, bytes]] = arrived
        if not arrived.data and np.count_nonzero(np.frombuffer(rows, APPEND)["flags"] == CHUNK):
            given = read_pieces(exchange.body, rows=request.rows)
        message = Message(sender=sender, recipient=self._replicas.core.own, correlation=request.correlation, rows=rows)
        self._take(message, Receipt(exchange=exchange, name=(sender, request.correlation), given=given))

    def _take(self, message: Message, receipt: Receipt) -> None:
        commands = self._replicas.core.receive(message, now_ms=self._replicas.now_ms)
        self._asked[receipt.name] = receipt
        receipt.brings_values = any(type(command) is asked.Write for command in commands)
        self._replicas.carry_out(commands, receipt=receipt)
        self.done(receipt)

    def acknowledged(self, exchange: Exchange) -> None:
        """Take a backup's rows that came on their own."""
        sender = _sender(exchange)
        request = exchange.message.acknowledge
        self._check_recipient(request.recipient)
        exchange.answer(pb.Message(done=pb.Done()))
        self._replicas.acknowledged(sender, request.correlation, exchange.body)

    def _check_recipient(self, incarnation: str) -> None:
        if incarnation != self._replicas.core.own.incarnation:
            raise BadMessage(why=f"replicate: it is meant for incarnation {incarnation}")

    def _answer(self, answer: asked.Acknowledge) -> None:
        found = self._asked.pop((answer.to, answer.correlation), None)
        if found is not None:
            found.exchange.answer(pb.Message(replicate_answer=pb.ReplicateAnswer(correlation=answer.correlation)), answer.rows)
            found.exchange.connection.flush()  # before the state follows: a write waits for it
            return
        message = pb.Message(acknowledge=pb.Acknowledge(correlation=answer.correlation, recipient=answer.to.incarnation))
        try:
            self._node.peers.send(answer.to.node, message, answer.rows)
        except (ConnectionLost, Overloaded):
            self._replicas.unsent += 1

    def done(self, receipt: Receipt | None) -> None:
        """Note that something that was done for a message has ended."""
        if receipt is None:
            return
        receipt.due -= 1
        if not receipt.due and self._asked.get(receipt.name) is receipt:
            del self._asked[receipt.name]
            receipt.exchange.answer(pb.Message(replicate_answer=pb.ReplicateAnswer(correlation=receipt.name[1])))

    # ------------------------------------------------------------ terms that only the metadata store knows yet

    def _keep(self, keep: asked.Keep, receipt: Receipt) -> None:
        self._kept[keep.message] = receipt
        del self._asked[receipt.name]

    def _take_kept(self, take: asked.Take) -> None:
        kept = self._kept.pop(take.message)
        if kept.exchange.connection.is_closed:
            return  # as if it had been lost on its way: nobody hears an answer, and its sender's next process may use the number
        try:
            self._take(take.message, Receipt(exchange=kept.exchange, name=kept.name, given=kept.given))
        except BadMessage as error:
            log.warning("replicate_not_believed node=%d error=%s", take.message.sender.node, error)
            kept.exchange.fail(error)

    def _look_up(self, look: asked.LookUp) -> None:
        self._node.own(asyncio.create_task(self._read_records(look.segments), name="look_up"))

    async def _read_records(self, segments: Sequence[int]) -> None:
        """Read records from the store, however long it does not answer; a watch that is quicker has them taken before."""
        found = None
        while found is None:
            try:
                found = await self._node.records.segments_now(segments)
            except (MetadataUnavailable, MetadataLost):
                await asyncio.sleep(self.store_again_s)
        log.info("records_looked_up segments=%d first=%d", len(segments), segments[0])
        self._replicas.learn_now(found.values())
        self._replicas.carry_out(self._replicas.core.looked_up(now_ms=self._replicas.now_ms))

    # ------------------------------------------------------------ writes

    def _write(self, write: asked.Write, receipt: Receipt) -> None:
        arrived: Arrived = receipt.given.of_rows(write.rows)
        log_pairs: list[Pair] = list(
            zip(map(log_key, arrived.segments.tolist(), arrived.caches.tolist(), arrived.bases.tolist()), arrived.data, strict=True)
        )
        meta = [encode_epoch(segment, start.epoch, start.first, previous=start.previous) for segment, start in write.history]
        meta += _missing_ends(write, arrived)
        append = Append(
            log=log_pairs,
            meta=meta,
            segments=write.segments,
            ends=write.lasts,
            epochs=write.end_epochs.astype(np.uint32),
            nbytes=arrived.nbytes,
        )
        self._node.storage.append_and_tell(append, partial(self._stored, write, arrived, receipt.begin()))
        copies = partial(self._node.forwarding.copies_elsewhere, write.segments.item(0))  # of the others, too, as a rule
        highest = write.lasts.item() if len(write.lasts) == 1 else int(write.lasts.max())
        self._node.closing.foresee(highest, primary=write.to.node, copies=copies)

    def _stored(self, write: asked.Write, arrived: Arrived, receipt: Receipt, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
            return
        self._node.followed.keep(arrived)
        self._replicas.carry_out(self._replicas.core.stored(write))
        self.done(receipt)
        if self._node.closing.is_following or self._node.followed.nbytes > _FOLLOW_BYTES:
            self.follow_late()
        elif self._late and not self._is_follow_due:
            self._is_follow_due = True
            self._node.own(asyncio.create_task(self._follow_soon(), name="follow"))

    def _failed(self, error: BaseException) -> None:
        """What was taken and is not on disk cannot be continued: the next message would leave a hole."""
        log.error("backup_write_failed error=%s", error)
        self._node.fatal(error if isinstance(error, StoreFenced | DiskFull) else StoreFenced(why=str(error)))

    def _learned(self, command: asked.Learned, receipt: Receipt | None) -> None:
        """Follow at once, or when the values that came with it are on disk and acknowledged: those are waited for, the state is not."""
        self._late.append(command)
        if receipt is None or not receipt.brings_values:
            self.follow_late()

    async def _follow_soon(self) -> None:
        """Follow many small messages at once, where nobody reads: each of them costs what a hundred do."""
        await asyncio.sleep(_FOLLOW_WITHIN_S)
        self._is_follow_due = False
        self.follow_late()

    def follow_late(self) -> None:
        """Follow what had to wait; before anything that makes a log shorter, too."""
        late, self._late = self._late, []
        if len(late) == 1:
            self.follow(late[0].segments, late[0].watermarks)
        elif late:
            latest: dict[int, int] = {}  # watermarks rise: what was heard last counts
            for command in late:
                latest.update(zip(command.segments.tolist(), command.watermarks.tolist(), strict=True))
            self.follow(np.array(list(latest), np.int64), np.array(list(latest.values()), np.int64))

    def follow(self, segments: Ints, watermarks: Ints) -> None:
        """Bring the state of `segments` up to their watermarks; at once where what it takes is at hand."""
        followed = self._node.followed
        behind = followed.unattended(followed.learned(segments, watermarks))
        if len(behind):
            self._node.own(asyncio.create_task(followed.catch_up(behind), name="follow"))

    # ------------------------------------------------------------ cuts

    def cut(self, cuts: Sequence[asked.Cut], receipt: Receipt | None) -> None:
        """Carry out cuts, as one."""
        self.follow_late()
        self._node.own(asyncio.create_task(self._cut(cuts, receipt and receipt.begin()), name="cut"))

    async def _cut(self, cuts: Sequence[asked.Cut], receipt: Receipt | None) -> None:
        discarded = [cut.segment for cut in cuts if cut.discard]
        if discarded:
            await self._node.takeover.discard(discarded)
        kept = [cut for cut in cuts if not cut.discard]
        ends = await self._node.storage.cut([(cut.segment, cut.upto) for cut in kept]) if kept else []
        if kept:
            self._tally.add("logs_cut", len(kept))
        self._node.reads.files.clear()
        for cut, (end, _) in zip(kept, ends, strict=True):
            self._node.followed.cut(cut.segment, end)
            self._replicas.carry_out(self._replicas.core.cut_done(cut, end=end))
        for cut in cuts:
            if cut.discard:
                self._replicas.carry_out(self._replicas.core.cut_done(cut, end=0))
        self.done(receipt)


def _sender(exchange: Exchange) -> Replica:
    identity = peer_of(exchange)
    return Replica(identity.number, identity.incarnation)


def _missing_ends(write: asked.Write, arrived: Arrived) -> list[Pair]:
    """Return rows for the ends of logs whose last value is not there: it was of a cache that was dropped, or is trimmed."""
    if len(write.lasts) == len(arrived.lasts) == 1:
        is_complete = arrived.lasts.item(0) == write.lasts.item(0)
    else:
        is_complete = np.array_equal(arrived.lasts, write.lasts)
    if is_complete:
        return []
    lasts = np.zeros(int(write.segments.max(initial=0)) + 1, np.int64)
    np.maximum.at(lasts, arrived.segments, arrived.lasts)
    missing = (lasts[write.segments] < write.lasts).nonzero()[0].tolist()
    return [encode_end(int(write.segments[row]), int(write.lasts[row]), int(write.end_epochs[row])) for row in missing]


class Tally:
    """Counts that are logged once for all of a moment: of 256 segments each may begin, or end, by itself.

    `of` says of how many, as of when the line is written.
    """

    def __init__(self, of: Callable[[], int]) -> None:
        self._of = of
        self._counts: dict[str, int] = {}

    def add(self, event: str, segments: int) -> None:
        """Count segments to which `event` happened."""
        if not self._counts:
            asyncio.get_running_loop().call_later(_TALLY_MS / 1000, self._log)
        self._counts[event] = self._counts.get(event, 0) + segments

    def _log(self) -> None:
        counts, self._counts = self._counts, {}
        for event, segments in counts.items():
            log.info("%s segments=%d of=%d", event, segments, self._of())
