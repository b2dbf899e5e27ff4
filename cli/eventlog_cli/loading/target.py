"""A cache as the target of a loader: columns of bytes as they are, several on their way."""

from concurrent.futures import Future
from typing import TYPE_CHECKING

from eventlog_cli.loading.loader import Written
from eventlog_cli.loading.rows import Batch

if TYPE_CHECKING:
    from eventlog.blocking import Cache
    from eventlog.client.values import StoredMany


class CacheTarget:
    """Writes to a cache. The client keeps the order of what is sent, and holds this back while too much is unanswered."""

    def __init__(self, cache: "Cache") -> None:
        self._cache = cache

    def write(self, batch: Batch) -> "Sent":
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

    def result(self) -> Written:
        """Wait for the answer."""
        stored = self._future.result()
        return Written(events=stored.events, first_id=stored.first_id, last_id=stored.last_id)
