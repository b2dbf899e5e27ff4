"""A cache as it was at an id, made anew from its archive and the log: what the last event of each key up to there says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.errors import CacheExists
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.columns import state_batch
from eventlog.integrations.archive.folding import fold
from eventlog.integrations.archive.reading import Archive
from eventlog.limits import STAGE_KEEP_MS_MAX

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


def rebuild(archive: Archive, client: blocking.Client, cache: str, *, into: str, as_of: int | None = None, verify: bool = False) -> Rebuilt:
    """Make a cache `into` with the entries that a cache had at an id, by default now.

    Done twice, or killed and done again, each entry is written once.
    An entry that was written before the archive's beginning, and not since, is not in it.
    It has the formats and the schema of the cache; lifespans and headers are not in an archive. With `verify` the result is compared
    with the cache, in the entries that have not changed since.

    Raises:
        CacheExists: `into` has entries that are not of an earlier try.
        ArchiveRefused, ArchiveDamaged, InvalidArgument, EventsTrimmed: as `fold`.
    """
    source = client.cache(cache)
    end = source.log_ends().last_id
    at = end if as_of is None else min(as_of, end)
    folded = fold(archive, client, cache, at)
    state = folded.table
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
    return Rebuilt(after=archive.after, as_of=at, events=folded.events, entries=len(state), compared=compared, differences=differences)


def _beside(cache: blocking.Cache, state: pa.Table, names: list[str], *, upto: int = ID_MAX) -> Iterator[tuple[pa.Table, int]]:
    """Yield entries of a cache with versions up to an id, and how many of them are in a state, too, alike in some columns."""
    info = cache.info()
    with cache.entries(metadata=True, batch_size=_ENTRIES) as rows:
        for batch in rows.batches():
            found = state_batch(batch, ("version", "key", "value"), cache=info.name, is_avro=info.format == "avro")
            table = pa.Table.from_batches([found]).rename_columns(["id", "key", "value"])
            old = table.filter(pc.less_equal(table.column("id"), upto))
            yield old, len(old.select(names).join(state.select(names), keys=names, join_type="left semi"))
