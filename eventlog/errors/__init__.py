"""Every error of eventlog, as one tree.

    EventLogError
    |-- Misuse          our caller's mistake: fix the call
    |-- PeerViolation   bytes from a peer, a client or a disk that break the format
    |-- Unavailable     nobody's fault: says when to try again
    `-- Refused         understood and declined: limits, conditions, trimmed history

Each class has a stable `code`, the same in Python, on the wire, over HTTP and on the command line, and says whether the same
request can succeed later (`retry`). The facts of an error are its annotated attributes; `str(error)` is one sentence made from
them that ends with what to do next. A write error also carries `outcome`: `none` (never appended), `unknown`, or `committed` (what
failed is what was to come after the write).

The branches are in `tree`; the leaves are in one module a field.
"""

from typing import Any

from eventlog.errors.consuming import (
    EventsTrimmed,
    Fenced,
    GroupNotEmpty,
    GroupNotFound,
    IterationExpired,
    ListenerExists,
    ListenerNotFound,
    ListenerTimeout,
    NotFinal,
    PositionDiverged,
    PositionMismatch,
    StaleMember,
    TaskFailed,
    TaskNotFound,
)
from eventlog.errors.filtering import BadFilterParameters, BadPredicate, FilterNotFound
from eventlog.errors.misuse import BadConfig, BadName, BadRow, ClientClosed, InvalidArgument
from eventlog.errors.operating import (
    DirectoryInUse,
    Insecure,
    JoinRefused,
    MemberReplaced,
    MetastoreLocal,
    NodeNumbersExhausted,
    NotMember,
    OperationRefused,
    WrongCluster,
)
from eventlog.errors.refused import (
    BadValue,
    CacheDiffers,
    CacheDropped,
    CacheExists,
    CacheNotFound,
    CacheRecreated,
    ClockSkew,
    KeyExists,
    NoEvents,
    NoState,
    ProducerUnknown,
    SequenceGap,
    TooLarge,
    Unalterable,
    VersionMismatch,
)
from eventlog.errors.tree import UNEXPECTED, EventLogError, Misuse, Outcome, PeerViolation, Refused, Unavailable, tellable
from eventlog.errors.unavailable import (
    ClockAhead,
    ConnectionLost,
    DiskFull,
    MetadataConflict,
    MetadataUnavailable,
    NobodyListens,
    NotEnoughReplicas,
    NotPrimary,
    OutcomeUnknown,
    Overloaded,
    PartlyWritten,
    PrimariesMissing,
    Stopping,
    StoreFenced,
    TimedOut,
    UnknownHost,
)
from eventlog.errors.violations import (
    BadBlock,
    BadFrame,
    BadMessage,
    CorruptData,
    LostDisk,
    MetadataLost,
    MetadataMoved,
    UnreadableValue,
    UnsupportedFormat,
    UnsupportedVersion,
)


def walk(kind: type[EventLogError] = EventLogError) -> list[type[EventLogError]]:
    """Return the tree below and including `kind`, parents first."""
    found = [kind]
    for child in kind.__subclasses__():
        found += walk(child)
    return found


def by_code() -> dict[str, type[EventLogError]]:
    """Return the one table from code to class; the same codes stand on the wire."""
    return {kind.code: kind for kind in walk()}


def from_wire(code: str, outcome: str, facts: dict[str, Any]) -> EventLogError:
    """Return the error that a peer described; an unknown code or odd facts become `Unavailable` or its root with the text kept."""
    kind = by_code().get(code)
    known: Outcome = "unknown" if outcome == "unknown" else "committed" if outcome == "committed" else "none"
    if kind is None or not kind.are_facts(facts):
        return EventLogError(outcome=known, why=f"{code}: {facts.get('why', facts)}")
    return kind(outcome=known, **facts)


__all__ = [
    "UNEXPECTED",
    "BadBlock",
    "BadConfig",
    "BadFilterParameters",
    "BadFrame",
    "BadMessage",
    "BadName",
    "BadPredicate",
    "BadRow",
    "BadValue",
    "CacheDiffers",
    "CacheDropped",
    "CacheExists",
    "CacheNotFound",
    "CacheRecreated",
    "ClientClosed",
    "ClockAhead",
    "ClockSkew",
    "ConnectionLost",
    "CorruptData",
    "DirectoryInUse",
    "DiskFull",
    "EventLogError",
    "EventsTrimmed",
    "Fenced",
    "FilterNotFound",
    "GroupNotEmpty",
    "GroupNotFound",
    "Insecure",
    "InvalidArgument",
    "IterationExpired",
    "JoinRefused",
    "KeyExists",
    "ListenerExists",
    "ListenerNotFound",
    "ListenerTimeout",
    "LostDisk",
    "MemberReplaced",
    "MetadataConflict",
    "MetadataLost",
    "MetadataMoved",
    "MetadataUnavailable",
    "MetastoreLocal",
    "Misuse",
    "NoEvents",
    "NoState",
    "NobodyListens",
    "NodeNumbersExhausted",
    "NotEnoughReplicas",
    "NotFinal",
    "NotMember",
    "NotPrimary",
    "OperationRefused",
    "Outcome",
    "OutcomeUnknown",
    "Overloaded",
    "PartlyWritten",
    "PeerViolation",
    "PositionDiverged",
    "PositionMismatch",
    "PrimariesMissing",
    "ProducerUnknown",
    "Refused",
    "SequenceGap",
    "StaleMember",
    "Stopping",
    "StoreFenced",
    "TaskFailed",
    "TaskNotFound",
    "TimedOut",
    "TooLarge",
    "Unalterable",
    "Unavailable",
    "UnknownHost",
    "UnreadableValue",
    "UnsupportedFormat",
    "UnsupportedVersion",
    "VersionMismatch",
    "WrongCluster",
    "by_code",
    "from_wire",
    "tellable",
    "walk",
]
