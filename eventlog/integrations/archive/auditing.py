"""An archive and the nodes beside each other: whether both have the same events, as far as the nodes still keep them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.ids import ID_MAX, time_of
from eventlog.integrations.archive.digest import bounds_of, digests_of
from eventlog.integrations.archive.ranges import Range, RowBounds
from eventlog.integrations.archive.reading import Archive, Told, Verified, untold
from eventlog.integrations.archive.rounds import read_range

HOUR_MS = 3_600_000
DIFFERENCES_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HourDifference:
    """An hour of a segment in which the two are not alike, and how many events each has of it. `hour_ms` is its begin since 1970."""

    segment: int
    hour_ms: int
    in_log: int
    in_archive: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The lowest id of which the two do not say the same: one lacks its event, or it differs in `columns`."""

    segment: int
    hour_ms: int
    id: int
    in_log: bool
    in_archive: bool
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was compared: `events` of the archive in `(after, upto]`, of which the nodes keep everything.

    `differing` hours of segments are not alike; `differences` are the first of them, in the order of time.
    """

    verified: Verified
    after: int
    upto: int
    events: int
    differing: int
    differences: tuple[HourDifference, ...]
    first: FirstDifference | None


def audit(client: blocking.Client, cache: str, archive: Archive, *, until: int | None = None, told: Told = untold) -> Audit:
    """Verify an archive, and compare it with what the nodes keep, up to the id `until` where one is given, stretch by stretch.

    `told` hears of how many events have been looked through.

    Raises:
        ArchiveRefused: it is another cache's.
        ArchiveDamaged: it is not as it was written.
        EventsTrimmed: retention went on meanwhile.
    """
    source = client.cache(cache)
    archive.check_of(client, cache)
    verified = archive.verify(told=told)
    end = min(archive.upto, ID_MAX if until is None else until)
    first_kept = source.log_ends().first_id
    after = min(end, archive.upto if first_kept is None else max(first_kept - 1, archive.after))
    events, at = 0, after
    expected = sum(file.rows for file in archive.pieces(RowBounds(after=after, upto=end)))
    hours = DifferingHours()
    first: FirstDifference | None = None
    for rounds, whole in archive.stretches(after):
        upto = min(end, max([found.upto for found in rounds], default=None) or pc.max(whole.column("id")).as_py())
        if upto <= at:
            break
        filed = whole if upto < end else whole.filter(pc.less_equal(whole.column("id"), upto))
        told("events compared", events, expected)
        events += len(filed)
        kept = read_range(source, Range(after=at, upto=upto, segments=tuple(range(client.segments_count)))).select(filed.schema.names)
        for own, theirs in _unlike(kept, filed):
            found = first_unlike(own, theirs)
            first = found if first is None or found.id < first.id else first
            for hour in unlike_hours(own, theirs):
                hours.add(hour)
        at = upto
        hours.settle(_hour_of(at))
    hours.settle(_hour_of(ID_MAX))
    differing, differences = hours.count, tuple(hours.first)
    return Audit(verified=verified, after=after, upto=end, events=events, differing=differing, differences=differences, first=first)


class DifferingHours:
    """The hours of segments that differ: how many, and the first of them in the order of time. A stretch may end within an hour."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[HourDifference] = []
        self._near: dict[tuple[int, int], HourDifference] = {}

    def add(self, hour: HourDifference) -> None:
        """Take up an hour, or another part of one that is not settled."""
        before = self._near.get((hour.hour_ms, hour.segment))
        self._near[hour.hour_ms, hour.segment] = hour if before is None else _both(before, hour)

    def settle(self, hour_ms: int) -> None:
        """Count hours before that one: nothing more of them comes."""
        past = [self._near.pop(place) for place in sorted(place for place in self._near if place[0] < hour_ms)]
        self.count += len(past)
        self.first += past[: DIFFERENCES_MAX - len(self.first)]


def _unlike(kept: pa.Table, filed: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the segments of which the two are not alike, as the one and the other has them."""
    ours, theirs = digests_of(kept), digests_of(filed)
    unlike = sorted(segment for segment in ours.keys() | theirs.keys() if ours.get(segment) != theirs.get(segment))
    if unlike:
        of_kept, of_filed = _by_segment(kept), _by_segment(filed)
        for segment in unlike:
            yield of_kept.get(segment, kept.slice(0, 0)), of_filed.get(segment, filed.slice(0, 0))


def _by_segment(table: pa.Table) -> dict[int, pa.Table]:
    return {table.column("segment")[low].as_py(): table.slice(low, high - low) for low, high in bounds_of(table)}


def first_unlike(kept: pa.Table, filed: pa.Table) -> FirstDifference:
    """Return the first row in which two tables of a segment, by id, differ."""
    alike, unlike = 0, min(len(kept), len(filed)) + 1  # so many rows are the same, and so many are not
    while unlike - alike > 1:
        rows = (alike + unlike) // 2
        alike, unlike = (rows, unlike) if _same(kept.slice(alike, rows - alike), filed.slice(alike, rows - alike)) else (alike, rows)
    own, theirs = (table.slice(alike, 1).to_pylist() for table in (kept, filed))
    id_ = min(row[0]["id"] for row in (own, theirs) if row)
    in_log, in_archive = (bool(row) and row[0]["id"] == id_ for row in (own, theirs))
    columns = [name for name in kept.schema.names if in_log and in_archive and own[0][name] != theirs[0][name]]
    segment = (own or theirs)[0]["segment"]
    return FirstDifference(segment=segment, hour_ms=_hour_of(id_), id=id_, in_log=in_log, in_archive=in_archive, columns=tuple(columns))


def _same(kept: pa.Table, filed: pa.Table) -> bool:
    return digests_of(kept) == digests_of(filed)


def unlike_hours(kept: pa.Table, filed: pa.Table) -> Iterator[HourDifference]:
    """Yield the hours in which two tables of a segment differ."""
    own, theirs = _by_hour(kept), _by_hour(filed)
    segment = (kept if len(kept) else filed).column("segment")[0].as_py()
    for hour in sorted(own.keys() | theirs.keys()):
        ours, others = own.get(hour, kept.slice(0, 0)), theirs.get(hour, filed.slice(0, 0))
        if not _same(ours, others):
            yield HourDifference(segment=segment, hour_ms=hour, in_log=len(ours), in_archive=len(others))


def _by_hour(table: pa.Table) -> dict[int, pa.Table]:
    if not len(table):
        return {}
    hours = [_hour_of(id_) for id_ in table.column("id").to_pylist()]
    cuts = (np.flatnonzero(np.diff(hours)) + 1).tolist()
    return {hours[low]: table.slice(low, high - low) for low, high in pairwise([0, *cuts, len(hours)])}


def _hour_of(id_: int) -> int:
    return time_of(id_) // HOUR_MS * HOUR_MS


def _both(one: HourDifference, other: HourDifference) -> HourDifference:
    """Return an hour that two stretches have parts of."""
    return HourDifference(
        segment=one.segment, hour_ms=one.hour_ms, in_log=one.in_log + other.in_log, in_archive=one.in_archive + other.in_archive
    )
