"""From a reader's batches to a cache: a few writes on their way at once, in order, counted, and stopped at the right row.

The loader writes to any `Target`; `CacheTarget` is a cache.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eventlog.errors import EventLogError
from eventlog.limits import MIB, STAGE_KEEP_MS_MAX
from eventlog_cli.loading.rows import FormatReader, Rejection, RowBatch

if TYPE_CHECKING:
    from eventlog.blocking import Cache
    from eventlog.client.values import StoredMany

WRITES_IN_FLIGHT_MAX = 4  # a node remembers the results of five blocks of a producer and segment
ROWS_TOGETHER_MAX = 10_000
BYTES_TOGETHER_MAX = 1 * MIB  # larger writes gain nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRows:
    """What one write made: `events`, fewer than rows where a removal found nothing, and their lowest and highest id."""

    events: int
    first_id: int | None
    last_id: int | None


class UnderWay(Protocol):
    """A write on its way."""

    def result(self) -> LoadedRows:
        """Wait for the answer and return it, or raise its error."""
        ...


class Target(Protocol):
    """Takes batches in order."""

    def write(self, batch: RowBatch) -> UnderWay:
        """Send a batch; rows of one key take effect in the order in which they were sent."""
        ...


@dataclass(slots=True, kw_only=True)
class Summary:
    """What was loaded so far. Every row up to `last_line`, inclusive, is written or was rejected."""

    loaded: int = 0
    events: int = 0
    rejected: int = 0
    first_id: int | None = None
    last_id: int | None = None
    last_line: int = 0

    def add(self, batch: RowBatch, written: LoadedRows, *, has_gap: bool) -> None:
        """Count an answered batch; with a gap, one before it failed."""
        self.loaded += len(batch.keys)
        self.events += written.events
        if not has_gap:
            self.last_line = batch.last_line
        ids = [found for found in (self.first_id, self.last_id, written.first_id, written.last_id) if found is not None]
        self.first_id, self.last_id = min(ids, default=None), max(ids, default=None)


class Loader:
    """Loads one source. After an error or an interrupt `summary` still says what was written.

    `gathers`: batches are sent together up to ROWS_TOGETHER_MAX, which halves the work a row. Not for a source that makes readers
    wait, where rows would lie here until the next ones come.
    """

    def __init__(
        self,
        target: Target,
        *,
        errors_max: int,
        gathers: bool,
        on_rejection: Callable[[Rejection], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self._target = target
        self._errors_max = errors_max
        self._gathers = gathers
        self._gathered = RowBatch()
        self._gathered_bytes = 0
        self._on_rejection = on_rejection
        self._on_progress = on_progress
        self._pending: deque[tuple[RowBatch, UnderWay]] = deque()
        self._has_gap = False
        self.summary = Summary()

    def run(self, reader: FormatReader) -> Rejection | None:
        """Write all rows; return the rejected row at which loading stopped, None if it went through to the end."""
        try:
            return self._write_all(reader)
        finally:
            self._settle_all()

    def _write_all(self, reader: FormatReader) -> Rejection | None:
        for batch in reader.batches():
            stop = self._first_beyond_limit(batch)
            accepted = batch if stop is None else batch.before(stop)
            for rejection in batch.rejections:
                if stop is None or rejection.line < stop.line:
                    self._on_rejection(rejection)
            self._gathered_bytes += sum(map(len, accepted.values))
            self._gathered.extend(accepted)
            if stop is not None:
                self._send()
                return stop
            if not self._gathers or len(self._gathered.keys) >= ROWS_TOGETHER_MAX or self._gathered_bytes >= BYTES_TOGETHER_MAX:
                self._send()
            self._on_progress(self.summary.loaded)
        self._send()
        return None

    def _send(self) -> None:
        batch, self._gathered, self._gathered_bytes = self._gathered, RowBatch(), 0
        if batch.keys:
            self._pending.append((batch, self._target.write(batch)))
        while len(self._pending) >= WRITES_IN_FLIGHT_MAX:
            self._settle_oldest()

    def _first_beyond_limit(self, batch: RowBatch) -> Rejection | None:
        for rejection in batch.rejections:
            self.summary.rejected += 1
            if rejection.is_last or self.summary.rejected > self._errors_max:
                return rejection
        return None

    def _settle_oldest(self) -> None:
        batch, pending = self._pending[0]  # it stays the oldest if an interrupt comes while its answer is waited for
        try:
            written = pending.result()
        except EventLogError:
            self._has_gap = True
            self._pending.popleft()
            raise
        self._pending.popleft()
        self.summary.add(batch, written, has_gap=self._has_gap)

    def _settle_all(self) -> None:
        """Wait for what is on its way. The first error wins; writes after it are waited for, and counted if they succeeded."""
        first_error: EventLogError | None = None
        while self._pending:
            try:
                self._settle_oldest()
            except EventLogError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error


class CacheTarget:
    """Writes to a cache. The client keeps the order of what is sent, and holds this back while too much is unanswered."""

    def __init__(self, cache: "Cache") -> None:
        self._cache = cache

    def write(self, batch: RowBatch) -> "Sent":
        """Send a batch."""
        return Sent(self._cache.send_columns(batch.keys, batch.values, removed=batch.removals or None))


class Sent:
    """A batch on its way."""

    def __init__(self, future: "Future[StoredMany]") -> None:
        self._future = future

    @property
    def ids(self) -> list[int | None]:
        """Ids in the order of the batch, None for a removal that found nothing; waits for the answer."""
        return self._future.result().ids

    def result(self) -> LoadedRows:
        """Wait for the answer."""
        stored = self._future.result()
        return LoadedRows(events=stored.events, first_id=stored.first_id, last_id=stored.last_id)


class StageTarget:
    """Lays rows ready for one transaction: all of a file is written at its end, once, or nothing of it."""

    def __init__(self, cache: "Cache", transaction: str) -> None:
        self._cache = cache
        self._transaction = transaction
        self._stage = cache.stage(keep_ms=STAGE_KEEP_MS_MAX)

    def write(self, batch: RowBatch) -> "Laid":
        """Lay a batch ready."""
        self._stage.put_columns(batch.keys, batch.values, removed=batch.removals or None)
        return Laid(len(batch.keys))

    def publish(self) -> bool:
        """Have everything written; return whether the transaction had been published before, and so nothing is."""
        return self._cache.publish(self._transaction, 0, [self._stage.staged()])


@dataclass(frozen=True, slots=True)
class Laid:
    """A batch that is laid ready."""

    rows: int

    def result(self) -> LoadedRows:
        """Return how many rows it has; they have no ids yet."""
        return LoadedRows(events=self.rows, first_id=None, last_id=None)
