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
The root, its branches and the table of codes are in `tree`, the errors that single features have in `features`; the other leaves are
here, branch by branch.
"""

from collections.abc import Sequence

from eventlog.errors.features import *  # noqa: F403 -- all of them, under the names by which they are caught
from eventlog.errors.tree import UNEXPECTED as UNEXPECTED
from eventlog.errors.tree import EventLogError as EventLogError
from eventlog.errors.tree import Misuse as Misuse
from eventlog.errors.tree import Outcome as Outcome
from eventlog.errors.tree import PeerViolation as PeerViolation
from eventlog.errors.tree import Refused as Refused
from eventlog.errors.tree import Unavailable as Unavailable
from eventlog.errors.tree import by_code as by_code
from eventlog.errors.tree import foreign as foreign
from eventlog.errors.tree import from_wire as from_wire
from eventlog.errors.tree import tellable as tellable
from eventlog.errors.tree import walk as walk

_NAMED_MAX = 5


# Misuse: our caller's mistake; fix the call.
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


class BadPredicate(Misuse):
    """`column` counts characters from 1, over all lines; `suggestion` is empty, or what may have been meant."""

    code = "BAD_PREDICATE"
    sentence = "predicate refused: {why}, at column {column}"
    column: int
    why: str
    suggestion: str

    def __str__(self) -> str:
        return f"{super().__str__()}; did you mean {self.suggestion}?" if self.suggestion else super().__str__()


class BadFilterParameters(Misuse):
    """`parameter` is empty where all of them together are wrong."""

    code = "BAD_FILTER_PARAMETERS"
    sentence = "filter {filter}: parameter {parameter!r} {why}"
    filter: str
    parameter: str
    why: str


# Peer violations: bytes of a peer, a client or a disk that break the format.
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


class UnreadableValue(PeerViolation):
    code = "UNREADABLE_VALUE"
    sentence = "a value was not written with its cache's Avro schema: {why}; its bytes are in value_bytes, remove it or put another"
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


class MetadataMoved(PeerViolation):
    code = "METADATA_MOVED"
    http_status = 500
    sentence = "the metadata at {where} were moved to {to}; start every node with --meta {to}"
    where: str
    to: str


# Unavailable: nobody is to blame, and it may work later.
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
        return self.sentence.format(named=f"segment{'s' * (len(self.segments) > 1)} {named}{more}", **self.facts())


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
    fact_names = ()


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
    sentence = "the change was sent but not answered ({why}); see whether it is there, or retry a write with the same producer"
    why: str


class PartlyWritten(Unavailable):
    """Of a call that writes many: indexes of the items that were written, that were not, and that nobody knows about."""

    code = "PARTLY_WRITTEN"
    sentence = "some of the items were written and some were not ({why}); .ok, .none and .unknown say which: write those of .none again"
    why: str
    ok: list[int]
    none: list[int]
    unknown: list[int]


class NotFinal(Unavailable):
    """What was at `at` is asked for, and events at or below it may still come; none will at or below `upto`."""

    code = "NOT_FINAL"
    sentence = "id {at} lies ahead of id {upto}, up to which nothing can come any more in segment {segment}: ask again when it has passed"
    segment: int
    at: int
    upto: int


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


class IterationExpired(Unavailable):
    """Nobody asked for it for a minute, the node restarted, or it was never begun there. Nothing is lost: places are the client's."""

    code = "ITERATION_EXPIRED"
    http_status = 410
    sentence = "this node has no iteration {iteration}: begin another one where this one was left"
    iteration: str


# Refused: understood and declined.
class CacheNotFound(Refused):
    code = "CACHE_NOT_FOUND"
    http_status = 404
    sentence = "there is no cache {cache!r}; create it with: eventlog cache create {cache}"
    cache: str


class CacheExists(Refused):
    code = "CACHE_EXISTS"
    sentence = "cache {cache!r} exists already; use it, or drop it first"
    cache: str


class CacheDiffers(Refused):
    code = "CACHE_DIFFERS"
    sentence = "cache {cache!r} exists with {option} {found}, not {wanted}; leave {option} out to use it as it is, or choose another name"
    cache: str
    option: str
    found: str
    wanted: str


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


class TooLarge(Refused):
    code = "TOO_LARGE"
    http_status = 413
    sentence = "{what} has {size} bytes, the limit is {limit}; make it smaller"
    what: str
    size: int
    limit: int

    def __str__(self) -> str:
        return super().__str__() + (", or start the nodes with a larger --value-max" if self.what.startswith("a value") else "")


class KeyExists(Refused):
    code = "KEY_EXISTS"
    http_status = 412
    sentence = "key {key!r} exists with version {version}"
    key: str
    version: int


class VersionMismatch(Refused):
    """`expected` is -1 where any entry would have done, and there is none."""

    code = "VERSION_MISMATCH"
    http_status = 412
    sentence = "key {key!r} has version {found} (0: none), not {expected}; read it again and decide"
    key: str
    expected: int
    found: int

    def __str__(self) -> str:
        return super().__str__() if self.expected >= 0 else f"key {self.key!r} has no entry to replace; put one"


class NoState(Refused):
    code = "NO_STATE"
    sentence = "cache {cache!r} keeps no state; read its events instead"
    cache: str


class NoEvents(Refused):
    code = "NO_EVENTS"
    sentence = "cache {cache!r} keeps no events; to keep those to come: eventlog cache alter {cache} --events"
    cache: str


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


class NotMember(Refused):
    """A connection that has not proved to be a member's asked for what only members may have, or failed to prove it."""

    code = "NOT_MEMBER"
    http_status = 403
    sentence = "{what} is for members of the cluster alone, and {why}; a node becomes one by: eventlog serve --join HOST:PORT"
    what: str
    why: str


class JoinRefused(Refused):
    code = "JOIN_REFUSED"
    http_status = 403
    sentence = (
        "the node at {where} does not tell this process where the metadata are: it is of another host or another user; name them with "
        "--meta, or start both with a --join-token-file of the same content"
    )
    where: str


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
    exit_code = 4  # of its own: a supervisor that starts nodes again when they end has to leave this one alone
    sentence = "node {number} ({name}) was removed, or started again on another data directory; empty this one to join as a new member"
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


class EventsTrimmed(Refused):
    """`first_id` is 0 where nothing is kept.

    `lost` is what the copies that were asked have removed so far: exact for a segment position, an estimate for a scalar one.
    `archive` is where the cache's archive is, if one is noted with it.
    """

    code = "EVENTS_TRIMMED"
    http_status = 410
    sentence = "retention removed about {lost} events after this position; the first id kept is {first_id}: go on from earliest"
    first_id: int
    lost: int
    archive: str = ""

    def __str__(self) -> str:
        what, beside = f"retention removed about {self.lost} events after this position", ""
        if self.archive:
            beside = f", or read over the archive at {self.archive} as well"
        if self.first_id:
            return f"{what}; the first id kept is {self.first_id}: go on from earliest{beside}"
        return f"{what}, and nothing after it is kept: go on from earliest{beside}"


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


class FilterNotFound(Refused):
    """`version` is 0 where the newest was asked for; `installed` says which filters this node has."""

    code = "FILTER_NOT_FOUND"
    http_status = 404
    sentence = "filter {wanted!r} is not installed; there is {installed}"
    filter: str
    version: int
    installed: str

    def __str__(self) -> str:
        return self.sentence.format(wanted=f"{self.filter}@{self.version}" if self.version else self.filter, installed=self.installed)


for _kind in walk():
    _kind.__module__ = __name__  # the name under which a traceback shows it is the one to catch it by
