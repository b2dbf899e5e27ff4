"""Bringing a backup up to the log: reads of the log, and where retention has passed it, a snapshot first; both within a window.

What is read is opaque here. A read that comes back for a stream that has changed direction since is thrown away.
"""

from eventlog.replication.columns import Row, SegmentColumns, history_rows, pack_rows, rows_with_history
from eventlog.replication.commands import CloseSnapshot, Commands, OpenSnapshot, ReadLog, ReadSnapshot, Send
from eventlog.replication.links import CATCH_UP, LIVE, PROBE, SNAPSHOT, UNUSED, InFlight, PeerLink, SegmentStream, Transfer
from eventlog.replication.messages import BEGIN, CHUNK, END
from eventlog.replication.roster import Roster
from eventlog.replication.terms import starts_in


class CatchUp:
    """Reads, flights and snapshots of all streams."""

    def __init__(self, columns: SegmentColumns, roster: Roster) -> None:
        self._columns = columns
        self._roster = roster
        self._number = 0

    def number(self) -> int:
        """Return a number for a message or a snapshot, above all before."""
        self._number += 1
        return self._number

    @property
    def next_number(self) -> int:
        """Return the number of the next message."""
        return self._number + 1

    def begin(self, link: PeerLink, segment: int, after: int, *, now_ms: int) -> Commands:
        """Send what follows `after`, where the backup's log is known to end as this one goes on."""
        commands = self.end(link, segment)
        link.turns[segment] = self.next_number
        if after == self._columns.ends.item(segment):
            self._go_live(link, segment)
            return commands
        if not self._reaches_back(segment, after):
            return commands + self._begin_snapshot(link, segment, after, now_ms=now_ms)
        stream = link.stream(segment, now_ms=now_ms)
        stream.after = after
        link.modes[segment] = CATCH_UP
        link.queue[segment] = None
        return commands

    def end(self, link: PeerLink, segment: int) -> Commands:
        """Forget the stream of a segment: what is under way counts no more."""
        stream = link.streams.pop(segment, None)
        if stream is None:
            return []
        link.clear(stream)
        link.queue.pop(segment, None)
        if link.modes.item(segment) != LIVE:
            link.modes[segment] = UNUSED
        return [CloseSnapshot(segment=segment, transfer=stream.transfer.number)] if stream.transfer else []

    def _go_live(self, link: PeerLink, segment: int) -> None:
        link.modes[segment] = LIVE
        self._columns.told[segment] = -1  # it may have missed a watermark while it did not follow

    def _reaches_back(self, segment: int, after: int) -> bool:
        """Return whether the log still has everything above `after`."""
        return self._columns.trimmed.item(segment) <= after

    # ------------------------------------------------------------ reading on

    def pump(self, link: PeerLink) -> Commands:
        """Read on for what waits, as long as the window of the peer has room."""
        commands: Commands = []
        options = self._columns.options
        while link.queue and link.used_bytes < options.window_bytes:
            segment = next(iter(link.queue))
            del link.queue[segment]
            stream = link.streams[segment]
            if stream.reserved:
                continue
            stream.reserved = options.chunk_bytes
            link.used_bytes += stream.reserved
            commands.append(self._read(link, segment, stream, options.chunk_bytes))
        return commands

    def _read(self, link: PeerLink, segment: int, stream: SegmentStream, bytes_max: int) -> ReadLog | ReadSnapshot:
        transfer = stream.transfer
        if transfer is not None:
            transfer.is_reading = True
            return ReadSnapshot(to=link.replica, segment=segment, transfer=transfer.number, part=transfer.part, bytes_max=bytes_max)
        epoch = self._columns.epochs.item(segment)
        return ReadLog(to=link.replica, segment=segment, epoch=epoch, after=stream.after, bytes_max=bytes_max)

    def log_read(self, link: PeerLink, read: ReadLog, *, upto: int, count: int, nbytes: int) -> Commands:
        """Send what was read, and go live if there is nothing else."""
        segment, columns = read.segment, self._columns
        stream = link.streams.get(segment)
        if stream is None or not self._is_awaited(link, stream, read):
            return []
        link.used_bytes -= stream.reserved
        stream.reserved = 0
        end = columns.ends.item(segment)
        assert read.after <= upto <= end, "a log holds nothing beyond its end"
        if not self._reaches_back(segment, read.after):  # trimmed while it was read
            return self._begin_snapshot(link, segment, read.after, now_ms=stream.asked_ms)
        commands: Commands = []
        if upto > read.after:
            sent = rows_with_history(columns, [(segment, read.after, upto, count)])
            commands.append(Send(to=link.replica, correlation=self.number(), rows=sent))
            stream.after = upto
            stream.flights.append(InFlight(upto, nbytes))
            link.used_bytes += nbytes
        if upto == end:
            self._go_live(link, segment)
            if not stream.flights:
                del link.streams[segment]
        elif upto > read.after:
            link.queue[segment] = None
        return commands

    def _is_awaited(self, link: PeerLink, stream: SegmentStream, read: ReadLog) -> bool:
        is_same = stream.after == read.after and stream.reserved > 0 and stream.transfer is None
        return is_same and link.modes.item(read.segment) == CATCH_UP and self._columns.epochs.item(read.segment) == read.epoch

    # ------------------------------------------------------------ snapshots

    def _begin_snapshot(self, link: PeerLink, segment: int, after: int, *, now_ms: int) -> Commands:
        commands = self.end(link, segment)
        stream = link.stream(segment, now_ms=now_ms)
        if not self._may_replace(link, segment):
            link.modes[segment] = PROBE
            return commands
        link.modes[segment] = SNAPSHOT
        stream.after = after
        transfer = stream.transfer = Transfer(self.number())
        link.turns[segment] = transfer.number
        epoch = self._columns.epochs.item(segment)
        return [*commands, OpenSnapshot(to=link.replica, segment=segment, epoch=epoch, transfer=transfer.number)]

    def _may_replace(self, link: PeerLink, segment: int) -> bool:
        """Return whether a replica may drop what it has: not while it counts as one that holds every committed event."""
        return not self._roster.awaited[link.slot, segment]

    def snapshot_opened(self, link: PeerLink, command: OpenSnapshot, *, pin: int, now_ms: int) -> Commands:
        """Tell the backup to drop what it has."""
        stream = self._transferring(link, command.segment, command.transfer)
        if stream is None or stream.transfer is None:
            return [CloseSnapshot(segment=command.segment, transfer=command.transfer)]
        stream.transfer.pin = pin
        stream.asked_ms = now_ms
        columns, segment = self._columns, command.segment
        row = (segment, BEGIN, columns.epochs.item(segment), command.transfer, pin, stream.after, 0, 0)
        return [Send(to=link.replica, correlation=self.number(), rows=pack_rows([row]))]

    def taken(self, link: PeerLink, segment: int, *, transfer: int, part: int, now_ms: int) -> None:
        """Note that the backup has part `part` on disk, -1: that it has begun."""
        stream = self._transferring(link, segment, transfer)
        if stream is None or stream.transfer is None:
            return
        stream.asked_ms = link.flown_ms = now_ms
        link.land(stream, part)
        if part == -1 and stream.transfer.part == -1:
            stream.transfer.part = 0
            link.queue[segment] = None

    def snapshot_read(self, link: PeerLink, command: ReadSnapshot, *, count: int, nbytes: int, is_last: bool) -> Commands:
        """Send a part, and behind the last one what makes it a replica."""
        segment, columns = command.segment, self._columns
        stream = self._transferring(link, segment, command.transfer)
        if stream is None or stream.transfer is None or not stream.transfer.is_reading or stream.transfer.part != command.part:
            return []
        transfer = stream.transfer
        link.used_bytes += nbytes - stream.reserved
        stream.reserved = 0
        stream.flights.append(InFlight(command.part, nbytes))
        transfer.is_reading, transfer.is_read = False, is_last
        transfer.part += 1
        epoch, watermark = columns.epochs.item(segment), columns.watermark.item(segment)
        sent: list[Row] = [(segment, CHUNK, epoch, transfer.number, command.part, watermark, count, 0)]
        if is_last:
            sent += history_rows(segment, epoch, starts_in(columns.histories[segment], after=0, upto=transfer.pin))
            sent.append((segment, END, epoch, transfer.number, transfer.pin, watermark, transfer.part, 0))
        else:
            link.queue[segment] = None
        return [Send(to=link.replica, correlation=self.number(), rows=pack_rows(sent))]

    def _transferring(self, link: PeerLink, segment: int, number: int) -> SegmentStream | None:
        stream = link.streams.get(segment)
        return stream if stream is not None and stream.transfer is not None and stream.transfer.number == number else None
