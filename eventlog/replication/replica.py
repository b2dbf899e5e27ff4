"""All replicas of one node: the primary's side, the backup's side, and what connects them.

What is decided where: `primary` appends, counts and commits; `in_sync` proposes members; `streams` knows what each peer was sent,
`catch_up` brings up replicas that lack something; `backup` compares, writes and cuts, `installs` takes snapshots.
"""

from collections.abc import Sequence

import numpy as np

from eventlog.arrays import NONE, Ints, Mask
from eventlog.errors import BadMessage
from eventlog.replication.backup import BackupCore, pack_acks
from eventlog.replication.claims import Claims
from eventlog.replication.columns import FEW_ROWS_MAX, ONE_ACK, ONE_APPEND, SegmentColumns
from eventlog.replication.commands import (
    Commands,
    Cut,
    Install,
    Mark,
    OpenSnapshot,
    ReadLog,
    ReadSnapshot,
    Release,
    Resign,
    Write,
    resigning_at_once,
)
from eventlog.replication.in_sync import InSync
from eventlog.replication.installs import Releases
from eventlog.replication.links import LIVE, UNUSED, PeerLink
from eventlog.replication.messages import (
    HELD,
    MISMATCH,
    REFUSED,
    STALE,
    TAKEN,
    UNKNOWN,
    Buffer,
    Message,
    Table,
    decode_acks,
    decode_appends,
)
from eventlog.replication.primary import PrimaryCore
from eventlog.replication.roster import Roster
from eventlog.replication.streams import Streams
from eventlog.replication.terms import EpochStart, Options, Replica, Term, epoch_at, last_of


class Replication:
    """The replicas of segments `[0, segments)` at the node `own`, in the process that calls itself `session` in segment records."""

    def __init__(self, segments: int, *, own: Replica, session: str = "", options: Options | None = None) -> None:
        self.segments = segments
        self.own = own
        columns = self.columns = SegmentColumns(segments, own=own, session=session, options=options or Options())
        self.roster = Roster(segments, own)
        self.primary = PrimaryCore(self.columns, self.roster)
        self.sets = InSync(self.columns, self.roster, self.primary)
        self.streams = Streams(self.columns, self.roster)
        self.backup = BackupCore(self.columns)
        self._postponed: dict[int, tuple[Term, int]] = {}  # to be led when a cut under way is done
        self._releases = Releases(self.columns, self.backup.installs)
        self.claims = Claims(self.columns)
        self._marked: Ints = NONE
        # The columns that anyone may read, and nobody else writes; one number a segment.
        self.epochs = columns.epochs  # the highest known
        self.ends = columns.ends  # the last id appended to the own log, on disk or not; falls only by a cut, or when a replica is dropped
        self.end_epochs = columns.end_epochs  # the epoch that the own log ends in
        self.durable = columns.durable  # up to where the own log is on disk
        self.watermark = columns.watermark  # the high watermark known here: at or below `durable`, never falling within an epoch
        self.leads = columns.leads  # whether this node is primary, adopted or not
        self.adopted = columns.adopted  # ... and has adopted the tail: before, nothing is appended, promised or served
        self.holds = columns.holds  # whether the records want this node to hold it
        self.matched = columns.matched  # whether the log of this backup is known to be a prefix of its primary's

    @property
    def ids_max(self) -> int:
        """Return the id above which nothing is taken from others."""
        return self.columns.ids_max

    # ------------------------------------------------------------ life of a replica

    def open(self, ends: Ints, *, histories: Sequence[Sequence[EpochStart]], applied: Ints, terms: Sequence[Term] = ()) -> None:
        """Begin with own logs that end at `ends`, epochs as in `histories`, a state applied up to `applied`; before all else.

        `terms` are records read before: what they say this node leads was led by an earlier process.
        """
        columns = self.columns
        columns.ends[:] = columns.durable[:] = ends
        columns.watermark[:] = columns.heard[:] = np.minimum(applied, ends)
        for segment, history in enumerate(histories):
            columns.histories[segment] = list(history)
            columns.end_epochs[segment] = epoch_at(history, columns.ends.item(segment))
        columns.epochs[:] = columns.end_epochs
        for term in terms:
            if term.epoch > columns.epochs[term.segment]:
                columns.fence(term.segment, epoch=term.epoch, source=columns.source_of(term))

    def learn(self, terms: Sequence[Term], *, now_ms: int) -> Commands:
        """Take segment records in: `Mark` for what is led now, `Resign` for what is not any more, streams to new owners, `Recheck`."""
        commands: Commands = []
        marks: list[Term] = []
        released: list[int] = []
        for term in terms:
            known = self.columns.terms[term.segment]
            if known is not None and term.revision <= known.revision:
                continue
            commands += self._take_term(term, marks, now_ms=now_ms)
            if self._releases.take(term):
                released.append(term.segment)
        commands = resigning_at_once(commands)
        if marks:
            commands.append(Mark(segments=tuple(term.segment for term in marks), epochs=tuple(term.epoch for term in marks)))
        return commands + self._releases.begin(released) + self.streams.flush() + self.claims.settle()

    def _take_term(self, term: Term, marks: list[Term], *, now_ms: int) -> Commands:
        columns, segment = self.columns, term.segment
        columns.terms[segment] = term
        commands: Commands = []
        if term.epoch > columns.epochs[segment]:
            may_lead = self.primary.may_lead(term)
            commands += self._resign([segment], now_ms=now_ms)
            columns.fence(segment, epoch=term.epoch, source=columns.source_of(term))
            if may_lead and self.backup.installs.is_partial(segment):  # only an operator appoints a replica that is not whole
                self._postponed[segment] = term, now_ms
                commands.append(self.backup.discard(segment))
            elif may_lead and columns.busy[segment]:
                self._postponed[segment] = term, now_ms
            elif may_lead:
                self.primary.appoint(term, now_ms=now_ms)
                marks.append(term)
        elif term.epoch == columns.epochs[segment] and columns.sources[segment] == 0:
            columns.sources[segment] = columns.source_of(term)
        if columns.leads[segment] and term.epoch == columns.epochs[segment]:
            commands += self.sets.settle(segment, now_ms=now_ms)
            commands += self.streams.retarget(segment, now_ms=now_ms)
        return commands

    def rechecked(self, segments: Sequence[int]) -> Commands:
        """Note that the latest records of segments were learned (`Recheck`): `Release`, and the `Mark` that had to wait for that."""
        kept = self._releases.kept(list(segments))
        commands = [command for segment in kept for command in self._take_postponed(segment)]
        gone = tuple(segment for segment in segments if segment not in kept)
        return [*commands, Release(segments=gone)] if gone else commands

    def discarded(self, segments: Ints) -> None:
        """Note that log and state of segments were deleted (`Release`)."""
        for segment in segments.tolist():
            self._releases.done(segment)
            self.columns.forget(segment)
            self.backup.forget(segment)

    def _resign(self, segments: list[int], *, now_ms: int) -> Commands:
        led = [segment for segment in segments if self.columns.leads[segment]]
        if not led:
            return []
        commands: Commands = [Resign(segments=np.array(led))]
        for segment in led:
            self.primary.resign(segment)
            self.sets.drop(segment)
            commands += self.streams.retarget(segment, now_ms=now_ms)
        return commands

    # ------------------------------------------------------------ as primary

    def mark(self, segments: Ints, ids: Ints, *, now_ms: int) -> Commands:
        """Register markers, the first ids of the epochs; segments rising. Those that were lost since `Mark` are passed over.

        `marked` tells which were registered: only their markers may be written. `Send.chosen` counts among all of `segments`.
        """
        places = self.primary.mark(segments, ids, now_ms=now_ms)
        self._marked = segments[places]
        return self.streams.send_markers(segments, places) + self.streams.flush()

    @property
    def marked(self) -> Ints:
        """Return the segments that the last `mark` registered."""
        return self._marked

    def append(self, segments: Ints, last_ids: Ints, *, counts: Ints | None = None, now_ms: int = 0) -> Commands:
        """Register a group as in flight and send it; segments rising, `counts` stored values each (None: one).

        Raises:
            NotPrimary: a segment is not led, or not adopted yet.
            NotEnoughReplicas: fewer replicas are in sync than the segment needs. Nothing of the group is registered either way.
        """
        if len(segments) == 1:
            segment, last = segments.item(0), last_ids.item(0)
            before = self.primary.append_one(segment, last, now_ms=now_ms)
            if not self.streams.links:
                return []
            return self.streams.send_one(segment, previous=before, last=last, count=1 if counts is None else counts.item(0))
        previous = self.primary.append(segments, last_ids, now_ms=now_ms)
        if not self.streams.links:
            return []
        return self.streams.send_group(segments, previous=previous, last=last_ids, counts=counts)

    def check_ready(self, segments: Ints) -> None:
        """Raise what `append` would.

        Raises:
            NotPrimary, NotEnoughReplicas: as there.
        """
        self.primary.check_ready(segments)

    def written(self, segments: Ints, last_ids: Ints) -> Commands:
        """Note that the own log holds own appends up to `last_ids` on disk: `Committed`, `Lead`."""
        return self.primary.count_own(segments, last_ids)

    def acknowledged(self, message: Message, *, now_ms: int) -> Commands:
        """Take a backup's answer: `Committed`, `Lead`, `Propose` (growth), `ReadLog`, `Send` (cuts), `OpenSnapshot`, `LookUp`.

        Raises:
            BadMessage: it claims what cannot be, or again a term that no record names. Nothing of it counts.
        """
        if message.recipient != self.own:
            return []
        slot = self.roster.find(message.sender)
        if slot is None:
            return []
        link = self.streams.links.get(message.sender)
        is_answered = link is not None and not link.streams and message.correlation >= link.newest
        if is_answered and _are_few(message.rows, ONE_ACK.size):
            committed = self._held_few(slot, message.rows)
            if committed is not None:
                return committed
        table = decode_acks(message.rows, segments=self.segments)
        segments = table["segment"].astype(np.int64)
        of_term = self._is_of_term(table, segments)
        if link is not None and np.count_nonzero(of_term) == len(of_term) and not np.count_nonzero(table["status"] != HELD):
            return self._held(link, segments, table["end"], message.correlation, now_ms=now_ms)
        stale = table[self.columns.leads[segments] & (table["status"] == STALE) & (table["epoch"] > self.columns.epochs[segments])]
        commands = self.claims.rest(message.sender, stale, now_ms=now_ms) if len(stale) else []
        for row in table.tolist():
            commands += self._take_ack(link, row, message.correlation, now_ms=now_ms)
        return commands + self.streams.flush()

    def _held_few(self, slot: int, rows: Buffer) -> Commands | None:
        """Count an answer of a few rows that only say how far a member of the in-sync sets is; None if they are not that."""
        columns, awaited = self.columns, self.roster.awaited_rows[slot]
        held: list[tuple[int, int]] = []
        for segment, status, epoch, end, _, _ in ONE_ACK.iter_unpack(rows):
            if status != HELD or segment >= self.segments or not columns.leads.item(segment) or epoch != columns.epochs.item(segment):
                return None
            if not 0 <= end <= columns.ends.item(segment) or not awaited.item(segment):
                return None
            held.append((segment, end))
        return self.primary.count_few(slot, held)

    def _is_of_term(self, table: Table, segments: Ints) -> Mask:
        """Return which answers are to this node's own present terms.

        Raises:
            BadMessage: one says that a log matches beyond its own end.
        """
        columns = self.columns
        of_term: Mask = columns.leads[segments] & (table["epoch"] == columns.epochs[segments])
        beyond = of_term & (table["status"] == HELD) & (table["end"] > columns.ends[segments])
        if np.count_nonzero(beyond):
            row = table[beyond][0]
            raise BadMessage(why=f"replication: segment {row['segment']} is acknowledged up to {row['end']}, beyond its end")
        return of_term

    def _count(self, link: PeerLink, segments: Ints, ends: Ints, correlation: int) -> Commands:
        if correlation < link.newest:
            counts = link.counts(segments, correlation)
            segments, ends = segments[counts], ends[counts]
        if len(segments) <= FEW_ROWS_MAX:
            return self.primary.count_few(link.slot, zip(segments.tolist(), ends.tolist(), strict=True))
        return self.primary.count(link.slot, segments, ends)

    def _held(self, link: PeerLink, segments: Ints, ends: Ints, correlation: int, *, now_ms: int) -> Commands:
        commands = self._count(link, segments, ends, correlation)
        if link.streams:
            for segment, end in zip(segments.tolist(), ends.tolist(), strict=True):
                commands += self.streams.held(link, segment, end, now_ms=now_ms)
            commands += self.streams.flush()
        awaited = self.roster.awaited_rows[link.slot][segments]
        if np.count_nonzero(awaited) < len(awaited):
            others = segments[~awaited]
            commands += self.sets.grow(link.slot, others[link.modes[others] == LIVE], now_ms=now_ms)
        return commands

    def _take_ack(self, link: PeerLink | None, row: tuple[int, ...], correlation: int, *, now_ms: int) -> Commands:
        segment, status, epoch, end, end_epoch, _ = row
        streams, known = self.streams, self.columns.epochs.item(segment)
        if not self.columns.leads[segment]:
            return []
        if link is None or (epoch != known and status != UNKNOWN):
            return []
        commands: Commands = []
        if status == HELD:
            commands = self._held(link, np.array([segment]), np.array([end]), correlation, now_ms=now_ms)
        elif link.modes[segment] == UNUSED:
            pass
        elif status == UNKNOWN:
            commands = streams.unknown(link, segment, now_ms=now_ms)
        elif status == MISMATCH:
            _, point = last_of(self.columns.histories[segment], end_epoch, end=self.columns.ends.item(segment))
            self.primary.take_back(link.slot, segment, min(end, point))
            commands = streams.mismatched(link, segment, end=end, end_epoch=end_epoch, correlation=correlation, now_ms=now_ms)
        elif status == REFUSED:
            commands = streams.refused(link, segment, end=end, now_ms=now_ms)
        elif status == TAKEN:
            streams.catch_up.taken(link, segment, transfer=end_epoch, part=end, now_ms=now_ms)
        return commands

    def withdrawn(self, segment: int, *, revision: int, now_ms: int) -> Commands:
        """Note that the proposal that expected `revision` never was and never will be committed."""
        return self.sets.withdraw(segment, revision=revision, now_ms=now_ms)

    def log_read(self, read: ReadLog, *, upto: int, count: int, nbytes: int, now_ms: int) -> Commands:
        """Send what was read: `count` values of `nbytes` bytes in `(read.after, upto]`. With upto == read.after there was nothing."""
        link = self.streams.links.get(read.to)
        if link is None:
            return []
        stream = link.streams.get(read.segment)
        if stream is not None:
            stream.asked_ms = now_ms
        return self.streams.catch_up.log_read(link, read, upto=upto, count=count, nbytes=nbytes) + self.streams.flush()

    def snapshot_opened(self, command: OpenSnapshot, *, pin: int, now_ms: int) -> Commands:
        """Go on with a snapshot that is pinned at id `pin`."""
        link = self.streams.links.get(command.to)
        if link is None:
            return []
        return self.streams.catch_up.snapshot_opened(link, command, pin=pin, now_ms=now_ms)

    def snapshot_read(self, command: ReadSnapshot, *, count: int, nbytes: int, is_last: bool, now_ms: int) -> Commands:
        """Send a part of `count` pieces and `nbytes` bytes."""
        link = self.streams.links.get(command.to)
        if link is None:
            return []
        stream = link.streams.get(command.segment)
        if stream is not None:
            stream.asked_ms = now_ms
        catch_up = self.streams.catch_up
        return catch_up.snapshot_read(link, command, count=count, nbytes=nbytes, is_last=is_last) + self.streams.flush()

    def trimmed(self, segments: Ints, ids: Ints) -> None:
        """Note that retention removed events up to `ids` (over all caches of the segment): the log does not reach back to them."""
        self.columns.trimmed[segments] = np.maximum(self.columns.trimmed[segments], ids)

    # ------------------------------------------------------------ as backup

    def receive(self, message: Message, *, now_ms: int) -> Commands:
        """Take a primary's rows: `Write`, `Cut`, `Acknowledge`, `Learned`, installs; `Keep`, `LookUp` where records are to be read first.

        Raises:
            BadMessage: it claims what cannot be, or what only the primary that the record names may. Nothing of it counts.
        """
        if message.recipient != self.own:
            return []
        if _are_few(message.rows, ONE_APPEND.size):
            taken = self.backup.take_few(message)
            if taken is not None:
                return taken
        table = decode_appends(message.rows, segments=self.segments)
        self.backup.check_ids(table)
        if self.backup.is_plain(table, message.sender):
            return self.backup.take_plain(message, table)
        if np.count_nonzero(self.claims.are_ahead(table)):
            return self.claims.rest(message.sender, table, message=message, now_ms=now_ms)
        return self.backup.take_rows(message, table, self.backup.check(message.sender, table))

    def looked_up(self, *, now_ms: int) -> Commands:
        """Note that the records that `LookUp` asked for were read and learned: `Take`, and `LookUp` for what was claimed meanwhile."""
        return self.claims.looked_up(now_ms=now_ms)

    def stored(self, write: Write) -> Commands:
        """Note that a `Write` is on disk: `Acknowledge`, `Learned`."""
        return self.backup.stored(write)

    def cut_done(self, cut: Cut, *, end: int) -> Commands:
        """Note that a `Cut` is on disk and the log ends with `end`: `Acknowledge`, and the `Mark` or `Recheck` that had to wait for it."""
        return self.backup.cut_done(cut, end=end) + self._take_postponed(cut.segment) + self._release(cut.segment)

    def _take_postponed(self, segment: int) -> Commands:
        """Lead what was to be led when something else was under way with it."""
        term, now_ms = self._postponed.pop(segment, (None, 0))
        if term is None or term.epoch != self.columns.epochs.item(segment):
            return []
        self.primary.appoint(term, now_ms=now_ms)
        return [*self.sets.settle(segment, now_ms=now_ms), Mark(segments=(segment,), epochs=(term.epoch,))]

    def installed(self, command: Install) -> Commands:
        """Note that a step of an install is on disk: `Acknowledge`, at the end `Learned`, and a `Release` or `Recheck` that had to wait."""
        to, correlation, acks, commands = self.backup.installs.done(command)
        commands += self._release(command.segment)
        return commands if to is None else [pack_acks(to, correlation, acks), *commands]

    def _release(self, segment: int) -> Commands:
        return self._releases.begin([segment]) if self._releases.is_due(segment) else []

    def believes(self, sender: Replica, segments: Ints, *, epochs: Ints) -> Mask:
        """Return of which terms the records name this replica as primary."""
        believed: Mask = (self.columns.epochs[segments] == epochs) & self.backup.is_source(segments, sender)
        return believed

    def promised(self, sender: Replica, segments: Ints, *, epochs: Ints, last_ids: Ints) -> Commands:
        """Take the last committed ids that a promise names as watermarks, where its sender is the primary and the logs match."""
        believed = self.believes(sender, segments, epochs=epochs)
        return self.backup.hear(segments[believed], last_ids[believed])

    def allow_ids(self, upto: int) -> None:
        """Take no id above `upto` from others from now on: nobody can have issued one."""
        self.columns.ids_max = upto

    # ------------------------------------------------------------ peers and time

    def connected(self, peer: Replica, *, now_ms: int) -> Commands:
        """Begin the streams to a peer; connected twice is a new connection."""
        return self.streams.connect(peer, now_ms=now_ms) + self.streams.flush()

    def lost(self, peer: Replica, *, now_ms: int) -> Commands:
        """End the streams to a peer."""
        return self.streams.disconnect(peer, now_ms=now_ms)

    def look(self, *, now_ms: int) -> Commands:
        """Do what is due where not all `is_quiet`: untold watermarks, questions again, proposals against replicas that lag."""
        commands = self.sets.shrink(now_ms=now_ms)
        commands += self.streams.tick(now_ms=now_ms)
        for link in self.streams.links.values():
            commands += self.sets.grow(link.slot, (link.modes == LIVE).nonzero()[0], now_ms=now_ms)
        return commands + self.streams.flush()

    @property
    def is_quiet(self) -> bool:
        """Return whether time alone changes nothing: all is committed and told, nobody catches up, is away, or may join a set."""
        return self.streams.is_quiet and self.sets.is_quiet

    # ------------------------------------------------------------ views

    def history(self, segment: int) -> tuple[EpochStart, ...]:
        """Return the epochs of the own log, rising."""
        return tuple(self.columns.histories[segment])

    def term(self, segment: int) -> Term | None:
        """Return the latest record known."""
        return self.columns.terms[segment]

    def in_sync(self, segment: int) -> frozenset[Replica]:
        """Return the replicas that the watermark waits for: the in-sync set, the proposed one included. Only at the primary."""
        return self.sets.awaited(segment)

    def short(self, *, now_ms: int) -> Mask:
        """Return which segments led here lack members of the in-sync set that answer: new appends are better refused than kept waiting."""
        return self.sets.short(now_ms=now_ms)

    def others_answering(self, *, now_ms: int) -> Mask:
        """Return of which segments another member of the in-sync set answers."""
        found: Mask = self.sets.answering(now_ms=now_ms) > 1
        return found

    def overdue(self, *, now_ms: int) -> Mask:
        """Return which segments led here have something in flight for longer than an in-sync replica may take."""
        columns = self.columns
        waits: Mask = columns.adopted & (columns.ends > columns.watermark)
        return waits & (now_ms - columns.appended_ms >= columns.options.ack_ms_max)

    def missing(self, segment: int, *, now_ms: int) -> tuple[Replica, ...]:
        """Return the members of the in-sync set that do not answer. Only at the primary."""
        return self.sets.missing(segment, now_ms=now_ms)

    def waits_for(self, segment: int) -> tuple[Replica, ...]:
        """Return the replicas that keep the watermark below the end of the log; empty when nothing is in flight."""
        columns = self.columns
        end = columns.ends.item(segment)
        if not columns.leads[segment] or columns.watermark.item(segment) >= end:
            return ()
        late = self.roster.awaited[:, segment] & (self.roster.counted[:, segment] < end)
        return tuple(sorted(self.roster.replicas[slot] for slot in late.nonzero()[0].tolist()))


def _are_few(rows: Buffer, size: int) -> bool:
    """Return whether these are some whole rows of `size` bytes, so few that arrays are not worth it."""
    return 0 < len(rows) <= FEW_ROWS_MAX * size and not len(rows) % size
