"""An archive and the nodes beside each other: whether both have the same events, as far as the nodes still keep them."""

from dataclasses import dataclass

import pyarrow.compute as pc

from eventlog import blocking
from eventlog.integrations.archive.digest import digests_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.reading import Archive, Verified
from eventlog.integrations.archive.rounds import read_range

_NOTHING = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDifference:
    """A segment in which the two are not alike, between two ids."""

    segment: int
    after: int
    upto: int
    in_log: int
    in_archive: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was compared: `events` of the archive behind the id `after`, from which on the nodes keep everything."""

    verified: Verified
    after: int
    upto: int
    events: int
    differences: tuple[SegmentDifference, ...]


def audit(client: blocking.Client, cache: str, archive: Archive) -> Audit:
    """Verify an archive, and compare it with what the nodes keep, stretch by stretch.

    Raises:
        ArchiveRefused: it is another cache's.
        ArchiveDamaged: it is not as it was written.
        EventsTrimmed: retention went on meanwhile.
    """
    source = client.cache(cache)
    archive.check_of(client, cache)
    verified = archive.verify()
    first = source.log_ends().first_id
    after = archive.upto if first is None else max(first - 1, archive.after)
    events, at = 0, after
    differences: list[SegmentDifference] = []
    for rounds, table in archive.stretches(after):
        upto = max([found.upto for found in rounds], default=None) or pc.max(table.column("id")).as_py()
        events += len(table)
        kept = digests_of(read_range(source, Range(after=at, upto=upto, segments=tuple(range(client.segments_count)))))
        filed = digests_of(table)
        for segment in sorted(set(kept) | set(filed)):
            ours, theirs = kept.get(segment, _NOTHING), filed.get(segment, _NOTHING)
            if ours != theirs:
                differences.append(SegmentDifference(segment=segment, after=at, upto=upto, in_log=ours[0], in_archive=theirs[0]))
        at = upto
    return Audit(verified=verified, after=after, upto=archive.upto, events=events, differences=tuple(differences))
