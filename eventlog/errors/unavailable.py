"""What may work later; nobody is to blame."""

from eventlog.errors.tree import Unavailable


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
    sentence = "segment {segment} has its primary elsewhere, or none for now; try again, or see eventlog admin status"
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
