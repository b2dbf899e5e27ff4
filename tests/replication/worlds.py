"""A few replicas driven by hand: a network that holds messages until they are delivered, disks that hold writes until they sync.

Nothing happens by itself except through `settle`. A value is a pair (id, text); logs and histories are lists, by segment.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from eventlog.errors import BadMessage
from eventlog.replication import EpochStart, GivenUpRange, Message, Options, Replica, Replication, Term
from eventlog.replication import commands as do
from eventlog.replication.messages import APPEND, decode_appends, value_places

Value = tuple[int, str]
Step = Callable[[], do.Commands]
OPTIONS = Options(window_bytes=64, chunk_bytes=16)


@dataclass(slots=True, eq=False)
class Letter:
    """A message on its way; `values` has one list a row, for APPEND rows."""

    to: Replica
    is_ack: bool
    message: Message
    values: list[list[Value]]


@dataclass(slots=True)
class Disk:
    """What survives a crash."""

    logs: list[list[Value]]
    histories: list[list[EpochStart]]
    ends: list[int]
    partial: set[int] = field(default_factory=set)

    @staticmethod
    def empty(segments: int) -> "Disk":
        return Disk([[] for _ in range(segments)], [[] for _ in range(segments)], [0] * segments)


class Metadata:
    """Segment records, changed by compare-and-set."""

    def __init__(self) -> None:
        self.records: dict[int, Term] = {}
        self.revision = 0

    def put(self, term: Term) -> Term:
        self.revision += 1
        self.records[term.segment] = replace(term, revision=self.revision)
        return self.records[term.segment]

    def commit(self, proposal: do.Propose) -> Term:
        """Return the record afterwards, whether the proposal was taken or not."""
        now = self.records[proposal.segment]
        return self.put(replace(now, in_sync=proposal.in_sync)) if now.revision == proposal.revision else now


class Node:
    """A node's core, its disk, and the writes that have not reached it."""

    def __init__(self, world: "World", number: int, incarnation: str = "a") -> None:
        self.world = world
        self.own = Replica(number, incarnation)
        self.disk = Disk.empty(world.segments)
        self.starts = 0
        self.up = False
        self.start()

    def start(self) -> None:
        """Begin a process on what the disk has."""
        self.starts += 1
        self.up = True
        self.session = f"{self.own.node}/{self.starts}"
        self.core = Replication(self.world.segments, own=self.own, session=self.session, options=self.world.options)
        self.logs = [list(log) for log in self.disk.logs]
        for segment in self.disk.partial:
            self.logs[segment], self.disk.logs[segment] = [], []
            self.disk.histories[segment], self.disk.ends[segment] = [], 0
        self.disk.partial.clear()
        self.core.open(np.array(self.disk.ends), histories=self.disk.histories, applied=np.zeros(self.world.segments, np.int64))
        self.pending: list[Step] = []
        self.committed: dict[int, int] = {}
        self.learned: dict[int, int] = {}
        self.marks: list[do.Mark] = []
        self.led: set[int] = set()
        self.proposals: list[do.Propose] = []
        self.diverged: list[do.Diverged] = []
        self.reads: list[Step] = []
        self.kept: dict[int, Letter] = {}  # messages that wait for records, by identity
        self.lookups: list[tuple[int, ...]] = []  # segments of each reading of records
        self.refused: list[Letter] = []
        self.snapshots: dict[int, tuple[int, list[Value]]] = {}
        self.parts: dict[int, list[list[Value]]] = {}
        self.learn(self.world.metadata.records.values())
        for other in self.world.nodes.values():
            if other.up and other is not self:
                self.carry_out(self.core.connected(other.own, now_ms=self.world.now_ms))
                other.carry_out(other.core.connected(self.own, now_ms=self.world.now_ms))

    def crash(self) -> None:
        """End the process; what was not synced is lost, and so is what is on its way from and to it."""
        self.up = False
        self.pending, self.reads = [], []
        self.world.letters = [letter for letter in self.world.letters if self.own not in (letter.to, letter.message.sender)]
        for other in self.world.nodes.values():
            if other.up and other is not self:
                other.carry_out(other.core.lost(self.own, now_ms=self.world.now_ms))

    def lose_disk(self, incarnation: str) -> None:
        """Come back as another incarnation with nothing, at the next start."""
        self.own = Replica(self.own.node, incarnation)
        self.disk = Disk.empty(self.world.segments)

    def learn(self, terms: Iterable[Term]) -> None:
        self.carry_out(self.core.learn(list(terms), now_ms=self.world.now_ms))

    # ------------------------------------------------------------ as primary

    def mark(self) -> None:
        """Stamp the markers that are asked for."""
        marks, self.marks = self.marks, []
        for mark in marks:
            segments = np.array(sorted(mark.segments))
            ids = np.array([self.world.next_id() for _ in segments])
            texts = {int(s): [(int(i), f"marker of {self.own.node}")] for s, i in zip(segments, ids, strict=True)}
            commands = self.core.mark(segments, ids, now_ms=self.world.now_ms)
            kept = {int(segment): texts[int(segment)] for segment in self.core.marked}
            self._append_own(kept, history=True)
            self.carry_out(commands, values=list(texts.values()))

    def put(self, *segments: int, text: str = "") -> list[int]:
        """Append one value to each of the segments, rising; return the ids."""
        ids = [self.world.next_id() for _ in segments]
        values = {s: [(i, text or f"e{i}")] for s, i in zip(segments, ids, strict=True)}
        commands = self.core.append(np.array(segments), np.array(ids), now_ms=self.world.now_ms)
        self._append_own(values)
        self.carry_out(commands, values=list(values.values()))
        return ids

    def _append_own(self, values: dict[int, list[Value]], *, history: bool = False) -> None:
        for segment, new in values.items():
            self.logs[segment] += new
        if not values:
            return
        starts = {segment: self.core.history(segment)[-1] for segment in values} if history else {}
        segments = np.array(list(values))
        lasts = np.array([new[-1][0] for new in values.values()])

        def on_disk() -> do.Commands:
            for segment, new in values.items():
                self.disk.logs[segment] += new
                self.disk.ends[segment] = new[-1][0]
            for segment, start in starts.items():
                self.disk.histories[segment].append(start)
            return self.core.written(segments, lasts)

        self.pending.append(on_disk)

    # ------------------------------------------------------------ commands

    def carry_out(self, commands: do.Commands, values: list[list[Value]] | None = None) -> None:
        """Do what the core asks for; disk, reads, proposals and messages wait for the world."""
        for command in commands:
            self._do(command, values or [])

    def _do(self, command: do.Command, values: list[list[Value]]) -> None:
        match command:
            case do.Send(to=to, correlation=correlation, rows=rows, chosen=chosen):
                sent = iter(values if chosen is None else [values[place] for place in chosen.tolist()])
                table = np.frombuffer(rows, APPEND)
                counted = np.diff(value_places(table)).tolist()
                per_row = [next(sent) if count else [] for count in counted]
                self._post(to, correlation, rows, values=per_row)
            case do.Acknowledge(to=to, correlation=correlation, rows=rows):
                self._post(to, correlation, rows, is_ack=True)
            case do.ReadLog():
                self.reads.append(lambda: self._read(command))
            case do.OpenSnapshot() | do.ReadSnapshot() | do.CloseSnapshot():
                self._snapshot(command)
            case do.Recheck() | do.LookUp() | do.Take():
                self._ask_records(command)
            case do.Release(segments=released):
                self.pending.append(lambda: self._release(list(released)))
            case do.Cut():
                self.pending.append(lambda: self._cut(command))
            case do.BeginInstall() | do.InstallPart() | do.EndInstall():
                self.pending.append(lambda: self._install(command))
            case _:
                self._note(command)

    def _ask_records(self, command: do.Recheck | do.LookUp | do.Take) -> None:
        match command:
            case do.Recheck(segments=rechecked):
                self.pending.append(lambda: self._recheck(list(rechecked)))
            case do.LookUp(segments=looked_up):
                self.lookups.append(looked_up)
                self.pending.append(lambda: self._look_up(looked_up))
            case do.Take(message=message) if id(message) in self.kept:  # one that came twice is taken once
                self.take(self.kept.pop(id(message)))

    def _note(self, command: do.Command) -> None:
        match command:
            case do.Committed(segments=segments, watermarks=marks):
                self.committed.update(zip(segments.tolist(), marks.tolist(), strict=True))
                for segment, mark in zip(segments.tolist(), marks.tolist(), strict=True):
                    self.world.commit(segment, [value for value in self.logs[segment] if value[0] <= mark])
            case do.Learned(segments=segments, watermarks=marks):
                self.learned.update(zip(segments.tolist(), marks.tolist(), strict=True))
            case do.Lead(segments=segments):
                self.led |= set(segments.tolist())
            case do.Resign(segments=segments):
                self.led -= set(segments.tolist())
            case do.Mark():
                self.marks.append(command)
            case do.Propose():
                self.proposals.append(command)
            case do.Diverged():
                self.diverged.append(command)
            case _:
                raise AssertionError(command)

    def _post(self, to: Replica, correlation: int, rows: bytes, *, is_ack: bool = False, values: list[list[Value]] | None = None) -> None:
        message = Message(sender=self.own, recipient=to, correlation=correlation, rows=rows)
        self.world.letters.append(Letter(to, is_ack, message, values or []))

    def _read(self, read: do.ReadLog) -> do.Commands:
        found: list[Value] = []
        for value in self.logs[read.segment]:
            if value[0] > read.after and len(found) * 8 < read.bytes_max:
                found.append(value)
        last = self.logs[read.segment][-1][0] if self.logs[read.segment] else 0
        upto = found[-1][0] if found and found[-1][0] != last else self.core.ends.item(read.segment)
        commands = self.core.log_read(read, upto=upto, count=len(found), nbytes=8 * len(found), now_ms=self.world.now_ms)
        self.carry_out(commands, values=[found])
        return []

    def _snapshot(self, command: do.Command) -> None:
        match command:
            case do.OpenSnapshot(segment=segment, transfer=transfer):
                pin = self.core.watermark.item(segment)
                self.snapshots[transfer] = pin, [value for value in self.logs[segment] if value[0] <= pin]
                self.reads.append(lambda: self.core.snapshot_opened(command, pin=pin, now_ms=self.world.now_ms))
            case do.ReadSnapshot(transfer=transfer, part=part) if transfer in self.snapshots:
                chunk = self.snapshots[transfer][1][2 * part : 2 * part + 2]
                is_last = 2 * part + 2 >= len(self.snapshots[transfer][1])

                def read() -> do.Commands:
                    sent = self.core.snapshot_read(command, count=len(chunk), nbytes=16, is_last=is_last, now_ms=self.world.now_ms)
                    self.carry_out(sent, values=[chunk])
                    return []

                self.reads.append(read)
            case do.CloseSnapshot(transfer=transfer):
                self.snapshots.pop(transfer, None)

    # ------------------------------------------------------------ as backup

    def take(self, letter: Letter) -> None:
        """Take a message that arrives."""
        if letter.is_ack:
            self.carry_out(self.core.acknowledged(letter.message, now_ms=self.world.now_ms))
            return
        try:
            commands = self.core.receive(letter.message, now_ms=self.world.now_ms)
        except BadMessage:
            self.refused.append(letter)
            return
        for command in commands:
            if isinstance(command, do.Write):
                self._write(command, letter)
            elif isinstance(command, do.Keep):
                self.kept[id(command.message)] = letter
            elif isinstance(command, do.InstallPart):
                table = decode_appends(letter.message.rows, segments=self.world.segments)
                places = [at for at, row in enumerate(table) if row["segment"] == command.segment and row["flags"] == 8]
                self.parts.setdefault(command.segment, []).append(letter.values[places[0]])
                self._do(command, [])
            else:
                self._do(command, [])

    def _write(self, write: do.Write, letter: Letter) -> None:
        table = np.frombuffer(letter.message.rows, APPEND)
        places = range(len(table)) if write.rows is None else write.rows.tolist()
        new = [(int(table[place]["segment"]), letter.values[place]) for place in places]
        for segment, values in new:
            self.logs[segment] += values

        def on_disk() -> do.Commands:
            for (segment, values), last in zip(new, write.lasts.tolist(), strict=True):
                self.disk.logs[segment] += values
                self.disk.ends[segment] = last
            for segment, start in write.history:
                self.disk.histories[segment].append(start)
            return self.core.stored(write)

        self.pending.append(on_disk)

    def _cut(self, cut: do.Cut) -> do.Commands:
        for logs in (self.logs, self.disk.logs):
            logs[cut.segment] = [value for value in logs[cut.segment] if value[0] <= cut.upto]
        end = self.logs[cut.segment][-1][0] if self.logs[cut.segment] else 0
        if cut.discard:
            self.disk.partial.discard(cut.segment)
        self.disk.ends[cut.segment] = end
        self.disk.histories[cut.segment] = [start for start in self.disk.histories[cut.segment] if start.first <= end]
        return self.core.cut_done(cut, end=end)

    def _wipe(self, segment: int) -> None:
        self.logs[segment], self.disk.logs[segment], self.disk.histories[segment] = [], [], []
        self.disk.ends[segment] = 0

    def _recheck(self, segments: list[int]) -> do.Commands:
        commands = self.core.learn([self.world.metadata.records[segment] for segment in segments], now_ms=self.world.now_ms)
        return commands + self.core.rechecked(segments)

    def _look_up(self, segments: tuple[int, ...]) -> do.Commands:
        known = [self.world.metadata.records[segment] for segment in segments if segment in self.world.metadata.records]
        commands = self.core.learn(known, now_ms=self.world.now_ms)
        return commands + self.core.looked_up(now_ms=self.world.now_ms)

    def _release(self, segments: list[int]) -> do.Commands:
        for segment in segments:
            self._wipe(segment)
        self.core.discarded(np.array(segments))
        return []

    def _install(self, command: do.Install) -> do.Commands:
        segment = command.segment
        match command:
            case do.BeginInstall():
                self._wipe(segment)
                self.disk.partial.add(segment)
                self.parts[segment] = []
            case do.InstallPart(part=part):
                self.disk.logs[segment] += self.parts[segment][part]
            case do.EndInstall(pin=pin, history=history):
                self.disk.partial.discard(segment)
                self.logs[segment] = list(self.disk.logs[segment])
                self.disk.ends[segment] = pin
                self.disk.histories[segment] = list(history)
        return self.core.installed(command)

    def sync(self, upto: int | None = None) -> None:
        """Let the first `upto` pending writes (None: all) reach the disk, in order."""
        due = self.pending[:upto]
        self.pending = self.pending[len(due) :]
        for step in due:
            self.carry_out(step())


class World:
    """The nodes, what is on its way between them, and the events known to be committed."""

    def __init__(self, nodes: int, *, segments: int = 2, options: Options = OPTIONS) -> None:
        self.segments = segments
        self.options = options
        self.metadata = Metadata()
        self.now_ms = 1_000
        self.letters: list[Letter] = []
        self.nodes: dict[int, Node] = {}
        self.acknowledged: list[list[Value]] = [[] for _ in range(segments)]
        self._id = 0
        for number in range(1, nodes + 1):
            self.nodes[number] = Node(self, number)

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def next_id(self) -> int:
        self._id += 10
        return self._id

    def commit(self, segment: int, prefix: list[Value]) -> None:
        """Note that a primary says that `prefix` is committed: nothing of what was committed before may be missing in it."""
        known = self.acknowledged[segment]
        shorter = min(len(known), len(prefix))
        assert known[:shorter] == prefix[:shorter], f"segment {segment}: committed events were replaced"
        if len(prefix) > len(known):
            self.acknowledged[segment] = prefix

    def appoint(
        self,
        primary: int,
        *,
        segments: Iterable[int] | None = None,
        owners: tuple[int, ...] = (),
        in_sync: tuple[int, ...] = (),
        needed: int = 1,
        lost: tuple[GivenUpRange, ...] = (),
    ) -> None:
        """Commit a new epoch of the segments under `primary`; nodes learn of it with `tell`."""
        for segment in range(self.segments) if segments is None else segments:
            now = self.metadata.records.get(segment)
            known = {member.node: member for member in now.in_sync} if now else {}
            wanted = in_sync or (tuple(known) if now else tuple(self.nodes))
            members = tuple(sorted(known.get(number, self.nodes[number].own) for number in wanted))
            term = Term(
                segment=segment,
                revision=0,
                epoch=now.epoch + 1 if now else 1,
                primary=primary,
                session=self.nodes[primary].session,
                owners=owners or (now.owners if now else tuple(self.nodes)),
                in_sync=members,
                min_in_sync=now.min_in_sync if now else needed,
                lost=lost or (now.lost if now else ()),
            )
            self.metadata.put(term)

    def tell(self, *numbers: int) -> None:
        """Let nodes (none: all) see the records as they are."""
        for number in numbers or tuple(self.nodes):
            if self.nodes[number].up:
                self.nodes[number].learn(self.metadata.records.values())

    def deliver(self, place: int = 0, *, keep: bool = False) -> None:
        """Deliver a message; with `keep` it stays on its way too."""
        letter = self.letters[place] if keep else self.letters.pop(place)
        node = self.nodes[letter.to.node]
        if node.up:
            node.take(letter)

    def tick(self, after_ms: int = 50) -> None:
        self.now_ms += after_ms
        for node in self.nodes.values():
            if node.up and node.core.is_quiet:
                assert not node.core.look(now_ms=self.now_ms), "time alone changes nothing where all is quiet"
            elif node.up:
                node.carry_out(node.core.look(now_ms=self.now_ms))

    def decide(self) -> None:
        """Commit proposals; the proposer learns the outcome."""
        for node in self.nodes.values():
            proposals, node.proposals = node.proposals, []
            for proposal in proposals:
                node.learn([self.metadata.commit(proposal)])

    def settle(self, *, decide: bool = True) -> None:
        """Let everything happen that can without time passing."""
        for _ in range(1_000):
            busy = bool(self.letters)  # answers to what is delivered now come in the next turn
            for _ in range(len(self.letters)):
                self.deliver()
            for node in self.nodes.values():
                if not node.up:
                    continue
                busy = busy or bool(node.pending or node.marks or node.reads)
                node.mark()
                node.sync()
                reads, node.reads = node.reads, []
                for read in reads:
                    node.carry_out(read())
                busy = busy or (decide and bool(node.proposals))
            if decide:
                self.decide()
            if not busy:
                return
        raise AssertionError("it never comes to rest")

    def pass_time(self, ms: int, *, step_ms: int = 50, decide: bool = True) -> None:
        """Let time pass and everything happen."""
        for _ in range(0, ms, step_ms):
            self.tick(step_ms)
            self.settle(decide=decide)


def led(nodes: int, *, needed: int = 1, primary: int = 1, segments: int = 2) -> World:
    """Return a world in which `primary` leads all segments and has adopted them."""
    world = World(nodes, segments=segments)
    world.appoint(primary, needed=needed)
    world.tell()
    world.settle()
    assert world[primary].led == set(range(segments))
    return world
