"""Where a rollup's events come from: a cache, by its nodes, or an archive, by its files."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from eventlog import blocking
from eventlog.errors import EventsTrimmed
from eventlog.integrations.archive.columns import columns_of, record_batch
from eventlog.integrations.archive.ranges import PARTITION_EVENTS_MIN, PARTITIONS_MAX, ranges_of
from eventlog.integrations.archive.reading import open_archive
from eventlog.integrations.archive.table import TableIdentity, identity_of
from eventlog.integrations.rollup.definition import boundary_id, boundary_ms
from eventlog.limits import ANSWER_BYTES_MAX
from eventlog.predicate.spec import FilterContext

_BEHIND_NOTHING: Final = 1  # no event has such an id; 0 would be the earliest that there is, whatever retention has taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupPiece:
    """What one task counts: events in `(after, upto]`, of some segments of a cache, or of an archive. Plain values."""

    after: int
    upto: int
    segments: tuple[int, ...] = ()
    archive: str = ""


class RollupSource(Protocol):
    """Events in the order of ids, as a rollup sees them."""

    @property
    def identity(self) -> TableIdentity:
        """Whose they are."""
        ...

    @property
    def context(self) -> FilterContext:
        """What expressions are checked against."""
        ...

    @property
    def end(self) -> int:
        """The id up to which nothing can come any more, as it was when this was made."""
        ...

    @property
    def begin(self) -> int:
        """The id behind which it has everything, 0 where it has everything that there ever was."""
        ...

    def cut(self, after: int, upto: int, max_events: int) -> tuple[int, int]:
        """Return the id up to which at most `max_events` lie behind `after`, 0 for any number, and how many they are; up to `upto`."""
        ...

    def pieces(self, after: int, upto: int, *, window_ms: int, events: int, asked: int) -> list[RollupPiece]:
        """Return what tasks count of `(after, upto]`, which are whole windows."""
        ...


class CacheSource:
    """A cache, read from the nodes."""

    def __init__(self, client: blocking.Client, cache: str) -> None:
        self._client = client
        self._cache = client.cache(cache)
        self.identity = identity_of(client, cache)
        self.end = self._cache.log_ends().last_id
        info = self._cache.info()
        self.context = FilterContext(
            format=info.format, text_keys=info.key_format == "utf8", before=info.before and info.state, avro_schema=info.schema or None
        )

    @property
    def begin(self) -> int:
        """The id behind which nothing has been removed."""
        try:
            self._cache.poll(_BEHIND_NOTHING, max_events=0)
        except EventsTrimmed as error:
            return self.end if not error.first_id else error.first_id - 1
        return 0

    def cut(self, after: int, upto: int, max_events: int) -> tuple[int, int]:
        plan = self._cache.plan(after, upto=upto, max_events=max_events)
        return plan.upto, plan.events

    def pieces(self, after: int, upto: int, *, window_ms: int, events: int, asked: int) -> list[RollupPiece]:
        del window_ms  # a key is in one segment
        segments = range(self._client.segments_count)
        found = ranges_of(after, upto, segments=segments, events=events, nbytes=0, asked=asked)
        return [RollupPiece(after=max(one.after, _BEHIND_NOTHING), upto=one.upto, segments=one.segments) for one in found]


class ArchiveSource:
    """An archive, read from its files."""

    def __init__(self, path: Path | str) -> None:
        self._archive = found = open_archive(path)
        self.identity = found.identity
        self.begin, self.end = found.after, found.upto
        types = {name: found.schema.field(name).type for name in ("key", "value")}
        self.context = FilterContext(
            format="json" if pa.types.is_string(types["value"]) else "bytes", text_keys=pa.types.is_string(types["key"]), before=True
        )

    def cut(self, after: int, upto: int, max_events: int) -> tuple[int, int]:
        end, events = self._archive.cut(max(after, self.begin), max_events)
        if end <= upto:
            return end, events
        ids = [
            id_ for batch in self._archive.history(max(after, self.begin), upto, columns=["id"]) for id_ in batch.column("id").to_pylist()
        ]
        return (ids[-1], len(ids)) if ids else (after, 0)

    def pieces(self, after: int, upto: int, *, window_ms: int, events: int, asked: int) -> list[RollupPiece]:
        """Return stretches of whole windows: a key may be in every file."""
        begin, end = (boundary_ms(id_) // window_ms for id_ in (after, upto))
        count = min(asked or max(min(-(-events // PARTITION_EVENTS_MIN), PARTITIONS_MAX), 1), max(end - begin, 1))
        bounds = [after, *(boundary_id((begin + (end - begin) * part // count) * window_ms) for part in range(1, count)), upto]
        where = self._archive.address
        return [RollupPiece(after=max(low, self.begin), upto=high, archive=where) for low, high in pairwise(bounds) if high > self.begin]


def read_piece(piece: RollupPiece, cache: blocking.Cache | None) -> Iterator[pa.RecordBatch]:
    """Yield the events of a piece, in the columns of an archive, of `cache` unless they are an archive's.

    Raises:
        EventsTrimmed: retention has taken some of them.
        ArchiveDamaged: a file is not as it was written.
    """
    if piece.archive:
        yield from open_archive(piece.archive).history(piece.after, piece.upto)
        return
    assert cache is not None, "a piece is of an archive or of a cache"
    columns = columns_of(cache)
    found = cache.event_batches(
        piece.after,
        until_id=piece.upto,
        segments=piece.segments,
        order="segment",
        max_bytes=ANSWER_BYTES_MAX,
        on_trimmed="error",
    )
    for batch in found:
        if len(batch):
            yield record_batch(batch, tuple(columns.types), cache=cache.name, is_avro=columns.is_avro)
