"""What goes from a primary to its backups: appends at once to live followers, questions, cuts and catching up for the others.

A stream begins with a question: an idle row with the present end. The answer tells where the backup's log ends, and the history of
epochs tells whether this log has that end too. If not, the backup has to cut; if so, it gets what follows from the log, and once it
has everything that was ever appended it follows live. Nobody stops writing for that: what was read meets what was appended in one
step.
"""

import numpy as np

from eventlog.arrays import Ints
from eventlog.replication.catch_up import CatchUp
from eventlog.replication.columns import NEVER, SegmentColumns, pack_rows, plain_row, plain_rows, rows_with_history
from eventlog.replication.commands import Commands, Diverged, Send
from eventlog.replication.links import CATCH_UP, FAILED, LIVE, PROBE, SNAPSHOT, UNUSED, PeerLink
from eventlog.replication.messages import CUT
from eventlog.replication.roster import Roster
from eventlog.replication.terms import Replica, last_of

_FAILED_RETRY = 5  # times `ack_ms_max`: a backup that refused to cut is asked again that seldom
_SNAPSHOT_PATIENCE = 10  # times `ack_ms_max`: dropping and storing take their time


class Streams:
    """The streams to all connected peers, of the segments that this node leads."""

    def __init__(self, columns: SegmentColumns, roster: Roster) -> None:
        self._columns = columns
        self._roster = roster
        self.catch_up = CatchUp(columns, roster)
        self.links: dict[Replica, PeerLink] = {}

    # ------------------------------------------------------------ peers and targets

    def connect(self, peer: Replica, *, now_ms: int) -> Commands:
        """Begin with a peer: ask it about every segment that it is to hold."""
        commands = self.disconnect(peer, now_ms=now_ms)
        slot = self._roster.slot(peer, now_ms=now_ms)
        self._roster.is_here[slot] = self._roster.was_here[slot] = True
        link = self.links[peer] = PeerLink(peer, slot, self._columns.segments, number=self.catch_up.next_number)
        for segment in (self._columns.leads & (self._columns.starts != NEVER)).nonzero()[0].tolist():
            if self._is_target(link, segment):
                self._ask(link, segment, now_ms=now_ms)
        return commands

    def disconnect(self, peer: Replica, *, now_ms: int) -> Commands:
        """End all streams to a peer."""
        link = self.links.pop(peer, None)
        if link is None:
            return []
        self._roster.is_here[link.slot] = False
        self._roster.away_ms[link.slot] = now_ms
        return [command for segment in list(link.streams) for command in self.catch_up.end(link, segment)]

    def retarget(self, segment: int, *, now_ms: int) -> Commands:
        """Begin or end streams of a segment after its record changed, or this node resigned."""
        commands: Commands = []
        is_led = bool(self._columns.leads[segment]) and self._columns.starts.item(segment) != NEVER
        for link in self.links.values():
            if not (is_led and self._is_target(link, segment)):
                commands += self.catch_up.end(link, segment)
                link.modes[segment] = UNUSED
                self._forget(link, segment)
                continue
            if not self._roster.awaited_rows[link.slot].item(segment):
                self._forget(link, segment)
            if link.modes.item(segment) == UNUSED:
                self._ask(link, segment, now_ms=now_ms)
        return commands

    def _forget(self, link: PeerLink, segment: int) -> None:
        """Count nothing that a replica has said so far: between the record before and this one it may have been no owner.

        Then it drops what it had; this node need not have seen the record that said so.
        """
        self._roster.acknowledged[link.slot, segment] = -1
        link.count_from(segment, self.catch_up.next_number)

    def _is_target(self, link: PeerLink, segment: int) -> bool:
        term = self._columns.terms[segment]
        return term is not None and (link.replica.node in term.owners or bool(self._roster.awaited[link.slot, segment]))

    # ------------------------------------------------------------ appends

    def send_group(self, segments: Ints, *, previous: Ints, last: Ints, counts: Ints | None) -> Commands:
        """Send a group that was just appended to all that follow live."""
        group = b""
        commands: Commands = []
        for link in self.links.values():
            live = link.modes[segments] == LIVE
            if np.count_nonzero(live) == len(live):
                group = group or plain_rows(self._columns, segments, previous=previous, last=last, counts=counts)
                commands.append(self._send(link, group))
            elif np.count_nonzero(live):
                chosen = live.nonzero()[0]
                own = None if counts is None else counts[chosen]
                part = plain_rows(self._columns, segments[chosen], previous=previous[chosen], last=last[chosen], counts=own)
                commands.append(self._send(link, part, chosen))
        if group:
            self._columns.told[segments] = self._columns.watermark[segments]
        return commands

    def send_one(self, segment: int, *, previous: int, last: int, count: int) -> Commands:
        """Do what `send_group` does, for one segment and without arrays."""
        group = b""
        commands: Commands = []
        for link in self.links.values():
            if link.modes.item(segment) == LIVE:
                group = group or plain_row(self._columns, segment, previous=previous, last=last, count=count)
                commands.append(self._send(link, group))
        if group:
            self._columns.told[segment] = self._columns.watermark.item(segment)
        return commands

    def send_markers(self, segments: Ints, places: Ints) -> Commands:
        """Send the markers at `places` of `segments`, without asking first: most logs end where this one did."""
        commands: Commands = []
        for link in self.links.values():
            own = [place for place in places.tolist() if self._is_target(link, segments.item(place))]
            spans = []
            for segment in segments[own].tolist():
                commands += self.catch_up.end(link, segment)
                link.modes[segment] = LIVE
                start = self._columns.histories[segment][-1]
                spans.append((segment, start.previous, start.first, 1))
            if spans:
                chosen = None if len(own) == len(segments) else np.array(own)
                commands.append(self._send(link, rows_with_history(self._columns, spans), chosen))
        return commands

    def _send(self, link: PeerLink, sent: bytes, chosen: Ints | None = None) -> Send:
        return Send(to=link.replica, correlation=self.catch_up.number(), rows=sent, chosen=chosen)

    # ------------------------------------------------------------ questions and answers

    def _ask(self, link: PeerLink, segment: int, *, now_ms: int) -> None:
        """Ask a peer where its log of a segment ends; the question goes out with `flush`."""
        stream = link.stream(segment, now_ms=now_ms)
        stream.asked_ms = now_ms
        link.modes[segment] = PROBE
        link.probes.append(segment)

    def flush(self) -> Commands:
        """Send the questions that came up during this input, one message a peer, and read on for backups that catch up."""
        commands: Commands = []
        for link in self.links.values():
            if link.probes:
                asked = sorted({segment for segment in link.probes if link.modes.item(segment) == PROBE})
                link.probes.clear()
                if asked:
                    commands.append(self._send_idle(link, np.array(asked)))
            if link.queue:
                commands += self.catch_up.pump(link)
        return commands

    def _send_idle(self, link: PeerLink, segments: Ints) -> Send:
        ends = self._columns.ends[segments]
        return self._send(link, plain_rows(self._columns, segments, previous=ends, last=ends, counts=np.zeros_like(ends)))

    def held(self, link: PeerLink, segment: int, end: int, *, now_ms: int) -> Commands:
        """Go on with a stream whose backup's log matches up to `end`."""
        stream = link.streams.get(segment)
        if stream is None:
            return []
        mode = link.modes.item(segment)
        stream.asked_ms = link.flown_ms = now_ms
        link.land(stream, end)
        if mode == PROBE:
            return self.catch_up.begin(link, segment, end, now_ms=now_ms)
        if mode == SNAPSHOT and stream.transfer is not None and stream.transfer.is_read and stream.transfer.pin == end:
            commands = self.catch_up.end(link, segment)
            return commands + self.catch_up.begin(link, segment, end, now_ms=now_ms)
        if mode == LIVE and not stream.flights:
            del link.streams[segment]
        return []

    def mismatched(self, link: PeerLink, segment: int, *, end: int, end_epoch: int, correlation: int, now_ms: int) -> Commands:
        """Go on with a backup whose log ends with `end`, of `end_epoch`, and which appended nothing of what it was sent."""
        if self._is_old_news(correlation, link.turns.item(segment)):
            return []
        epoch, point = last_of(self._columns.histories[segment], end_epoch, end=self._columns.ends.item(segment))
        if epoch == end_epoch and end <= point:
            return self.catch_up.begin(link, segment, end, now_ms=now_ms)
        return self._send_cut(link, segment, end=end, upto=min(end - 1, point), now_ms=now_ms)

    def _is_old_news(self, correlation: int, turn: int) -> bool:
        """Return whether an answer is to a message from before the segment's last change of direction."""
        return correlation < turn

    def _send_cut(self, link: PeerLink, segment: int, *, end: int, upto: int, now_ms: int) -> Commands:
        commands = self.catch_up.end(link, segment)
        link.stream(segment, now_ms=now_ms)
        link.modes[segment] = PROBE
        columns = self._columns
        row = (segment, CUT, columns.epochs.item(segment), end, upto, columns.watermark.item(segment), 0, 0)
        send = self._send(link, pack_rows([row]))
        link.turns[segment] = send.correlation
        return [*commands, send]

    def unknown(self, link: PeerLink, segment: int, *, now_ms: int) -> Commands:
        """Ask later: the backup has not seen the record yet that makes it hold the segment."""
        commands = self.catch_up.end(link, segment)
        link.stream(segment, now_ms=now_ms)
        link.modes[segment] = PROBE
        return commands

    def refused(self, link: PeerLink, segment: int, *, end: int, now_ms: int) -> Commands:
        """Leave a backup alone that knows events to be committed which are not in this log."""
        commands = self.catch_up.end(link, segment)
        link.stream(segment, now_ms=now_ms)
        link.modes[segment] = FAILED
        watermark = self._columns.watermark.item(segment)
        return [*commands, Diverged(segment=segment, replica=link.replica, end=end, watermark=watermark)]

    # ------------------------------------------------------------ time

    @property
    def is_quiet(self) -> bool:
        """Return whether all is committed and told, and nobody catches up or may join a set: whether `tick` has nothing to do."""
        columns, links = self._columns, self.links.values()
        if any(link.streams or link.probes or link.queue for link in links):
            return False
        if np.count_nonzero(columns.leads & ((columns.ends != columns.watermark) | (columns.told < columns.watermark))):
            return False
        awaited = self._roster.awaited_rows
        return not any(np.count_nonzero((link.modes == LIVE) > awaited[link.slot]) for link in links)

    def tick(self, *, now_ms: int) -> Commands:
        """Tell watermarks to backups that have not heard them, and ask again what was not answered."""
        columns = self._columns
        commands: Commands = []
        untold = columns.leads & (columns.told < columns.watermark) & (columns.ends == columns.watermark)
        any_untold = bool(np.count_nonzero(untold))
        old = columns.leads & (now_ms - columns.appended_ms >= columns.options.probe_ms)
        for link in self.links.values():
            live = link.modes == LIVE
            if any_untold:
                told = (untold & live).nonzero()[0]
                if len(told):
                    commands.append(self._send_idle(link, told))
            for segment in (live & old & (self._roster.acknowledged[link.slot] < columns.ends)).nonzero()[0].tolist():
                if not self._is_flying(link, segment, now_ms=now_ms):
                    self._ask(link, segment, now_ms=now_ms)
            for segment in list(link.streams):
                commands += self._tick_one(link, segment, now_ms=now_ms)
        if any_untold:
            columns.told[untold] = columns.watermark[untold]
        return commands

    def _is_flying(self, link: PeerLink, segment: int, *, now_ms: int) -> bool:
        stream = link.streams.get(segment)
        patience = self._columns.options.ack_ms_max
        return stream is not None and bool(stream.flights) and now_ms - max(stream.asked_ms, link.flown_ms) < patience

    def _tick_one(self, link: PeerLink, segment: int, *, now_ms: int) -> Commands:
        stream, mode = link.streams[segment], link.modes.item(segment)
        if mode == CATCH_UP and not stream.reserved and not stream.flights:
            link.queue[segment] = None  # the last read found nothing new
        if not self._is_silent(link, segment, now_ms - max(stream.asked_ms, link.flown_ms if mode == CATCH_UP else 0)):
            return []
        commands = self.catch_up.end(link, segment)
        self._ask(link, segment, now_ms=now_ms)
        return commands

    def _is_silent(self, link: PeerLink, segment: int, silent_ms: int) -> bool:
        """Return whether a stream has waited so long that what was sent, or its answer, must be taken as lost."""
        mode, options = link.modes.item(segment), self._columns.options
        if mode == PROBE:
            return silent_ms >= options.probe_ms
        if mode == CATCH_UP:
            stream = link.streams[segment]
            return bool(stream.flights) and not stream.reserved and silent_ms >= options.ack_ms_max
        if mode == SNAPSHOT:
            stream = link.streams[segment]
            is_ours = not stream.flights and (stream.reserved or segment in link.queue)  # to read on, at the speed that was allowed
            return not is_ours and silent_ms >= _SNAPSHOT_PATIENCE * options.ack_ms_max
        return mode == FAILED and silent_ms >= _FAILED_RETRY * options.ack_ms_max
