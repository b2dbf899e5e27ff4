"""A cache as it was at an id, made anew as a cache or a table: what the last event of each key says, in its archive and in the log.

The table of entries is a Delta table that one commit makes: it is there as a whole or not at all.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from eventlog import blocking
from eventlog.errors import ArchiveRefused, CacheExists, InvalidArgument
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.columns import state_batch, times_of
from eventlog.integrations.archive.folding import check_final, fold, late_segment
from eventlog.integrations.archive.place import ArchivePlace, place_of, told_of
from eventlog.integrations.archive.reading import Archive, Told, untold
from eventlog.integrations.archive.table import TableIdentity, identity_of
from eventlog.limits import STAGE_KEEP_MS_MAX

_ROWS: Final = 20_000
_ENTRIES: Final = 10_000
VERSION_HEADER: Final = "eventlog.version"
"""The header of an entry of a rebuilt cache that has the version it had before."""
_FORM: Final = 1
_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was made: so many entries, of events in `(after, as_of]`. Of `compared` entries of the cache of now `differences` differ.

    `is_whole`: the archive has the log from its beginning on; else entries may lack that were written before, and not since.
    """

    after: int
    as_of: int
    events: int
    entries: int
    compared: int
    differences: int
    is_whole: bool


def rebuild(
    archive: Archive,
    client: blocking.Client,
    cache: str,
    *,
    into: str | None = None,
    to: str | Path | None = None,
    as_of: int | None = None,
    verify: bool = False,
    told: Told = untold,
) -> Rebuilt:
    """Make a cache `into` with the entries that a cache had at an id, by default now, or a Delta table at a place `to`.

    Done twice, or killed and done again, each entry is written once; done again at a later id, only those that lack are.
    An entry that was written before the archive's beginning, and not since, is not in it: `is_whole` says whether there can be any.
    The cache has the formats and the schema of the other one, and the events that make its entries have their old versions as a header,
    `VERSION_HEADER`; lifespans are not in an archive. The table has columns `segment`, `key`, `value`, `version` and `time`.
    With `verify` the entries are compared with the cache's, in those that have not changed since. `told` hears of events that are read, and
    of entries that are written and compared.

    Raises:
        CacheExists: `into` has entries that are not of an earlier try.
        ArchiveRefused: at `to` there is another table; and as `fold`.
        InvalidArgument: `into` is the cache itself; and as `fold`.
        NotFinal: `as_of` lies ahead, by more than a moment, of what nobody can write any more.
        ArchiveDamaged, EventsTrimmed: as `fold`.
    """
    if (into is None) == (to is None):
        raise InvalidArgument(why="give a cache `into` or a place `to`, one of them")
    if into == cache:
        raise InvalidArgument(why=f"cache {cache!r} is not written over with what it had: give another name to make it anew")
    source = client.cache(cache)
    if as_of is not None:
        check_final(client, cache, as_of)
    at = source.log_ends().last_id if as_of is None else as_of
    folded = fold(archive, client, cache, at, told=told)
    if into is not None:
        _write(client, source, folded.table, into=into, name=f"rebuild/{cache}/{at}", told=told)
    elif to is not None:
        write_entries(place_of(to), _shown(folded.table), of=identity_of(client, cache), as_of=at)
    compared = differences = 0
    if verify:
        for rows, kept in _beside(source, folded.table, ["id", "key", "value"], upto=at):
            told("entries compared", compared, len(folded.table))
            compared, differences = compared + len(rows), differences + len(rows) - kept
    return Rebuilt(
        after=archive.after,
        as_of=at,
        events=folded.events,
        entries=len(folded.table),
        compared=compared,
        differences=differences,
        is_whole=late_segment(archive, source, folded, at=at) is None,
    )


def _write(client: blocking.Client, source: blocking.Cache, state: pa.Table, *, into: str, name: str, told: Told) -> None:
    """Write entries into a cache that has none but some of these, as one transaction of those that it lacks."""
    info = source.info()
    target = client.create_cache(into, format=info.format, key_format=info.key_format, schema=info.schema or None, if_exists="use")
    there = [state.slice(0, 0).select(["key"])]
    for rows, kept in _beside(target, state, ["key", "value"]):
        if kept < len(rows):
            raise CacheExists(cache=into)
        there.append(rows.select(["key"]))
    lacking = state.filter(pc.invert(pc.is_in(state.column("key"), pa.concat_tables(there).column("key").combine_chunks())))
    stage = target.stage(keep_ms=STAGE_KEEP_MS_MAX)
    for low in range(0, len(lacking), _ROWS):
        told("entries written", low, len(lacking))
        rows = lacking.slice(low, _ROWS)
        stage.put_arrow(rows.select(["key", "value"]).append_column("headers", _versions(rows)), headers="headers")
    target.publish(name, 0, [stage.staged()])


def _versions(state: pa.Table) -> pa.Array:
    """Return the versions of entries as headers, one each, in decimal digits."""
    values = state.column("id").combine_chunks().cast(pa.string()).cast(pa.binary())
    return pa.MapArray.from_arrays(np.arange(len(state) + 1, dtype=np.int32), pa.repeat(VERSION_HEADER, len(state)), values)


def _shown(state: pa.Table) -> pa.Table:
    """Return entries with their versions and times, sorted by segment and key."""
    state = state.sort_by([("segment", "ascending"), ("key", "ascending")])
    columns = [state.column(name) for name in ("segment", "key", "value", "id")]
    return pa.table([*columns, times_of(state.column("id").to_numpy())], names=["segment", "key", "value", "version", "time"])


def _beside(cache: blocking.Cache, state: pa.Table, names: list[str], *, upto: int = ID_MAX) -> Iterator[tuple[pa.Table, int]]:
    """Yield entries of a cache with versions up to an id, and how many of them are in a state, too, alike in some columns."""
    info = cache.info()
    with cache.entries(metadata=True, batch_size=_ENTRIES) as rows:
        for batch in rows.batches():
            found = state_batch(batch, ("version", "key", "value"), cache=info.name, is_avro=info.format == "avro")
            table = pa.Table.from_batches([found]).rename_columns(["id", "key", "value"])
            old = table.filter(pc.less_equal(table.column("id"), upto))
            yield old, len(old.select(names).join(state.select(names), keys=names, join_type="left semi"))


def write_entries(place: ArchivePlace, entries: pa.Table, *, of: TableIdentity, as_of: int) -> None:
    """Write entries as a new table; one of the same cache at the same id stays as it is. Durable when this returns.

    Raises:
        ArchiveRefused: there is a table already, of something else.
        ArchiveUnreachable: the place does not answer.
    """
    told = {"entries": _FORM, **asdict(of), "as_of": as_of}
    if not _check(place, told):
        place.make()
        try:
            with place.reached():
                write_deltalake(place.address, entries, name=of.cache, description=json.dumps(told))
        except DeltaError as error:
            if not _check(place, told):  # of two at once, one makes it
                raise ArchiveRefused(path=place.address, why=told_of(error)) from error
    with place.reached():
        paths = pa.table(DeltaTable(place.address).get_add_actions()).column("path").to_pylist()
    place.settle("", sorted(paths))
    place.settle(_LOG, [f"{0:020}.json"])


def _check(place: ArchivePlace, told: dict[str, object]) -> bool:
    """Return whether the table is there. Raises ArchiveRefused where it is another one."""
    try:
        with place.reached():
            found = DeltaTable(place.address)
    except TableNotFoundError:
        return False
    except DeltaError as error:
        raise ArchiveRefused(path=place.address, why=told_of(error)) from error
    if found.metadata().description != json.dumps(told):
        raise ArchiveRefused(path=place.address, why=f"it is a table, and not of cache {told['cache']} at id {told['as_of']}")
    return True
