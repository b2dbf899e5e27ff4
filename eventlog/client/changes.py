"""What one call wants written, and what became of it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.client.values import Stored, StoredMany, kind_name
from eventlog.errors import EventLogError, PartlyWritten
from eventlog.events import Kind

EVENT_BYTES = 24  # kind, two offsets and padding of an event in a block, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold for a key: `version` is the id of its entry, 0 for no entry, None for any entry."""

    key: bytes
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Puts and removals of one cache, in order. `removed`, `lifespans` and `headers` are None where no item has one.

    A condition or `wants_previous` is for a single item. A lifespan of 0 is the cache's own.
    """

    cache_id: int
    by_prefix: bool
    keys: Sequence[bytes]
    values: Sequence[bytes]
    removed: Sequence[bool] | None = None
    lifespans: Sequence[int] | None = None
    headers: Sequence[bytes] | None = None
    condition: Condition | None = None
    wants_previous: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Return about how large these are in a frame."""
        size = sum(map(len, self.keys)) + sum(map(len, self.values)) + EVENT_BYTES * len(self.keys)
        return size if self.headers is None else size + sum(map(len, self.headers))

    @property
    def is_plain(self) -> bool:
        """Whether others may share its frame."""
        return self.condition is None and not self.wants_previous


class Call:
    """One application call that writes, until its future is done. `deadline` is in the loop's time."""

    __slots__ = ("changes", "deadline", "future", "is_alone", "is_many", "nbytes", "timeout_ms")

    def __init__(self, changes: Changes, *, timeout_ms: int, is_many: bool) -> None:
        loop = asyncio.get_running_loop()
        self.changes = changes
        self.timeout_ms = timeout_ms
        self.deadline = loop.time() + timeout_ms / 1000
        self.is_many = is_many
        self.is_alone = not changes.is_plain  # has a frame of its own
        self.nbytes = changes.nbytes
        self.future: asyncio.Future[Any] = loop.create_future()

    @property
    def is_live(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.future.done()

    def succeed(self, ids: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8], *, previous: bytes | None = None) -> None:
        """Tell what was written; `previous` is raw, the caller decodes it."""
        if not self.future.done():
            one = None if self.is_many else Stored(ids.item(0) or None, kind_name(kinds.item(0)), previous)
            self.future.set_result(one or StoredMany(ids, kinds))

    def fail(self, error: EventLogError) -> None:
        """Tell why not. Every call gets an error of its own: each waiter adds its traceback."""
        if not self.future.done():
            self.future.set_exception(type(error)(outcome=error.outcome, **error.facts()))


class Ledger:
    """What became of the items of some calls that share a frame, until every item is decided."""

    __slots__ = ("_calls", "_errors", "_ids", "_kinds", "_open", "on_close", "previous")

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls
        self.on_close: Callable[[int], None] | None = None  # gets the bytes of the calls
        self._open = sum(len(call.changes) for call in calls)
        self._ids = np.zeros(self._open, np.int64)
        self._kinds = np.zeros(self._open, np.uint8)
        self._errors: list[tuple[npt.NDArray[np.int64], EventLogError]] = []
        self.previous: bytes | None = None

    def accept(self, items: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8]) -> None:
        """Note that items, by index over all calls, were written under `ids`."""
        self._ids[items] = ids
        self._kinds[items] = kinds
        self._close(len(items))

    def fail(self, items: npt.NDArray[np.int64], error: EventLogError) -> None:
        """Note that items were not written, or nobody knows, as `error.outcome` says."""
        if len(items):
            self._errors.append((items, error))
            self._close(len(items))

    def _close(self, count: int) -> None:
        self._open -= count
        assert self._open >= 0, "an item was decided twice"
        if self._open:
            return
        if self.on_close is not None:
            self.on_close(sum(call.nbytes for call in self._calls))
        if self._errors:
            self._tell_errors()
            return
        if len(self._calls) > 1 and not any(call.is_many for call in self._calls):
            for call, id_, kind in zip(self._calls, self._ids.tolist(), self._kinds.tolist(), strict=True):
                if not call.future.done():
                    call.future.set_result(Stored(id_ or None, kind_name(kind)))
            return
        low = 0
        for call in self._calls:
            high = low + len(call.changes)
            call.succeed(self._ids[low:high], self._kinds[low:high], previous=self.previous)
            low = high

    def _tell_errors(self) -> None:
        fate = np.full(len(self._ids), -1)
        for index, (items, _) in enumerate(self._errors):
            fate[items] = index
        low = 0
        for call in self._calls:
            high = low + len(call.changes)
            own = fate[low:high]
            if (own < 0).all():
                call.succeed(self._ids[low:high], self._kinds[low:high], previous=self.previous)
            else:
                call.fail(self._error_of(own))
            low = high

    def _error_of(self, fate: npt.NDArray[np.int64]) -> EventLogError:
        """Return the one error of all items of a call, or which of them fared how."""
        errors: list[EventLogError] = [self._errors[index][1] for index in sorted(set(fate.tolist()) - {-1})]
        outcomes = {error.outcome for error in errors}
        if (fate >= 0).all() and len(outcomes) == 1:
            return errors[0]
        unknown = [index for index, (_, error) in enumerate(self._errors) if error.outcome == "unknown"]
        is_unknown = np.isin(fate, unknown)
        return PartlyWritten(
            outcome="unknown" if "unknown" in outcomes else "none",
            why=str(errors[0]),
            ok=np.flatnonzero(fate < 0).tolist(),
            none=np.flatnonzero((fate >= 0) & ~is_unknown).tolist(),
            unknown=np.flatnonzero(is_unknown).tolist(),
        )


def kinds_of(removed: Sequence[bool] | None, count: int) -> npt.NDArray[np.uint8]:
    """Return the kinds that a client's block has."""
    return np.zeros(count, np.uint8) if removed is None else np.where(removed, np.uint8(Kind.REMOVED), np.uint8(Kind.CREATED))
