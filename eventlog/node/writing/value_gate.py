"""Where values are checked by the schema of their cache, before they wait for a group; caches that validate none have no part in it.

What a few steps say is said on the loop. The rest goes to a thread, frame by frame, and each cache has its turn there. What comes later
for a cache of which frames are with the thread goes behind them, so the writes of a cache keep their order.
"""

import asyncio
from functools import partial
from typing import Final

import numpy as np

from eventlog.control.records import CacheOptions
from eventlog.errors import EventLogError, Stopping, tellable
from eventlog.limits import CHECK_LOOP_STEPS_MAX, CHECKED_SCHEMAS_BYTES_MAX, KIB, PROCESS_BYTES_IN_FLIGHT_MAX
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.writing.writer import NodeWriter
from eventlog.schema.avro_check import AvroCheck
from eventlog.schema.json_check import JsonCheck
from eventlog.write.groups import Pending
from eventlog.write.values import FrameCheck, ValueCheck

_LOOP_BYTES_MAX: Final = 64 * KIB  # of a frame that is looked at on the loop at all


class ValueGate:
    """Gives frames to the writer once their values are checked."""

    def __init__(self, writer: NodeWriter, *, thread: ReaderThread) -> None:
        self._writer = writer
        self._thread = thread
        self._checks: dict[int, tuple[CacheOptions, ValueCheck]] = {}  # the last used at the end
        self._checking: set[asyncio.Future[FrameCheck | None]] = set()
        self.nbytes = 0
        self.peak = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, pending: Pending) -> None:
        """Queue a frame for the next group if the schema takes its values; else it is refused whole, by the first that is not taken."""
        cache = pending.cache
        frame = None
        if not cache.unchecked:
            frame = self._begun(pending)
            if frame is not None and frame.look(CHECK_LOOP_STEPS_MAX):
                self._pass(pending, frame)
                return
        cache.unchecked += 1
        self.nbytes += len(pending.blocks)
        self.peak = max(self.peak, self.nbytes)
        checking = self._thread.run(cache.cache_id, partial(self._look, pending, frame))
        self._checking.add(checking)
        checking.add_done_callback(partial(self._looked, pending))

    async def check(self, pending: Pending) -> None:
        """Return if the schema takes the values of a frame that is to be written later. Raises BadValue."""
        frame = await self._thread.run(pending.cache.cache_id, partial(self._look, pending, None))
        if frame is not None and frame.refusal is not None:
            raise frame.refusal

    async def drain(self) -> None:
        """Wait until the writer has all that was submitted, or for as long as a request may take."""
        if self._checking:
            await asyncio.wait(self._checking, timeout=self._writer.wait_ms_max / 1000)

    async def stop(self) -> None:
        """End the thread; frames that wait for it are refused."""
        await self._thread.stop()

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"unchecked_bytes": (self.nbytes, PROCESS_BYTES_IN_FLIGHT_MAX, self.peak)}

    # ------------------------------------------------------------ on the loop

    def _begun(self, pending: Pending) -> FrameCheck | None:
        """Return the check of a frame, None where the loop is not the place even to begin it."""
        known = self._checks.get(pending.cache.cache_id)
        if known is None or known[0] is not pending.cache.options or len(pending.blocks) > _LOOP_BYTES_MAX:
            return None
        return FrameCheck(pending, known[1], self._writer.bounds)

    def _looked(self, pending: Pending, checking: "asyncio.Future[FrameCheck | None]") -> None:
        self._checking.discard(checking)
        pending.cache.unchecked -= 1
        self.nbytes -= len(pending.blocks)
        error = Stopping() if checking.cancelled() else checking.exception()
        if error is not None:
            _refuse(pending, tellable(error))
        else:
            self._pass(pending, checking.result())

    def _pass(self, pending: Pending, frame: FrameCheck | None) -> None:
        # one that was written before is answered as it was then, whatever the schema has become
        if frame is None or frame.refusal is None or _is_repeated(pending):
            self._writer.submit(pending)
        else:
            _refuse(pending, frame.refusal)

    # ------------------------------------------------------------ in the thread

    def _look(self, pending: Pending, frame: FrameCheck | None) -> FrameCheck | None:
        if frame is None:
            options = pending.cache.options
            if not options.validate:
                return None
            frame = FrameCheck(pending, self._check_of(pending.cache.cache_id, options), self._writer.bounds)
        frame.look_at_all()
        return frame

    def _check_of(self, cache_id: int, options: CacheOptions) -> ValueCheck:
        known = self._checks.pop(cache_id, None)
        if known is None or known[0] is not options:
            check: ValueCheck = AvroCheck(options.schema) if options.format == "avro" else JsonCheck(options.schema)
            known = options, check
        left = CHECKED_SCHEMAS_BYTES_MAX - len(options.schema)
        for other, (others, _) in reversed(list(self._checks.items())):
            left -= len(others.schema)
            if left < 0:
                del self._checks[other]
        self._checks[cache_id] = known
        return known[1]


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
