"""`format("eventlog")` as a stream: every micro-batch is the next stretch of the log in the order of ids."""

import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader

from eventlog.client.reading.wanted import OnTrimmed
from eventlog.client.reports import Plan
from eventlog.errors import EventLogError, EventsTrimmed, Unavailable
from eventlog.ids import id_before, time_of
from eventlog.integrations.archive.holding import hold_behind
from eventlog.integrations.spark.columns import SparkShape
from eventlog.integrations.spark.offsets import Losses, Reported, Scope, after_of, id_of, offset_of, report_of
from eventlog.integrations.spark.options import SourceOptions, Start
from eventlog.integrations.spark.reading import RangePartition, SourceReading
from eventlog.integrations.spark.session import client_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError:  # PySpark 4.1 has no limits of a trigger, and by itself it ends such a query with what is there as it begins
    SupportsTriggerAvailableNow = object

_MOMENT_S: Final = 0.002
_AHEAD_S: Final = 0.02
_PASSED_S: Final = CLOCK_AHEAD_MS_MAX / 1000 + 1  # the low watermark moves with the clock, of which ids may be ahead


class EventsStreamReader(SourceReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream: every micro-batch is the next stretch of the log in the order of ids."""

    def __init__(self, options: SourceOptions, shape: SparkShape) -> None:
        super().__init__(options, shape)
        self._initial: dict[str, Any] | None = None
        self._target: int | None = None
        self._planned: Plan | None = None
        self._is_idle = False
        self._is_held = not options.hold
        self._losses = Losses()
        self._log_end: int | None = None
        self._reported: dict[str, Any] | None = None
        self._stands: dict[str, Any] | None = None

    @cached_property
    def _scope(self) -> Scope:
        options = self._options
        return Scope(cluster=client_of(options).cluster, cache=options.cache, cache_id=self._cache.info().id)

    def _id(self, offset: dict[str, Any]) -> int:
        return id_of(offset, self._scope)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where a new query begins, the log's end for one that is to begin ahead of it; the same each time it is asked.

        A query whose first micro-batch was not done asks again when it is started again, and then the log may end elsewhere: so the end of
        that one says behind which id it begins, and nothing is let go of here that a listener holds for it.
        """
        if self._initial is None:
            after, end = self._begin(self._options.starting_position or Start(word="latest")), self._cache.log_ends().last_id
            self._initial = offset_of(min(after, end), self._scope, after=after if after > end else None)
        return self._initial

    def latestOffset(self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where the next micro-batch ends; waits a little where there is nothing, so that an idle query does not ask on and on.

        Where something has come in the moment that is not over yet, it waits for that: Spark takes the same offset for the end of what
        there is, and `processAllAvailable` returns. Behind a failover ids are some seconds ahead of the clock, and so is the moment's end.

        PySpark 4.1 does not say where the query stands. It is where the last answer was, or one of Spark's own calls. A query that goes on
        has neither: the first answer is the end of what there is, which is the same text as in the checkpoint where nothing has come.
        """
        start = start or self._stands or self._initial
        self._stands = self._end_of_all() if start is None else self._latest(start, limit)
        return self._stands

    def _end_of_all(self) -> dict[str, Any]:
        plan = self._plan_moments(0)
        return offset_of(plan.upto if plan.events else self._cache.log_ends().last_id, self._scope)

    def _latest(self, start: dict[str, Any], limit: "ReadLimit | None") -> dict[str, Any]:
        if not self._is_held:
            self._hold(self._id(start))
        after = after_of(start, start, self._scope)
        self._count_lost(after)
        limits = {"max_events": getattr(limit, "max_rows", 0), "max_bytes": getattr(limit, "max_bytes", 0)}
        deadline = time.monotonic() + (0 if self._target is not None else self._options.max_wait_ms / 1000)
        if self._is_idle and self._is_still(after, deadline):
            return start
        give_up_at = time.monotonic() + _PASSED_S
        while True:
            plan = self._planned = self._plan_moments(after, **limits)
            self._is_idle = not plan.events and self._target is None
            if plan.events:
                return offset_of(plan.upto, self._scope, after=after if start == self._initial else None)
            if self._is_idle and time.monotonic() < give_up_at and self._plan(after, upto=self._log_end).events:
                time.sleep(_MOMENT_S if time.monotonic() < deadline else _AHEAD_S)  # what has come is of the moment that is passing
            elif time.monotonic() >= deadline or self._is_still(after, deadline):
                return start

    def _plan_moments(self, after: int, **limits: int) -> "Plan":
        """Return a plan that ends with a whole millisecond, or where that is more than its limits, with the one before.

        Behind a watermark a row is late for Spark if its time is not later than the latest of the micro-batch before.
        """
        self._log_end = self._cache.log_ends().last_id
        upto = id_before(time_of(self._log_end + 1))
        upto = upto if self._target is None else min(upto, self._target)
        plan = self._plan(after, upto=upto, **limits)
        if not plan.events or not any(limits.values()):
            return plan
        rest = self._plan(plan.upto, upto=min(id_before(time_of(plan.upto) + 1), upto))
        if not rest.events:
            return plan
        earlier = id_before(time_of(plan.upto))
        found = self._plan(after, upto=earlier) if earlier > after else None
        return found if found is not None and found.events else self._plan(after, upto=rest.upto)

    def _count_lost(self, after: int) -> None:
        """Take note of what retention has taken behind an id, where a query goes on without it."""
        archive = self._archive(after)
        if self._options.fail_on_data_loss or (archive is not None and archive.after <= after < archive.upto):
            return
        with suppress(EventLogError):  # the plan says what is wrong
            try:
                self._cache.poll(after, max_events=0, segments=self._options.segments or None)
            except EventsTrimmed as error:
                self._losses.saw(after, error.lost)

    def _is_still(self, after: int, deadline: float) -> bool:
        """Return when something happens behind an id, which the node tells, or it is time: then True, if nothing is wrong."""
        left_ms = max(int((deadline - time.monotonic()) * 1000), 1)
        on_trimmed: OnTrimmed = "error" if self._options.fail_on_data_loss else "earliest"
        with suppress(EventLogError):  # the plan says what is wrong
            self._cache.poll(after, max_events=0, wait_ms=left_ms, segments=self._options.segments or None, on_trimmed=on_trimmed)
            return time.monotonic() >= deadline
        return False

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802 -- Spark's name
        """Return the limit of a micro-batch, as the options have it."""
        options = self._options
        if options.max_events_per_trigger:
            return ReadMaxRows(options.max_events_per_trigger)
        return ReadMaxBytes(options.max_bytes_per_trigger) if options.max_bytes_per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Have the query end with what can be seen now, and the millisecond that it ends in."""
        target = id_before(time_of(self._cache.log_ends(whole=True).last_id) + 1)
        give_up_at = time.monotonic() + _PASSED_S
        while self._cache.log_ends().last_id < target and time.monotonic() < give_up_at:
            time.sleep(_MOMENT_S)
        self._target = target

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Return the end of the log, for Spark's own figures of lag, and what `progress` needs; the one before where nobody can say it."""
        options = self._options
        with suppress(EventLogError):  # it is for figures alone, and the plan says what is wrong
            reported = Reported(scope=self._scope, servers=options.servers, segments=options.segments, losses=self._losses.events)
            at, self._log_end = self._log_end, None  # as this micro-batch was planned by, where one was
            self._reported = report_of(self._cache.log_ends().last_id if at is None else at, reported)
        return self._reported

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Return what the tasks of a micro-batch read: the same for the same ends, whenever it is asked."""
        after, upto, plan = after_of(start, end, self._scope), self._id(end), self._planned
        self._stands = self._stands or end
        if plan is None or (plan.after, plan.upto) != (after, upto):
            plan = self._plan(after, upto=upto)
        return self._partitions(plan)

    def commit(self, end: dict[str, Any]) -> None:
        """Have retention no longer keep what is done, where it does; what does not come through is said again with the next one."""
        if self._options.hold:
            with suppress(Unavailable):
                self._hold(self._id(end))

    def _hold(self, at: int) -> None:
        """Have retention keep what comes behind an id, if asked to. Raises InvalidArgument where the name is taken."""
        options = self._options
        if options.hold:
            hold_behind(client_of(options), options.cache, options.hold, options.hold_bytes, at=at)
        self._is_held = True
