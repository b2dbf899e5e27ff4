"""The backup's side: compare, append, cut, and take watermarks, under the epoch of the primary that sends.

A row is taken where the own log ends with exactly the id that the row names before its values; ids name one event for ever, so the
logs then agree in everything below. Whatever is lost, doubled or late on the way fails that comparison and changes nothing.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.errors import BadMessage
from eventlog.replication.columns import ONE_ACK, ONE_APPEND, Row, SegmentColumns
from eventlog.replication.commands import Acknowledge, Commands, Cut, Diverged, Learned, Write
from eventlog.replication.installs import Installs
from eventlog.replication.messages import ACK, BEGIN, CHUNK, CUT, END, HELD, HISTORY, MISMATCH, REFUSED, STALE, UNKNOWN, Message, Table
from eventlog.replication.terms import EpochStart, Replica, epoch_at, is_rising

Ack = tuple[int, int, int, int, int, int]
Histories = dict[int, tuple[EpochStart, ...]]
_INSTALL = BEGIN | CHUNK | END


class BackupCore:
    """What other nodes' primaries do to the replicas of this node. Nothing here looks at values."""

    def __init__(self, columns: SegmentColumns) -> None:
        self._columns = columns
        self.installs = Installs(columns)
        self._askers: dict[int, tuple[Replica, int]] = {}  # which replica waits for the end of a cut

    # ------------------------------------------------------------ rows

    def check(self, sender: Replica, table: Table) -> Histories:
        """Return the histories in a message; refuse rows that no correct primary sends, before anything of them counts.

        Raises:
            BadMessage: the record names another replica as primary of that epoch, or the history makes no sense.
        """
        others = (table["epoch"] == self._columns.epochs[table["segment"]]) & ~self.is_source(table["segment"], sender)
        if np.count_nonzero(others):
            row = table[others][0]
            raise BadMessage(why=f"replication: node {sender.node} is not the primary of segment {row['segment']}, epoch {row['epoch']}")
        return _histories(table.tolist()) if np.count_nonzero(table["flags"] == HISTORY) else {}

    def is_plain(self, table: Table, sender: Replica) -> bool:
        """Return whether every row simply continues its log: the case that has to be fast."""
        columns, segments = self._columns, table["segment"]
        if np.count_nonzero(table["flags"]) or np.count_nonzero(segments[1:] <= segments[:-1]):
            return False
        follows = (table["previous"] == columns.ends[segments]) & (table["epoch"] == columns.epochs[segments])
        usable = columns.holds[segments] & ~columns.busy[segments] & self.is_source(segments, sender)
        return np.count_nonzero(follows & usable) == len(segments) and not self.installs.any_of(segments)

    def take_few(self, message: Message) -> Commands | None:
        """Take a few rows that continue their logs with values, without arrays; None if they are not that."""
        columns, sender = self._columns, self._columns.number_of(message.sender)
        segments: list[int] = []
        lasts: list[int] = []
        heard: dict[int, int] = {}
        before = -1
        for segment, flags, epoch, previous, last, watermark, values, _ in ONE_APPEND.iter_unpack(message.rows):
            if flags or not values or not before < segment < columns.segments or not previous < last <= columns.ids_max or watermark < 0:
                return None
            if epoch != columns.epochs.item(segment) or sender != columns.sources.item(segment):
                return None
            if columns.busy.item(segment) or not columns.holds.item(segment) or self.installs.is_partial(segment):
                return None
            if not self.continues(segment, previous):
                return None
            segments.append(segment)
            lasts.append(last)
            if watermark > columns.watermark.item(segment):
                heard[segment] = watermark
            before = segment
        for segment, last in zip(segments, lasts, strict=True):
            columns.matched[segment] = True
            columns.ends[segment] = last
        for segment, watermark in heard.items():
            columns.heard[segment] = max(columns.heard.item(segment), watermark)
        commands = self._learn_few(heard)
        commands.append(self._write(message, segments=np.array(segments), lasts=np.array(lasts), rows=None))
        return commands

    def take_plain(self, message: Message, table: Table) -> Commands:
        """Take rows for which `is_plain` holds."""
        columns = self._columns
        segments, last = table["segment"].astype(np.int64), table["last"].astype(np.int64)
        columns.matched[segments] = True
        commands = self.hear(segments, table["watermark"])
        writes = last > table["previous"]
        if np.count_nonzero(writes) == len(writes):
            columns.ends[segments] = last
            commands.append(self._write(message, segments=segments, lasts=last, rows=None))
            return commands
        if np.count_nonzero(writes):
            columns.ends[segments[writes]] = last[writes]
            commands.append(self._write(message, segments=segments[writes], lasts=last[writes], rows=writes.nonzero()[0]))
        idle = segments[~writes]
        settled = idle[columns.durable[idle] == columns.ends[idle]]  # what is on its way to the disk is answered from there
        if len(settled):
            commands.append(self._held(message, settled, columns.durable[settled], columns.epochs[settled]))
        return commands

    def _write(self, message: Message, *, segments: Ints, lasts: Ints, rows: Ints | None) -> Write:
        columns = self._columns
        return Write(
            to=message.sender,
            correlation=message.correlation,
            segments=segments,
            lasts=lasts,
            epochs=columns.epochs[segments].astype(np.int64),
            end_epochs=columns.end_epochs[segments].astype(np.int64),
            rows=rows,
        )

    def _held(self, asked: Write | Message, segments: Ints, ends: Ints, epochs: Ints) -> Acknowledge:
        to = asked.to if isinstance(asked, Write) else asked.sender
        if len(segments) == 1:
            row = ONE_ACK.pack(segments.item(0), HELD, epochs.item(0), ends.item(0), 0, 0)
            return Acknowledge(to=to, correlation=asked.correlation, rows=row)
        rows = np.zeros(len(segments), ACK)
        rows["segment"], rows["status"], rows["epoch"], rows["end"] = segments, HELD, epochs, ends
        return Acknowledge(to=to, correlation=asked.correlation, rows=rows.tobytes())

    def take_rows(self, message: Message, table: Table, histories: Histories) -> Commands:
        """Take rows one by one, in their order; `histories` as `check` returned them."""
        return _Taking(self, message, self._columns).take(table.tolist(), histories)

    # ------------------------------------------------------------ rules, one method each

    def is_source(self, segments: npt.NDArray[np.integer[Any]], sender: Replica) -> Mask:
        """Return where the record names this replica as primary of the highest epoch known."""
        named: Mask = self._columns.sources[segments] == self._columns.number_of(sender)
        return named

    def check_ids(self, table: Table) -> None:
        """Raise BadMessage where a log would end beyond what anybody may have issued: the next leader would have to go on there."""
        if table["last"].max() > self._columns.ids_max:
            row = table[table["last"] > self._columns.ids_max][0]
            why = f"segment {row['segment']} would end with {row['last']}; no id above {self._columns.ids_max} can have been issued"
            raise BadMessage(why=f"replication: {why}")

    def is_stale(self, segments: Ints, epochs: Ints) -> Mask:
        """Return where a higher epoch than these is known: their primaries append nothing here, and get nothing acknowledged."""
        stale: Mask = epochs < self._columns.epochs[segments]
        return stale

    def refusal(self, segment: int, epoch: int) -> int:
        """Return the status that refuses a row of this epoch, 0 if it is to be looked at."""
        if self.is_stale(np.array([segment]), np.array([epoch]))[0]:
            return STALE
        return 0 if self._columns.holds[segment] else UNKNOWN

    def continues(self, segment: int, previous: int) -> bool:
        """Return whether the own log ends with exactly the id before the row's values."""
        return previous == self._columns.ends.item(segment)

    def is_cut_meant(self, segment: int, previous: int) -> bool:
        """Return whether a cut was made for the log as it is now: one that comes late finds another end, or a log that matches."""
        return previous == self._columns.ends.item(segment) and not self._columns.matched[segment]

    def is_committed(self, segment: int, upto: int) -> bool:
        """Return whether a cut to `upto` would remove what is known to be committed."""
        return upto < self._columns.watermark.item(segment)

    def is_given_up(self, segment: int, upto: int) -> bool:
        """Return whether an operator gave up everything committed above `upto`."""
        term = self._columns.terms[segment]
        watermark = self._columns.watermark.item(segment)
        return term is not None and any(lost.after <= upto and watermark <= lost.upto for lost in term.lost)

    def hear(self, segments: Ints, watermarks: Ints) -> Commands:
        """Take watermarks of this epoch's primary, where the logs match, as far as the own log is on disk.

        Where a cut, an install or a deletion is under way no log matches, and they say nothing of what will be there afterwards.
        """
        columns = self._columns
        matched = columns.matched[segments]
        if np.count_nonzero(matched) < len(matched):
            segments, watermarks = segments[matched], watermarks[matched]
        columns.heard[segments] = np.maximum(columns.heard[segments], watermarks)
        return self.learn(segments)

    def _learn_few(self, segments: Iterable[int]) -> Commands:
        """Do what `learn` does, for a few segments and without arrays."""
        columns = self._columns
        moved: dict[int, int] = {}
        for segment in segments:
            reach = min(columns.heard.item(segment), columns.durable.item(segment))
            if reach > columns.watermark.item(segment):
                columns.watermark[segment] = moved[segment] = reach
        return [Learned(segments=np.array([*moved]), watermarks=np.array([*moved.values()]))] if moved else []

    def learn(self, segments: Ints) -> Commands:
        """Move watermarks as far as they were heard and the log reaches."""
        columns = self._columns
        reach = np.minimum(columns.heard[segments], columns.durable[segments])
        moves = reach > columns.watermark[segments]
        if not np.count_nonzero(moves):
            return []
        segments, reach = segments[moves], reach[moves]
        columns.watermark[segments] = reach
        return [Learned(segments=segments, watermarks=reach)]

    # ------------------------------------------------------------ what is on disk

    def stored(self, write: Write) -> Commands:
        """Acknowledge a write that is on disk, as far as its epoch is still the highest known."""
        columns, segments = self._columns, write.segments
        if len(segments) == 1:
            return self._stored_one(write, segments.item(0), write.lasts.item(0))
        columns.durable[segments] = np.maximum(columns.durable[segments], np.minimum(write.lasts, columns.ends[segments]))
        stale = self.is_stale(segments, write.epochs)
        valid = ~stale & columns.matched[segments]  # what is dropped meanwhile is held no more
        if np.count_nonzero(valid) == len(valid):
            return [self._held(write, segments, write.lasts, write.epochs), *self.learn(segments)]
        commands: Commands = []
        if np.count_nonzero(stale):
            commands.append(pack_acks(write.to, write.correlation, [self.ack(segment, STALE) for segment in segments[stale].tolist()]))
        if np.count_nonzero(valid):
            commands.append(self._held(write, segments[valid], write.lasts[valid], write.epochs[valid]))
        return commands + self.learn(segments[valid])

    def _stored_one(self, write: Write, segment: int, last: int) -> Commands:
        columns = self._columns
        columns.durable[segment] = max(columns.durable.item(segment), min(last, columns.ends.item(segment)))
        if self.is_stale(write.segments, write.epochs).item(0):
            return [pack_acks(write.to, write.correlation, [self.ack(segment, STALE)])]
        if not columns.matched.item(segment):
            return []
        return [self._held(write, write.segments, write.lasts, write.epochs), *self._learn_few((segment,))]

    def ack(self, segment: int, status: int, end: int | None = None) -> Ack:
        """Return an ACK row; `end` None: the own log's."""
        columns = self._columns
        own = columns.ends.item(segment) if end is None else end
        end_epoch = columns.end_epochs.item(segment) if status == MISMATCH else 0
        return segment, status, columns.epochs.item(segment), own, end_epoch, 0

    # ------------------------------------------------------------ cuts

    def cut(self, asker: Replica, correlation: int, segment: int, upto: int, *, discard: bool = False) -> Cut:
        """Begin to cut; rows of the segment are passed over until that is on disk."""
        self._askers[segment] = asker, correlation
        if discard:
            return self.discard(segment)
        self._columns.busy[segment] = True
        return Cut(segment=segment, epoch=self._columns.epochs.item(segment), upto=upto)

    def discard(self, segment: int) -> Cut:
        """Begin to drop a replica, and with it the mark that says that it is not whole."""
        self._columns.busy[segment] = True
        self.installs.drop(segment)  # its end may be on the way to the disk: nobody is told that it is whole
        return Cut(segment=segment, epoch=self._columns.epochs.item(segment), upto=0, discard=True)

    def cut_done(self, cut: Cut, *, end: int) -> Commands:
        """Note the new end, and tell it to the node that asked for it, or has asked since."""
        columns, segment = self._columns, cut.segment
        assert end <= cut.upto, "a cut leaves nothing above its id"
        if cut.discard:
            columns.forget(segment)
        columns.end_with(segment, end)
        columns.busy[segment] = False
        asker = self._askers.pop(segment, None)
        return [] if asker is None else [pack_acks(*asker, [self.ack(segment, MISMATCH)])]

    def wait_for_cut(self, asker: Replica, correlation: int, segment: int) -> None:
        """Answer a question that comes during a cut when that is done."""
        if segment in self._askers:
            self._askers[segment] = asker, correlation

    def forget(self, segment: int) -> None:
        """Forget what was under way in a segment whose data is gone."""
        self._askers.pop(segment, None)
        self.installs.drop(segment)


def pack_acks(to: Replica, correlation: int, acks: list[Ack]) -> Acknowledge:
    """Return an answer of these rows."""
    return Acknowledge(to=to, correlation=correlation, rows=np.array(acks, ACK).tobytes())


class _Taking:
    """One message taken row by row: what comes of it is collected and becomes one write and one answer."""

    def __init__(self, core: BackupCore, message: Message, columns: SegmentColumns) -> None:
        self._core = core
        self._message = message
        self._columns = columns
        self._acks: list[Ack] = []
        self._taken: list[tuple[int, int, int, int]] = []  # place, segment, last, epoch
        self._history: list[tuple[int, EpochStart]] = []
        self._commands: Commands = []

    def take(self, rows: list[Row], starts: Histories) -> Commands:
        for place, row in enumerate(rows):
            segment, flags, epoch = row[0], row[1], row[2]
            if flags == HISTORY:
                continue
            refusal = self._core.refusal(segment, epoch)
            if refusal:
                self._acks.append(self._core.ack(segment, refusal))
            elif self._columns.busy[segment]:
                self._core.wait_for_cut(self._message.sender, self._message.correlation, segment)
            elif flags & _INSTALL:
                self._commands += self._core.installs.take(self._message, row, starts.get(place, ()))
            elif self._core.installs.is_partial(segment):
                self._leave_install(segment)
            elif flags == CUT:
                self._cut(segment, previous=row[3], upto=row[4])
            else:
                self._plain(place, row, starts.get(place, ()))
        return self._collect()

    def _leave_install(self, segment: int) -> None:
        """Drop a replica that is not whole when its primary has gone back to asking: nothing of it can be continued."""
        if self._core.installs.is_left_by(segment, self._message):
            self._commands.append(self._core.cut(self._message.sender, self._message.correlation, segment, 0, discard=True))

    def _cut(self, segment: int, *, previous: int, upto: int) -> None:
        core, message = self._core, self._message
        if not core.is_cut_meant(segment, previous):
            self._acks.append(core.ack(segment, MISMATCH))
        elif not core.is_committed(segment, upto):
            self._commands.append(core.cut(message.sender, message.correlation, segment, upto))
        elif core.is_given_up(segment, upto):
            self._commands.append(core.cut(message.sender, message.correlation, segment, 0, discard=True))
        else:
            watermark, term = self._columns.watermark.item(segment), self._columns.terms[segment]
            lost = term.lost if term is not None else ()
            self._acks.append(core.ack(segment, REFUSED, watermark))
            self._commands.append(Diverged(segment=segment, replica=self._columns.own, end=upto, watermark=watermark, lost=lost))

    def _plain(self, place: int, row: Row, starts: tuple[EpochStart, ...]) -> None:
        segment, _, _, previous, last, watermark, _, _ = row
        core, columns = self._core, self._columns
        if core.continues(segment, previous):
            columns.matched[segment] = True
            if last > previous:
                self._append(place, row, starts)
            elif columns.durable.item(segment) == last:  # what is on its way to the disk is answered from there
                self._acks.append(core.ack(segment, HELD, last))
        else:
            is_repeated = columns.matched[segment] and last <= columns.ends.item(segment)
            status, end = (HELD, columns.durable.item(segment)) if is_repeated else (MISMATCH, None)
            self._acks.append(core.ack(segment, status, end))
        self._commands += core.hear(np.array([segment]), np.array([watermark]))

    def _append(self, place: int, row: Row, starts: tuple[EpochStart, ...]) -> None:
        columns, segment, last = self._columns, row[0], row[4]
        for start in starts:
            columns.histories[segment].append(start)
            self._history.append((segment, start))
        columns.ends[segment] = last
        columns.end_epochs[segment] = epoch_at(columns.histories[segment], last)
        self._taken.append((place, segment, last, row[2]))

    def _collect(self) -> Commands:
        to, correlation = self._message.sender, self._message.correlation
        if self._taken:
            places, segments, lasts, epochs = np.array(self._taken, np.int64).T
            columns = self._columns
            write = Write(
                to=to,
                correlation=correlation,
                segments=segments,
                lasts=lasts,
                epochs=epochs,
                end_epochs=columns.end_epochs[segments].astype(np.int64),
                rows=places,
                history=tuple(self._history),
            )
            self._commands.append(write)
        if self._acks:
            self._commands.append(pack_acks(to, correlation, self._acks))
        return self._commands


def _histories(rows: list[Row]) -> Histories:
    """Return the epochs that stand before each row, by the row's place.

    Raises:
        BadMessage: they do not rise, or lie outside the row's ids, or belong to no row.
    """
    found: Histories = {}
    waiting: list[EpochStart] = []
    for place, (segment, flags, epoch, previous, last, _, values, _) in enumerate(rows):
        if flags == HISTORY:
            waiting.append(EpochStart(values, last, previous))
            continue
        if waiting:
            lower = previous if flags == 0 else 0
            inside = all(lower <= start.previous and start.first <= last and start.epoch <= epoch for start in waiting)
            if not is_rising(waiting) or not inside or flags not in (0, END) or rows[place - 1][0] != segment:
                raise BadMessage(why=f"replication: a history of segment {segment} that is none")
            found[place] = tuple(waiting)
            waiting = []
    if waiting:
        raise BadMessage(why="replication: a history without a row that it belongs to")
    return found
