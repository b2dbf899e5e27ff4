"""Events that a work group gave up, written into an ordinary cache with the reason in their headers."""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from eventlog.batch.build import Columns, build_write
from eventlog.errors import CacheNotFound, EventLogError, OperationRefused, Unavailable
from eventlog.events import KIND_NAMES, Kind, decode_headers, encode_headers
from eventlog.groups.sharing import DeadLetter
from eventlog.groups.work import Row
from eventlog.limits import HEADERS_BYTES_MAX
from eventlog.node.state.cache_changes import CacheChanges
from eventlog.node.writing.forward_write import OwnWrites
from eventlog.state.caches import Caches, CacheState

log = logging.getLogger("eventlog.node")
REASON_CHARACTERS_MAX = 1_000
WRITE_MS_MAX = 5_000
_AGAIN_S = 0.05


class DeadLettersGround(Protocol):
    """What this module needs of the node."""

    caches: Caches
    segments: int
    own_writes: OwnWrites
    cache_changes: CacheChanges


def name_of(given: str, source: CacheState) -> str:
    """Return the name of the cache that takes what is given up of `source`: the one that the group was given, or its own."""
    return given or f"{source.name}.dead"


class _Grave(NamedTuple):
    """Whose letters go where."""

    source: CacheState
    cache: CacheState
    group: str


class DeadLetters:
    """Writes what work groups gave up into caches."""

    def __init__(self, node: DeadLettersGround, *, write_ms: int = WRITE_MS_MAX) -> None:
        """Take the node; for `write_ms` what cannot be written now is tried again."""
        self._node = node
        self._write_ms = write_ms

    async def bury_all(self, letters: Mapping[int, DeadLetter], *, cache_id: int, name: str, group: str) -> dict[int, EventLogError]:
        """Return when of letters by their ids all are committed that can be, and why the others are not.

        They go into the cache `name`, which is made like their own if there is none, or into that of the group. One whose write was not
        known to have happened may be there twice.
        """
        try:
            source = self._node.caches.find(cache_id)
            cache = await self._cache(source, name_of(name, source))
        except EventLogError as error:
            errors: dict[int, EventLogError] = dict.fromkeys(letters, error)
        else:
            errors = await self._bury(letters, _Grave(source, cache, group))
        if errors:
            log.warning("dead_letters_failed group=%s events=%d error=%s", group, len(errors), errors[min(errors)])
        return errors

    async def _bury(self, letters: Mapping[int, DeadLetter], grave: "_Grave") -> dict[int, EventLogError]:
        """Write letters, those again for a while that cannot be now; return why some are not there."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._write_ms / 1000
        left, errors = letters, dict[int, EventLogError]()
        while left:
            refused = await self._write(left, grave)
            final = {id_: error for id_, error in refused.items() if not isinstance(error, Unavailable)}
            if len(left) == 1:
                errors |= final
            else:  # one that is refused takes those of its block with it that would not be
                for id_ in final:
                    errors |= await self._bury({id_: left[id_]}, grave)
            left = {id_: left[id_] for id_ in refused if id_ not in final}
            if left and loop.time() >= deadline:
                return errors | {id_: refused[id_] for id_ in left}
            if left:
                await asyncio.sleep(_AGAIN_S)
        return errors

    async def _write(self, letters: Mapping[int, DeadLetter], grave: "_Grave") -> dict[int, EventLogError]:
        """Write letters; return why some were not."""
        source, cache, group = grave
        given = list(letters.values())
        columns = Columns(
            kinds=np.full(len(given), Kind.CREATED, np.uint8),
            keys=[letter.row.key for letter in given],
            values=[_value(source, letter.row) for letter in given],
            headers=[_headers(source, group, letter) for letter in given],
        )
        try:
            frame = build_write(columns, segments=self._node.segments, by_prefix=cache.options.route_by_prefix)
            refusals = (await self._node.own_writes.write(cache, frame, timeout_ms=self._write_ms)).refusals
        except EventLogError as error:
            return dict.fromkeys(letters, error)
        ids, blocks = list(letters), np.arange(len(frame.table)).repeat(frame.table["count"]).tolist()
        return {ids[row]: refusals[block] for row, block in zip(frame.order.tolist(), blocks, strict=True) if block in refusals}

    async def _cache(self, source: CacheState, name: str) -> CacheState:
        try:
            cache = self._node.caches.named(name)
        except CacheNotFound:
            options: dict[str, object] = {"format": source.options.format, "bytes_keys": source.options.bytes_keys, "before": False}
            if source.options.schema:
                options["schema"] = source.options.schema
            cache, _ = await self._node.cache_changes.create(name, options, use_existing=True)
        if cache.is_internal or cache is source:  # such a name may have been kept by a node that did not check it
            raise OperationRefused(what=f"putting dead letters into {name}", why="no group's dead letters belong there")
        return cache


def _value(source: CacheState, row: Row) -> bytes:
    is_gone = row.kind in {Kind.REMOVED, Kind.EXPIRED}
    return b"null" if is_gone and source.options.format == "json" else row.value


def _headers(source: CacheState, group: str, letter: DeadLetter) -> bytes:
    row = letter.row
    own = {
        "dead.reason": letter.reason[:REASON_CHARACTERS_MAX],
        "dead.group": group,
        "dead.cache": source.name,
        "dead.id": str(row.place.id),
        "dead.segment": str(row.segment),
        "dead.offset": str(row.place.next_offset - 1),
        "dead.kind": KIND_NAMES[row.kind],
        "dead.deliveries": str(letter.deliveries),
    }
    ours = {name: text.encode() for name, text in own.items()}
    found = encode_headers(decode_headers(row.headers or b"") | ours)
    return found if len(found) <= HEADERS_BYTES_MAX else encode_headers(ours)
