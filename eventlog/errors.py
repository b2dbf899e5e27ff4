"""Every error of eventlog, as one tree.

    EventLogError
    |-- Misuse          our caller's mistake: fix the call
    |-- PeerViolation   bytes from a peer, a client or a disk that break the format
    |-- Unavailable     nobody's fault: says when to try again
    `-- Refused         understood and declined: limits, conditions, trimmed history

Each class has a stable `code`, the same in Python, on the wire, over HTTP and on the command line, and says whether the same
request can succeed later (`retry`). The facts of an error are its annotated attributes; `str(error)` is one sentence made from
them that ends with what to do next. A write error also carries `outcome`: `none` (never appended) or `unknown`.
"""

from typing import Any, ClassVar, Literal

Outcome = Literal["none", "unknown"]


class EventLogError(Exception):
    """The root. `facts` are passed by keyword and become attributes of the same name."""

    code: ClassVar[str] = "INTERNAL"
    retry: ClassVar[bool] = False
    sentence: ClassVar[str] = "{why}"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    fact_names: ClassVar[tuple[str, ...]] = ("why",)

    outcome: Outcome = "none"

    def __init__(self, *, outcome: Outcome = "none", **facts: Any) -> None:
        if set(facts) != set(self.fact_names):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.fact_names) or 'no facts'}; got {', '.join(facts) or 'none'}")
        super().__init__()
        self.outcome = outcome
        for name, value in facts.items():
            setattr(self, name, value)

    def __init_subclass__(cls) -> None:
        own = [name for name in cls.__annotations__ if name not in _NOT_FACTS] if "__annotations__" in cls.__dict__ else []
        if own:
            cls.fact_names = tuple(own)

    def __str__(self) -> str:
        text = self.sentence.format(**self.facts())
        return f"{text} (outcome unknown: it may have been written)" if self.outcome == "unknown" else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.outcome, self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the attributes that make up this error, by name."""
        return {name: getattr(self, name) for name in self.fact_names}


_NOT_FACTS = frozenset({"code", "retry", "sentence", "exit_code", "http_status", "fact_names", "outcome"})


def _rebuild(kind: type[EventLogError], outcome: Outcome, facts: dict[str, Any]) -> EventLogError:
    return kind(outcome=outcome, **facts)


# ---------------------------------------------------------------- the four branches


class Misuse(EventLogError):
    """Our caller passed something that can never work."""

    code = "MISUSE"
    http_status = 400
    why: str


class PeerViolation(EventLogError):
    """Bytes that break the format; whoever sent or stored them is to blame."""

    code = "PEER_VIOLATION"
    http_status = 400
    why: str


class Unavailable(EventLogError):
    """The same request may succeed later."""

    code = "UNAVAILABLE"
    retry = True
    exit_code = 3
    http_status = 503
    why: str


class Refused(EventLogError):
    """Understood and declined."""

    code = "REFUSED"
    http_status = 409
    why: str


# ---------------------------------------------------------------- Misuse


class InvalidArgument(Misuse):
    code = "INVALID_ARGUMENT"
    sentence = "{why}"
    why: str


class BadName(Misuse):
    code = "BAD_NAME"
    sentence = "{name!r} is not a cache name: use 1 to 200 of a-z 0-9 . _ - beginning with a letter or digit, not '__'"
    name: str


class BadConfig(Misuse):
    code = "BAD_CONFIG"
    exit_code = 2
    sentence = "{option}: {why}"
    option: str
    why: str


class ClientClosed(Misuse):
    code = "CLOSED"
    sentence = "the {what} is closed; open a new one"
    what: str


class BadRow(Misuse):
    code = "BAD_ROW"
    sentence = "{source} line {line}: {why}"
    source: str
    line: int
    why: str


# ---------------------------------------------------------------- PeerViolation


class BadFrame(PeerViolation):
    code = "BAD_FRAME"
    sentence = "frame refused: {why}; the connection is closed"
    why: str


class BadMessage(PeerViolation):
    code = "BAD_MESSAGE"
    sentence = "message refused: {why}"
    why: str


class BadBlock(PeerViolation):
    code = "BAD_BLOCK"
    sentence = "block {block} of segment {segment} refused: {why}; nothing of the frame was written"
    segment: int
    block: int
    why: str


class UnsupportedFormat(PeerViolation):
    code = "UNSUPPORTED_FORMAT"
    sentence = "{what} has format {found}, this version reads {known}; use the eventlog version that wrote it, or a newer one"
    what: str
    found: int
    known: str


class UnsupportedVersion(PeerViolation):
    code = "UNSUPPORTED_VERSION"
    sentence = "the peer speaks protocol {theirs}, this side {ours}; bring both to one version"
    theirs: str
    ours: str


class CorruptData(PeerViolation):
    """Stored bytes whose checksum or structure is wrong. Never served, never skipped."""

    code = "CORRUPT_DATA"
    http_status = 500
    sentence = "{where}: {why}; restore this node's data from a replica or a backup"
    where: str
    why: str


class LostDisk(PeerViolation):
    code = "LOST_DISK"
    http_status = 500
    sentence = "{where}: {why}; restore the data directory, or give its events up: remove both it and the metadata beside it"
    where: str
    why: str


class MetadataLost(PeerViolation):
    code = "METADATA_LOST"
    http_status = 500
    sentence = "metadata at {where}: {why}; put the file back, or rebuild it from the data directory"
    where: str
    why: str


# ---------------------------------------------------------------- Unavailable


class TimedOut(Unavailable):
    code = "TIMEOUT"
    http_status = 504
    sentence = "no answer to {what} within {timeout_ms} ms; try again"
    what: str
    timeout_ms: int


class ConnectionLost(Unavailable):
    code = "CONNECTION_LOST"
    sentence = "connection to {address} lost: {why}; try again when the node is up"
    address: str
    why: str


class NotPrimary(Unavailable):
    code = "NOT_PRIMARY"
    sentence = "segment {segment} has its primary elsewhere or is being taken over; ask for the topology and try again"
    segment: int


class NotEnoughReplicas(Unavailable):
    code = "NOT_ENOUGH_REPLICAS"
    sentence = "segment {segment} has {have} in-sync replicas, needs {need}; try again when more nodes are up"
    segment: int
    have: int
    need: int


class MetadataUnavailable(Unavailable):
    code = "METADATA_UNAVAILABLE"
    sentence = "the metadata store does not answer ({why}); writes go on when it is back"
    why: str


class MetadataConflict(Unavailable):
    code = "METADATA_CONFLICT"
    sentence = "metadata key {key} was changed by somebody else; read it again and retry"
    key: str


class ClockAhead(Unavailable):
    code = "CLOCK_AHEAD"
    sentence = "ids run {ahead_ms} ms ahead of the clock; try again in a moment"
    ahead_ms: int


class Overloaded(Unavailable):
    code = "OVERLOADED"
    http_status = 429
    sentence = "{what} is at its limit of {limit}; slow down and try again"
    what: str
    limit: int


class Stopping(Unavailable):
    code = "STOPPING"
    sentence = "the node is stopping; try again when it is back"


Stopping.fact_names = ()


class DiskFull(Unavailable):
    code = "DISK_FULL"
    http_status = 507
    sentence = "{free_bytes} bytes free on the data disk, {reserve_bytes} are kept in reserve; free space, writes resume by themselves"
    free_bytes: int
    reserve_bytes: int


class StoreFenced(Unavailable):
    code = "STORE_FENCED"
    sentence = "a sync of the log failed ({why}); this process acknowledges nothing any more: check the disk, then restart the node"
    why: str


class OutcomeUnknown(Unavailable):
    code = "OUTCOME_UNKNOWN"
    sentence = "the write was sent but not answered ({why}); read the key, or retry with the same producer"
    why: str


class PartlyWritten(Unavailable):
    """Of a call that writes many: indexes of the items that were written, that were not, and that nobody knows about."""

    code = "PARTLY_WRITTEN"
    sentence = "some of the items were written and some were not ({why}); .ok, .none and .unknown say which: write those of .none again"
    why: str
    ok: list[int]
    none: list[int]
    unknown: list[int]


# ---------------------------------------------------------------- Refused


class CacheNotFound(Refused):
    code = "CACHE_NOT_FOUND"
    http_status = 404
    sentence = "there is no cache {cache!r}; create it with: eventlog cache create {cache}"
    cache: str


class CacheExists(Refused):
    code = "CACHE_EXISTS"
    sentence = "cache {cache!r} exists already; use it, or drop it first"
    cache: str


class CacheDropped(Refused):
    code = "CACHE_DROPPED"
    http_status = 410
    sentence = "cache {cache!r} was dropped; its events are gone"
    cache: str


class CacheRecreated(Refused):
    code = "CACHE_RECREATED"
    http_status = 410
    sentence = "cache {cache!r} was dropped and created again; the position belongs to the old one: begin at earliest"
    cache: str


class Unalterable(Refused):
    code = "UNALTERABLE"
    sentence = "{option} of a cache is fixed at creation; create another cache"
    option: str


class BadValue(Refused):
    code = "BAD_VALUE"
    http_status = 400
    sentence = "value of key {key!r}: {why}"
    key: str
    why: str


class TooLarge(Refused):
    code = "TOO_LARGE"
    http_status = 413
    sentence = "{what} has {size} bytes, the limit is {limit}; make it smaller or raise the limit"
    what: str
    size: int
    limit: int


class KeyExists(Refused):
    code = "KEY_EXISTS"
    sentence = "key {key!r} exists with version {version}"
    key: str
    version: int


class VersionMismatch(Refused):
    code = "VERSION_MISMATCH"
    sentence = "key {key!r} has version {found} (0: none), not {expected}; read it again and decide"
    key: str
    expected: int
    found: int


class NoState(Refused):
    code = "NO_STATE"
    sentence = "cache {cache!r} keeps no state; read its events instead"
    cache: str


class NoEvents(Refused):
    code = "NO_EVENTS"
    sentence = "cache {cache!r} keeps no events; create it without --no-events to read them"
    cache: str


class EventsTrimmed(Refused):
    """`lost` is exact for a segment position, an upper bound for a scalar one."""

    code = "EVENTS_TRIMMED"
    http_status = 410
    sentence = "retention removed {lost} events after this position; the first id kept is {first_id}: go on from earliest"
    first_id: int
    lost: int


class PositionDiverged(Refused):
    code = "POSITION_DIVERGED"
    sentence = "segment {segment} lost its events after id {after} up to {upto} when its primary was forced; go on with accept_diverged"
    segment: int
    after: int
    upto: int


class PositionMismatch(Refused):
    code = "POSITION_MISMATCH"
    http_status = 400
    sentence = "the position belongs to another {what}; begin at earliest"
    what: str


class SequenceGap(Refused):
    code = "SEQUENCE_GAP"
    sentence = "producer {producer}, segment {segment}: sequence {found} does not follow {last}; resend from the oldest unanswered block"
    producer: int
    segment: int
    found: int
    last: int


class ProducerUnknown(Refused):
    code = "PRODUCER_UNKNOWN"
    sentence = "producer {producer} is not known in segment {segment} (forgotten after 24 hours, or its cache was trimmed away); begin anew"
    producer: int
    segment: int


class ClockSkew(Refused):
    code = "CLOCK_SKEW"
    http_status = 400
    sentence = "id {id} is {ahead_ms} ms ahead of this cluster's clock; it was not made here"
    id: int
    ahead_ms: int


class WrongCluster(Refused):
    code = "WRONG_CLUSTER"
    sentence = "{where} belongs to cluster {theirs}, not {ours}; point to the right directory or cluster"
    where: str
    theirs: str
    ours: str


class MetastoreLocal(Refused):
    code = "METASTORE_LOCAL"
    sentence = (
        "cluster {cluster} has its metadata in a file of its host, {where}, which other hosts cannot use; to move it, stop all nodes, run "
        "'eventlog admin metastore copy --from {where} --to etcd://HOST:PORT', and start them with --meta etcd://HOST:PORT"
    )
    cluster: str
    where: str


class DirectoryInUse(Refused):
    code = "DIRECTORY_IN_USE"
    exit_code = 2
    sentence = "data directory {path} is used by another node process; stop it, or give --data another directory"
    path: str


class Insecure(Refused):
    code = "INSECURE"
    exit_code = 2
    sentence = "{address} is reachable from other hosts, and neither TLS nor users are configured; listen on loopback, or pass --insecure"
    address: str


class MemberReplaced(Refused):
    code = "MEMBER_REPLACED"
    sentence = "node {number} ({name}) was removed, or started again on another data directory; give this one another --node-name to add it"
    number: int
    name: str


class OperationRefused(Refused):
    """An operator asked for what would lose data, or makes no sense as the cluster is."""

    code = "OPERATION_REFUSED"
    sentence = "{what} is refused: {why}"
    what: str
    why: str


class NodeNumbersExhausted(Refused):
    code = "NODE_NUMBERS_EXHAUSTED"
    sentence = "all {limit} node numbers are taken; remove a node first"
    limit: int


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
    known: Outcome = "unknown" if outcome == "unknown" else "none"
    if kind is None or set(facts) != set(kind.fact_names):
        return EventLogError(outcome=known, why=f"{code}: {facts.get('why', facts)}")
    return kind(outcome=known, **facts)
