"""All replicas of one node: the primary's side, the backup's side, and what connects them.

What is decided where: `primary` appends, counts and commits; `backup` compares, writes and cuts; `in_sync` proposes members;
`stream` knows what each peer was sent and drives catching up and snapshots.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.replication.commands import BeginInstall, Commands, Cut, EndInstall, InstallPart, OpenSnapshot, ReadLog, ReadSnapshot, Write
from eventlog.replication.messages import Message
from eventlog.replication.terms import EpochStart, Options, Replica, Term

Ints = npt.NDArray[np.int64]


class Replication:
    """The replicas of segments `[0, segments)` at the node `own`.

    Columns, one number a segment, to be read by anyone and written by none: `epochs` (highest known), `leads` and `adopted`, `ends`
    (last id appended, on disk or not) and `end_epochs`, `durable` (last id on disk), `watermark`, `holds` (whether the record names
    this node). Invariants: watermark <= durable <= ends for a backup; all of them rise within an epoch, except by a cut.
    """

    epochs: npt.NDArray[np.uint32]
    end_epochs: npt.NDArray[np.uint32]
    ends: Ints
    durable: Ints
    watermark: Ints
    leads: npt.NDArray[np.bool_]
    adopted: npt.NDArray[np.bool_]
    holds: npt.NDArray[np.bool_]

    def __init__(self, segments: int, *, own: Replica, session: str = "", options: Options | None = None) -> None:
        self.segments = segments
        self.own = own
        self.session = session
        self.options = options or Options()
        raise NotImplementedError

    # ------------------------------------------------------------ life of a replica

    def open(self, ends: Ints, *, histories: Sequence[Sequence[EpochStart]], applied: Ints) -> None:
        """Begin with own logs that end at `ends`, epochs as in `histories`, and a state applied up to `applied`; before all else."""
        raise NotImplementedError

    def learn(self, terms: Sequence[Term], *, now_ms: int) -> Commands:
        """Take segment records in: `Mark` for what is led now, `Resign` for what is not any more, streams to new owners, `Release`."""
        raise NotImplementedError

    def discarded(self, segments: Ints) -> None:
        """Note that log and state of segments were deleted (`Release`), or lost by a fault found while running."""
        raise NotImplementedError

    # ------------------------------------------------------------ as primary

    def mark(self, segments: Ints, ids: Ints, *, now_ms: int) -> Commands:
        """Register markers, the first ids of the epochs; segments rising. Those that were lost since `Mark` are passed over.

        `marked` tells which were registered: only their markers may be written.
        """
        raise NotImplementedError

    def append(self, segments: Ints, last_ids: Ints, *, counts: Ints | None = None, now_ms: int = 0) -> Commands:
        """Register a group as in flight and send it; segments rising, `counts` stored values each (None: one).

        Raises:
            NotPrimary: a segment is not led, or not adopted yet.
            NotEnoughReplicas: fewer replicas are in sync than the segment needs. Nothing of the group is registered either way.
        """
        raise NotImplementedError

    def written(self, segments: Ints, last_ids: Ints, *, now_ms: int = 0) -> Commands:
        """Note that the own log holds own appends up to `last_ids` on disk: `Committed`, `Lead`."""
        raise NotImplementedError

    def acknowledged(self, message: Message, *, now_ms: int) -> Commands:
        """Take a backup's answer: `Committed`, `Lead`, `Resign`, `Propose` (growth), `ReadLog`, `Send` (cuts), `OpenSnapshot`.

        Raises:
            BadMessage: it claims what cannot be. Nothing of it counts.
        """
        raise NotImplementedError

    def withdrawn(self, segment: int, *, revision: int, now_ms: int) -> Commands:
        """Note that the proposal that expected `revision` never was and never will be committed."""
        raise NotImplementedError

    def log_read(self, read: ReadLog, *, upto: int, count: int, nbytes: int, now_ms: int) -> Commands:
        """Send what was read: `count` values of `nbytes` bytes in `(read.after, upto]`. With upto == read.after there was nothing."""
        raise NotImplementedError

    def snapshot_opened(self, command: OpenSnapshot, *, pin: int, now_ms: int) -> Commands:
        """Go on with a snapshot that is pinned at id `pin`."""
        raise NotImplementedError

    def snapshot_read(self, command: ReadSnapshot, *, count: int, nbytes: int, is_last: bool, now_ms: int) -> Commands:
        """Send a part of `count` pieces and `nbytes` bytes."""
        raise NotImplementedError

    def trimmed(self, segments: Ints, ids: Ints) -> None:
        """Note that retention removed events up to `ids` (over all caches of the segment): the log does not reach back to them."""
        raise NotImplementedError

    # ------------------------------------------------------------ as backup

    def receive(self, message: Message, *, now_ms: int) -> Commands:
        """Take a primary's rows: `Write`, `Cut`, `Answer`, `Learned`, installs, `Resign` where it names a higher epoch.

        Raises:
            BadMessage: it claims what cannot be. Nothing of it counts.
        """
        raise NotImplementedError

    def stored(self, write: Write, *, now_ms: int = 0) -> Commands:
        """Note that a `Write` is on disk: `Answer`, `Learned`."""
        raise NotImplementedError

    def cut_done(self, cut: Cut, *, end: int) -> Commands:
        """Note that a `Cut` is on disk and the log ends with `end`: `Answer`."""
        raise NotImplementedError

    def installed(self, command: BeginInstall | InstallPart | EndInstall) -> Commands:
        """Note that a step of an install is on disk: `Answer`, at the end `Learned`."""
        raise NotImplementedError

    def promised(self, segments: Ints, *, epochs: Ints, last_ids: Ints) -> Commands:
        """Take the last committed ids that a promise of these epochs' primaries names as watermarks, where the logs match."""
        raise NotImplementedError

    # ------------------------------------------------------------ peers and time

    def connected(self, peer: Replica, *, now_ms: int) -> Commands:
        """Begin the streams to a peer; connected twice is a new connection."""
        raise NotImplementedError

    def lost(self, peer: Replica, *, now_ms: int) -> Commands:
        """End the streams to a peer."""
        raise NotImplementedError

    def tick(self, *, now_ms: int) -> Commands:
        """Do what is due: watermarks for who did not hear them, questions again, proposals against who lags."""
        raise NotImplementedError

    # ------------------------------------------------------------ views

    @property
    def marked(self) -> Ints:
        """Return the segments that the last `mark` registered."""
        raise NotImplementedError

    def history(self, segment: int) -> tuple[EpochStart, ...]:
        """Return the epochs of the own log, rising."""
        raise NotImplementedError

    def term(self, segment: int) -> Term | None:
        """Return the latest record known."""
        raise NotImplementedError

    def in_sync(self, segment: int) -> frozenset[Replica]:
        """Return whom the watermark waits for: the in-sync set, the proposed one included. Only at the primary."""
        raise NotImplementedError

    def waits_for(self, segment: int) -> tuple[Replica, ...]:
        """Return the replicas that keep the watermark below the end of the log; empty when nothing is in flight."""
        raise NotImplementedError
