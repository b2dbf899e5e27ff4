"""Bytes of a peer, a client or a disk that break the format."""

from eventlog.errors.tree import PeerViolation


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
