"""Calls that write: what each wants written, the room that it waits for, and what became of it."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.batch.one import build_one
from eventlog.client.options import FRAME_EVENTS_TARGET
from eventlog.client.values import StoredMany, written
from eventlog.client.writing.singles import Condition
from eventlog.errors import ClientClosed, EventLogError, PartlyWritten, TimedOut
from eventlog.events import Kind

EVENT_BYTES = 24  # kind, two offsets and padding of an event in a block, about


@dataclass(slots=True, kw_only=True)  # one a call: `frozen` ones take longer to make
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
        if len(self.keys) == 1:
            return len(self.keys[0]) + len(self.values[0]) + EVENT_BYTES + (len(self.headers[0]) if self.headers else 0)
        size = sum(map(len, self.keys)) + sum(map(len, self.values)) + EVENT_BYTES * len(self.keys)
        return size if self.headers is None else size + sum(map(len, self.headers))

    def buffers(self, segments: Ints, sequences: Ints) -> Sequence[bytes]:
        """Return the block of the one event that these are, with its table. It has no lifespan."""
        kind = _REMOVED if self.removed is not None and self.removed[0] else _CREATED
        segment, sequence, headers = segments.item(0), sequences.item(0) if len(sequences) else 0, self.headers[0] if self.headers else b""
        return (build_one(self.keys[0], self.values[0], kind=kind, segment=segment, sequence=sequence, headers=headers),)

    def part(self, blocks: Ints) -> "Changes":
        """Return itself: it is one block."""
        assert len(blocks) <= 1
        return self


_CREATED, _REMOVED = int(Kind.CREATED), int(Kind.REMOVED)
Items = npt.NDArray[np.int64]
_NO_KINDS = np.zeros(0, np.uint8)


class WriteCall:
    """One application call that writes, or a part of one, until its future is done. `deadline` is in the loop's time."""

    __slots__ = ("changes", "deadline", "future", "is_alone", "is_held", "is_many", "nbytes", "timeout_ms")

    def __init__(self, changes: Changes, *, timeout_ms: int, is_many: bool, deadline: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        self.changes = changes
        self.timeout_ms = timeout_ms
        self.deadline = deadline or loop.time() + timeout_ms / 1000
        self.is_many = is_many
        self.is_alone = changes.condition is not None or changes.wants_previous  # has a frame of its own
        self.is_held = False  # some of it waits for a segment that cannot be written now
        self.nbytes = changes.nbytes
        self.future: asyncio.Future[Any] = loop.create_future()

    @property
    def is_live(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.future.done()

    def succeed(self, ids: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8], *, previous: bytes | None = None) -> None:
        """Tell what was written; `previous` is raw, the caller decodes it."""
        if not self.future.done():
            one = None if self.is_many else written(ids.item(0), kinds.item(0), previous)
            self.future.set_result(one or StoredMany(ids, kinds))

    def fail(self, error: EventLogError) -> None:
        """Tell why not. Every call gets an error of its own: each waiter adds its traceback."""
        if not self.future.done():
            self.future.set_exception(type(error)(outcome=error.outcome, **error.facts()))


class Backlog:
    """Calls in the order in which they were admitted. `nbytes` counts them and those in frames, until `release`.

    At most half of the room is for calls that wait for segments that cannot be written now: others need not wait for those to end.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.calls: deque[WriteCall] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._granted = 0  # waiters that have their room and have not run since: nobody may overtake them
        self.nbytes = 0
        self.held_bytes = 0

    async def admit(self, nbytes: int, *, deadline: float, timeout_ms: int) -> None:
        """Take up `nbytes` as soon as there is room, in order of arrival. What is larger than all room gets it alone.

        Raises:
            TimedOut: no room until `deadline`. Nothing was sent.
            ClientClosed: `close` was called meanwhile.
        """
        if not self._waiters and not self._granted and self._fits(nbytes):
            self.nbytes += nbytes
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (nbytes, waiter)
        self._waiters.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._granted -= 1
                self.release(nbytes)  # there was room, and then it was not wanted any more
            else:
                with suppress(ValueError):  # it was its turn in the very moment
                    self._waiters.remove(place)
                self._wake()
            if isinstance(error, TimeoutError):
                raise TimedOut(what="room among the bytes unanswered", timeout_ms=timeout_ms) from None
            raise
        self._granted -= 1
        self._wake()  # what came meanwhile may fit; it runs after the caller, who goes on at once

    def _fits(self, nbytes: int) -> bool:
        return self.nbytes == 0 or self.nbytes + nbytes <= self._bytes_max

    def release(self, nbytes: int) -> None:
        """Give room back."""
        self.nbytes -= nbytes
        self._wake()

    def hold(self, calls: Sequence[WriteCall]) -> bool:
        """Count calls among those that wait for segments that cannot be written; False where there is no room for that."""
        new = [call for call in calls if not call.is_held]
        nbytes = sum([call.nbytes for call in new])
        if self.held_bytes and self.held_bytes + nbytes > self._bytes_max // 2:
            return False
        self.held_bytes += nbytes
        for call in new:
            call.is_held = True
        return True

    def closed(self, call: WriteCall) -> None:
        """Give back the room of a call that is decided."""
        self.nbytes -= call.nbytes
        if call.is_held:
            self.held_bytes -= call.nbytes
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            nbytes, waiter = self._waiters.popleft()
            if not waiter.done():
                self.nbytes += nbytes
                self._granted += 1
                waiter.set_result(None)

    def close(self) -> None:
        """Send away the calls that wait for room."""
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(ClientClosed(what="client"))

    def take(self, *, bytes_target: int) -> list[WriteCall]:
        """Return the calls of the next frame: the oldest, and what follows it in its cache, up to the target. Empty if none waits."""
        taken: list[WriteCall] = []
        size = events = 0
        while self.calls:
            call = self.calls[0]
            if not call.is_live:
                self.release(self.calls.popleft().nbytes)
                continue
            joined = (size + call.nbytes, events + len(call.changes))
            if taken and not _may_join(call, taken[0], joined, bytes_target=bytes_target):
                break
            taken.append(self.calls.popleft())
            size, events = joined
            if call.is_alone:
                break
        return taken

    def waiting(self) -> Iterator[WriteCall]:
        """Yield the calls that are in no frame yet."""
        return iter(tuple(self.calls))

    def forget_dead(self) -> None:
        """Drop calls that nobody waits for."""
        dead = [call for call in self.calls if not call.is_live]
        self.calls = deque(call for call in self.calls if call.is_live)
        for call in dead:
            self.release(call.nbytes)


def _may_join(call: WriteCall, first: WriteCall, joined: tuple[int, int], *, bytes_target: int) -> bool:
    nbytes, events = joined
    is_same = call.changes.cache_id == first.changes.cache_id and not call.is_alone
    return is_same and nbytes <= bytes_target and events <= FRAME_EVENTS_TARGET


class Ledger:
    """What became of the items of some calls that were put together, by index over all of them.

    A call is told as soon as every item of it is decided; others of the ledger may be on their way to another node still.
    """

    __slots__ = ("_bounds", "_errors", "_ids", "_kinds", "_left", "_places", "calls", "on_close", "previous")

    def __init__(self, calls: list[WriteCall]) -> None:
        self.calls = calls
        self.on_close: Callable[[WriteCall], None] | None = None
        self.previous: bytes | None = None
        self._errors: list[tuple[Items, EventLogError]] = []
        self._bounds = NONE  # where each call begins, and the last ends; made when there is more than one item
        self._left = NONE  # how many items of each call are undecided
        self._ids = NONE
        self._places: dict[int, int] = {}  # of the calls, by their identity; made where it is asked for
        self._kinds: npt.NDArray[np.uint8] = _NO_KINDS

    def _begin(self) -> None:
        if not len(self._bounds):
            self._left = np.array([len(call.changes) for call in self.calls], np.int64)
            self._bounds = np.append(0, np.cumsum(self._left))
            self._ids, self._kinds = np.zeros(self._bounds[-1], np.int64), np.zeros(self._bounds[-1], np.uint8)

    def owners(self, items: Items) -> Items:
        """Return which call each item belongs to, by index."""
        self._begin()
        return np.searchsorted(self._bounds, items, side="right") - 1

    def begin_of(self, index: int) -> int:
        """Return the first item of a call."""
        self._begin()
        return self._bounds.item(index)

    def accept_one(self, id_: int, kind: int) -> None:
        """Note that the only item of the only call was written."""
        call = self.calls[0]
        if self.on_close is not None:
            self.on_close(call)
        if call.future.done():
            return
        if call.is_many:
            call.future.set_result(StoredMany(np.array((id_,), np.int64), np.array((kind,), np.uint8)))
        else:
            call.future.set_result(written(id_, kind, self.previous))

    def accept(self, items: Items, ids: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8]) -> None:
        """Note that items were written under `ids`."""
        self._begin()
        self._ids[items] = ids
        self._kinds[items] = kinds
        self._close(items)

    def fail(self, items: Items, error: EventLogError) -> None:
        """Note that items were not written, or nobody knows, as `error.outcome` says."""
        if len(items):
            self._begin()
            self._errors.append((items, error))
            self._close(items)

    def so_far(self, call: WriteCall, waiting: Sequence[tuple[Items, EventLogError]]) -> EventLogError:
        """Return what to tell of a call that is out of time; `waiting` are the items of frames that are undecided, of other calls too."""
        self._begin()
        if not self._places:
            self._places = {id(one): place for place, one in enumerate(self.calls)}
        index = self._places[id(call)]
        errors = [*self._errors, *waiting]
        return _error_of(_fate_of(errors, slice(self._bounds[index], self._bounds[index + 1])), errors)

    def _close(self, items: Items) -> None:
        if len(self.calls) == 1:
            self._left[0] -= len(items)
            touched = [0]
        else:
            owners = self.owners(items)
            np.subtract.at(self._left, owners, 1)
            touched = np.unique(owners).tolist() if len(items) > 1 else owners.tolist()
        assert self._left.min() >= 0, "an item was decided twice"
        done = [index for index, left in zip(touched, self._left[touched].tolist(), strict=True) if not left]
        if self._errors or any(self.calls[index].is_many for index in done):
            for index in done:
                self._tell(index)
        elif done:
            self._tell_singles(done)

    def _tell_singles(self, done: list[int]) -> None:
        """Tell calls of one item each that all is well."""
        places = self._bounds[done]
        for index, id_, kind in zip(done, self._ids[places].tolist(), self._kinds[places].tolist(), strict=True):
            call = self.calls[index]
            if self.on_close is not None:
                self.on_close(call)
            if not call.future.done():
                call.future.set_result(written(id_, kind, self.previous))

    def _tell(self, index: int) -> None:
        call, own = self.calls[index], slice(self._bounds[index], self._bounds[index + 1])
        if self.on_close is not None:
            self.on_close(call)
        if not self._errors:
            call.succeed(self._ids[own], self._kinds[own], previous=self.previous)
            return
        fate = _fate_of(self._errors, own)
        if (fate < 0).all():
            call.succeed(self._ids[own], self._kinds[own], previous=self.previous)
        else:
            call.fail(_error_of(fate, self._errors))


def _fate_of(errors: Sequence[tuple[Items, EventLogError]], own: slice) -> Items:
    """Return for each item of a call the index of its error, -1 for none."""
    fate = np.full(own.stop - own.start, -1)
    for number, (items, _) in enumerate(errors):
        fate[items[(items >= own.start) & (items < own.stop)] - own.start] = number
    return fate


def _error_of(fate: Items, known: Sequence[tuple[Items, EventLogError]]) -> EventLogError:
    """Return the one error of all items of a call, or which of them fared how."""
    errors: list[EventLogError] = [known[index][1] for index in sorted(set(fate.tolist()) - {-1})]
    outcomes = {error.outcome for error in errors}
    if (fate >= 0).all() and len(outcomes) == 1:
        return errors[0]
    unknown = [index for index, (_, error) in enumerate(known) if error.outcome == "unknown"]
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
