"""A cluster of records alone: a controller decides, primaries grow and shrink their sets as nodes come and go."""

from dataclasses import dataclass

import msgspec

from eventlog.control.appointment import RECORDS_PER_COMMIT_MAX
from eventlog.control.controller import Controller, ControllerOptions, Situation
from eventlog.control.records import ClusterSettings, ReplicaRecord, SegmentRecord, Versioned, decode
from eventlog.control.rules import grow
from eventlog.control.view import ClusterView
from tests.control.worlds import node, view

STEPS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Watched(Situation):
    """A situation that notes which segments are looked at."""

    looks: list[int]

    def is_led(self, segment):
        self.looks.append(segment.segment)
        return super().is_led(segment)

    def is_whole(self, segment):
        self.looks.append(segment.segment)
        return super().is_whole(segment)


class Play:
    """Records and who is dead; every commit is checked against the rules on its way."""

    def __init__(self, nodes, segments=(), *, replicas=3, options=None):
        self.looks = []  # segments whose primary the controller has looked at
        self.view = view(nodes, segments)
        self.view = ClusterView(
            nodes=self.view.nodes,
            segments=self.view.segments,
            settings=Versioned(ClusterSettings(replicas=replicas), 10),
            revision=10,
        )
        self.controller = Controller(options=options or ControllerOptions(verifies=False))
        self.dead = set()
        self.verified = set()
        self.now_ms = 0
        self.nonces = 0
        self.commits = []

    @property
    def situation(self):
        return Watched(looks=self.looks, view=self.view, dead=frozenset(self.dead), verified=frozenset(self.verified), now_ms=self.now_ms)

    def nonce(self):
        self.nonces += 1
        return f"n{self.nonces}"

    def commit(self, plan):
        """Commit a plan made from the view as it is."""
        assert not self.conflicts(plan)
        before = self.view
        self.commits.append(plan)
        self.view = self.view.after(plan, self.view.revision + 1)
        for key, value in plan.puts.items():
            if key.startswith("segment/"):
                self._check(before, decode(value, SegmentRecord, where=key), plan)

    def conflicts(self, plan):
        """Return the keys whose records are others now than the plan expects."""
        return [key for key, revision in plan.expect.items() if self._revision(key) != revision]

    def _revision(self, key):
        place, _, number = key.partition("/")
        tables = {"node": self.view.nodes, "segment": self.view.segments, "lost": self.view.lost}
        single = {
            "settings": self.view.settings,
            "rebalance": self.view.rebalance,
            "controller": self.view.controller,
            "cluster-key": self.view.key,
        }
        found = tables[place].get(int(number)) if place in tables else single[place]
        return found.revision if found else 0

    def _check(self, before, record, plan):
        old = before.segments[record.segment].record
        assert len([key for key in plan.puts if key.startswith("segment/")]) <= RECORDS_PER_COMMIT_MAX
        assert record.nonce != old.nonce
        assert record.floor >= old.floor
        assert 1 <= record.min_in_sync <= max(len(record.in_sync), old.min_in_sync)
        assert {replica.node for replica in record.in_sync} <= set(record.owners)
        assert len(set(record.owners)) == len(record.owners)
        if record.primary != old.primary or record.session != old.session:
            assert record.epoch > old.epoch
        if record.epoch != old.epoch:
            assert plan.expect[f"node/{old.primary}"] == before.nodes[old.primary].revision
            assert plan.puts[f"node/{old.primary}"]
            assert record.floor >= before.nodes[old.primary].record.ceiling
            assert any(replica.node == record.primary for replica in record.in_sync)
        else:
            assert record.primary == old.primary

    # ------------------------------------------------------------ time and life

    def decide(self):
        """Let the controller commit until it has nothing to do."""
        for _ in range(STEPS_MAX):
            plan = self.controller.next_commit(self.situation, nonce=self.nonce())
            if plan is None:
                return self
            self.commit(plan)
        raise AssertionError("the controller does not come to rest")

    def settle(self, *, ms=0):
        """Let the controller decide and backups catch up until nothing changes any more."""
        self.now_ms += ms
        for _ in range(STEPS_MAX):
            revision = self.view.revision
            self.decide()
            self.catch_up()
            if self.view.revision == revision:
                return self
        raise AssertionError("nothing settles")

    def catch_up(self):
        """Let every owner that is there grow into its set."""
        for found in self.view.segments.values():
            if not self.situation.is_led(found.record):
                continue
            record = found.record
            for owner in record.owners:
                member = self.view.members.get(owner)
                if member and owner not in self.dead and member.replica not in record.in_sync:
                    record = grow(record, member.replica, epoch=record.epoch, nonce=self.nonce())
            if record != found.record:
                self.put(record)

    def put(self, record):
        """Change a record as its primary, or its node, does."""
        table = "segments" if isinstance(record, SegmentRecord) else "nodes"
        number = record.segment if table == "segments" else record.number
        revision = self.view.revision + 1
        fields = {name: getattr(self.view, name) for name in ("nodes", "segments", "lost", "settings", "controller", "rebalance")}
        self.view = ClusterView(**{**fields, table: {**fields[table], number: Versioned(record, revision)}}, revision=revision)

    def join(self, number, **labels):
        self.put(msgspec.structs.replace(node(number), session=f"s{number}", **labels))

    def restart(self, number, *, incarnation=""):
        """Begin another process of a member, on its own disk or on an empty one."""
        record = self.view.nodes[number].record
        session = f"{record.session}'"
        self.put(msgspec.structs.replace(record, session=session, incarnation=incarnation or record.incarnation))
        self.dead.discard(number)

    # ------------------------------------------------------------ questions

    @property
    def records(self):
        return {number: found.record for number, found in self.view.segments.items()}

    def primaries(self):
        counts = dict.fromkeys(self.view.members, 0)
        for record in self.records.values():
            counts[record.primary] += 1
        return counts

    def held(self):
        return {number: sum(number in record.owners for record in self.records.values()) for number in self.view.members}

    def is_whole(self):
        return all(self.situation.is_whole(record) for record in self.records.values())


def cluster(count, *, segments=12, replicas=3, **more):
    """Return a settled cluster of `count` members whose load is even."""
    first = SegmentRecord(
        segment=0,
        owners=(1,),
        epoch=1,
        in_sync=(ReplicaRecord(node=1, incarnation="i1"),),
        floor=0,
        min_in_sync=1,
        nonce="first",
        session="s1",
    )
    nodes = [msgspec.structs.replace(node(number, ceiling=number * 1_000), session=f"s{number}") for number in range(1, count + 1)]
    play = Play(nodes, [msgspec.structs.replace(first, segment=number) for number in range(segments)], replicas=replicas, **more)
    return play.settle().settle(ms=5_000)
