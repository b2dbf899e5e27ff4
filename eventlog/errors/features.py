"""Errors that single features have: archives and rollups, mirrors in Kafka, numbered writes, values that are not taken, and HTTP."""

from eventlog.errors.tree import Misuse, PeerViolation, Refused, Unavailable

__all__ = [
    "ArchiveDamaged",
    "ArchiveRefused",
    "ArchiveTaken",
    "ArchiveUnreachable",
    "BadValue",
    "BodyTooSlow",
    "ForeignPage",
    "KafkaFailed",
    "MethodNotAllowed",
    "MirrorExists",
    "MirrorNotFound",
    "MirrorRuns",
    "MirrorTaken",
    "NoConnection",
    "NoEntry",
    "NoSuchRoute",
    "OutboundRefused",
    "ProducerUnknown",
    "RegistryFailed",
    "RollupRefused",
    "RollupTaken",
    "SchemaBehind",
    "SchemaRefused",
    "SequenceGap",
    "StageExpired",
    "StageLost",
    "UnfitValue",
    "UnsupportedBody",
]


# Archives and rollups: tables in files, of a cache's events and of what they come to.
class ArchiveRefused(Refused):
    code = "ARCHIVE_REFUSED"
    sentence = "archive {path}: {why}"
    path: str
    why: str


class ArchiveTaken(Refused):
    code = "ARCHIVE_TAKEN"
    sentence = "archive {path} has been written up to id {upto} by {writer} meanwhile; what this one read of it was left out"
    path: str
    upto: int
    writer: str


class ArchiveUnreachable(Unavailable):
    """The object store that an archive lies in does not answer, or refuses."""

    code = "ARCHIVE_UNREACHABLE"
    sentence = "archive {path} is not reached: {why}"
    path: str
    why: str


class RollupRefused(Refused):
    code = "ROLLUP_REFUSED"
    sentence = "rollup {path}: {why}"
    path: str
    why: str


class RollupTaken(Refused):
    code = "ROLLUP_TAKEN"
    sentence = "rollup {path} has been written up to id {upto} by somebody else meanwhile; what this one made of it was left out"
    path: str
    upto: int


class ArchiveDamaged(PeerViolation):
    """A file that is not as it was written. Nothing of it is served."""

    code = "ARCHIVE_DAMAGED"
    http_status = 500
    sentence = "archive file {file}: {why}; put it back from a copy"
    file: str
    why: str


# Mirrors in Kafka, and what a node may reach beyond its cluster.
class MirrorNotFound(Refused):
    code = "MIRROR_NOT_FOUND"
    http_status = 404
    sentence = "there is no mirror {mirror!r}; eventlog mirror list shows them"
    mirror: str


class MirrorExists(Refused):
    code = "MIRROR_EXISTS"
    http_status = 409
    sentence = "mirror {mirror!r} writes into topic {topic!r}; give another --name and --topic, or remove it first"
    mirror: str
    topic: str


class MirrorRuns(Refused):
    code = "MIRROR_RUNS"
    http_status = 409
    sentence = "mirror {mirror!r} is not paused; first: eventlog mirror pause {mirror}"
    mirror: str


class MirrorTaken(Refused):
    code = "MIRROR_TAKEN"
    http_status = 409
    sentence = "topic {topic!r} has the progress of mirror {mirror!r} of cluster {cluster}; give another --name or --prefix"
    topic: str
    mirror: str
    cluster: str


class SchemaRefused(Refused):
    code = "SCHEMA_REFUSED"
    http_status = 409
    sentence = "the registry refuses subject {subject!r}: {why}"
    subject: str
    why: str


class NoConnection(Refused):
    code = "NO_CONNECTION"
    http_status = 409
    sentence = "node {node} {why}"
    node: str
    why: str


class OutboundRefused(Refused):
    code = "OUTBOUND_REFUSED"
    http_status = 403
    sentence = "node {node} may not connect to {address}; its setting allow_outbound names {allowed}"
    node: str
    address: str
    allowed: str


class KafkaFailed(Unavailable):
    code = "KAFKA_FAILED"
    http_status = 502
    sentence = "Kafka at {kafka}: {why}"
    kafka: str
    why: str


class RegistryFailed(Unavailable):
    code = "REGISTRY_FAILED"
    http_status = 502
    sentence = "the registry {registry}: {why}"
    registry: str
    why: str


# Writes that are numbered, so that each is written once: those of producers and of transactions.
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


class StageLost(Refused):
    code = "STAGE_LOST"
    sentence = (
        "segment {segment} has not all that attempt {attempt} laid ready; of its batch, some may be written: publish it by another name"
    )
    segment: int
    attempt: str


class StageExpired(Refused):
    code = "STAGE_EXPIRED"
    sentence = "what attempt {attempt} laid ready is about to be removed; make the batch anew, and have it kept for longer"
    attempt: str


# Values that are not taken, or not told on, for what they hold.
class BadValue(Refused):
    code = "BAD_VALUE"
    http_status = 400
    sentence = "value of key {key!r}: {why}"
    key: str
    why: str


class UnfitValue(Refused):
    """`field` is where in the value, as in `value.a[3]`; of the value before a change, `before.a[3]`."""

    code = "UNFIT_VALUE"
    sentence = "event at offset {offset} of segment {segment}, key {key!r}: {field} is {why}; give a schema that takes it, or leave it out"
    segment: int
    offset: int
    key: str
    field: str
    why: str


class SchemaBehind(Unavailable):
    """Told again once the node has heard of the schema, which takes a second."""

    code = "SCHEMA_BEHIND"
    sentence = (
        "event at offset {offset} of segment {segment}, key {key!r}: the value goes on behind the Avro schema that this node knows; "
        "it knows a newer one within a second, else the value is of another schema"
    )
    segment: int
    offset: int
    key: str


# HTTP: what is wrong with a request before anybody looks at what it asks, and a path that names nothing.
class NoSuchRoute(Misuse):
    code = "NO_SUCH_ROUTE"
    http_status = 404
    sentence = "there is nothing at {path}; docs/http.md lists what there is"
    path: str


class MethodNotAllowed(Misuse):
    code = "METHOD_NOT_ALLOWED"
    http_status = 405
    sentence = "{method} is not for {path}; use {allowed}"
    method: str
    path: str
    allowed: str


class UnsupportedBody(Misuse):
    code = "UNSUPPORTED_BODY"
    http_status = 415
    sentence = "a body with {found} is not taken; {instead}"
    found: str
    instead: str


class BodyTooSlow(Misuse):
    code = "BODY_TOO_SLOW"
    http_status = 408
    sentence = "the rest of the request's body did not arrive within {timeout_ms} ms; nothing of that was done"
    timeout_ms: int


class NoEntry(Refused):
    code = "NO_ENTRY"
    http_status = 404
    sentence = "key {key!r} has no entry in cache {cache!r}"
    key: str
    cache: str


class ForeignPage(Refused):
    """Pages of other origins may make a browser send requests: none of these changes anything here."""

    code = "FOREIGN_PAGE"
    http_status = 403
    sentence = "a page of {origin} may not write to {host}; let its own server ask"
    origin: str
    host: str
