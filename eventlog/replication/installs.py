"""Replicas on their way in and out: one that is being replaced by a snapshot, and one that this node is to hold no more.

Of a snapshot the parts arrive in order, and until the end it is no replica of anything.

A replica to be given up is deleted when nothing else is under way with it. What says so may be old: the node may have been named again
since, and have acknowledged rows. So a whole replica answers nobody any more, from then on; only then its record is read anew, and it is
deleted if that does not name this node either. A node that names it after that asks it anew, and finds nothing.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eventlog.replication.columns import Row, SegmentColumns
from eventlog.replication.commands import BeginInstall, Command, Commands, EndInstall, Install, InstallPart, Learned, Recheck, Release
from eventlog.replication.messages import BEGIN, CHUNK, HELD, TAKEN, Message
from eventlog.replication.terms import EpochStart, Replica, Term, epoch_at

Ack = tuple[int, int, int, int, int, int]
_TRANSFER_BITS = (1 << 32) - 1


@dataclass(slots=True, eq=False)
class _Install:
    """`part` is the next one expected; with `is_ending` none is: what makes the replica whole is on its way to the disk."""

    sender: Replica
    transfer: int
    epoch: int
    pin: int
    correlation: int
    part: int = 0
    is_ending: bool = False


class Installs:
    """Replicas that are not whole: they hold no log that could match, lead nothing, and acknowledge nothing but parts."""

    def __init__(self, columns: SegmentColumns) -> None:
        self._columns = columns
        self._partial: dict[int, _Install] = {}

    def any_of(self, segments: npt.NDArray[np.uint16]) -> bool:
        """Return whether one of them is not whole."""
        return bool(self._partial) and any(segment in self._partial for segment in segments.tolist())

    def is_partial(self, segment: int) -> bool:
        """Return whether the replica is not whole."""
        return segment in self._partial

    def is_left_by(self, segment: int, message: Message) -> bool:
        """Return whether the message was sent after the snapshot, or by another primary: it will not be continued."""
        install = self._partial[segment]
        is_same = message.sender == install.sender and self._columns.epochs.item(segment) == install.epoch
        return not is_same or message.correlation > install.correlation

    def drop(self, segment: int) -> None:
        self._partial.pop(segment, None)

    def take(self, message: Message, row: Row, history: tuple[EpochStart, ...]) -> Commands:
        """Take a BEGIN, CHUNK or END row; what is out of order or of another transfer is passed over."""
        segment, flags, epoch, transfer, last, _, values, _ = row
        if flags == BEGIN:
            return self._begin(message, row)
        install = self._partial.get(segment)
        if install is None or (install.sender, install.transfer, install.epoch) != (message.sender, transfer, epoch):
            return []
        install.correlation = max(install.correlation, message.correlation)
        if install.is_ending:
            return []  # it came twice
        if flags == CHUNK:
            is_next = last == install.part
            install.part += is_next
            return [InstallPart(segment=segment, epoch=epoch, transfer=transfer, part=last)] if is_next else []
        if values != install.part or last != install.pin:
            return []
        install.is_ending = True
        end_epoch = epoch_at(history, last)
        return [EndInstall(segment=segment, epoch=epoch, transfer=transfer, pin=last, end_epoch=end_epoch, history=history)]

    def _is_meant(self, segment: int, *, end: int, transfer: int, epoch: int) -> bool:
        """Return whether a BEGIN was made for the log as it is now: one that comes late would drop what has replaced it."""
        running = self._partial.get(segment)
        is_late = running is not None and running.epoch == epoch and running.transfer >= transfer
        return end == self._columns.ends.item(segment) and not is_late

    def _begin(self, message: Message, row: Row) -> Commands:
        segment, _, epoch, transfer, pin, end, _, _ = row
        if not self._is_meant(segment, end=end, transfer=transfer, epoch=epoch):
            return []
        columns = self._columns
        columns.busy[segment] = True
        columns.matched[segment] = False
        self._partial[segment] = _Install(message.sender, transfer, epoch, pin, message.correlation)
        return [BeginInstall(segment=segment, epoch=epoch, transfer=transfer, pin=pin)]

    def done(self, command: Install) -> tuple[Replica | None, int, list[Ack], Commands]:
        """Note that a step is on disk; return the node to answer, to which message, with what, and what else comes of it."""
        columns, segment = self._columns, command.segment
        install = self._partial.get(segment)
        if isinstance(command, BeginInstall):
            columns.forget(segment)
        if install is None or install.transfer != command.transfer or columns.epochs.item(segment) != command.epoch:
            return None, 0, [], []
        part = -1 if isinstance(command, BeginInstall) else command.part if isinstance(command, InstallPart) else None
        commands: Commands = []
        if isinstance(command, EndInstall):
            commands = self._become_whole(command)
            row = (segment, HELD, command.epoch, command.pin, 0, 0)
        else:
            assert part is not None
            row = (segment, TAKEN, command.epoch, part, command.transfer & _TRANSFER_BITS, 0)
        return install.sender, install.correlation, [row], commands

    def _become_whole(self, command: EndInstall) -> Commands:
        columns, segment = self._columns, command.segment
        del self._partial[segment]
        columns.histories[segment] = list(command.history)
        columns.ends[segment] = columns.durable[segment] = command.pin
        columns.end_epochs[segment] = command.end_epoch
        columns.matched[segment] = True
        columns.watermark[segment] = command.pin
        columns.heard[segment] = max(columns.heard.item(segment), command.pin)
        return [Learned(segments=np.array([segment]), watermarks=np.array([command.pin]))]


class Releases:
    """Which replicas go. One thing at a time is done to a log: a deletion waits for the end of a cut, or of the begin of an install.

    Told of that end, the replica would take rows again, and the deletion would tear a hole into them.
    """

    def __init__(self, columns: SegmentColumns, installs: Installs) -> None:
        self._columns = columns
        self._installs = installs
        self._waiting: set[int] = set()
        self._begun: set[int] = set()

    def take(self, term: Term) -> bool:
        """Note whether a record names this node; return whether its replica is to be given up now, by `begin`.

        A record of an epoch that is over says nothing of that: one that has taken rows of a later one was named again, and may be in sync.
        """
        columns, segment = self._columns, term.segment
        if term.epoch < columns.epochs.item(segment):
            return False
        had = bool(columns.holds[segment]) or columns.ends.item(segment) > 0
        columns.holds[segment] = columns.own.node in term.owners or columns.own in term.in_sync
        if columns.holds[segment]:
            self._waiting.discard(segment)
            return False
        if not had or columns.leads[segment] or segment in self._begun:
            return False
        columns.matched[segment] = False  # what is still on its way to the disk is not acknowledged any more
        self._waiting.add(segment)
        return self.is_due(segment)

    def is_due(self, segment: int) -> bool:
        """Return whether a replica is to be given up, and nothing else is under way with it."""
        return segment in self._waiting and not self._columns.busy[segment]

    def begin(self, segments: list[int]) -> list[Command]:
        """Give up replicas that are due: they answer nobody, and those that are whole go when their records were read anew."""
        columns = self._columns
        torn = [segment for segment in segments if self._installs.is_partial(segment)]
        whole = [segment for segment in segments if segment not in torn]
        for segment in segments:
            self._waiting.discard(segment)
            self._begun.add(segment)
            self._installs.drop(segment)  # its end may be on the way to the disk: nobody is told that it is whole
            columns.busy[segment] = True
            columns.matched[segment] = False
        commands: list[Command] = [Recheck(segments=tuple(whole))] if whole else []
        return [*commands, Release(segments=tuple(torn))] if torn else commands

    def kept(self, segments: list[int]) -> list[int]:
        """Return those of the replicas given up whose records name this node after all; they go on as they were."""
        found = [segment for segment in segments if self._columns.holds[segment]]
        for segment in found:
            self._begun.discard(segment)
            self._columns.busy[segment] = False
        return found

    def done(self, segment: int) -> None:
        """Note that log and state are gone."""
        self._begun.discard(segment)
