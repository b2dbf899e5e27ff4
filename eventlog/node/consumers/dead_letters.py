"""Events that a work group gave up, written into an ordinary cache with the reason in their headers."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

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


class DeadLetters:
    """Writes what work groups gave up into caches."""

    def __init__(self, node: DeadLettersGround) -> None:
        self._node = node

    async def bury_all(self, letters: Mapping[int, DeadLetter], *, cache_id: int, name: str, group: str) -> dict[int, EventLogError]:
        """Return when of letters by their ids all are committed that can be, and why the others are not; as `bury`."""
        try:
            source = self._node.caches.find(cache_id)
            await self.bury(list(letters.values()), source=source, name=name_of(name, source), group=group)
        except Unavailable as error:
            errors: dict[int, EventLogError] = dict.fromkeys(letters, error)
        except EventLogError as error:
            if len(letters) > 1:  # one that is refused takes those with it that would not be
                alone = [await self.bury_all({id_: letter}, cache_id=cache_id, name=name, group=group) for id_, letter in letters.items()]
                return {id_: why for found in alone for id_, why in found.items()}
            errors = dict.fromkeys(letters, error)
        else:
            return {}
        log.warning("dead_letters_failed group=%s events=%d error=%s", group, len(errors), errors[min(errors)])
        return errors

    async def bury(self, letters: Sequence[DeadLetter], *, source: CacheState, name: str, group: str) -> None:
        """Return when the letters are committed in the cache `name`, which is made like `source` if there is none.

        One whose write was not known to have happened may be there twice.

        Raises:
            OperationRefused: it is the cluster's own, or `source` itself.
        """
        cache = await self._cache(source, name)
        columns = Columns(
            kinds=np.full(len(letters), Kind.CREATED, np.uint8),
            keys=[letter.row.key for letter in letters],
            values=[_value(source, letter.row) for letter in letters],
            headers=[_headers(source, group, letter) for letter in letters],
        )
        frame = build_write(columns, segments=self._node.segments, by_prefix=cache.options.route_by_prefix)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WRITE_MS_MAX / 1000
        while True:
            try:
                result = await self._node.own_writes.write(cache, frame, timeout_ms=WRITE_MS_MAX)
                if not result.refusals:
                    return
                raise next(iter(result.refusals.values()))
            except Unavailable:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)

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
