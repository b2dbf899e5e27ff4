"""One read over both: what an archive has from its files, and what follows from the nodes, as events of the same kind.

A row of the archive becomes what a node would have answered, so conditions, selections and everything that events can do are the
same code and mean the same on both sides of the seam. The seam is one id: the archive has everything up to it, and the nodes are asked
for what comes behind. For code with an event loop files are read in a thread, and nothing but one batch at a time.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventlog import blocking
from eventlog.arrays import Ints
from eventlog.batch.columns import Column, EventColumns, columns_of_joined, join_events, joined_of
from eventlog.batch.join import Joined
from eventlog.batch.marks import CONTENT
from eventlog.client.client import Client
from eventlog.client.formats import CacheFormat
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.columns import checked_columns
from eventlog.client.reading.filtering import Parameters, Select, compiled_here, filter_of
from eventlog.client.reading.pieces import NO_EVENTS, arrange, take_apart
from eventlog.client.reading.wanted import position_after, segments_of
from eventlog.client.values import CacheInfo
from eventlog.errors import EventsTrimmed, InvalidArgument
from eventlog.events import KIND_NAMES, EventSource, encode_headers
from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.integrations.archive.ranges import RowBounds
from eventlog.integrations.archive.reading import Archive, noted_for, opened_for
from eventlog.integrations.archive.table import TableIdentity
from eventlog.wire.eventlog_pb2 import Part, PollAnswer

if TYPE_CHECKING:
    from eventlog.predicate.compile import Compiled

_PLACES: Final = {"ids": "id", "segments": "segment", "offsets": "offset", "epochs": "epoch"}
_JUDGED: Final = ("where", "parameters", "select")
_BOTH: Final = ("segments", "order", "max_bytes", "columns")
_ALWAYS: Final = ("id", "segment", "offset", "epoch", "kind", "key")
_NODES: Final = ("follow", "on_trimmed", "on_stalled", "read_from", "poll_interval_ms")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    ids: Ints
    segments: Ints
    offsets: Ints
    epochs: Ints


def event_batches(
    archive: Archive | None, client: blocking.Client, cache: str, from_id: int | None = None, *, until_id: int | None = None, **options: Any
) -> Iterator[EventBatch]:
    """Yield the events behind an id as columns, by default all that there are; as a cache's `event_batches`.

    None is the archive that is noted with the cache, opened where the read needs it; without one the nodes have what there is.

    Options are `where`, `parameters`, `select`, `segments` and `columns`, which hold for both, and `order`, `max_bytes`, `follow`,
    `on_trimmed`, `on_stalled`, `read_from` and `poll_interval_ms`, which are the nodes'. A beginning before the archive's is asked of
    the nodes, and so is all of it where what they keep begins before the archive.

    Raises:
        ArchiveRefused: it is another cache's.
        ArchiveDamaged: a file is not as it was written.
        BadPredicate: the condition does not fit the cache.
        InvalidArgument: there is no such option.
        EventsTrimmed: retention has passed the end of the archive: what lies between is nowhere.
    """
    check_options(options)
    source = client.cache(cache)
    found = noted_for(client, cache, from_id, segments=options.get("segments")) if archive is None else archive
    if found is not None:
        found.check_of(client, cache)
    if found is None or (from_id is None and found.is_later_than(source.log_ends().first_id)):
        return source.event_batches(from_id, until_id=until_id, **options)
    part = ArchivePart(found, facts_of(client, client.describe_cache(cache)), from_id, until_id=until_id, **options)

    def both() -> Iterator[EventBatch]:
        yield from part.batches()
        if part.goes_on:
            yield from source.event_batches(part.end, until_id=until_id, **options)

    return both()


async def event_batches_async(
    archive: Archive | None, client: Client, cache: str, from_id: int | None = None, *, until_id: int | None = None, **options: Any
) -> AsyncGenerator[EventBatch, None]:
    """Yield what `event_batches` yields, by a client with an event loop. Options and errors are those."""
    check_options(options)
    source, info = client.cache(cache), await client.describe_cache(cache)
    identity = TableIdentity(cluster=client.cluster, cache=cache, cache_id=info.id)
    if archive is None and info.archive and not (from_id and await _is_kept(client, cache, from_id, segments=options.get("segments"))):
        archive = await asyncio.to_thread(opened_for, info.archive, identity)
    at = from_id
    if archive is not None:
        archive.check(identity)
        if from_id is None and archive.is_later_than((await source.log_ends()).first_id):
            archive = None
    if archive is not None:
        part = await asyncio.to_thread(ArchivePart, archive, facts_of(client, info), from_id, until_id=until_id, **options)
        batches = part.batches()
        while (batch := await asyncio.to_thread(_next_of, batches)) is not None:
            yield batch
        if not part.goes_on:
            return
        at = part.end
    async with aclosing(source.event_batches(at, until_id=until_id, **options)) as found:
        async for batch in found:
            yield batch


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for what a read over both does not take."""
    if alien := set(options) - {*_JUDGED, *_BOTH, *_NODES}:
        raise InvalidArgument(why=f"a read over an archive takes no {', '.join(sorted(alien))}")


class ArchivePart:
    """What an archive has of a read: from its beginning to `end`, where the nodes go on if it `goes_on`."""

    def __init__(self, archive: Archive, facts: "JudgeFacts", from_id: int | None, *, until_id: int | None, **options: Any) -> None:
        self._archive = archive
        self._columns = checked_columns(options.get("columns"))
        self._segments = options.get("segments")
        self._judge = Judge(facts, columns=self._columns, segments=self._segments, **{name: options.get(name) for name in _JUDGED})
        self._start = self.end = archive.after if from_id is None else from_id
        if archive.after <= self._start < archive.upto:
            self.end = archive.upto if until_id is None else min(until_id, archive.upto)
        self.goes_on = until_id is None or until_id > self.end

    def batches(self) -> Iterator[EventBatch]:
        """Yield it, and last the batch that says that everything up to `end` has been."""
        if self.end <= self._start:
            return
        bounds = self._judge.bounds(self._start, self.end, segments=self._segments)
        for rows in self._archive.history(self._start, self.end, columns=self._judge.read, bounds=bounds):
            yield self._judge.batch(rows).showing(self._columns)
        yield self._judge.nothing(self.end).showing(self._columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFacts:
    """What must be known of a cache to make events of it."""

    info: CacheInfo
    cluster: str
    segments: int


class Knowing(Protocol):
    """A client that is connected, of either kind."""

    @property
    def cluster(self) -> str: ...

    @property
    def segments_count(self) -> int: ...


def facts_of(client: Knowing, info: CacheInfo) -> JudgeFacts:
    """Return what must be known of a cache that a client has described."""
    return JudgeFacts(info=info, cluster=client.cluster, segments=client.segments_count)


class Judge:
    """Makes events of rows, those that match a condition and as a selection has them, as a node would."""

    def __init__(
        self,
        facts: JudgeFacts,
        *,
        where: str | None,
        parameters: Parameters | None,
        select: Select | None,
        columns: Collection[str] | None = None,
        segments: Collection[int] | None = None,
    ) -> None:
        self._without = frozenset[str]() if columns is None else CONTENT.difference(columns)
        info = facts.info
        chosen = filter_of(where=where, parameters=parameters, select=select)
        self._key_segments = partial(_segments_of, count=facts.segments, by_prefix=info.route_by_prefix) if info.state else None
        self._compiled = None if chosen is None else compiled_here(chosen, info)
        form = CacheFormat(info)
        if chosen is not None and chosen.select:
            form = form.selected()
        self._source = EventSource(
            cache=info.name,
            cache_id=info.id,
            cluster=facts.cluster,
            text_keys=form.is_text,
            json_values=form.is_json,
            position_at=partial(
                position_after, None, (facts.cluster, info.id, facts.segments), of=segments_of(segments, of=facts.segments)
            ),
            values=form.avro,
        )

    @property
    def read(self) -> list[str]:
        """The columns of an archive that it has to be given."""
        found = CONTENT - self._without
        if self._compiled is not None:
            found |= {*self._compiled.plan.fields} | self._compiled.columns & CONTENT
        return [*_ALWAYS, *(name for name in ("value", "before", "headers") if name in found)]

    def bounds(self, after: int, upto: int, *, segments: Collection[int] | None) -> RowBounds:
        """Return within which bounds of `(after, upto]` and `segments`, None for all, everything is that can match."""
        within = None if self._compiled is None else self._compiled.bounds
        chosen = None if segments is None else frozenset(segments)
        if within is None:
            return RowBounds(after=after, upto=upto, segments=chosen)
        of_keys = None if within.keys is None or self._key_segments is None else self._key_segments(within.keys)
        for some in (within.segments, of_keys, frozenset[int]() if within.is_empty else None):
            chosen = some if chosen is None else chosen if some is None else chosen & some
        return RowBounds(
            after=max(after, within.id_low - 1),
            upto=min(upto, within.id_high),
            segments=chosen,
            keys=(min(within.keys), max(within.keys)) if within.keys else None,
            kinds=frozenset(name.encode() for kind, name in enumerate(KIND_NAMES) if within.kinds >> kind & 1),
        )

    def nothing(self, last_id: int) -> EventBatch:
        """Return the batch that says that everything up to an id has been delivered."""
        return EventBatch(NO_EVENTS, self._source, last_id=last_id)

    def batch(self, rows: pa.RecordBatch) -> EventBatch:
        """Return the events of some rows, at least one."""
        last = pc.max(rows.column("id")).as_py()
        joined = _joined(sorted_rows(rows))
        if self._compiled is not None:
            joined = _matching(joined, self._compiled, without=self._without)
        if not joined.events:
            return self.nothing(last)
        body = memoryview(joined.runs.tobytes() + joined.block)
        answer = PollAnswer(parts=[Part(form=Part.JOINED, runs=len(joined.runs), length=len(body))])
        (piece,) = arrange(take_apart(answer, body, cache_id=self._source.cache_id))
        return EventBatch(piece, self._source, last_id=last)


def _segments_of(keys: Collection[bytes], *, count: int, by_prefix: bool) -> frozenset[int]:
    return frozenset(segment_of(hash_key(route_bytes(key, by_prefix=by_prefix)), count) for key in keys)


def sorted_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows by segment and id."""
    return rows.take(pa.array(np.lexsort((rows.column("id").to_numpy(), rows.column("segment").to_numpy()))))


def event_columns(rows: pa.RecordBatch) -> EventColumns:
    """Return rows that lie by segment and id, at least one, as predicates take events."""
    return columns_of_joined([_joined(rows)])


def _matching(joined: Joined, compiled: "Compiled", *, without: frozenset[str]) -> Joined:
    events = columns_of_joined([joined])
    events = events.take(np.flatnonzero(compiled.mask(events)))
    return join_events(
        events,
        values=None if "value" in without else compiled.project(events),
        before=None if "before" in without or events.before is None else compiled.project(events, image="before"),
        keeps_before=compiled.keeps_before,
        without=without,
    )


def _joined(rows: pa.RecordBatch) -> Joined:
    placed = _Rows(**{name: rows.column(column).to_numpy().astype(np.int64) for name, column in _PLACES.items()})
    names = rows.schema.names
    headers = rows.column("headers") if "headers" in names else None
    has_before = "before" in names and rows.column("before").null_count < len(rows)
    nothing = bytes(4 * (len(rows) + 1)), b""
    return joined_of(
        placed,
        kinds=pc.index_in(rows.column("kind"), pa.array(KIND_NAMES, pa.string())).to_numpy().astype(np.uint8),
        keys=_column(rows.column("key")),
        values=_column(rows.column("value")) if "value" in names else nothing,
        before=_column(rows.column("before")) if has_before else None,
        headers=_headers(headers) if headers is not None and len(headers.keys) else None,
    )


def _column(array: Any) -> Column:
    """Return offsets and bytes of a column of texts; of one that is null there are none."""
    _, offsets_of, data = array.buffers()
    offsets = np.frombuffer(offsets_of, np.int32)[array.offset : array.offset + len(array) + 1]
    texts = memoryview(b"") if data is None else memoryview(data)[offsets[0] : offsets[-1]]
    return (offsets - offsets[0]).astype("<i4").tobytes(), texts


def _headers(array: Any) -> Column:
    encoded = [encode_headers({name: bytes(value) for name, value in pairs or ()}) for pairs in array.to_pylist()]
    offsets = np.cumsum([0, *map(len, encoded)], dtype="<i4")
    return offsets.tobytes(), b"".join(encoded)


async def _is_kept(client: Client, cache: str, after: int, *, segments: Collection[int] | None) -> bool:
    try:
        await client.cache(cache).poll(after, max_events=0, segments=segments)
    except EventsTrimmed:
        return False
    return True


def _next_of(batches: Iterator[EventBatch]) -> EventBatch | None:
    return next(batches, None)
