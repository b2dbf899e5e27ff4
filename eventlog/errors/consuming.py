"""What readers are told when their place in the log is gone, or is not of this log."""

from eventlog.errors.tree import Refused, Unavailable


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


class ListenerNotFound(Refused):
    """Removed, expired because nobody used it, or never registered in this cluster."""

    code = "LISTENER_NOT_FOUND"
    http_status = 404
    sentence = "there is no listener {listener!r} (removed, or expired unused); register it again and go on from the last position"
    listener: str


class ListenerTimeout(Unavailable):
    """The write is committed and stays: only the acknowledgement did not come. `ids` are those of its events."""

    code = "LISTENER_TIMEOUT"
    http_status = 504
    retry = False
    sentence = "the events are written, but {missing} did not acknowledge them within {timeout_ms} ms; do not write them again"
    missing: list[str]
    ids: list[int]
    timeout_ms: int
