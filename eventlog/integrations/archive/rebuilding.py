"""A cache as it was at an id, made anew from its archive and the log: what the last event of each key up to there says."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.errors import CacheExists, InvalidArgument
from eventlog.events import Kind
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.columns import state_batch
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.reading import Archive
from eventlog.integrations.archive.rounds import read_range
from eventlog.limits import STAGE_KEEP_MS_MAX

_COLUMNS: Final = ("id", "kind", "key", "value")
_GONE: Final = pa.array([Kind.REMOVED.name, Kind.EXPIRED.name])
_ROWS: Final = 20_000
_ENTRIES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was made: so many entries, of events in `(after, as_of]`. Of `compared` entries of the cache of now `differences` differ."""

    after: int
    as_of: int
    events: int
    entries: int
    compared: int
    differences: int


def state_at(archive: Archive, client: blocking.Client, cache: str, as_of: int) -> tuple[pa.Table, int]:
    """Return `id`, `key` and `value` of each entry as of an id, and of how many events: of the archive, and of the nodes behind it.

    Only what the archive has from its beginning on is there: an entry that was written before, and not since, is not.

    Raises:
        ArchiveRefused: it is another cache's.
        ArchiveDamaged: a file is not as it was written.
        InvalidArgument: the archive begins later.
        EventsTrimmed: retention has passed its end.
    """
    archive.check_of(client, cache)
    if as_of < archive.after:
        raise InvalidArgument(why=f"the archive begins behind id {archive.after}, and {as_of} lies before it")
    source, events = client.cache(cache), 0

    def pieces() -> Iterator[pa.Table]:
        for batch in archive.history(upto=min(as_of, archive.upto), columns=_COLUMNS, batch_rows=1_000_000):
            yield pa.Table.from_batches([batch])
        if as_of > archive.upto:
            wanted = Range(after=archive.upto, upto=as_of, segments=tuple(range(client.segments_count)))
            yield read_range(source, wanted).select(_COLUMNS)

    state = archive.schema.empty_table().select(_COLUMNS)
    for piece in pieces():
        events += len(piece)
        state = _last_of_each([state, piece])
    is_gone = pc.is_in(state.column("kind"), _GONE)
    return state.filter(pc.invert(is_gone)).select(["id", "key", "value"]), events


def _last_of_each(tables: Iterable[pa.Table]) -> pa.Table:
    """Return of each key the row with the highest id."""
    whole = pa.concat_tables(tables).combine_chunks()
    lasts = whole.group_by("key").aggregate([("id", "max")]).column("id_max")
    return whole.filter(pc.is_in(whole.column("id"), lasts.combine_chunks()))


def rebuild(archive: Archive, client: blocking.Client, cache: str, *, into: str, as_of: int | None = None, verify: bool = False) -> Rebuilt:
    """Make a cache `into` with the entries that a cache had at an id, by default now.

    Done twice, or killed and done again, each entry is written once.
    It has the formats and the schema of the cache; lifespans and headers are not in an archive. With `verify` the result is compared
    with the cache, in the entries that have not changed since.

    Raises:
        CacheExists: `into` has entries that are not of an earlier try.
        ArchiveRefused, ArchiveDamaged, InvalidArgument, EventsTrimmed: as `state_at`.
    """
    source = client.cache(cache)
    end = source.log_ends().last_id
    at = end if as_of is None else min(as_of, end)
    state, events = state_at(archive, client, cache, at)
    info = source.info()
    target = client.create_cache(into, format=info.format, key_format=info.key_format, schema=info.schema or None, if_exists="use")
    if any(len(rows) - kept for rows, kept in _beside(target, state, ["key", "value"])):
        raise CacheExists(cache=into)
    stage = target.stage(keep_ms=STAGE_KEEP_MS_MAX)
    for low in range(0, len(state), _ROWS):
        stage.put_arrow(state.slice(low, _ROWS).select(["key", "value"]))
    target.publish(f"rebuild/{cache}/{at}", 0, [stage.staged()])
    compared = differences = 0
    if verify:
        for rows, kept in _beside(source, state, ["id", "key", "value"], upto=at):
            compared, differences = compared + len(rows), differences + len(rows) - kept
    return Rebuilt(after=archive.after, as_of=at, events=events, entries=len(state), compared=compared, differences=differences)


def _beside(cache: blocking.Cache, state: pa.Table, names: list[str], *, upto: int = ID_MAX) -> Iterator[tuple[pa.Table, int]]:
    """Yield entries of a cache with versions up to an id, and how many of them are in a state, too, alike in some columns."""
    info = cache.info()
    with cache.entries(metadata=True, batch_size=_ENTRIES) as rows:
        for batch in rows.batches():
            found = state_batch(batch, ("version", "key", "value"), cache=info.name, is_avro=info.format == "avro")
            table = pa.Table.from_batches([found]).rename_columns(["id", "key", "value"])
            old = table.filter(pc.less_equal(table.column("id"), upto))
            yield old, len(old.select(names).join(state.select(names), keys=names, join_type="left semi"))
