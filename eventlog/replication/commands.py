"""What replication asks of its shell. A list of commands is carried out in its order; none of them is a call back."""

from dataclasses import dataclass

import numpy as np

from eventlog.arrays import Ints
from eventlog.replication.messages import Message
from eventlog.replication.terms import EpochStart, GivenUpRange, Replica


@dataclass(slots=True, kw_only=True, eq=False)
class Send:
    """Send APPEND rows to a backup. Messages to one peer keep their order as far as the network keeps it.

    Values go with the rows in their order: those of the group passed to `append` (`chosen` None: of all its segments, else only of
    the segments at these places of the group), those of the read passed to `log_read` or `snapshot_read`, or none for any other
    input. Backups whose `rows` are the same object get the same bytes.
    """

    to: Replica
    correlation: int
    rows: bytes
    chosen: Ints | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Acknowledge:
    """Send ACK rows back to a primary; `correlation` is that of the message answered."""

    to: Replica
    correlation: int
    rows: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Write:
    """Append values that a primary sent to the own log, with `history` in the same atomic write; call `stored` when it is on disk.

    `rows` are the places of the rows in the message whose values are taken (None: all of them); the others' are not. The arrays have
    one number for each row taken. The logs then end with `lasts`, of `end_epochs`.
    """

    to: Replica
    correlation: int
    segments: Ints
    lasts: Ints
    epochs: Ints
    end_epochs: Ints
    rows: Ints | None
    history: tuple[tuple[int, EpochStart], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Remove everything above `upto` from the own log, its epoch history included; durable before `cut_done` is called with it.

    `discard`: drop log, state and the mark of an install altogether: the state holds what goes (only after an operator gave it up), or
    the replica was never whole.
    """

    segment: int
    epoch: int
    upto: int
    discard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """This node is primary of `segments` under `epochs` now: raise the clock above their floors, give each a marker's id, call `mark`."""

    segments: tuple[int, ...]
    epochs: tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Lead:
    """The tails are adopted: replay the rest, then serve, promise and take writes for `segments`."""

    segments: Ints


@dataclass(slots=True, kw_only=True, eq=False)
class Resign:
    """This node leads `segments` no more: no answer but "unknown" for what is in flight there, no promise, no read as primary."""

    segments: Ints


@dataclass(slots=True, kw_only=True, eq=False)
class Committed:
    """The watermarks of `segments`, which this node leads, moved to `watermarks`: everything up to there is committed."""

    segments: Ints
    watermarks: Ints


@dataclass(slots=True, kw_only=True, eq=False)
class Learned:
    """The watermarks of `segments`, which this node backs up, moved to `watermarks`: the state and readers may follow."""

    segments: Ints
    watermarks: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Change the in-sync set of a segment by one commit that expects exactly `revision` of its record, and is never tried on another.

    In the new set are the present members without `gone`, and `joined`. Tell what became of it: `learn` with the record that was
    committed or found instead; `withdrawn` if it is certain that it never will be committed; nothing while it is unknown.
    """

    segment: int
    epoch: int
    revision: int
    in_sync: tuple[Replica, ...]
    gone: tuple[Replica, ...] = ()
    joined: Replica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Read values of the own log with ids above `after`, about `bytes_max` of them, then what is in flight; call `log_read`."""

    to: Replica
    segment: int
    epoch: int
    after: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSnapshot:
    """Pin log and state of a segment at one id at or below its watermark; call `snapshot_opened`."""

    to: Replica
    segment: int
    epoch: int
    transfer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSnapshot:
    """Read part `part` (from 0, in order) of an open snapshot, about `bytes_max`; call `snapshot_read`."""

    to: Replica
    segment: int
    transfer: int
    part: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSnapshot:
    """Let go of a pin; whatever is still read for it is of no use."""

    segment: int
    transfer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginInstall:
    """Drop log and state of a segment, leave a durable mark that it is not whole, and call `installed`.

    A node that finds the mark at its start opens the segment as empty and drops it again.
    """

    segment: int
    epoch: int
    transfer: int
    pin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPart:
    """Store a part of a snapshot, which came with this message; on disk, call `installed`."""

    segment: int
    epoch: int
    transfer: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndInstall:
    """Write the history, the log end `pin` of `end_epoch` and the applied mark, remove the mark of `BeginInstall`; call `installed`."""

    segment: int
    epoch: int
    transfer: int
    pin: int
    end_epoch: int
    history: tuple[EpochStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The latest records known name this node no more: read them anew, from the store itself, `learn` them, then call `rechecked`."""

    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Messages name terms that no record seen names: read the records from the store itself, `learn` them, then call `looked_up`."""

    segments: tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Keep:
    """Nothing of this message counts yet: keep it, with what came with it, until `Take`."""

    message: Message


@dataclass(slots=True, kw_only=True, eq=False)
class Take:
    """Pass a message that was kept to `receive` again; the records say by now whose its terms are."""

    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The records name this node neither as owner nor in sync any more: delete the segments' data, then call `discarded`."""

    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged:
    """A replica holds as committed what the primary lacks, and nobody gave it up: for the log and the operator, nothing is done."""

    segment: int
    replica: Replica
    end: int
    watermark: int
    lost: tuple[GivenUpRange, ...] = ()


Install = BeginInstall | InstallPart | EndInstall
Command = (
    Send
    | Acknowledge
    | Write
    | Cut
    | Mark
    | Lead
    | Resign
    | Committed
    | Learned
    | Propose
    | ReadLog
    | OpenSnapshot
    | ReadSnapshot
    | CloseSnapshot
    | BeginInstall
    | InstallPart
    | EndInstall
    | Recheck
    | LookUp
    | Keep
    | Take
    | Release
    | Diverged
)
Commands = list[Command]


def resigning_at_once(commands: Commands) -> Commands:
    """Return the same commands with one `Resign`, before all else: segments move by the hundred, and each end of terms costs a look."""
    ended = [command.segments for command in commands if isinstance(command, Resign)]
    if len(ended) < 2:
        return commands
    others = [command for command in commands if not isinstance(command, Resign)]
    return [Resign(segments=np.unique(np.concatenate(ended))), *others]
