"""The other members as this node reaches them: one connection to each, opened again and again, and word of when they come and go.

Every node dials every other, so two nodes share two connections: each asks on the one that it dialled. Before anything else is said on
a connection, both ends name cluster, number and incarnation and prove that they know the cluster key (`greeting`), and each finds the
other among the members; so whatever is asked and answered on it comes from the process that was greeted, and the end of that process
ends the connection. A connection whose other end is a member no more, or has proved a key that is not valid any more, is closed.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Any, Protocol

from eventlog.clock import Clock, SystemClock
from eventlog.errors import BadMessage, ConnectionLost, EventLogError, NotMember, Overloaded, UnsupportedVersion, WrongCluster
from eventlog.limits import PEER_BYTES_IN_FLIGHT_MAX, PEER_SILENT_MS_MAX
from eventlog.node.background import due
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION, Greeting, PeerIdentity, check_greeting
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection, Exchange, Told
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.node")
_STATE = "peer"  # under which a connection keeps its `PeerSession`, once there is one
_REFUSALS_LOGGED_S = 1.0  # at most one line in so long: it is a stranger that decides how many there are
_GREETING = "greeting"  # under which it keeps what was said, until it is proved


class KnownMembers(Protocol):
    """What the cluster's records say of its members."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The cluster keys that are valid, the newest first."""
        ...

    async def has_member(self, number: int, incarnation: str, *, revision: int) -> bool:
        """Return whether the number is a member's, with that incarnation; if need be as of a later `revision` of the records."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSession:
    """The other end of a connection: a member that has proved to know `key`."""

    member: PeerIdentity
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """How often and how long; milliseconds."""

    beat_ms: int = 300
    silent_ms_max: int = PEER_SILENT_MS_MAX  # then the connection is given up: it may be one that no packet passes any more
    dial_ms_max: int = 1_000
    pause_ms_min: int = 20  # before dialling again, doubled up to the maximum
    pause_ms_max: int = 1_000
    bytes_in_flight_max: int = PEER_BYTES_IN_FLIGHT_MAX


@dataclass(kw_only=True)
class PeerHooks:
    """What is told. `lost` is called when a connection ends, and again, with True, when nobody listens there any more."""

    connected: list[Callable[[int, str], None]]
    lost: list[Callable[[int, bool], None]]
    beaten: list[Callable[[int, int], None]]  # (number, the last revision of the metadata that it knows of)


class _Peer:
    """One other member."""

    def __init__(self, number: int, address: str, now: float) -> None:
        self.number = number
        self.address = address
        self.connection: Connection | None = None
        self.incarnation = ""
        self.key = b""  # that was proved last on the connection
        self.is_greeted_again = False  # being so
        self.complaint = ""  # why it was not taken for a member when it was dialled last
        self.heard_at = now
        self.clock_ms: int | None = None  # its wall clock minus our monotonic one
        self.bytes_in_flight = 0
        self.beaten: Connection | None = None  # on which a beat is not answered yet
        self.word: bool | None = None  # what `lost` said last; None: nothing since it was connected
        self.again = asyncio.Event()  # dial now
        self.task: asyncio.Task[None] | None = None


class Peers:
    """Connections to the other members. `own` keeps the tasks: it cancels and awaits them after `close`."""

    def __init__(
        self,
        me: PeerIdentity,
        *,
        own: Callable[["asyncio.Task[Any]"], None],
        clock: Clock | None = None,
        options: PeerOptions | None = None,
    ) -> None:
        self.me = me
        self._clock = clock or SystemClock()
        self.hooks = PeerHooks(connected=[], lost=[], beaten=[])
        self.revision = 0  # told with every beat
        self.membership: KnownMembers  # set before anybody is reached
        self._heard_from: dict[Connection, PeerSession] = {}  # that members have dialled
        self._own = own
        self._options = options or PeerOptions()
        self._peers: dict[int, _Peer] = {}
        self._beat_due = 0.0
        self.greetings_refused = 0
        self._refusal_logged_at = -_REFUSALS_LOGGED_S

    def start(self) -> None:
        """Begin to beat. Which members there are, `update` says."""
        self._beat_due = self._now() + self._options.beat_ms / 1000
        self._own(asyncio.create_task(self._beat_forever(), name="beats"))

    def update(self, addresses: Mapping[int, str]) -> None:
        """Reach these members, the own one left out, and let go of all others."""
        for number in [number for number in self._peers if number not in addresses]:
            self._let_go(self._peers.pop(number))
        for number, address in addresses.items():
            peer = self._peers.get(number)
            if number == self.me.number or (peer is not None and peer.address == address):
                continue
            if peer is not None:
                peer.address = address
                peer.again.set()
                continue
            peer = self._peers[number] = _Peer(number, address, self._now())
            peer.task = asyncio.create_task(self._keep(peer), name=f"peer_{number}")
            self._own(peer.task)

    def close(self) -> None:
        """Let go of everybody; nobody is told."""
        self.hooks = PeerHooks(connected=[], lost=[], beaten=[])
        for peer in self._peers.values():
            self._let_go(peer)
        self._peers.clear()

    def _let_go(self, peer: _Peer) -> None:
        if peer.task is not None:
            peer.task.cancel()
        if peer.connection is not None:
            peer.connection.close()

    # ------------------------------------------------------------ asking

    def connection(self, number: int) -> Connection:
        """Return the open connection to a member.

        Raises:
            ConnectionLost: there is none now.
        """
        peer = self._peers.get(number)
        if peer is None or peer.connection is None:
            raise ConnectionLost(address=peer.address if peer else f"node {number}", why="no connection to this node now")
        return peer.connection

    def send(self, number: int, message: Message, *buffers: Any, timeout_ms: int = 0) -> "asyncio.Future[Reply]":
        """Ask a member, and return the future of its answer, as `Connection.send` does.

        Raises:
            ConnectionLost: it is not connected. Nothing was sent.
            Overloaded: as many bytes or requests as allowed are unanswered. Nothing was sent.
        """
        connection = self.connection(number)
        peer, size = self._peers[number], self._size(number, buffers)
        answer = connection.send(message, *buffers, timeout_ms=timeout_ms)
        if not size:
            return answer
        peer.bytes_in_flight += size

        def answered(_: "asyncio.Future[Reply]") -> None:
            peer.bytes_in_flight -= size

        answer.add_done_callback(answered)
        return answer

    def post(self, number: int, told: Told, message: Message, *buffers: Any) -> None:
        """Ask a member, and have `told` called while the answer is being received, as `Connection.post` does. Raises as `send`."""
        connection = self.connection(number)
        peer, size = self._peers[number], self._size(number, buffers)

        def answered(outcome: Reply | EventLogError) -> None:
            peer.bytes_in_flight -= size
            told(outcome)

        connection.post(answered, message, *buffers)
        peer.bytes_in_flight += size

    def _size(self, number: int, buffers: Sequence[Any]) -> int:
        """Return the bytes of some buffers. Raises Overloaded where a member owes too much for them."""
        size = sum([len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes for buffer in buffers])
        in_flight, limit = self._peers[number].bytes_in_flight, self._options.bytes_in_flight_max
        if size and in_flight and in_flight + size > limit:
            raise Overloaded(what=f"the number of bytes in flight to node {number}", limit=limit)
        return size

    @property
    def incarnations(self) -> dict[int, str]:
        """The members that are connected, each with the incarnation that was greeted."""
        return {number: peer.incarnation for number, peer in self._peers.items() if peer.connection is not None}

    def silent_ms(self, number: int) -> int:
        """Return for how long nothing was heard of a member; while this process was held up, nobody is counted as silent."""
        peer = self._peers.get(number)
        if peer is None or (peer.connection is not None and peer.connection.is_heard):
            return 0
        now = self._now()
        return max(int((now - peer.heard_at - self._late(now)) * 1000), 0)

    def is_refused(self, number: int) -> bool:
        """Return whether the last thing known of a member is that nobody listens at its address."""
        peer = self._peers.get(number)
        return peer is not None and peer.connection is None and peer.word is True

    def clocks_ahead_ms(self) -> list[int]:
        """Return by how much the connected members' wall clocks are ahead of this one's, which may have jumped since they were heard."""
        behind_ms = self._clock.monotonic_ms() - self._clock.wall_ms()
        return [peer.clock_ms + behind_ms for peer in self._peers.values() if peer.connection is not None and peer.clock_ms is not None]

    # ------------------------------------------------------------ being asked

    def greeted(self, exchange: Exchange) -> None:
        """Answer a greeting: prove the cluster key, and ask for the other side's proof.

        Raises:
            WrongCluster: it belongs to another one.
            UnsupportedVersion: members of its version cannot be mixed with those of this one.
            BadMessage: its nonce is none.
        """
        hello = exchange.message.peer_hello
        with self._noted(exchange.connection):
            if hello.cluster != self.me.cluster:
                raise WrongCluster(where=f"node {self.me.number}", theirs=self.me.cluster, ours=hello.cluster)
            check_greeting(hello.version, hello.nonce)
        dialer = PeerIdentity(cluster=hello.cluster, number=hello.number, incarnation=hello.incarnation)
        nonce = token_bytes(NONCE_BYTES)
        greeting = Greeting(dialer=dialer, answerer=self.me, dialer_nonce=hello.nonce, answerer_nonce=nonce)
        exchange.connection.state[_GREETING] = greeting
        answer = pb.PeerHelloAnswer(
            number=self.me.number,
            incarnation=self.me.incarnation,
            version=PEER_VERSION,
            nonce=nonce,
            proofs=greeting.proofs("answerer", self.membership.keys),
            revision=self.revision,
        )
        exchange.answer(Message(peer_hello_answer=answer))

    async def proved(self, exchange: Exchange) -> None:
        """Take the proof that follows a greeting; its sender's own address is dialled at once if it was not reached before.

        Raises:
            NotMember: it proves nothing, or not of a member.
        """
        connection, proof = exchange.connection, exchange.message.peer_proof
        greeting: Greeting | None = connection.state.pop(_GREETING, None)
        with self._noted(connection):
            if greeting is None:
                raise NotMember(what="a proof", why="no greeting came before it")
            member = greeting.dialer
            key = greeting.proved("dialer", proof.proofs, self.membership.keys)
            if key is None:
                raise NotMember(what=f"a greeting as node {member.number}", why="its proof of the cluster key is wrong")
            before: PeerSession | None = connection.state.get(_STATE)
            if before is not None and before.member != member:
                raise NotMember(what=f"a greeting as node {member.number}", why=f"this connection is node {before.member.number}'s")
            await self._check_member(member.number, member.incarnation, revision=proof.revision)
        if connection.is_closed:
            return
        session = connection.state[_STATE] = self._heard_from[connection] = PeerSession(member=member, key=key)
        self._judge(connection, session)  # the keys may be others by now
        exchange.answer(Message(done=pb.Done()))
        if (peer := self._peers.get(member.number)) is not None:
            peer.again.set()

    @contextmanager
    def _noted(self, connection: Connection) -> Iterator[None]:
        """Count a greeting that is refused, and log it, the first of each second."""
        try:
            yield
        except (NotMember, WrongCluster, UnsupportedVersion, BadMessage) as error:
            self.greetings_refused += 1
            if (now := self._now()) >= self._refusal_logged_at + _REFUSALS_LOGGED_S:
                self._refusal_logged_at = now
                log.warning("greeting_refused from=%s refused=%d error=%s", connection.peer, self.greetings_refused, error)
            raise

    async def _check_member(self, number: int, incarnation: str, *, revision: int) -> None:
        if not await self.membership.has_member(number, incarnation, revision=revision):
            raise NotMember(what=f"a greeting as node {number}", why=f"incarnation {incarnation!r} of that number is no member")

    def judge(self, incarnations: Mapping[int, str]) -> None:
        """Let go of connections whose other end is none of these members now, or has proved only keys that are not valid any more.

        Where there is a newer key than the one that was proved to a member, it is greeted again, on the same connection.
        """
        for connection, session in list(self._heard_from.items()):
            if connection.is_closed:
                del self._heard_from[connection]
            elif incarnations.get(session.member.number) != session.member.incarnation:
                connection.abort()
            else:
                self._judge(connection, session)
        for peer in self._peers.values():
            if peer.connection is None:
                continue
            if incarnations.get(peer.number) != peer.incarnation:
                peer.connection.abort()
            elif peer.key != self.membership.keys[0] and not peer.is_greeted_again:
                peer.is_greeted_again = True
                self._own(asyncio.create_task(self._greet_again(peer, peer.connection), name=f"greeting_{peer.number}"))

    def _judge(self, connection: Connection, session: PeerSession) -> None:
        if session.key not in self.membership.keys:
            log.warning("peer_key_ended number=%d peer=%s", session.member.number, connection.peer)
            connection.abort()

    def heard_beat(self, exchange: Exchange) -> None:
        """Answer a beat."""
        number = peer_of(exchange).number
        beat = exchange.message.beat
        answer = Message()
        answer.beat_answer.revision, answer.beat_answer.now_ms = self.revision, self._clock.wall_ms()
        exchange.answer(answer)
        self._heard_revision(number, beat.revision)

    # ------------------------------------------------------------ one member's connection

    async def _keep(self, peer: _Peer) -> None:
        pause_ms = self._options.pause_ms_min
        while True:
            peer.again.clear()
            try:
                connection = await self._dial(peer)
            except Exception as error:  # noqa: BLE001 -- whatever address another member has chosen, this node goes on
                self._tell_lost(peer, refused=isinstance(error, EventLogError) and _is_refusal(error))
                log.debug("peer_not_reached number=%d address=%s error=%s", peer.number, peer.address, error)
                try:
                    async with asyncio.timeout(pause_ms / 1000):
                        await peer.again.wait()
                except TimeoutError:
                    pause_ms = min(2 * pause_ms, self._options.pause_ms_max)
                continue
            pause_ms = self._options.pause_ms_min
            await connection.wait_closed()

    async def _dial(self, peer: _Peer) -> Connection:
        host, _, port = peer.address.rpartition(":")
        options = GreetingOptions(client=f"node {self.me.number}", member=True, connect_timeout_ms=self._options.dial_ms_max)
        connection = await connect(host.strip("[]"), int(port), options=options)
        try:
            session = await self._greet(peer, connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, WrongCluster | NotMember | UnsupportedVersion) and str(error) != peer.complaint:
                peer.complaint = str(error)
                log.warning("peer_refused number=%d address=%s error=%s", peer.number, peer.address, error)
            raise
        self._connected(peer, connection, session)
        return connection

    async def _greet(self, peer: _Peer, connection: Connection) -> PeerSession:
        """Prove to be a member, and have the other side prove to be the one that was dialled.

        Raises:
            NotMember: one of the two has not.
            WrongCluster, UnsupportedVersion: it belongs to another cluster, or speaks another version.
            ConnectionLost: another member answers there.
        """
        me, nonce, within = self.me, token_bytes(NONCE_BYTES), self._options.dial_ms_max
        hello = pb.PeerHello(cluster=me.cluster, number=me.number, incarnation=me.incarnation, version=PEER_VERSION, nonce=nonce)
        answer = (await connection.send(Message(peer_hello=hello), timeout_ms=within)).message.peer_hello_answer
        check_greeting(answer.version, answer.nonce)
        if answer.number != peer.number:
            raise ConnectionLost(address=peer.address, why=f"node {answer.number} answers there, not node {peer.number}")
        member = PeerIdentity(cluster=me.cluster, number=answer.number, incarnation=answer.incarnation)
        greeting = Greeting(dialer=me, answerer=member, dialer_nonce=nonce, answerer_nonce=answer.nonce)
        keys = self.membership.keys
        key = greeting.proved("answerer", answer.proofs, keys)
        if key is None:
            raise NotMember(what=f"the greeting of node {member.number}", why="its proof of the cluster key is wrong")
        await self._check_member(member.number, member.incarnation, revision=answer.revision)
        proof = pb.PeerProof(proofs=greeting.proofs("dialer", keys), revision=self.revision)
        await connection.send(Message(peer_proof=proof), timeout_ms=2 * within)  # it may have to look which members it has
        return PeerSession(member=member, key=key)

    async def _greet_again(self, peer: _Peer, connection: Connection) -> None:
        """Prove the newest key on a connection that has gone by an older one, until the other side has heard of it as well."""
        try:
            while peer.connection is connection and peer.key != self.membership.keys[0]:
                peer.key = (await self._greet(peer, connection)).key
                if peer.key != self.membership.keys[0]:
                    await asyncio.sleep(self._options.pause_ms_max / 1000)
        except EventLogError as error:
            log.warning("peer_not_greeted_again number=%d address=%s error=%s", peer.number, peer.address, error)
            connection.abort()
        finally:
            peer.is_greeted_again = False

    def _connected(self, peer: _Peer, connection: Connection, session: PeerSession) -> None:
        if connection.is_closed:
            raise connection.lost()
        incarnation = session.member.incarnation
        log.info("peer_connected number=%d address=%s incarnation=%s", peer.number, peer.address, incarnation)
        peer.connection, peer.incarnation, peer.key, peer.word, peer.complaint = connection, incarnation, session.key, None, ""
        peer.heard_at, peer.beaten = self._now(), None
        connection.on_close = lambda _: self._ended(peer)
        for hook in self.hooks.connected:
            hook(peer.number, incarnation)

    def _ended(self, peer: _Peer) -> None:
        assert peer.connection is not None, "only an open connection ends"
        log.info("peer_lost number=%d address=%s why=%s", peer.number, peer.address, peer.connection.lost().why)
        peer.connection = None
        self._tell_lost(peer, refused=False)

    def _tell_lost(self, peer: _Peer, *, refused: bool) -> None:
        """Say what is new: that it is lost, and when that was said, that nobody listens there."""
        if peer.word is None or (refused and not peer.word):
            peer.word = refused
            for hook in self.hooks.lost:
                hook(peer.number, refused)

    # ------------------------------------------------------------ beats

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(max(self._beat_due - self._now(), 0))
            now = self._now()
            late = self._late(now)
            self._beat_due = due(now, self._options.beat_ms)
            for peer in list(self._peers.values()):
                peer.heard_at = min(peer.heard_at + late, now)
                self._look_at(peer, now)

    def _look_at(self, peer: _Peer, now: float) -> None:
        connection = peer.connection
        if connection is None:
            return
        if connection.is_heard:
            connection.is_heard, peer.heard_at = False, now
        if (now - peer.heard_at) * 1000 >= self._options.silent_ms_max:
            log.warning("peer_silent number=%d ms=%d", peer.number, (now - peer.heard_at) * 1000)
            connection.abort()
        elif peer.beaten is None:
            self._beat(peer)

    def _beat(self, peer: _Peer) -> None:
        connection = peer.connection
        if connection is None:
            return
        try:
            beat = Message(beat=pb.Beat(revision=self.revision, now_ms=self._clock.wall_ms()))
            connection.post(partial(self._beaten, peer, connection), beat)
        except (ConnectionLost, Overloaded):
            return  # its end is told, or its answers will be heard
        peer.beaten = connection

    def _beaten(self, peer: _Peer, connection: Connection, outcome: Reply | EventLogError) -> None:
        """Take the answer to a beat."""
        if peer.beaten is connection:
            peer.beaten = None
        if isinstance(outcome, Reply):  # a connection that ends says so itself
            answer = outcome.message.beat_answer
            peer.clock_ms = answer.now_ms - self._clock.monotonic_ms()
            self._heard_revision(peer.number, answer.revision)

    def _heard_revision(self, number: int, revision: int) -> None:
        for hook in self.hooks.beaten:
            hook(number, revision)

    def _late(self, now: float) -> float:
        """Return by how many seconds the next round of beats is overdue, if by more than a moment."""
        late = now - self._beat_due
        return late if late > self._options.beat_ms / 2000 else 0.0

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def is_of_member(connection: Connection) -> bool:
    """Return whether another member dialled this connection, and has proved it."""
    return _STATE in connection.state


def peer_of(exchange: Exchange) -> PeerIdentity:
    """Return which member asks: it has proved the cluster key, and is a member, with that incarnation, of this node's view.

    Raises:
        NotMember: none does.
    """
    found: PeerSession | None = exchange.connection.state.get(_STATE)
    if found is None:
        raise NotMember(what=exchange.kind, why="this connection has not proved to be one's")
    return found.member


def _is_refusal(error: EventLogError) -> bool:
    """Return whether a host answered that nobody listens: its system did, or, of several addresses, each."""
    cause = error.__cause__
    return isinstance(cause, OSError) and (cause.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(cause))
