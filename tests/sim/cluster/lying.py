"""Who says what is not true: a stranger under the name of a member, and a member that speaks of what no record gives it.

Both speak as members do, over connections of the product's. The stranger knows the cluster's key: what keeps its word from counting is
that no record names it. Everything said is made for the log as it is at that moment, as one would say it who sees all. What a record
gives a member is left alone, for its word counts there: a primary's rows, and how far the log of an in-sync replica is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.errors import EventLogError
from eventlog.events import Kind
from eventlog.ids import ID_STEP, TIME_SHIFT
from eventlog.limits import NODE_NUMBER_MAX
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION, Greeting, PeerIdentity
from eventlog.node.node import Node
from eventlog.read.watermark import Promise
from eventlog.replication.bodies import Carried
from eventlog.replication.columns import Row
from eventlog.replication.messages import ACK, APPEND, BEGIN, CUT, HELD, STALE
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.sim.cluster.world import ClusterHost, ClusterWorld

_STRANGER: Final = "10.0.3.1"
_ABSURD: Final = (1 << 32) - 2
_SINGLED_OUT_MS: Final = 2_000
_LATE: Final = 1 << 40  # above the number of every message so far
_CACHE: Final = 1
_WITHIN_MS: Final = 500


def _unheard(outcome: Any) -> None:
    """Hear no answer."""


@dataclass(frozen=True, slots=True)
class _Lie:
    """`post` sends a message to the target, in the name of who lies."""

    post: Callable[..., None]
    target: Node
    segment: int

    @property
    def known(self) -> int:
        """Return the epoch that the target knows."""
        return self.target.core.epochs.item(self.segment)

    @property
    def end(self) -> int:
        """Return where the target's log ends."""
        return self.target.core.ends.item(self.segment)


class Liars:
    """The two of them; each lie is about a segment at a host. `part` has a host reach no other for a while."""

    def __init__(self, world: ClusterWorld, *, part: Callable[[ClusterHost], None]) -> None:
        self._world = world
        self._part = part
        self._loop = world.client_loop(_STRANGER)
        self._singled_out_until_us = 0

    # ------------------------------------------------------------ the stranger

    def stranger(self) -> None:
        """Speak as a node that nobody knows, or as a member with another data directory; to a primary whose backups are away, too."""
        chance, running = self._world.chance, [host for host in self._world.hosts if host.node is not None]
        if not running:
            return
        host = chance.choice(running)
        now_us = self._world.scheduler.now_us
        if now_us >= self._singled_out_until_us and host.node is not None and _awaited(host.node):
            self._singled_out_until_us = now_us + 2 * _SINGLED_OUT_MS * 1000
            self._part(host)
        loop = self._loop
        loop.process.after(0, lambda: loop.run_now(lambda: loop.start(self._speak(host))))

    async def _speak(self, host: ClusterHost) -> None:
        node = host.node
        if node is None:
            return
        chance, awaited = self._world.chance, _awaited(node)
        number = chance.choice(awaited)[1] if awaited else chance.choice((NODE_NUMBER_MAX, node.number))
        try:
            connection = await self._greet(host, node, number)
        except EventLogError as error:
            self._world.reached[f"stranger refused: {error.code}"] += 1
            return

        def post(message: Message, *buffers: bytes) -> None:
            if not connection.is_closed:
                connection.post(_unheard, message, *buffers)

        self._world.reached["stranger believed"] += 1
        for after_ms in range(0, _SINGLED_OUT_MS, 20):
            self._loop.call_later(after_ms / 1000, self._acknowledge, host, node, post)
        for _ in range(3):
            self._tell(_Lie(post, node, chance.randrange(self._world.swarm.segments)), epochs=(0, 0, 1, _ABSURD))

    async def _greet(self, host: ClusterHost, node: Node, number: int) -> Connection:
        """Prove to know the cluster's key, as node `number` with a data directory that is no member's."""
        options = GreetingOptions(client=f"node {number}", member=True, connect_timeout_ms=_WITHIN_MS)
        connection = await connect(host.name, int(host.address.rpartition(":")[2]), options=options)
        try:
            me = PeerIdentity(cluster=node.cluster, number=number, incarnation="of a stranger")
            nonce = self._world.chance.randbytes(NONCE_BYTES)
            hello = pb.PeerHello(cluster=me.cluster, number=number, incarnation=me.incarnation, version=PEER_VERSION, nonce=nonce)
            answer = (await connection.send(Message(peer_hello=hello), timeout_ms=_WITHIN_MS)).message.peer_hello_answer
            greeting = Greeting(dialer=me, answerer=node.peers.me, dialer_nonce=nonce, answerer_nonce=answer.nonce)
            proof = pb.PeerProof(proofs=greeting.proofs("dialer", node.peers.membership.keys), revision=answer.revision)
            await connection.send(Message(peer_proof=proof), timeout_ms=_WITHIN_MS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _acknowledge(self, host: ClusterHost, node: Node, post: Callable[..., None]) -> None:
        """Tell a primary that all of its logs is on the disks of its backups, as other incarnations of them."""
        for segment, _ in [] if self._world.is_over or host.node is not node else _awaited(node):
            lie = _Lie(post, node, segment)
            self._answer(lie, (segment, HELD, lie.known, lie.end, 0, 0))

    # ------------------------------------------------------------ the member

    def member(self) -> None:
        """Speak as a member of a segment that it does not lead."""
        chance = self._world.chance
        hosts = [host for host in self._world.hosts if host.node is not None and not host.is_paused]
        segment = chance.randrange(self._world.swarm.segments)
        record = self._world.record(segment)
        others = [host for host in hosts if record is not None and host.node is not None and host.node.number != record.primary]
        if not others:
            return
        liar = chance.choice(others)
        assert liar.node is not None, "it runs"
        for target in [host.node for host in hosts if host is not liar and host.node is not None]:
            term = target.core.term(segment)
            if term is not None and term.primary != liar.node.number and target.number in liar.node.peers.incarnations:
                self._tell(_Lie(self._posting(liar, target.number), target, segment), epochs=(0, 0, _ABSURD), liar=liar)

    def _posting(self, liar: ClusterHost, number: int) -> Callable[..., None]:
        node, loop = liar.node, liar.loop
        assert node is not None, "it runs"
        assert loop is not None, "it runs"

        def post(message: Message, *buffers: bytes) -> None:
            try:
                loop.run_now(lambda: node.peers.post(number, _unheard, message, *buffers))
            except EventLogError:
                self._world.reached["lie not sent"] += 1

        return post

    # ------------------------------------------------------------ what is said

    def _tell(self, lie: _Lie, *, epochs: tuple[int, ...], liar: ClusterHost | None = None) -> None:
        """Say one thing; epochs of 0 and 1 are the one that the target knows and the one after it."""
        self._world.reached["lie told"] += 1
        chance = self._world.chance
        epoch = chance.choice(epochs)
        epoch = epoch if epoch == _ABSURD else lie.known + epoch
        if liar is not None and chance.random() < 0.15:
            self._promise(liar, lie, epoch)
            return
        tell: Callable[[_Lie, int], None] = chance.choice((self._append, self._cut, self._begin, self._begin, self._commit, self._refuse))
        tell(lie, epoch)

    def _append(self, lie: _Lie, epoch: int) -> None:
        """Append an event that nobody asked for, and call it committed."""
        last = lie.end + ID_STEP
        columns = Columns(kinds=np.full(1, Kind.CREATED, np.uint8), keys=[b"%d" % self._world.number()], values=[b"a lie"])
        head = ValueHead(
            flags=0, sections=1, epoch=epoch, count=1, bitmap=0, kinds=1 << Kind.CREATED, producers=0, base=last, first_offset=0,
        )  # fmt: skip
        data = encode_value(head, segment=lie.segment, cache=_CACHE, sections=[bytes(build_blocks(columns, np.array([1]))[0])])
        self._send(lie, (lie.segment, 0, epoch, lie.end, last, last, 1, 0), carried=Carried(caches=[_CACHE], data=[data]))

    def _cut(self, lie: _Lie, epoch: int) -> None:
        """Have cut what the target does not know to be committed."""
        watermark = lie.target.core.watermark.item(lie.segment)
        if watermark < lie.end:
            self._send(lie, (lie.segment, CUT, epoch, lie.end, watermark, 0, 0, 0))

    def _begin(self, lie: _Lie, epoch: int) -> None:
        """Begin a snapshot, for which the target is to drop what it has."""
        self._send(lie, (lie.segment, BEGIN, epoch, _LATE, lie.end, lie.end, 0, 0))

    def _commit(self, lie: _Lie, epoch: int) -> None:
        """Call all committed that the target has."""
        self._send(lie, (lie.segment, 0, epoch, lie.end, lie.end, lie.end, 0, 0))

    def _refuse(self, lie: _Lie, epoch: int) -> None:
        """Know of a higher epoch."""
        self._answer(lie, (lie.segment, STALE, max(epoch, lie.known + 1), 0, 0, 0))

    def _promise(self, liar: ClusterHost, lie: _Lie, epoch: int) -> None:
        """Promise to whoever asks next that nothing will be committed any more, up to an id a little above those of now."""
        id_ = lie.target.clock.last + (1_000 << TIME_SHIFT)
        one = np.array([lie.segment])
        liar.false_promises.append(Promise(id=id_, segments=one, epochs=np.array([epoch]), last_ids=np.zeros(1, np.int64)))
        self._world.reached["promise of a liar"] += 1

    def _send(self, lie: _Lie, row: Row, *, carried: Carried | None = None) -> None:
        rows = np.array([row], APPEND).tobytes()
        body = [rows] if carried is None else carried.buffers(rows)
        recipient = lie.target.core.own.incarnation
        lie.post(Message(replicate=pb.Replicate(rows=1, correlation=_LATE, recipient=recipient)), *body)

    def _answer(self, lie: _Lie, row: tuple[int, int, int, int, int, int]) -> None:
        recipient = lie.target.core.own.incarnation
        lie.post(Message(acknowledge=pb.Acknowledge(correlation=_LATE, recipient=recipient)), np.array([row], ACK).tobytes())


def _awaited(primary: Node) -> list[tuple[int, int]]:
    """Return the others whom a primary waits for, each with a segment."""
    core, found = primary.core, list[tuple[int, int]]()
    for segment in core.adopted.nonzero()[0].tolist():
        found += [(segment, replica.node) for replica in sorted(core.in_sync(segment)) if replica != core.own]
    return found
