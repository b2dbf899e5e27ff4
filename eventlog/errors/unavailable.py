"""What may work later; nobody is to blame."""

from collections.abc import Sequence

from eventlog.errors.tree import Unavailable

_NAMED_MAX = 5


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


class NobodyListens(ConnectionLost):
    code = "NOBODY_LISTENS"
    sentence = (
        "nothing listens at {address} ({why}); start a node there with: eventlog serve, or name another address (--server, EVENTLOG_SERVER)"
    )


class UnknownHost(ConnectionLost):
    code = "UNKNOWN_HOST"
    sentence = "the host name of {address} is not known ({why}); check the address (--server, EVENTLOG_SERVER), or the name service"


class NotPrimary(Unavailable):
    code = "NOT_PRIMARY"
    sentence = "segment {segment} has its primary elsewhere, or none for now; try again, or see eventlog admin status"
    segment: int
    copy_upto: int = 0  # of a read that failed: the id up to which a copy is complete that `consistency="any"` is answered from

    def __str__(self) -> str:
        if not self.copy_upto:
            return super().__str__()
        return f"{super().__str__()}; consistency='any' would answer from a copy that has everything up to id {self.copy_upto}"


class PrimariesMissing(Unavailable):
    """Of a question to all primaries: the segments that none answered for, each at least once asked."""

    code = "PRIMARIES_MISSING"
    sentence = "no primary answered for {named} within {timeout_ms} ms ({why}); try again, or see eventlog admin status"
    segments: list[int]
    timeout_ms: int
    why: str

    def __str__(self) -> str:
        named = ", ".join(map(str, self.segments[:_NAMED_MAX]))
        more = f" and {len(self.segments) - _NAMED_MAX} more" if len(self.segments) > _NAMED_MAX else ""
        word = "segment" if len(self.segments) == 1 else "segments"
        return self.sentence.format(named=f"{word} {named}{more}", **self.facts())


class NotEnoughReplicas(Unavailable):
    code = "NOT_ENOUGH_REPLICAS"
    sentence = "segment {segment} has {have} in-sync replicas, needs {need}; try again when more nodes are up"
    segment: int
    have: int
    need: int
    missing: Sequence[str] = ()  # names of the nodes whose copies a write waits for

    def __str__(self) -> str:
        return f"{super().__str__()}; not there: {', '.join(self.missing)}" if self.missing else super().__str__()


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
    sentence = "{what} is at its limit of {limit}; ask for less at once, or try again later"
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
