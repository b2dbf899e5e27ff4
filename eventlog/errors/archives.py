"""Errors of archives: tables of a cache's events in files."""

from eventlog.errors.tree import PeerViolation, Refused

__all__ = ["ArchiveDamaged", "ArchiveRefused", "ArchiveTaken"]


class ArchiveRefused(Refused):
    code = "ARCHIVE_REFUSED"
    sentence = "archive {path}: {why}"
    path: str
    why: str


class ArchiveTaken(Refused):
    code = "ARCHIVE_TAKEN"
    sentence = "archive {path} has been written up to id {upto} by another archiver meanwhile; what this one read of it was left out"
    path: str
    upto: int


class ArchiveDamaged(PeerViolation):
    """A file that is not as it was written. Nothing of it is served."""

    code = "ARCHIVE_DAMAGED"
    http_status = 500
    sentence = "archive file {file}: {why}; put it back from a copy"
    file: str
    why: str
