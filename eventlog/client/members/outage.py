"""How long a member goes on trying while the cluster does not answer, and who is told of it."""

import logging
from collections.abc import Callable

from eventlog.clock import now_s
from eventlog.errors import EventLogError

log = logging.getLogger("eventlog.client")
OUTAGE_MS_DEFAULT = 5 * 60_000
OnOutage = Callable[[EventLogError | None], None]


class Outage:
    """What of one member fails now: heartbeats, commits, reading from a node. Each is known by a name, and fails since some time.

    A line is logged and `on_outage` called with the error when something has failed for `told_ms`; again, with None, when all works.
    """

    def __init__(
        self, group: str, *, outage_ms: int, told_ms: int, on_outage: OnOutage | None = None, now: Callable[[], float] = now_s
    ) -> None:
        self.outage_ms = outage_ms
        self._now = now
        self._group = group
        self._told_ms = told_ms
        self._on_outage = on_outage
        self._since: dict[str, float] = {}
        self._is_told = False

    def failed(self, what: str, error: EventLogError) -> bool:
        """Take note of a failed try; return whether it is to be given up: no try has succeeded for `outage_ms`."""
        now = self._now()
        lasted_ms = (now - self._since.setdefault(what, now)) * 1000
        if lasted_ms >= self._told_ms and not self._is_told:
            self._is_told = True
            log.warning("group_outage group=%s what=%s gives_up_after_ms=%d error=%s", self._group, what, self.outage_ms, error)
            self._tell(error)
        return lasted_ms >= self.outage_ms

    def works(self, what: str) -> None:
        """Take note of a try that was answered."""
        if self._since and self._since.pop(what, None) is not None and not self._since and self._is_told:
            self._is_told = False
            log.info("group_outage_over group=%s", self._group)
            self._tell(None)

    def _tell(self, error: EventLogError | None) -> None:
        if self._on_outage is None:
            return
        try:
            self._on_outage(error)
        except Exception:  # the application's own code: the member goes on
            log.exception("on_outage_failed group=%s", self._group)
