"""Connections between members over real sockets: who is greeted, what is told when one comes, goes, stops answering or changes."""

import asyncio
import contextlib
import dataclasses
import socket
import time

import pytest

from eventlog.errors import BadMessage, ConnectionLost, NotMember, Overloaded, UnsupportedVersion, WrongCluster
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION, Greeting, PeerIdentity
from eventlog.node.cluster.peers import PeerOptions, Peers, is_of_member, peer_of
from eventlog.testing.clocks import ManualClock
from eventlog.transport.server import Server, ServerOptions, bind
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply
from tests.process.transport_ends import connected, run, until

PATIENT = PeerOptions(beat_ms=20, silent_ms_max=60_000, dial_ms_max=60_000, pause_ms_min=5, pause_ms_max=20, bytes_in_flight_max=1000)
QUICK = dataclasses.replace(PATIENT, silent_ms_max=300)


KEY, NEWER = b"k" * 32, b"n" * 32


class Anybody:
    """A membership in which everybody is that is not named in `strangers`."""

    def __init__(self, *keys):
        self.keys = keys
        self.strangers = set()
        self.asked = []

    async def has_member(self, number, incarnation, *, revision):
        self.asked.append((number, incarnation, revision))
        return (number, incarnation) not in self.strangers


class Member:
    """A member with nothing but its connections. What it is told stands in `told`; requests of kind `write` wait in `held`."""

    def __init__(self, number, *, cluster="one", incarnation="a", options=PATIENT, keys=(KEY,), clock=None):
        self.tasks = []
        self.proving = []
        self.told = []
        self.held = []
        self.revisions = []
        self.is_mute = False
        me = PeerIdentity(cluster=cluster, number=number, incarnation=incarnation)
        self.peers = Peers(me, own=self.tasks.append, options=options, clock=clock)
        self.membership = self.peers.membership = Anybody(*keys)
        self.peers.hooks.connected.append(lambda number, incarnation: self.told.append(("connected", number, incarnation)))
        self.peers.hooks.lost.append(lambda number, refused: self.told.append(("lost", number, refused)))
        self.peers.hooks.beaten.append(lambda number, revision: self.revisions.append((number, revision)))
        self.server = None
        self.port = bind("127.0.0.1", 0)  # this member's to its end, whether anybody listens there or not

    async def listen(self):
        self.server = Server(self._dispatch, ServerOptions())
        await self.server.start(*self.port.getsockname())

    @property
    def address(self):
        host, port = self.port.getsockname()
        return f"{host}:{port}"

    def _dispatch(self, exchange):
        if self.is_mute:
            return
        match exchange.kind:
            case "hello":
                exchange.answer(Message(hello_answer=pb.HelloAnswer()))
            case "peer_hello":
                self.peers.greeted(exchange)
            case "peer_proof":
                self.proving.append(asyncio.create_task(self._prove(exchange)))
            case "beat":
                self.peers.heard_beat(exchange)
            case "write":
                self.held.append((peer_of(exchange), exchange))

    async def _prove(self, exchange):
        try:
            await self.peers.proved(exchange)
        except NotMember as error:
            exchange.fail(error)

    async def stop_listening(self):
        for connection in self.server.connections:
            connection.abort()
        await self.server.stop(grace_ms=0)

    async def close(self):
        self.peers.close()
        for task in (*self.tasks, *self.proving):
            task.cancel()
        for result in await asyncio.gather(*self.tasks, *self.proving, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result
        await self.stop_listening()
        self.port.close()


@contextlib.asynccontextmanager
async def members(*those):
    """Members that listen and know each other."""
    for member in those:
        await member.listen()
        member.peers.start()
    addresses = {member.peers.me.number: member.address for member in those}
    for member in those:
        member.peers.update(addresses)
    try:
        yield those
    finally:
        for member in those:
            await member.close()


@pytest.mark.parametrize("address", [".example.org:17404", "a" * 64 + ":1", "127.0.0.1:99999", "127.0.0.1", ""])
def test_a_member_at_an_address_that_there_cannot_be_is_lost_and_its_peers_go_on(address):
    async def main():
        one, two = Member(1), Member(2)
        async with members(one, two):
            one.peers.update({1: one.address, 2: two.address, 3: address})
            await until(lambda: {("lost", 3), ("connected", 2)} <= {told[:2] for told in one.told})
            assert not any(task.done() for task in one.tasks)

    run(main)


def test_two_members_reach_each_other_and_know_who_it_is():
    async def main():
        async with members(Member(1), Member(2, incarnation="b")) as (one, two):
            await until(lambda: one.told and two.told)
            assert one.told == [("connected", 2, "b")]
            assert two.told == [("connected", 1, "a")]
            assert one.peers.incarnations == {2: "b"}
            answer = one.peers.send(2, Message(write=pb.Write()), b"x" * 8)
            await until(lambda: two.held)
            asked_by, exchange = two.held[0]
            assert (asked_by.number, asked_by.incarnation) == (1, "a")
            exchange.answer(Message(write_answer=pb.WriteAnswer(id=7)))
            assert (await answer).message.write_answer.id == 7
            found = one.peers.connection(2)._transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(main)


def test_a_member_of_another_cluster_is_refused_on_both_sides():
    async def main():
        async with members(Member(1), Member(2, cluster="two")) as (one, two):
            await until(lambda: one.told and two.told)
            assert one.told == [("lost", 2, False)]
            assert two.told == [("lost", 1, False)]
            async with connected(one.port.getsockname()[1]) as connection:
                with pytest.raises(WrongCluster):
                    await connection.send(Message(peer_hello=pb.PeerHello(cluster="two", number=2)))

    run(main)


def hello_of(number, **changed):
    fields = {"cluster": "one", "number": number, "incarnation": "a", "version": PEER_VERSION, "nonce": bytes(NONCE_BYTES)}
    return pb.PeerHello(**fields | changed)


async def prove(connection, hello, *keys):
    """Greet a member, and prove these keys."""
    answer = (await connection.send(Message(peer_hello=hello))).message.peer_hello_answer
    dialer = PeerIdentity(cluster=hello.cluster, number=hello.number, incarnation=hello.incarnation)
    answerer = PeerIdentity(cluster="one", number=answer.number, incarnation=answer.incarnation)
    greeting = Greeting(dialer=dialer, answerer=answerer, dialer_nonce=hello.nonce, answerer_nonce=answer.nonce)
    await connection.send(Message(peer_proof=pb.PeerProof(proofs=greeting.proofs("dialer", keys), revision=9)))


def test_whoever_knows_another_key_is_refused_on_both_sides():
    async def main():
        async with members(Member(1), Member(2, keys=(NEWER,))) as (one, two):
            await until(lambda: one.told and two.told)
            assert one.told == [("lost", 2, False)]
            assert two.told == [("lost", 1, False)]
            async with connected(one.port.getsockname()[1]) as connection:
                for keys in ((), (NEWER,), (NEWER, NEWER, KEY)):  # more than two are not tried
                    with pytest.raises(NotMember, match="proof of the cluster key is wrong"):
                        await prove(connection, hello_of(2), *keys)
                    assert not any(map(is_of_member, one.server.connections))
                with pytest.raises(NotMember, match="no greeting came before"):
                    await connection.send(Message(peer_proof=pb.PeerProof()))

    run(main)


def test_what_one_side_has_proved_proves_nothing_for_another():
    async def main():
        async with members(Member(1)) as (one,), connected(one.port.getsockname()[1]) as connection:
            answer = (await connection.send(Message(peer_hello=hello_of(2)))).message.peer_hello_answer
            with pytest.raises(NotMember):
                await connection.send(Message(peer_proof=pb.PeerProof(proofs=answer.proofs)))

    run(main)


def test_whoever_knows_the_key_and_is_no_member_is_refused_on_both_sides():
    async def main():
        one, two = Member(1), Member(2)
        two.membership.strangers.add((1, "a"))
        async with members(one, two):
            await until(lambda: two.told)
            assert two.told == [("lost", 1, False)]
            assert ("connected", 2, "a") not in one.told
            assert not any(map(is_of_member, two.server.connections))
            two.peers.revision = 31
            async with connected(two.port.getsockname()[1]) as connection:
                with pytest.raises(NotMember, match="incarnation 'a' of that number is no member"):
                    await prove(connection, hello_of(1), KEY)
            assert (1, "a", 9) in two.membership.asked  # the view may be older than the greeting
            await until(lambda: (2, "a", 31) in one.membership.asked)

    run(main)


def test_a_connection_stays_whose_it_was_proved_to_be():
    async def main():
        async with members(Member(1)) as (one,), connected(one.port.getsockname()[1]) as connection:
            await prove(connection, hello_of(2), KEY)
            with pytest.raises(NotMember, match="this connection is node 2's"):
                await prove(connection, hello_of(3), KEY)
            await prove(connection, hello_of(2), KEY)
            assert any(map(is_of_member, one.server.connections))

    run(main)


@pytest.mark.parametrize(
    ("changed", "error"), [({"version": 0}, UnsupportedVersion), ({"version": 3}, UnsupportedVersion), ({"nonce": b""}, BadMessage)]
)
def test_a_greeting_of_another_version_or_without_a_nonce_is_refused_by_name(changed, error):
    async def main():
        async with members(Member(1)) as (one,), connected(one.port.getsockname()[1]) as connection:
            with pytest.raises(error):
                await connection.send(Message(peer_hello=hello_of(2, **changed)))

    run(main)


def test_a_member_of_an_earlier_version_is_refused_by_name_where_it_is_dialled(caplog):
    async def main():
        one, two = Member(1), Member(2)
        two.peers.greeted = lambda exchange: exchange.answer(Message(peer_hello_answer=pb.PeerHelloAnswer(number=2, incarnation="a")))
        async with members(one, two):
            await until(lambda: one.told)
            assert one.told == [("lost", 2, False)]
            assert "the peer speaks protocol 1 between members, this side 2" in caplog.text

    run(main)


def test_a_key_is_replaced_without_a_connection_being_lost():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told and two.told)
            incarnations = {1: "a", 2: "a"}
            for member, other in ((one, two), (two, one)):  # one hears of it while the other knows only the key before
                member.membership.keys = (NEWER, KEY)
                member.peers.judge(incarnations)
                await until(lambda other=other: len(other.proving) > 1)
            await until(
                lambda: all(connection.state["peer"].key == NEWER for member in (one, two) for connection in member.server.connections)
            )
            for member in (one, two):
                member.membership.keys = (NEWER,)
                member.peers.judge(incarnations)
            assert (await one.peers.send(2, Message(beat=pb.Beat()))).message.HasField("beat_answer")
            assert (await two.peers.send(1, Message(beat=pb.Beat()))).message.HasField("beat_answer")
            assert one.told == [("connected", 2, "a")]
            assert two.told == [("connected", 1, "a")]

    run(main)


def test_a_connection_that_goes_by_a_key_of_the_past_or_a_member_of_the_past_is_closed():
    async def main():
        async with members(Member(1)) as (one,):
            for keys, incarnations in (((NEWER,), {1: "a", 2: "a"}), ((KEY,), {1: "a", 2: "b"}), ((KEY,), {1: "a"})):
                one.membership.keys = (KEY,)
                async with connected(one.port.getsockname()[1]) as connection:
                    await prove(connection, hello_of(2), KEY)
                    one.peers.judge({1: "a", 2: "a"})
                    assert not connection.is_closed
                    one.membership.keys = keys
                    one.peers.judge(incarnations)
                    await connection.wait_closed()

    run(main)


def test_another_number_at_the_address_is_not_the_member():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            one.peers.update({3: two.address})
            await until(lambda: ("lost", 3, False) in one.told)
            assert ("connected", 3, "a") not in one.told
            with pytest.raises(ConnectionLost):
                one.peers.connection(3)

    run(main)


def test_an_end_is_told_at_once_and_then_that_nobody_listens():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told)
            answer = one.peers.send(2, Message(write=pb.Write()))
            await until(lambda: two.held)
            await two.stop_listening()
            with pytest.raises(ConnectionLost):
                await answer
            await until(lambda: len(one.told) == 3)
            assert one.told[1:] == [("lost", 2, False), ("lost", 2, True)]
            assert one.peers.is_refused(2)
            with pytest.raises(ConnectionLost):
                one.peers.send(2, Message(write=pb.Write()))
            await two.listen()
            await until(lambda: len(one.told) == 4)
            assert one.told[3] == ("connected", 2, "a")
            assert not one.peers.is_refused(2)

    run(main)


def test_a_changed_incarnation_is_told():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told)
            two.peers.me = PeerIdentity(cluster="one", number=2, incarnation="fresh")
            for connection in two.server.connections:
                connection.abort()
            await until(lambda: ("connected", 2, "fresh") in one.told)
            assert one.peers.incarnations == {2: "fresh"}

    run(main)


def test_a_connection_that_says_nothing_is_given_up():
    async def main():
        async with members(Member(1, options=QUICK), Member(2)) as (one, two):
            await until(lambda: one.told)
            two.is_mute = True
            await until(lambda: ("lost", 2, False) in one.told)
            assert one.peers.silent_ms(2) >= QUICK.silent_ms_max
            two.is_mute = False
            for connection in two.server.connections:  # it has been dialled again, and that was not answered
                connection.abort()
            await until(lambda: one.told[-1] == ("connected", 2, "a"))
            assert one.peers.silent_ms(2) < QUICK.silent_ms_max

    run(main)


def test_a_member_that_was_held_up_itself_takes_nobody_for_silent():
    async def main():
        async with members(Member(1, options=QUICK), Member(2)) as (one, _):
            await until(lambda: one.told)
            time.sleep(QUICK.silent_ms_max / 1000 + 0.1)  # noqa: ASYNC251  # the loop stands still, as if the process had been stopped
            assert one.peers.silent_ms(2) < QUICK.silent_ms_max
            await until(lambda: one.peers.connection(2).is_heard or one.peers.silent_ms(2) == 0)
            assert one.told == [("connected", 2, "a")]

    run(main)


def test_a_greeting_from_a_member_has_it_dialled_at_once():
    async def main():
        slow = dataclasses.replace(PATIENT, pause_ms_min=600_000, pause_ms_max=600_000)
        one, two = Member(1, options=slow), Member(2)
        async with members(one):
            one.peers.update({2: two.address})
            await until(lambda: one.told == [("lost", 2, True)])
            async with members(two):
                two.peers.update({1: one.address})
                await until(lambda: one.told[1:] == [("connected", 2, "a")])

    run(main)


def test_beats_tell_the_revision_and_the_clock():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told)
            one.peers.revision = 17
            await until(lambda: (1, 17) in two.revisions)
            two.peers.revision = 18
            await until(lambda: (2, 18) in one.revisions)
            assert len(one.peers.clocks_ahead_ms()) == 1
            assert abs(one.peers.clocks_ahead_ms()[0]) < 10_000

    run(main)


def test_a_wall_clock_that_jumps_is_apart_from_the_others_before_they_are_heard_again():
    async def main():
        clock = ManualClock()
        async with members(Member(1, clock=clock), Member(2, clock=ManualClock())) as (one, _):
            await until(lambda: one.peers.clocks_ahead_ms() == [0])
            clock.set_wall(clock.wall_ms() + 3_600_000)
            assert one.peers.clocks_ahead_ms() == [-3_600_000]

    run(main)


def test_bytes_in_flight_are_bounded_and_given_back():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told)
            answers = [one.peers.send(2, Message(write=pb.Write()), bytes(400)) for _ in range(2)]
            with pytest.raises(Overloaded):
                one.peers.send(2, Message(write=pb.Write()), bytes(400))
            await until(lambda: len(two.held) == 2)
            for _, exchange in two.held:
                exchange.answer(Message(write_answer=pb.WriteAnswer()))
            await asyncio.gather(*answers)
            one.peers.send(2, Message(write=pb.Write()), bytes(2000)).cancel()  # alone, one of any size passes

    run(main)


def test_bytes_of_what_was_posted_count_until_it_is_answered_or_refused():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told)
            heard = []

            def told(outcome):
                heard.append(outcome.message.write_answer.id if isinstance(outcome, Reply) else outcome.code)

            for _ in range(2):
                one.peers.post(2, told, Message(write=pb.Write()), bytes(400))
            with pytest.raises(Overloaded):
                one.peers.post(2, told, Message(write=pb.Write()), bytes(400))
            await until(lambda: len(two.held) == 2)
            two.held[0][1].answer(Message(write_answer=pb.WriteAnswer(id=7)))
            two.held[1][1].fail(BadMessage(why="no"))
            await until(lambda: len(heard) == 2)
            assert heard == [7, BadMessage.code]
            for _ in range(2):
                one.peers.post(2, told, Message(write=pb.Write()), bytes(400))
            await until(lambda: len(two.held) == 4)

    run(main)


def test_a_member_that_is_no_more_is_let_go_of():
    async def main():
        async with members(Member(1), Member(2)) as (one, two):
            await until(lambda: one.told and two.server.connections)
            one.peers.update({})
            with pytest.raises(ConnectionLost):
                one.peers.connection(2)
            await until(lambda: not two.server.connections)

    run(main)


def test_what_is_for_members_is_refused_to_others():
    async def main():
        async with members(Member(1)) as (one,), connected(one.port.getsockname()[1]) as connection:
            with pytest.raises(NotMember):
                await connection.send(Message(beat=pb.Beat()))

    run(main)
