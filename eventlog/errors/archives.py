"""Errors of archives and rollups: tables in files, of a cache's events and of what they come to."""

from eventlog.errors.tree import PeerViolation, Refused, Unavailable

__all__ = ["ArchiveDamaged", "ArchiveRefused", "ArchiveTaken", "ArchiveUnreachable", "RollupRefused", "RollupTaken"]


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
