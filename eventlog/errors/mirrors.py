"""Errors of mirrors in Kafka, and of what a node may reach beyond its cluster."""

from eventlog.errors.tree import Refused, Unavailable

__all__ = [
    "KafkaFailed",
    "MirrorExists",
    "MirrorNotFound",
    "MirrorRuns",
    "MirrorTaken",
    "NoConnection",
    "OutboundRefused",
    "RegistryFailed",
    "SchemaRefused",
]


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
