"""A store in memory that lets a test step between the caller and the call: to note it, to hold it, to let it fail."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import Pair, Range, Snapshot, StoreEnds, StoreOptions


class SteppedStore(MemoryStore):
    """`instead` holds, by the name of a call, what is called in its place: with the plain call and then its arguments."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.instead: dict[str, Callable[..., Any]] = {}

    def append(self, log: Sequence[Pair], meta: Sequence[Pair]) -> None:
        self._through("append", super().append, log, meta)

    def sync(self, ends: StoreEnds | None = None) -> None:
        self._through("sync", super().sync, *([] if ends is None else [ends]))

    def write_ends(self, ends: StoreEnds) -> None:
        self._through("write_ends", super().write_ends, ends)

    def apply(self, puts: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._through("apply", super().apply, puts)

    def flush_state(self) -> None:
        self._through("flush_state", super().flush_state)

    def drop(self, *ranges: Sequence[Range], meta: Sequence[Pair] = (), ends: StoreEnds | None = None) -> None:
        self._through("drop", partial(super().drop, meta=meta, ends=ends), *ranges)

    def snapshot(self) -> Snapshot:
        found: Snapshot = self._through("snapshot", super().snapshot)
        return found

    def read_state(self, lower: bytes, upper: bytes, *, limit: int) -> list[Pair]:
        found: list[Pair] = self._through("read_state", partial(super().read_state, limit=limit), lower, upper)
        return found

    def read_logs_and_next(
        self, ranges: Sequence[Range], bounds: Sequence[bytes], *, bytes_max: int
    ) -> tuple[list[Pair], list[Pair | None]]:
        read = partial(super().read_logs_and_next, bytes_max=bytes_max)
        found: tuple[list[Pair], list[Pair | None]] = self._through("read_logs_and_next", read, ranges, bounds)
        return found

    def _through(self, name: str, plain: Callable[..., Any], *arguments: Any) -> Any:
        step = self.instead.get(name)
        return plain(*arguments) if step is None else step(plain, *arguments)


def open_stepped(path: object, *, segments: int, options: StoreOptions | None = None) -> SteppedStore:
    """Open an empty one, as a node does with its engine."""
    del path
    return SteppedStore(MemoryDisk(segments=segments, ends=StoreEnds.empty(segments)), options)
