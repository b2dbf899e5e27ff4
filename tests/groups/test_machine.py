"""Members, a coordinator that is replaced now and then, and a network that delays: who reads what, at every moment."""

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventlog.errors import Fenced, StaleMember
from eventlog.groups.coordinator import Beat, Coordinator, Told, Via
from eventlog.groups.record import Commit, Member, Place, check_commit, decode_group, encode_group, new_group
from tests.examples import examples

SEGMENTS = 7
TIMEOUT_MS = 10_000
ROUNDS_TO_SETTLE = 12
CHOSEN = st.integers(0, 999).map(lambda number: lambda rows: rows[number % len(rows)])


@dataclass
class Client:
    member: Member
    via: Via
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    waiting: Beat | None = None  # sent, not yet received
    answer: Told | Exception | None = None  # on its way back
    is_dead: bool = False
    heard_ms: int = 0
    taken: list[tuple[Commit, int]] = field(default_factory=list)

    def beat(self) -> Beat:
        return Beat(member=self.member, epoch=self.epoch, owned=self.owned, via=self.via)

    def hear(self, answer: Told | Exception) -> None:
        if isinstance(answer, Told):
            self.epoch, self.owned = answer.epoch, answer.assigned
        else:
            self.epoch, self.owned = 0, frozenset()
            self.is_dead = isinstance(answer, Fenced)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.clients: list[Client] = []
        self.kept = new_group(SEGMENTS)
        self.coordinator = Coordinator("g", self.kept, 0)
        self.strays: list[Beat] = []  # sent over connections that were given up, and not lost
        self.spells = [0] * SEGMENTS  # how often each segment has changed hands

    def _keep(self, state) -> None:
        assert decode_group(encode_group(state)) == state
        assert state.generation >= self.kept.generation
        for segment, (before, after) in enumerate(zip(self.kept.holders, state.holders, strict=True)):
            self.spells[segment] += before != after
        self.kept = state
        self.coordinator.adopt(state, self.now)

    def _live(self) -> list[Client]:
        return [client for client in self.clients if not client.is_dead]

    def _idle(self) -> list[Client]:
        return [client for client in self._live() if client.waiting is None and client.answer is None]

    def _sent(self) -> list[Client]:
        return [client for client in self._live() if client.waiting is not None]

    def _answered(self) -> list[Client]:
        return [client for client in self._live() if client.answer is not None]

    def _readers(self) -> list[Client]:
        return [client for client in self._live() if client.owned]

    def _takers(self) -> list[Client]:
        return [client for client in self.clients if client.taken]

    @initialize(instances=st.lists(st.sampled_from(["", "", "a"]), min_size=2, max_size=4))
    def begin(self, instances) -> None:
        for instance in instances:
            self.start(instance)
            self._exchange(self.clients[-1])

    @precondition(lambda self: len(self._live()) < 5)
    @rule(instance=st.sampled_from(["", "", "a", "b"]))
    def start(self, instance) -> None:
        number = len(self.clients)
        member = Member(id=f"m{number}", instance=instance, timeout_ms=TIMEOUT_MS, node=number % 3)
        self.clients.append(Client(member=member, via=Via(node=1, connection=number), heard_ms=self.now))

    @precondition(lambda self: self._idle())
    @rule(chosen=CHOSEN)
    def exchange(self, chosen) -> None:
        self._exchange(chosen(self._idle()))

    def _exchange(self, client) -> None:
        client.waiting = client.beat()
        self._receive(client)
        client.hear(client.answer)
        client.answer, client.heard_ms = None, self.now

    @precondition(lambda self: self._idle())
    @rule(chosen=CHOSEN)
    def send(self, chosen) -> None:
        client = chosen(self._idle())
        client.waiting = client.beat()

    @precondition(lambda self: self._sent())
    @rule(chosen=CHOSEN)
    def give_up(self, chosen) -> None:
        client = chosen(self._sent())
        self.strays.append(client.waiting)
        client.waiting = None

    @precondition(lambda self: self.strays)
    @rule(chosen=CHOSEN)
    def receive_stray(self, chosen) -> None:
        beat = chosen(self.strays)
        self.strays.remove(beat)
        if beat.epoch:  # the one that joins is sent again as often as need be, but under the same id: see `start`
            with suppress(StaleMember, Fenced):
                self._keep(self.coordinator.beat(beat, self.now))

    @precondition(lambda self: self._sent())
    @rule(chosen=CHOSEN)
    def receive(self, chosen) -> None:
        self._receive(chosen(self._sent()))

    def _receive(self, client) -> None:
        beat, client.waiting = client.waiting, None
        try:
            self._keep(self.coordinator.beat(beat, self.now))
            client.answer = self.coordinator.told(beat.member.id)
        except (StaleMember, Fenced) as error:
            client.answer = error

    @precondition(lambda self: self._answered())
    @rule(chosen=CHOSEN)
    def answer(self, chosen) -> None:
        client = chosen(self._answered())
        client.hear(client.answer)
        client.answer, client.heard_ms = None, self.now

    @precondition(lambda self: self._answered())
    @rule(chosen=CHOSEN)
    def lose_answer(self, chosen) -> None:
        chosen(self._answered()).answer = None

    @precondition(lambda self: len(self._live()) > 1)
    @rule(chosen=CHOSEN)
    def kill(self, chosen) -> None:
        client = chosen(self._live())
        client.is_dead, client.owned, client.answer = True, frozenset(), None
        self.coordinator.closed(client.member.id, client.via, self.now)

    @precondition(lambda self: len(self._live()) > 1)
    @rule(chosen=CHOSEN)
    def stop(self, chosen) -> None:
        client = chosen(self._live())
        client.is_dead, client.owned, client.answer, client.waiting = True, frozenset(), None, None
        self._keep(self.coordinator.leave(client.member.id))

    @rule()
    def lose_the_coordinator(self) -> None:
        before = self.kept
        self.coordinator = Coordinator("g", decode_group(encode_group(self.kept)), self.now)
        assert self.coordinator.tick(self.now) == before, "a new coordinator ends no session"

    @rule(ms=st.sampled_from([10, 500, 1_500, 4_000]))
    def wait(self, ms) -> None:
        self.now += ms
        for client in self._live():
            if self.now - client.heard_ms >= TIMEOUT_MS:  # a member stops reading before its session can have ended
                client.epoch, client.owned, client.answer, client.waiting = 0, frozenset(), None, None
        self._keep(self.coordinator.tick(self.now))

    @precondition(lambda self: self._readers())
    @rule(chosen=CHOSEN, segment=CHOSEN)
    def take(self, chosen, segment) -> None:
        client = chosen(self._readers())
        taken = segment(sorted(client.owned))
        commit = Commit(member=client.member.id, epoch=client.epoch, places={taken: Place(id=1)})
        client.taken.append((commit, self.spells[taken]))

    @precondition(lambda self: self._takers())
    @rule(chosen=CHOSEN)
    def commit(self, chosen) -> None:
        commit, spell = chosen(self._takers()).taken.pop(0)
        (segment,) = commit.places
        with suppress(StaleMember):
            check_commit("g", self.kept, commit)
            assert self.kept.holders[segment] == commit.member
            assert self.spells[segment] == spell, "the segment was another's since its events were taken"

    @invariant()
    def no_segment_is_read_by_two(self) -> None:
        # A static member that was fenced reads on until it hears of it; its commits do not count.
        current = [client for client in self.clients if not client.member.instance or self.kept.member(client.member.id)]
        read = [segment for client in current for segment in client.owned]
        assert len(read) == len(set(read))

    @invariant()
    def the_state_is_sound(self) -> None:
        ids = {member.id for member in self.kept.members} | {""}
        assert set(self.kept.holders) <= ids
        assert set(self.kept.targets) <= ids
        assert all(given <= self.kept.generation for given in self.kept.given)

    def teardown(self) -> None:
        """When nothing happens any more, every segment has a reader, and none more than its share."""
        self.now += TIMEOUT_MS
        for client in self.clients:
            client.waiting = client.answer = None
        for _ in range(ROUNDS_TO_SETTLE):
            for client in self._live():
                self._exchange(client)
            self.now += 1_000
            self._keep(self.coordinator.tick(self.now))
        live = self._live()
        if live:
            assert sorted(segment for client in live for segment in client.owned) == list(range(SEGMENTS))
            sizes = [len(client.owned) for client in live]
            assert max(sizes) - min(sizes) <= 1


TestGroups = Groups.TestCase
TestGroups.settings = settings(stateful_step_count=60, max_examples=examples(100), deadline=None)

WEIGHTS = {
    "exchange": 6, "send": 4, "receive": 4, "answer": 4, "give_up": 2, "receive_stray": 2, "lose_answer": 1, "take": 6, "commit": 3,
    "start": 2, "kill": 1, "stop": 1, "lose_the_coordinator": 1, "wait": 2,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_a_long_walk_keeps_every_promise(seed) -> None:
    """The same rules, chosen by weight: most of the time something is to be done."""
    chance = random.Random(seed)
    world = Groups()
    world.begin([chance.choice(["", "", "a"]) for _ in range(chance.randint(2, 4))])
    arguments = {
        "start": lambda: {"instance": chance.choice(["", "", "", "a", "b"])},
        "wait": lambda: {"ms": chance.choice([10, 10, 500, 1_500, 4_000])},
        "lose_the_coordinator": dict,
        "take": lambda: {"chosen": chance.choice, "segment": chance.choice},
    }
    can = {
        "give_up": world._sent, "receive": world._sent, "exchange": world._idle, "send": world._idle, "answer": world._answered,
        "lose_answer": world._answered, "take": world._readers, "commit": world._takers, "receive_stray": lambda: world.strays,
        "kill": lambda: len(world._live()) > 1, "stop": lambda: len(world._live()) > 1, "start": lambda: len(world._live()) < 5,
    }  # fmt: skip
    for _ in range(250):
        name = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if name not in can or can[name]():
            getattr(world, name)(**arguments.get(name, lambda: {"chosen": chance.choice})())
            world.no_segment_is_read_by_two()
            world.the_state_is_sound()
    world.teardown()
