"""Batches that appear once, however often they are made and from however many processes.

stage = cache.stage()                                   # in each process that makes a part of the batch
await stage.put_many(pairs)
part = stage.staged()                                   # bytes: send them to the process that publishes
await cache.publish("nightly-load", 7, [part, ...])     # batch 7 of the transaction, once
"""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from eventlog.batch.build import build_write
from eventlog.client.core import ClientCore
from eventlog.client.formats import CacheFormat
from eventlog.client.handle import CacheHandle, Core
from eventlog.client.reading.columns import arrow_module
from eventlog.client.values import CacheInfo, Shown, checked_flag, checked_text, checked_whole
from eventlog.client.writing.bulk import arrow_columns, header_column, lifespan_column, pair_columns, parts_of
from eventlog.client.writing.calls import Changes
from eventlog.client.writing.contents import columns_of_changes
from eventlog.errors import InvalidArgument, TooLarge
from eventlog.limits import GROUP_BYTES_MAX, STAGE_KEEP_MS_DEFAULT, STAGE_KEEP_MS_MAX
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_ATTEMPT_BYTES: Final = 16
_BATCH_MAX: Final = (1 << 63) - 1


class CacheStages(CacheHandle):
    """The calls of a cache that are about transactions."""

    _core: ClientCore

    def stage(self, *, keep_ms: int = STAGE_KEEP_MS_DEFAULT) -> "Stage":
        """Return a new attempt at a part of a batch, seen by nobody until it is published, and removed after `keep_ms` if it is not.

        Raises:
            InvalidArgument: `keep_ms` is not above 0, or more than a day.
        """
        keep_ms = checked_whole("keep_ms", keep_ms, low=1, high=STAGE_KEEP_MS_MAX)
        return Stage(self._core, self._found, keep_ms=keep_ms)

    async def publish(self, transaction: str, batch: int, staged: Iterable[bytes], *, insert: bool = False, timeout_ms: int = 0) -> bool:
        """Have a batch of a transaction written, once for ever; return whether it had been before.

        `staged` is what the attempts of the batch have laid ready, in the order in which it is to be written: of each segment. Batches of
        a transaction have rising numbers. One that is done, or lies before one that is, is not written again. Which attempts a batch has
        is decided when it is first published: if that was not told, because somebody died, a repetition with other attempts writes those
        decided first. What a batch has in one segment appears in order, up to 4 MiB of it at once; not in all segments at once.

        With `insert` the batch is refused as a whole if one of its keys has an entry, or is in it twice: the primaries are asked before
        the batch is decided. What others write under its keys between that and the writing, it replaces. A repetition of a batch that
        was decided is not judged again.

        Raises:
            KeyExists, InvalidArgument: of `insert`, naming the first such key. Nothing is decided.
            NoState: of `insert`: the cache keeps no entries.
            StageExpired: what was laid ready is near its end. Nothing is decided: make the batch anew.
            StageLost: something is gone since the batch was decided; some of it may be written.
            OutcomeUnknown, Unavailable: publish it again, to have it go on.
        """
        batch = checked_whole("batch", batch, high=_BATCH_MAX)
        info, _ = await self._found()
        try:
            parts = [pb.StagedAttempts.FromString(part) for part in staged]
        except (DecodeError, TypeError) as error:
            raise InvalidArgument(why=f"what is staged is what `staged()` of a stage has returned: {error}") from error
        body = pb.StagedAttempts(attempts=[attempt for part in parts for attempt in part.attempts]).SerializeToString()
        request = Message(publish=pb.Publish(cache_id=info.id, transaction=checked_text("transaction", transaction), batch=batch))
        request.publish.insert = checked_flag("insert", insert)
        timeout_ms = self._core.options.limit_ms(timeout_ms or None)
        try:
            reply = await self._core.requests.ask(request, body, timeout_ms=timeout_ms)
        finally:
            self._core.nears.wrote_unknown(info.id)  # nobody here knows which keys others have laid ready
        return bool(reply.message.publish_answer.repeated)


class Stage(Shown):
    """One attempt at a part of a batch, made in one process.

    What does not fit the cache is refused before anything of the call is laid ready. After any other error the attempt is of no use.
    """

    def __init__(self, core: Core, found: Callable[[], Awaitable[tuple[CacheInfo, CacheFormat]]], *, keep_ms: int) -> None:
        self._core = core
        self._found = found
        self._keep_ms = keep_ms
        self._attempt = secrets.token_bytes(_ATTEMPT_BYTES)
        self._frames = 0
        self._blocks: Counter[int] = Counter()
        self._chunks: Counter[int] = Counter()
        self._until_ms = 0
        self._error: BaseException | None = None
        self.events = 0

    def _described(self) -> str:
        return f": {self.events} events"

    async def put_many(self, pairs: Iterable[tuple[Any, Any]] | Mapping[Any, Any], *, timeout_ms: int = 0) -> None:
        """Lay many pairs of key and value ready; with `eventlog.REMOVE` as its value, a key is to be removed.

        Raises:
            InvalidArgument, BadValue, TooLarge: naming the first that does not fit the cache.
            EventLogError: not everything is there.
        """
        _, form = await self._found()
        keys, values, removed = pair_columns(pairs, form)
        await self._lay(keys, values, removed, timeout_ms=timeout_ms)

    async def put_arrow(
        self,
        batch: Any,
        *,
        key: str = "key",
        value: str = "value",
        headers: str | None = None,
        lifespan_ms: str | None = None,
        timeout_ms: int = 0,
    ) -> None:
        """Lay two columns of a table ready, as a cache's `put_arrow` writes them; a null value is to remove its key.

        `headers` and `lifespan_ms` name columns of maps from text to binary, and of whole milliseconds, null where a row has none.

        Raises:
            InvalidArgument, BadValue, TooLarge: naming what does not fit the cache.
            EventLogError: not everything is there.
        """
        _, form = await self._found()
        table = arrow_module().table_of(batch)
        keys, values, removed = arrow_columns(table, form, key=key, value=value)
        lifespans = None if lifespan_ms is None else lifespan_column(table, lifespan_ms)
        if lifespans is not None and removed is not None:
            lifespans = [0 if is_removed else given for given, is_removed in zip(lifespans, removed, strict=True)]
        await self._lay(
            keys,
            values,
            removed,
            headers=None if headers is None else header_column(table, headers),
            lifespans=lifespans,
            timeout_ms=timeout_ms,
        )

    async def put_columns(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, removed: Sequence[bool] | None = None, timeout_ms: int = 0
    ) -> None:
        """Lay keys and values ready as they are stored, as a cache's `send_columns` sends them; where `removed`, a key is to be removed.

        Raises:
            InvalidArgument, BadValue, TooLarge: naming what does not fit the cache.
            EventLogError: not everything is there.
        """
        if not len(keys) == len(values) == len(keys if removed is None else removed):
            raise InvalidArgument(why=f"{len(keys)} keys, {len(values)} values, {len(removed or ())} marks of removal")
        await self._lay(list(keys), list(values), None if removed is None else list(removed), timeout_ms=timeout_ms)

    def staged(self) -> bytes:
        """Return what `publish` is to be given.

        Raises:
            EventLogError: an earlier call failed; this attempt is of no use.
        """
        self._check()
        segments = sorted(self._blocks)
        attempt = pb.StagedAttempt(
            attempt=self._attempt,
            segments=segments,
            blocks=[self._blocks[segment] for segment in segments],
            chunks=[self._chunks[segment] for segment in segments],
            until_ms=self._until_ms,
        )
        return pb.StagedAttempts(attempts=[attempt] if segments else []).SerializeToString()

    def _check(self) -> None:
        if self._error is not None:
            raise InvalidArgument(why=f"this attempt failed, begin another one: {self._error!r}")

    async def _lay(
        self,
        keys: list[bytes],
        values: list[bytes],
        removed: list[bool] | None,
        *,
        headers: list[bytes] | None = None,
        lifespans: list[int] | None = None,
        timeout_ms: int,
    ) -> None:
        self._check()
        if not keys:
            return
        info, form = await self._found()
        form.check(keys, values, removed=removed)
        changes = Changes(
            cache_id=info.id,
            by_prefix=info.route_by_prefix,
            keys=keys,
            values=values,
            removed=removed,
            headers=headers,
            lifespans=lifespans,
        )
        try:
            for part in parts_of(changes, bytes_max=GROUP_BYTES_MAX):
                await self._lay_one(part, timeout_ms=timeout_ms)
        except BaseException as error:
            self._error = error
            raise

    async def _lay_one(self, changes: Changes, *, timeout_ms: int) -> None:
        frame = build_write(columns_of_changes([changes]), segments=self._core.routes.segments, by_prefix=changes.by_prefix)
        number, self._frames = self._frames, self._frames + 1  # of its own, though others are on their way
        request = Message(
            stage=pb.Stage(cache_id=changes.cache_id, attempt=self._attempt, frame=number, blocks=len(frame.table), keep_ms=self._keep_ms)
        )
        try:
            reply = await self._core.requests.ask(request, *frame.buffers, timeout_ms=timeout_ms)
        except TooLarge as error:
            _, form = await self._found()
            raise _named(error, changes, form) from error
        answer = reply.message.stage_answer
        self._until_ms = min(self._until_ms or answer.until_ms, answer.until_ms)
        for segment, chunks in zip(frame.table["segment"].tolist(), answer.chunks, strict=True):
            self._blocks[segment] += 1
            self._chunks[segment] += chunks
        self.events += len(changes)


def _named(error: TooLarge, changes: Changes, form: CacheFormat) -> TooLarge:
    """Return the same with the key of the first row that it can be about: a node tells what is too large by its size alone."""
    sized = {"a key": changes.keys, "a value": changes.values, "the headers of an event": changes.headers}.get(error.what)
    found = next((key for key, item in zip(changes.keys, sized or (), strict=False) if len(item) == error.size), None)
    if found is None:
        return error
    whose = f"{form.read_key(found)!r:.60}"
    return TooLarge(
        what=f"{error.what} ({whose})" if error.what == "a key" else f"{error.what} of key {whose}", size=error.size, limit=error.limit
    )
