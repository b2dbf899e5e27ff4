"""Carrying out what the core commands: the duties of a node's shell, as `eventlog.replication` lists them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from eventlog.arrays import Ints
from eventlog.control.records import lost_key
from eventlog.replication import Commands, EpochStart, Message
from eventlog.replication.commands import (
    Acknowledge,
    BeginInstall,
    CloseSnapshot,
    Command,
    Committed,
    Cut,
    Diverged,
    EndInstall,
    InstallPart,
    Keep,
    Lead,
    Learned,
    LookUp,
    Mark,
    OpenSnapshot,
    Propose,
    ReadLog,
    ReadSnapshot,
    Recheck,
    Release,
    Resign,
    Send,
    Take,
    Write,
)
from eventlog.replication.messages import APPEND, CHUNK
from tests.sim.cores.history import Value
from tests.sim.cores.packets import Acks, Packet, Rows
from tests.sim.cores.state import VALUE_BYTES, State, ints

Groups = Sequence[Sequence[Value]]
_PART_VALUES: Final = 3
_READ_US: Final = 500
_MEND_US: Final = 50_000  # until what was damaged is read again


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who does what is not done here."""

    send: Callable[..., None]
    mark: Callable[[Mark], None]
    lead: Callable[[Ints], None]
    propose: Callable[[Propose], None]
    recheck: Callable[[Recheck], None]
    look_up: Callable[[LookUp], None]
    take: Callable[[Rows], None]
    committed: Callable[[Ints, Ints], None]
    resigned: Callable[[Ints], None]
    read: Callable[[int, Sequence[Value]], Sequence[Value] | None]


class Effects:
    """Runs commands in their order. `unwritten` are values that the core knows and the disk does not yet, by segment.

    They are this node's own and those of an earlier primary alike: whoever reads the log on behalf of the core must add all of them.
    """

    def __init__(self, state: State, hooks: Hooks) -> None:
        self._state = state
        self._hooks = hooks
        self._snapshots: dict[tuple[int, int], Sequence[Value]] = {}
        self._cut_in: dict[int, int] = {}  # segment -> the epoch of its last cut
        self.unwritten: dict[int, list[Value]] = {}
        self._kept: dict[int, Rows] = {}  # messages that wait for records, by identity

    def run(self, commands: Commands, *, group: Groups = (), arrived: Rows | None = None) -> None:
        """Carry commands out. `group` are the values that their input was about, `arrived` the message that it was."""
        for command in commands:
            self._run(command, group, arrived)

    def append(self, segments: Ints, values: Groups, *, last_ids: Ints) -> None:
        """Write own values, which the core has registered, to the own log."""
        self._await(segments.tolist(), values)
        epochs = [self._state.core.history(segment)[-1] for segment in segments.tolist()]

        def write() -> None:
            rows = zip(segments.tolist(), values, epochs, strict=True)
            self._write([(segment, added, () if added[0].tokens else (start,)) for segment, added, start in rows])

        def done() -> None:
            self._is_written(segments.tolist(), values)
            self.run(self._state.core.written(segments, last_ids))

        self._state.storage.put(write, done)

    def _await(self, segments: Sequence[int], values: Groups) -> None:
        for segment, added in zip(segments, values, strict=True):
            self.unwritten.setdefault(segment, []).extend(added)

    def _is_written(self, segments: Sequence[int], values: Groups) -> None:
        for segment, added in zip(segments, values, strict=True):
            self.unwritten[segment] = [value for value in self.unwritten[segment] if value not in added]

    def _write(self, batch: Sequence[tuple[int, Sequence[Value], Sequence[EpochStart]]]) -> None:
        for segment, values, _ in batch:
            for value in values:
                self._state.world.history.write(segment, value)
        self._state.disk.append_all(batch)

    def _run(self, command: Command, group: Groups, arrived: Rows | None) -> None:  # noqa: C901, PLR0912 - one line a command
        match command:
            case Send():
                self._send(command, group)
            case Acknowledge():
                self._hooks.send(command.to, Acks(message=self._message(command)), is_answer=True)
            case Write():
                assert arrived is not None, "only messages make writes"
                self._store(command, arrived)
            case Cut():
                self._cut(command)
            case Mark():
                self._hooks.mark(command)
            case Lead():
                self._state.world.reached["lead"] += 1
                self._hooks.lead(command.segments)
            case Resign():
                self._state.resign(command.segments)
                self._hooks.resigned(command.segments)
            case Committed():
                self._state.show(command.segments)
                self._hooks.committed(command.segments, command.watermarks)
            case Learned():
                self._state.show(command.segments)
            case Propose():
                self._hooks.propose(command)
            case ReadLog():
                self._read_log(command)
            case OpenSnapshot() | ReadSnapshot() | CloseSnapshot():
                self._snapshot(command)
            case BeginInstall() | InstallPart() | EndInstall():
                self._install(command, arrived)
            case Recheck():
                self._hooks.recheck(command)
            case LookUp():
                self._hooks.look_up(command)
            case Keep():
                assert arrived is not None, "only messages are kept"
                self._kept[id(command.message)] = arrived
            case Take():
                kept = self._kept.pop(id(command.message), None)  # what came twice is taken with the first
                if kept is not None:
                    self._state.world.reached["taken once its record was read"] += 1
                    self._hooks.take(kept)
            case Release():
                self._release(command)
            case Diverged():
                if not self._state.world.store.get(lost_key(command.segment)):  # else its record is seen a little later
                    self._state.world.complain(f"node {self._state.host}: {command}")

    def _message(self, command: Send | Acknowledge) -> Message:
        return Message(sender=self._state.core.own, recipient=command.to, correlation=command.correlation, rows=bytes(command.rows))

    def _send(self, command: Send, group: Groups) -> None:
        chosen = group if command.chosen is None else [group[place] for place in command.chosen.tolist()]
        packet: Packet = Rows(message=self._message(command), values=tuple(chain.from_iterable(chosen)))
        self._hooks.send(command.to, packet)

    # ------------------------------------------------------------ the own log

    def _store(self, command: Write, arrived: Rows) -> None:
        parts = _values_of_rows(arrived)
        places = range(len(parts)) if command.rows is None else command.rows.tolist()
        plain = [parts[place] for place in places if command.rows is not None or parts[place]]
        segments = command.segments.tolist()
        assert len(plain) == len(segments), f"{len(plain)} rows with values, {len(segments)} segments to write"

        def write() -> None:
            begun: dict[int, list[EpochStart]] = {}
            for segment, start in command.history:
                begun.setdefault(segment, []).append(start)
            self._write([(segment, values, begun.pop(segment, ())) for segment, values in zip(segments, plain, strict=True)])

        def done() -> None:
            self._is_written(segments, plain)
            self.run(self._state.core.stored(command))

        self._await(segments, plain)
        self._state.storage.put(write, done)

    def _cut(self, command: Cut) -> None:
        disk, world = self._state.disk, self._state.world
        end = 0
        if command.discard:
            self._state.drop(ints(command.segment))

        def write() -> None:
            nonlocal end
            if command.discard:
                disk.drop(command.segment)
            elif disk.cut(command.segment, command.upto):
                world.reached["truncation"] += 1
                is_again = self._cut_in.get(command.segment) == command.epoch
                self._cut_in[command.segment] = command.epoch
                world.tell("cut again" if is_again else "cut", segment=command.segment, host=self._state.host)
            end = disk.end(command.segment)

        self._state.storage.put(write, lambda: self.run(self._state.core.cut_done(command, end=end)))

    def _release(self, command: Release) -> None:
        self._state.drop(ints(*command.segments))

        def write() -> None:
            for segment in command.segments:
                self._state.disk.drop(segment)
            self._state.world.reached["released"] += 1

        self._state.storage.put(write, lambda: self._state.core.discarded(ints(*command.segments)))

    # ------------------------------------------------------------ catching up

    def _read_log(self, command: ReadLog) -> None:
        state = self._state
        count = max(1, command.bytes_max // VALUE_BYTES)
        sound = self._hooks.read(command.segment, state.disk.after(command.segment, command.after)[:count])
        if sound is None:
            state.process.after(_MEND_US, lambda: self._read_log(command))
            return
        found = list(sound)
        state.world.reached["catch-up from the log"] += bool(found)

        def answer() -> None:
            end = found[-1].last if found else command.after
            read_and_flying = found + [value for value in self.unwritten.get(command.segment, ()) if value.last > end]
            now = list(state.disk.after(command.segment, command.after))
            disk_end = now[-1].last if now else command.after
            now += [value for value in self.unwritten.get(command.segment, ()) if value.last > disk_end]
            values = read_and_flying if read_and_flying == now[: len(read_and_flying)] else found  # else there is a gap
            upto = values[-1].last if values else command.after
            commands = state.core.log_read(command, upto=upto, count=len(values), nbytes=len(values) * VALUE_BYTES, now_ms=state.now_ms())
            self.run(commands, group=[values])

        state.process.after(int(_READ_US * (0.5 + state.world.random.random())), answer)

    def _snapshot(self, command: OpenSnapshot | ReadSnapshot | CloseSnapshot) -> None:
        state = self._state
        key = (command.segment, command.transfer)
        if isinstance(command, CloseSnapshot):
            self._snapshots.pop(key, None)
            return
        if isinstance(command, OpenSnapshot):
            pin = int(state.core.watermark[command.segment])
            sound = self._hooks.read(command.segment, [value for value in state.disk.log(command.segment) if value.last <= pin])
            if sound is None:
                state.process.after(_MEND_US, lambda: self._snapshot(command))
                return
            self._snapshots[key] = sound
            state.world.reached["snapshot catch-up"] += 1
            opened = command
            act = lambda: self.run(state.core.snapshot_opened(opened, pin=pin, now_ms=state.now_ms()))  # noqa: E731 - one of two
        else:
            values = self._snapshots.get(key, ())
            part = values[command.part * _PART_VALUES : (command.part + 1) * _PART_VALUES]
            is_last = (command.part + 1) * _PART_VALUES >= len(values)
            read = command

            def act() -> None:
                commands = state.core.snapshot_read(
                    read, count=len(part), nbytes=len(part) * VALUE_BYTES, is_last=is_last, now_ms=state.now_ms()
                )
                self.run(commands, group=[part])

        state.process.after(_READ_US, act)

    def _install(self, command: BeginInstall | InstallPart | EndInstall, arrived: Rows | None) -> None:
        state = self._state
        part: Sequence[Value] = ()
        if isinstance(command, InstallPart):
            assert arrived is not None, "a part comes with its message"
            part = _chunk(arrived, command)
        elif isinstance(command, BeginInstall):
            state.drop(ints(command.segment))

        def write() -> None:
            match command:
                case BeginInstall():
                    state.disk.drop(command.segment, installing=True)
                case InstallPart():
                    self._write([(command.segment, part, ())])
                case EndInstall():
                    state.disk.end_install(command.segment, pin=command.pin, history=command.history)

        def done() -> None:
            self.run(state.core.installed(command))
            if isinstance(command, EndInstall):
                state.core.trimmed(ints(command.segment), ints(command.pin))

        state.storage.put(write, done)


def _values_of_rows(arrived: Rows) -> list[Sequence[Value]]:
    """Return the values of each row of a message, none where a row carries none."""
    table = np.frombuffer(arrived.message.rows, APPEND)
    counts = np.where((table["flags"] & ~np.uint16(CHUNK)) == 0, table["values"], 0).astype(np.int64)
    ends = np.cumsum(counts)
    return [arrived.values[end - count : end] for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]


def _chunk(arrived: Rows, command: InstallPart) -> Sequence[Value]:
    table = np.frombuffer(arrived.message.rows, APPEND)
    is_it = (table["flags"] == CHUNK) & (table["segment"] == command.segment) & (table["last"] == command.part)
    return _values_of_rows(arrived)[int(np.flatnonzero(is_it)[0])]
