"""The archive that is noted with a cache, and whether a read needs it: it is opened for what the nodes keep no more."""

from collections.abc import Collection

from eventlog import blocking
from eventlog.errors import ArchiveRefused, EventsTrimmed
from eventlog.integrations.archive.reading import Archive, open_archive
from eventlog.integrations.archive.table import TableIdentity, identity_of


def noted(client: blocking.Client, cache: str) -> Archive | None:
    """Open the archive that is noted with a cache, None where none is.

    Raises:
        ArchiveRefused: there is none at that place, or another cache's; says how to do without.
        ArchiveUnreachable: the object store does not answer.
    """
    place = client.describe_cache(cache).archive
    return opened_for(place, identity_of(client, cache)) if place else None


def opened_for(place: str, identity: TableIdentity) -> Archive:
    """Open an archive that is noted with the cache of an identity. Raises as `noted`."""
    try:
        found = open_archive(place)
        found.check(identity)
    except ArchiveRefused as error:
        cache = identity.cache
        why = f"{error.why}; it is noted with cache {cache!r}, until: eventlog cache alter {cache} --no-archive"
        raise ArchiveRefused(path=place, why=why) from error
    return found


def noted_for(client: blocking.Client, cache: str, after: int | None, *, segments: Collection[int] | None = None) -> Archive | None:
    """Open the noted archive where a read behind an id needs it: it begins with the first event of all, or retention has passed the id.

    Raises as `noted`.
    """
    return noted(client, cache) if not after or not is_kept(client.cache(cache), after, segments=segments) else None


def is_kept(cache: blocking.Cache, after: int, *, segments: Collection[int] | None = None) -> bool:
    """Return whether the nodes keep everything behind an id."""
    try:
        cache.poll(after, max_events=0, segments=segments)
    except EventsTrimmed:
        return False
    return True
