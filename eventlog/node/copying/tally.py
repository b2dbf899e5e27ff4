"""One log line a moment for what happens to many segments in it."""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("eventlog.node")
_TALLY_MS = 250


class Tally:
    """Counts that are logged once for all of a moment: of 256 segments each may begin, or end, by itself.

    `of` says of how many, as of when the line is written.
    """

    def __init__(self, of: Callable[[], int]) -> None:
        self._of = of
        self._counts: dict[str, int] = {}

    def add(self, event: str, segments: int) -> None:
        """Count segments to which `event` happened."""
        if not self._counts:
            asyncio.get_running_loop().call_later(_TALLY_MS / 1000, self._log)
        self._counts[event] = self._counts.get(event, 0) + segments

    def _log(self) -> None:
        counts, self._counts = self._counts, {}
        for event, segments in counts.items():
            log.info("%s segments=%d of=%d", event, segments, self._of())
