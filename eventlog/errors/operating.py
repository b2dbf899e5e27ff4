"""What operators and members are told when the cluster will not do as they ask."""

from eventlog.errors.tree import Refused


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
    exit_code = 4  # of its own: whoever starts nodes again when they end has to leave this one alone
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
