"""A check of all that is stored: checksums, structure, offsets without gaps."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol

from eventlog.arrays import Ints
from eventlog.batch.entries import decode_entry
from eventlog.batch.views import decode_value
from eventlog.errors import EventLogError, Stopping
from eventlog.node.background import aside
from eventlog.node.state.checkpoint import counts_range
from eventlog.node.writing.storage import StorageThread
from eventlog.segment.keys import TAG_ENTRY, cache_range, parse_log_key, parse_state_key
from eventlog.segment.port import Pair, Range, Store
from eventlog.state.caches import CacheState
from eventlog.wire import eventlog_pb2 as pb

_READ_BYTES = 4 << 20
_READ_ROWS = 2_000
_PROBLEMS_MAX = 1_000


class DataCheckGround(Protocol):
    """What this module needs of the node."""

    store: Store
    segments: int
    storage: StorageThread
    is_stopping: bool


class DataCheck:
    """Reads everything that a node stores of some caches, for `eventlog admin check --data`."""

    def __init__(self, node: DataCheckGround) -> None:
        self._node = node

    async def run(self, caches: Sequence[CacheState]) -> pb.CheckDataAnswer:
        """Read all that is stored of `caches`, log and state: checksums and structure; the log's offsets without gaps, its ids rising."""
        ends = [cache.next_offsets.copy() for cache in caches]
        await self._node.storage.run(_nothing)  # entries of what is committed are in the state behind it
        return await aside(partial(self._check, list(zip(caches, ends, strict=True))))

    def _check(self, caches: Sequence[tuple[CacheState, Ints]]) -> pb.CheckDataAnswer:
        answer = pb.CheckDataAnswer()
        for cache, ends in caches:
            for segment in range(self._node.segments):
                if self._node.is_stopping:
                    raise Stopping
                if len(answer.problems) < _PROBLEMS_MAX and not cache.dropped:
                    _check_log(self._node.store, cache, segment, end=int(ends[segment]), answer=answer)
                    span = cache_range(segment, cache.cache_id)
                    _check_state(self._node.store, span, where=f"segment {segment}, cache {cache.name}", answer=answer)
            _check_state(self._node.store, counts_range(cache.cache_id), where=f"cache {cache.name}", answer=answer)
        return answer


def _check_log(store: Store, cache: CacheState, segment: int, *, end: int, answer: pb.CheckDataAnswer) -> None:
    lower, upper = cache_range(segment, cache.cache_id)
    where = f"segment {segment}, cache {cache.name}"
    next_offset = 0
    try:
        while pairs := store.read_log(lower, upper, bytes_max=_READ_BYTES):
            first_kept = int(cache.trimmed_offsets[segment]) + 1  # again and again: retention may pass by
            for key, data in pairs:
                head = decode_value(segment, cache.cache_id, data).head
                base = parse_log_key(key)[2]
                follows = head.first_offset == next_offset or next_offset < head.first_offset <= first_kept
                if base != head.base or not follows:
                    answer.problems.append(f"{where}: value {base} does not follow the one before it")
                next_offset = head.first_offset + head.count
                answer.values += 1
                answer.events += head.count
            lower = pairs[-1][0] + b"\0"
    except EventLogError as error:
        answer.problems.append(str(error))
        return
    if max(next_offset, int(cache.trimmed_offsets[segment]) + 1) < end and not cache.dropped:
        answer.problems.append(f"{where}: its log ends at offset {next_offset} instead of {end}")


def _check_state(store: Store, span: Range, *, where: str, answer: pb.CheckDataAnswer) -> None:
    try:
        for key, data in _state_pairs(store, span):
            _, _, tag, own = parse_state_key(key)
            if tag == TAG_ENTRY:
                decode_entry(data, where=f"entry {own!r}")
                answer.entries += 1
    except EventLogError as error:
        answer.problems.append(f"{where}: {error}")


def _state_pairs(store: Store, span: Range) -> Iterator[Pair]:
    """Yield rows of the state, each page as of its own moment: what others delete meanwhile is not kept for a whole check."""
    lower, upper = span
    is_end = False
    while not is_end:
        with closing(store.snapshot()) as snapshot:
            keys, values, is_end, _ = snapshot.read(lower, upper, rows_max=_READ_ROWS, bytes_max=_READ_BYTES)
        yield from zip(keys, values, strict=True)
        lower = keys[-1] + b"\0" if keys else upper


def _nothing() -> None:
    """Be a job, to wait for the ones before it."""
