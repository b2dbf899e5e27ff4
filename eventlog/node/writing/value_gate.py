"""Where values are checked by the schema of their cache, before they wait for a group; caches that validate none have no part in it.

What a few steps say is said on the loop. The rest goes to a thread, in turns: one cache that asks for much work delays another by one turn.
What comes later for a cache of which frames are with the thread stands in line behind them, so its writes keep their order.
"""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from eventlog.control.records import CacheOptions
from eventlog.errors import EventLogError, Stopping, tellable
from eventlog.limits import CHECK_LOOP_STEPS_MAX, CHECKED_SCHEMAS_BYTES_MAX, KIB, PROCESS_BYTES_IN_FLIGHT_MAX
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.writing.writer import NodeWriter
from eventlog.schema.avro_check import AvroCheck
from eventlog.schema.checking import ValueCheck, ValuesCheck
from eventlog.schema.json_check import JsonCheck
from eventlog.state.caches import CacheState
from eventlog.write.groups import Pending, puts_of

_LOOP_BYTES_MAX: Final = 64 * KIB  # of a frame that is looked at on the loop at all
_TURN_STEPS: Final = 200_000  # of a cache in the thread: some tens of milliseconds, if no value has more


@dataclass(slots=True, eq=False)
class _Frame:
    """A frame in line; `check` is made in its first turn, unless the loop has begun it."""

    pending: Pending
    check: ValuesCheck | None


class ValueGate:
    """Gives frames to the writer once their values are checked."""

    def __init__(self, writer: NodeWriter, *, thread: ReaderThread) -> None:
        self.make = made_of  # what checks the values of a cache
        self._writer = writer
        self._thread = thread
        self._checks: dict[int, tuple[CacheOptions, ValueCheck]] = {}  # the last used at the end
        self._lines: dict[int, deque[_Frame]] = {}  # of caches of which the first frame is with the thread
        self._is_empty = asyncio.Event()
        self.nbytes = 0
        self.peak = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, pending: Pending) -> None:
        """Queue a frame for the next group if the schema takes its values; else it is refused whole, by the first that is not taken."""
        cache = pending.cache
        line = self._lines.get(cache.cache_id)
        if line is not None:
            line.append(self._counted(_Frame(pending, None)))
            return
        check = self._begun(pending)
        if check is not None and check.look(CHECK_LOOP_STEPS_MAX, ends_values=False):
            self._pass(pending, check)
            return
        self._lines[cache.cache_id] = deque((self._counted(_Frame(pending, check)),))
        self._is_empty.clear()
        self._go_on(cache)

    async def check(self, pending: Pending) -> None:
        """Return if the schema takes the values of a frame that is to be written later. Raises BadValue."""
        frame = _Frame(pending, None)
        while not await self._thread.run(frame, partial(self._look, frame)):
            pass
        if frame.check is not None and frame.check.refusal is not None:
            raise frame.check.refusal

    async def drain(self) -> None:
        """Wait until the writer has all that was submitted, or for as long as a request may take."""
        if self._lines:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._writer.wait_ms_max / 1000):
                    await self._is_empty.wait()

    async def stop(self) -> None:
        """End the thread; frames that wait for it are refused."""
        await self._thread.stop()

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"unchecked_bytes": (self.nbytes, PROCESS_BYTES_IN_FLIGHT_MAX, self.peak)}

    # ------------------------------------------------------------ on the loop

    def _begun(self, pending: Pending) -> ValuesCheck | None:
        """Return the check of a frame, None where the loop is not the place even to begin it."""
        known = self._checks.get(pending.cache.cache_id)
        if known is None or known[0] is not pending.cache.options or len(pending.blocks) > _LOOP_BYTES_MAX:
            return None
        return ValuesCheck(puts_of(pending, self._writer.bounds), known[1])

    def _counted(self, frame: _Frame) -> _Frame:
        frame.pending.cache.unchecked += 1
        self.nbytes += len(frame.pending.blocks)
        self.peak = max(self.peak, self.nbytes)
        return frame

    def _go_on(self, cache: CacheState) -> None:
        turn = self._thread.run(cache.cache_id, partial(self._look, self._lines[cache.cache_id][0]))
        turn.add_done_callback(partial(self._looked, cache))

    def _looked(self, cache: CacheState, turn: "asyncio.Future[bool]") -> None:
        """Take note of a turn of the thread: it has ended a frame or not, has failed at it, or does nothing any more."""
        line = self._lines[cache.cache_id]
        error = Stopping() if turn.cancelled() else turn.exception()
        while line and (error is not None or turn.result()):
            frame = line.popleft()
            cache.unchecked -= 1
            self.nbytes -= len(frame.pending.blocks)
            if error is None:
                self._pass(frame.pending, frame.check)
                break
            _refuse(frame.pending, tellable(error))
            if not turn.cancelled():
                break
        if line:
            self._go_on(cache)
            return
        del self._lines[cache.cache_id]
        if not self._lines:
            self._is_empty.set()

    def _pass(self, pending: Pending, check: ValuesCheck | None) -> None:
        # one that was written before is answered as it was then, whatever the schema has become
        if check is None or check.refusal is None or _is_repeated(pending):
            self._writer.submit(pending)
        else:
            _refuse(pending, check.refusal)

    # ------------------------------------------------------------ in the thread

    def _look(self, frame: _Frame) -> bool:
        """Have a turn at a frame; return whether all is said of it."""
        if frame.check is None:
            options = frame.pending.cache.options
            if not options.validate:
                return True
            check = self._check_of(frame.pending.cache.cache_id, options)
            frame.check = ValuesCheck(puts_of(frame.pending, self._writer.bounds), check)
        return frame.check.look(_TURN_STEPS, ends_values=True)

    def _check_of(self, cache_id: int, options: CacheOptions) -> ValueCheck:
        known = self._checks.pop(cache_id, None)
        if known is None or known[0] is not options:
            known = options, self.make(options)
        left = CHECKED_SCHEMAS_BYTES_MAX - len(options.schema)
        for other, (others, _) in reversed(list(self._checks.items())):
            left -= len(others.schema)
            if left < 0:
                del self._checks[other]
        self._checks[cache_id] = known
        return known[1]


def made_of(options: CacheOptions) -> ValueCheck:
    """Return what checks the values of a cache."""
    return AvroCheck(options.schema) if options.format == "avro" else JsonCheck(options.schema)


def _refuse(pending: Pending, error: EventLogError) -> None:
    pending.done(error)
    if pending.send is not None:
        pending.send()


def _is_repeated(pending: Pending) -> bool:
    if not pending.producer:
        return False
    rows = pending.table.rows
    segments, sequences = rows["segment"].astype(np.int64), rows["sequence"].astype(np.int64)
    return pending.cache.producers.has_taken(pending.producer, segments, sequences)
