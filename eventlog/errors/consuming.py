"""What readers are told when their place in the log is gone, or is not of this log."""

from eventlog.errors.tree import Refused, Unavailable


class EventsTrimmed(Refused):
    """`first_id` is 0 where nothing is kept.

    `lost` is what the copies that were asked have removed so far: exact for a segment position, an estimate for a scalar one.
    """

    code = "EVENTS_TRIMMED"
    http_status = 410
    sentence = "retention removed about {lost} events after this position; the first id kept is {first_id}: go on from earliest"
    first_id: int
    lost: int

    def __str__(self) -> str:
        if self.first_id:
            return super().__str__()
        return f"retention removed about {self.lost} events after this position, and nothing after it is kept: go on from earliest"


class NotFinal(Unavailable):
    """What was at `at` is asked for, and events at or below it may still come; none will at or below `upto`."""

    code = "NOT_FINAL"
    sentence = "id {at} lies ahead of id {upto}, up to which nothing can come any more in segment {segment}: ask again when it has passed"
    segment: int
    at: int
    upto: int


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


class ListenerExists(Refused):
    code = "LISTENER_EXISTS"
    sentence = "listener {listener!r} exists and was registered with other words; alter it, or choose another name"
    listener: str


class ListenerTimeout(Unavailable):
    """The write is committed, which is its outcome, and stays: only the acknowledgement did not come. `ids` are those of its events.

    `gone` are those of the missing that were removed before they had acknowledged it, so that nobody waits for them any more.
    """

    code = "LISTENER_TIMEOUT"
    http_status = 504
    retry = False
    sentence = "the events are written, but {missing} did not acknowledge them within {timeout_ms} ms; do not write them again"
    missing: list[str]
    gone: list[str]
    ids: list[int]
    timeout_ms: int

    def __str__(self) -> str:
        if not self.gone:
            return super().__str__()
        return f"the events are written, but {self.gone} were removed before they had acknowledged them; do not write them again"


class GroupNotFound(Refused):
    code = "GROUP_NOT_FOUND"
    http_status = 404
    sentence = "there is no group {group!r}; `eventlog group list` shows those that there are"
    group: str


class GroupNotEmpty(Refused):
    code = "GROUP_NOT_EMPTY"
    sentence = "group {group!r} has {members} live members: stop them first, or wait until their sessions have ended"
    group: str
    members: int


class StaleMember(Refused):
    """The session ended, or what was to be committed is another member's by now. It may have been read by that one already."""

    code = "STALE_MEMBER"
    sentence = "member {member} of group {group!r} is out of date: {why}; events since its last commit are delivered again"
    group: str
    member: str
    why: str


class Fenced(Refused):
    """Final: joining again would fence the other one."""

    code = "FENCED"
    sentence = "another consumer joined group {group!r} as {instance!r}; give each process an instance id of its own"
    group: str
    instance: str


class IterationExpired(Unavailable):
    """Nobody asked for it for a minute, the node restarted, or it was never begun there. Nothing is lost: places are the client's."""

    code = "ITERATION_EXPIRED"
    http_status = 410
    sentence = "this node has no iteration {iteration}: begin another one where this one was left"
    iteration: str


class TaskNotFound(Refused):
    code = "TASK_NOT_FOUND"
    http_status = 404
    sentence = "there is no task {task!r} on this node; installed are {installed}"
    task: str
    installed: str


class TaskFailed(Refused):
    """What was done before it failed stays; entries of the batch that it failed in may have been worked on."""

    code = "TASK_FAILED"
    http_status = 500
    sentence = "task {task!r} failed in segment {segment}: {why}"
    task: str
    segment: int
    why: str
