"""Near tables by example, and against a log, primaries and a server that any order of things may happen to."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.client.near.table import MISS, SLOT_BYTES, Fill, NearTable, Read
from tests.examples import examples

NEVER = float("inf")


def table_of(*, entries_max: int = 10, bytes_max: int = 1 << 30, upto: int = 100) -> NearTable:
    """A table whose tail was opened at `upto` at the time 0 and is trusted for 10 seconds."""
    table = NearTable(entries_max=entries_max, bytes_max=bytes_max, staleness_s=10)
    table.opening()
    table.advance(upto)
    table.registered(upto)
    table.confirm(0.0)
    return table


def read(entry: object, as_of: int, *, until: float = NEVER, nbytes: int = 10) -> Read:
    return Read(entry=entry, as_of=as_of, until=until, nbytes=nbytes)


def fill(table: NearTable, key: str, entry: object, *, as_of: int = 100, until: float = NEVER) -> None:
    begun = table.begin(key, hash(key), nbytes=len(key))
    assert begun is not None
    if table.has_changes:
        table.changes()
        table.registered(table.upto)
    table.end(begun, read(entry, as_of, until=until))


class Left:
    """An entry that tells when the table has let go of it."""


def test_another_thread_may_read_while_everything_is_forgotten():
    table, seen = table_of(), []

    def read_meanwhile() -> None:
        seen.append([table.find(key, 0.0) is MISS for key in "abcde"])

    for key in "abcde":
        entry = Left()
        weakref.finalize(entry, read_meanwhile)
        fill(table, key, entry)
    del entry
    table.forget()
    assert seen == [[key <= gone for key in "abcde"] for gone in "abcde"], "each of them was read while the next ones were held"
    assert [table.find(key, 0.0) for key in "abcde"] == [MISS] * 5


def test_what_was_read_is_found_as_is_the_absence_of_an_entry():
    table = table_of()
    fill(table, "a", "entry")
    fill(table, "b", None)
    assert (table.find("a", 1.0), table.find("b", 1.0), table.find("c", 1.0)) == ("entry", None, MISS)
    found = table.statistics()
    assert (found.hits, found.misses, found.entries) == (2, 2, 2)


def test_a_write_told_by_the_tail_ends_it_and_one_that_was_seen_does_not():
    table = table_of()
    fill(table, "a", "entry", as_of=105)
    table.advance(104, digests=[hash("a")], ids=[104])
    assert table.find("a", 1.0) == "entry"
    table.advance(107, digests=[hash("a")], ids=[106])
    assert table.find("a", 1.0) == MISS
    assert table.statistics().invalidations == 1


def test_a_write_that_another_one_overtook_is_not_kept():
    table = NearTable(entries_max=10, bytes_max=1 << 20, staleness_s=1)
    table.opening()
    begun = table.begin_write("k", 7, nbytes=1)
    assert table.changes() == ([7], [])
    table.registered(5)
    table.confirm(0)
    table.advance(20, digests=[7], ids=[12])
    table.end(begun, Read(entry="mine", as_of=10, until=99, nbytes=1))
    assert table.find("k", 0.5) == MISS
    assert table.statistics().misses == 0


def test_a_read_is_kept_only_once_the_tail_watches_the_key():
    table = table_of()
    begun = table.begin("a", 1, nbytes=1)
    table.end(begun, read("entry", 100))
    assert table.find("a", 1.0) == MISS
    assert table.changes() == ([1], [])
    table.registered(100)
    assert table.find("a", 1.0) == "entry"


@pytest.mark.parametrize(("as_of", "found"), [(101, MISS), (102, "entry")])
def test_a_read_as_of_an_id_below_where_the_tail_watches_is_refused(as_of: int, found: object):
    table = table_of()
    begun = table.begin("a", 1, nbytes=1)
    table.changes()
    table.registered(102)
    table.end(begun, read("entry", as_of))
    assert table.find("a", 1.0) == found


@pytest.mark.parametrize(("as_of", "found"), [(104, MISS), (105, "entry")])
def test_a_read_overtaken_by_word_of_a_later_write_is_refused(as_of: int, found: object):
    table = table_of()
    begun = table.begin("a", 1, nbytes=1)
    table.changes()
    table.registered(100)
    table.advance(105, digests=[1], ids=[105])
    table.end(begun, read("entry", as_of))
    assert table.find("a", 1.0) == found


def test_own_writes_are_read():
    table = table_of()
    fill(table, "a", "old")
    begun = table.begin("a", hash("a"), nbytes=1)
    table.wrote(hash("a"), 110)
    assert table.find("a", 1.0) == MISS
    table.end(begun, read("old", 109))
    assert table.find("a", 1.0) == MISS
    fill(table, "a", "new", as_of=110)
    assert table.find("a", 1.0) == "new"


def test_after_writes_of_unknown_ids_reads_under_way_count_no_more():
    table = table_of()
    fill(table, "a", "old")
    begun = table.begin("b", 2, nbytes=1)
    table.forget()
    assert table.find("a", 1.0) == MISS
    table.changes()
    table.registered(100)
    table.end(begun, read("old", 120))
    assert (table.find("a", 1.0), table.find("b", 1.0)) == (MISS, MISS)


def test_a_write_of_an_unknown_id_concerns_its_key_alone():
    table = table_of()
    fill(table, "a", "old")
    fill(table, "b", "entry")
    begun = table.begin("a", hash("a"), nbytes=1)
    table.touch(hash("a"))
    table.end(begun, read("old", 120))
    assert (table.find("a", 1.0), table.find("b", 1.0)) == (MISS, "entry")


def test_nothing_is_served_when_the_tail_has_been_silent_for_too_long_or_the_lifespan_is_over():
    table = table_of()
    fill(table, "a", "entry")
    fill(table, "b", "entry", until=3.0)
    assert (table.find("a", 9.9), table.find("b", 2.9)) == ("entry", "entry")
    assert (table.find("a", 10.0), table.find("b", 3.0)) == (MISS, MISS)
    table.confirm(5.0)
    assert table.find("a", 14.9) == "entry"


def test_a_lost_tail_goes_on_from_its_place_with_everything_that_is_watched():
    table = table_of()
    fill(table, "a", "entry")
    table.close()
    table.begin("b", 2, nbytes=1)
    assert table.opening() == sorted([2, hash("a")])
    table.registered(table.upto)
    table.confirm(20.0)
    assert table.find("a", 21.0) == "entry"
    assert not table.has_changes


def test_after_a_reset_nothing_is_left_and_nothing_under_way_is_kept():
    table = table_of()
    fill(table, "a", "entry")
    begun = table.begin("b", 2, nbytes=1)
    table.reset()
    table.confirm(1.0)
    table.end(begun, read("entry", 200))
    assert (table.find("a", 1.0), table.find("b", 1.0), table.opening()) == (MISS, MISS, [])
    found = table.statistics()
    assert (found.entries, found.bytes, found.resets) == (0, 0, 1)


def test_the_least_recently_used_makes_room_and_the_server_hears_of_it():
    table = table_of(entries_max=2)
    fill(table, "a", "entry")
    fill(table, "b", "entry")
    table.find("a", 1.0)
    fill(table, "c", "entry")
    assert [table.find(key, 1.0) for key in "abc"] == ["entry", MISS, "entry"]
    assert table.statistics().evictions == 1
    table.begin("d", 4, nbytes=1)
    assert table.changes() == ([4], [hash("a")])


def test_bytes_are_bounded_too_and_one_value_may_be_too_large():
    table = table_of(bytes_max=2 * SLOT_BYTES + 100)
    fill(table, "a", "entry")
    fill(table, "b", "entry")
    fill(table, "c", "entry")
    assert [table.find(key, 1.0) for key in "abc"] == [MISS, "entry", "entry"]
    begun = table.begin("b", hash("b"), nbytes=1)
    table.end(begun, Read(entry="large", as_of=100, until=NEVER, nbytes=4_000))
    assert table.find("b", 1.0) == MISS
    assert table.statistics().bytes <= 2 * SLOT_BYTES + 100


def test_what_comes_for_a_key_that_made_room_takes_none():
    table = table_of(entries_max=1)
    begun = table.begin("a", hash("a"), nbytes=1)
    fill(table, "b", "other")
    before = table.statistics()
    table.end(begun, read("late", 100))
    after = table.statistics()
    assert (after.entries, after.bytes, after.refused) == (before.entries, before.bytes, before.refused + 1)
    assert (table.find("a", 1.0), table.find("b", 1.0)) == (MISS, "other")


def test_what_waits_for_the_tail_takes_room_as_what_is_served_does():
    table = table_of(bytes_max=2 * SLOT_BYTES + 1_000)
    fill(table, "a", "entry")
    table.close()
    for number in range(20):
        begun = table.begin(number, number, nbytes=1)
        table.end(begun, read("entry", 100, nbytes=400))
        assert table.statistics().bytes <= 2 * SLOT_BYTES + 1_000
        table.end(begun, read("large", 100, nbytes=2_000))
    assert (table.find("a", 1.0), table.statistics().refused) == (MISS, 20)
    table.opening()
    table.registered(100)
    assert [table.find(number, 1.0) for number in range(17, 20)] == [MISS, "entry", "entry"]
    assert table.statistics().bytes == 2 * (SLOT_BYTES + 1 + 400)
    table.reset()
    assert table.statistics().bytes == 0


def test_two_keys_of_one_digest_do_not_share_a_place():
    table = table_of()
    assert table.begin("a", 1, nbytes=1) is not None
    assert table.begin("b", 1, nbytes=1) is None


def test_a_key_that_comes_back_before_the_server_forgot_it_counts_from_now():
    table = table_of(entries_max=1, upto=100)
    fill(table, "a", "entry")
    table.begin("b", hash("b"), nbytes=1)
    table.advance(120)  # a word of "a" at 110 would have gone unnoticed
    begun = table.begin("a", hash("a"), nbytes=1)
    table.end(begun, read("entry", 119))
    assert table.find("a", 1.0) == MISS
    table.end(begun, read("entry", 120))
    assert table.find("a", 1.0) == "entry"


STALENESS_S = 10
KEYS = "abc"
DIGESTS = {key: 1_000 + number for number, key in enumerate(KEYS)}


@dataclass
class Reading:
    """A fill, and what the primary said once it has."""

    begun: Fill
    key: str
    said: Read | None = None


@dataclass
class Server:
    """One connection to a node that looks for digests. `items` and `answers` are on their way to the client, each in order."""

    at: int
    interest: set[int]
    items: list[tuple[int, dict[int, int], float]] = field(default_factory=list)
    asked: list[tuple[list[int], list[int]]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    probes: list[tuple[float, int]] = field(default_factory=list)
    is_confirmed: bool = False


class World:
    """A log, primaries, a server and a table; each step is something that may happen at any time, in any order."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0.0
        self.last = 100
        self.log: list[tuple[int, str, float]] = []  # id, key, when it was acknowledged
        self.table = NearTable(entries_max=2, bytes_max=1 << 30, staleness_s=STALENESS_S)
        self.server: Server | None = None
        self.readings: list[Reading] = []
        self.own = dict.fromkeys(KEYS, 0)
        self.served = 0

    def key(self) -> str:
        return self.chance.choice(KEYS)

    def version(self, key: str) -> int | None:
        return next((id_ for id_, own, _ in reversed(self.log) if own == key), None)

    # ------------------------------------------------------------ steps

    def write(self) -> None:
        self.last += 1
        self.log.append((self.last, self.key(), self.now))

    def write_here(self) -> None:
        self.write()
        id_, key, _ = self.log[-1]
        if self.chance.random() < 0.5:
            self.table.wrote(DIGESTS[key], id_)
        else:
            self.table.touch(DIGESTS[key])
        self.own[key] = id_

    def pass_time(self) -> None:
        self.now += self.chance.choice((1, 1, 1, 4, STALENESS_S))

    def connect(self) -> None:
        if self.server is None:
            digests = self.table.opening()
            at = self.table.upto or self.last - self.chance.randrange(3)
            self.server = Server(at=at, interest=set(digests), items=[(at, {}, -1.0)])

    def disconnect(self) -> None:
        if self.server is not None and self.chance.random() < 0.3:
            self.server = None
            if self.chance.random() < 0.3:
                self.table.reset()
            else:
                self.table.close()

    def look(self) -> None:
        """The server looks at events up to some id, and answers the probes that this is enough for."""
        server = self.server
        if server is None:
            return
        upto = min(self.last, server.at + self.chance.randrange(5))
        found = {DIGESTS[key]: id_ for id_, key, _ in self.log if server.at < id_ <= upto and DIGESTS[key] in server.interest}
        server.at = max(server.at, upto)
        answered = [asked_at for asked_at, target in server.probes if target <= server.at]
        server.probes = [probe for probe in server.probes if probe[1] > server.at]
        if found or answered:
            server.items.append((server.at, found, max(answered, default=-1.0)))

    def probe(self) -> None:
        if self.server is not None:
            self.server.probes.append((self.now, self.last))

    def take_item(self) -> None:
        server = self.server
        if server is None or not server.items:
            return
        upto, found, asked_at = server.items.pop(0)
        self.table.advance(upto, digests=list(found), ids=list(found.values()))
        if not server.is_confirmed:
            server.is_confirmed = True
            self.table.registered(upto)
        if asked_at >= 0:
            self.table.confirm(asked_at)

    def tell(self) -> None:
        if self.server is not None and self.server.is_confirmed and not self.server.asked and not self.server.answers:
            self.server.asked.append(self.table.changes())

    def register(self) -> None:
        if self.server is not None and self.server.asked:
            added, removed = self.server.asked.pop()
            self.server.interest = (self.server.interest - set(removed)) | set(added)
            self.server.answers.append(self.server.at)

    def hear_registered(self) -> None:
        if self.server is not None and self.server.answers:
            self.table.registered(self.server.answers.pop())

    def begin_reading(self) -> None:
        key = self.key()
        begun = self.table.begin(key, DIGESTS[key], nbytes=1)
        assert begun is not None
        self.readings.append(Reading(begun, key))

    def primary_reads(self) -> None:
        """A primary may be sure of less than it has: its answer can hold events that it does not vouch for."""
        for reading in self.readings:
            if reading.said is None and self.chance.random() < 0.5:
                version = self.version(reading.key)
                reading.said = read(version, max(self.last - self.chance.choice((0, 0, 1, 3)), version or 0))

    def end_reading(self) -> None:
        for reading in list(self.readings):
            if reading.said is not None and self.chance.random() < 0.5:
                self.readings.remove(reading)
                self.table.end(reading.begun, reading.said)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """What is served was current at some moment of the last STALENESS_S, and knows the client's own writes."""
        for key in KEYS:
            found = self.table.find(key, self.now) if self.chance.random() < 0.5 else MISS
            if found is MISS:
                continue
            self.served += 1
            assert self.own[key] <= (found or 0), f"{key}: own write {self.own[key]}, served {found}"
            over = next((when for id_, own, when in self.log if own == key and id_ > (found or 0)), self.now)
            assert over >= self.now - STALENESS_S, f"{key}: {found} was over at {over}, it is {self.now}"


STEPS: tuple[tuple[Callable[[World], None], int], ...] = (
    (World.write, 3),
    (World.write_here, 1),
    (World.pass_time, 3),
    (World.connect, 4),
    (World.disconnect, 1),
    (World.look, 8),
    (World.probe, 4),
    (World.take_item, 10),
    (World.tell, 6),
    (World.register, 6),
    (World.hear_registered, 6),
    (World.begin_reading, 6),
    (World.primary_reads, 8),
    (World.end_reading, 8),
)


def walked(seed: int) -> World:
    world = World(seed)
    steps, weights = zip(*STEPS, strict=True)
    for step in world.chance.choices(steps, weights, k=400):
        step(world)
        world.check()
    return world


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, (1 << 32) - 1))
def test_in_whatever_order_things_happen_nothing_too_old_is_served(seed: int):
    walked(seed)


def test_the_walks_of_the_test_above_are_served_something():
    assert sum(walked(seed).served > 0 for seed in range(20)) > 15
