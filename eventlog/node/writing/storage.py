"""The storage thread: it alone writes to the store. Readers and the event loop never wait in its queue.

A turn takes everything queued. Appends that wait, the node's own and those of other primaries alike, become one write and one sync
and are reported first; then the other jobs run in order and are reported together: a hop into the loop costs 15 to 45 us, so it is
paid per group, never per event. Appends overtake every job but a barrier, which is what makes a log shorter.

What groups change in the state goes there a moment later, that of several together and segment by segment: neighbouring keys cost
RocksDB about half of what scattered ones do. Nothing but appends overtakes it; they do so between its writes, too.

How far the logs go is written beside them within milliseconds, while nobody waits: what is told of an append often runs only when
this thread rests.

Where there is no space, an append fails and a change of the state waits: it is readable from the overlay meanwhile, and whatever
needs it in the store is refused. After a failed sync the store is fenced and every later job fails alike.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.errors import UNEXPECTED, DiskFull, EventLogError, StoreFenced
from eventlog.limits import GROUP_BYTES_MAX, MIB, OVERLAY_BYTES_MAX, SYNC_BYTES_MAX
from eventlog.node.workers import Worker
from eventlog.segment.cutting import plan_cuts
from eventlog.segment.port import Pair, Put, Store, StoreEnds

log = logging.getLogger("eventlog.node")

Result = TypeVar("Result")
_STATE_PUTS_MAX = 32_768  # more are handed over at once ...
_STATE_BYTES_MAX = 8 * MIB
_STATE_PUTS_A_WRITE = 4_096  # ... and written a few at a time: a write holds the GIL
assert 2 * _STATE_BYTES_MAX + GROUP_BYTES_MAX < OVERLAY_BYTES_MAX, "groups go on while the store takes what others did"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTimes:
    """How long the thread leaves be what nobody waits for: what goes into the state, and where the logs end.

    `space_every_s` is how often it is looked whether changes of the state find space again.
    """

    state_within_s: float = 0.25
    ends_within_s: float = 0.005
    space_every_s: float = 0.25


STORAGE_TIMES = StorageTimes()


@dataclass(slots=True, kw_only=True, eq=False)  # one a group: `frozen` ones take longer to make
class Append:
    """Values and rows to be made durable; with them the logs of `segments` end with `ends`, of `epochs`."""

    log: Sequence[Pair]
    meta: Sequence[Pair]
    segments: Ints
    ends: Ints
    epochs: npt.NDArray[np.uint32]
    nbytes: int


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    act: Callable[[], Any] | None = None
    append: Append | None = None
    sink: "asyncio.Future[Any] | Told | None" = None  # what is told of the outcome
    is_vital: bool = False  # an error fences the store
    is_barrier: bool = False
    needs_state: bool = False

    @property
    def can_wait(self) -> bool:
        """Return whether it waits for space where it finds none: nobody was told of it, and nothing behind it makes the log shorter."""
        return self.is_vital and not self.is_barrier


Told = Callable[[BaseException | None], None]
_Done = list[tuple["asyncio.Future[Any] | Told", Any, BaseException | None]]


class StorageThread:
    """Runs jobs in turns of a worker. `ends` are the log ends of the store as it was opened; they are kept from here on."""

    def __init__(
        self,
        store: Store,
        *,
        ends: StoreEnds,
        on_fenced: Callable[[StoreFenced], None],
        worker: Worker[_Job],
        times: StorageTimes = STORAGE_TIMES,
    ) -> None:
        self._store = store
        self._worker = worker
        self._times = times
        self._ends = StoreEnds(ids=ends.ids.copy(), epochs=ends.epochs.copy())
        self._ends_due = 0.0  # when they are to be written, 0 where they were since they changed
        self._taken: list[_Job] = []  # before their turn
        self._spaceless: list[_Job] = []  # changes of the state that wait for space, in their order
        self._is_last = True  # nothing stands between the stretch that runs and what comes meanwhile
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now: Callable[[], float]  # the loop's time, from the start on
        self._on_fenced = on_fenced
        self._fenced: StoreFenced | None = None
        self._puts: list[Put] = []  # for the state, not handed over yet
        self._puts_told: list[Told] = []
        self._puts_bytes = 0
        self._puts_due: asyncio.TimerHandle | None = None
        self.syncs = 0
        self.appends = 0

    def start(self) -> None:
        """Start the thread; results are delivered into the running loop."""
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._worker.start(self._work)

    def append(self, append: Append) -> "asyncio.Future[None]":
        """Queue an append; the future is done when it is on disk. Appends keep their order."""
        return self._put(_Job(append=append))

    def append_and_tell(self, append: Append, told: Told) -> None:
        """Do what `append` does; `told` is called in the loop with None or the error, without a future's turn in between."""
        self._worker.put(_Job(append=append, sink=told))

    def cut(self, cuts: Sequence[tuple[int, int]]) -> "asyncio.Future[list[tuple[int, int]]]":
        """Cut the logs of segments, given as (segment, upto), so that they hold nothing above `upto`.

        Returns (end, epoch) of each log then. Durable on return; a crash in between leaves what may be cut again.
        """
        return self.run(partial(self._cut, cuts), is_vital=True, is_barrier=True)

    @property
    def ends(self) -> StoreEnds:
        """Return where the logs end on disk. For jobs in the thread alone."""
        return self._ends

    def forget(self, segments: Sequence[int], *, delete: Callable[[StoreEnds], None]) -> "asyncio.Future[None]":
        """Empty the logs of `segments`: `delete` is called with the ends to be written before anything is deleted."""
        return self.run(partial(self._forget, segments, delete), is_vital=True, is_barrier=True)

    def apply_and_tell(self, puts: Iterable[Put], told: Told, *, nbytes: int = 0) -> None:
        """Put into the state soon, before jobs that are queued later; then `told` is called. An error but for space fences the store."""
        assert self._loop is not None, "start() comes first"
        self._puts += puts
        self._puts_told.append(told)
        self._puts_bytes += nbytes
        if len(self._puts) > _STATE_PUTS_MAX or self._puts_bytes > _STATE_BYTES_MAX:
            self._hand_over()
        elif self._puts_due is None:
            self._puts_due = self._loop.call_later(self._times.state_within_s, self._hand_over)

    def _hand_over(self) -> None:
        if self._puts_due is not None:
            self._puts_due.cancel()
            self._puts_due = None
        puts, told = self._puts, self._puts_told
        if told:
            self._puts, self._puts_told, self._puts_bytes = [], [], 0
            act = partial(self._apply, puts, are_sorted=len(told) == 1)
            self._worker.put(_Job(act=act, sink=partial(_tell_all, told), is_vital=True, needs_state=True))

    def run(
        self, act: Callable[[], Result], *, is_vital: bool = False, is_barrier: bool = False, needs_state: bool = True
    ) -> "asyncio.Future[Result]":
        """Queue a job; its result or error arrives in the future.

        An error of a vital one fences the store; where it is no barrier and finds no space, it waits for that.
        Without `needs_state` it does not care whether what was put into the state before is in the store already.
        """
        if needs_state:
            self._hand_over()
        return self._put(_Job(act=act, is_vital=is_vital, is_barrier=is_barrier, needs_state=needs_state))

    def post(self, act: Callable[[], Any]) -> None:
        """Queue a job whose result nobody waits for; an error fences the store."""
        self._hand_over()
        self._worker.put(_Job(act=act, is_vital=True, needs_state=True))

    async def stop(self) -> None:
        """Run what is queued, then end the thread."""
        self._hand_over()
        await self._worker.stop()
        self._write_ends()
        self._report([(job.sink, None, _no_space()) for job in self._spaceless if job.sink is not None])

    def _put(self, job: _Job) -> "asyncio.Future[Any]":
        assert self._loop is not None, "start() comes first"
        future = job.sink = self._loop.create_future()
        self._worker.put(job)
        return future

    # ------------------------------------------------------------ in the worker

    def _work(self, jobs: list[_Job]) -> float | None:
        """Do what came; without anything, what is due by the clock."""
        if self._ends_due and self._ends_due <= self._now():  # while appends never cease, too
            self._write_ends()
        if not jobs:
            self._report(self._catch_up())
        while jobs:
            stretches = _stretches(jobs)
            for number, stretch in enumerate(stretches, 1):
                self._is_last = number == len(stretches)
                self._turn(stretch)
            jobs, self._taken = self._taken, []
        if self._ends_due:
            return max(self._ends_due - self._now(), 0.0)
        return self._times.space_every_s if self._spaceless else None

    def _overtake(self) -> None:
        """Write the appends that came meanwhile, up to what they may not overtake; whatever else came waits for its turn."""
        self._taken += self._worker.meanwhile()
        if not self._is_last:
            return
        free = list(takewhile(lambda job: not job.is_barrier, self._taken))
        self._taken = [job for job in free if job.append is None] + self._taken[len(free) :]
        self._append_all(free)

    def _turn(self, jobs: list[_Job]) -> None:
        self._append_all(jobs)
        done = self._catch_up() if self._spaceless else []
        for job in jobs:
            if job.act is None:
                continue
            act = partial(fail, _no_space()) if self._spaceless and job.needs_state else job.act
            if not self._do(job, act, done):
                self._spaceless.append(job)
        self._report(done)

    def _catch_up(self) -> _Done:
        """Make the changes of the state that waited for space, as far as there is any."""
        done: _Done = []
        while self._spaceless and self._do(job := self._spaceless[0], job.act, done):
            del self._spaceless[0]
        return done

    def _do(self, job: _Job, act: Callable[[], Any] | None, done: _Done) -> bool:
        """Run a job's `act` and note the outcome in `done`; return False where it has to wait for space."""
        assert act is not None
        result, error = self._try(act)
        if job.can_wait and isinstance(error, DiskFull):
            return False
        if job.is_vital and error is not None:
            error = self._fence(error)
        if job.sink is not None:
            done.append((job.sink, result, error))
        return True

    def _append_all(self, jobs: list[_Job]) -> None:
        """Make the appends among some jobs, as many as fit in one write."""
        together: list[_Job] = []
        appends: list[Append] = []
        nbytes = 0
        for job in jobs:
            if job.append is None:
                continue
            if appends and nbytes + job.append.nbytes > SYNC_BYTES_MAX:
                self._append(together, appends)
                together, appends, nbytes = [], [], 0
            together.append(job)
            appends.append(job.append)
            nbytes += job.append.nbytes
        if appends:
            self._append(together, appends)

    def _append(self, jobs: list[_Job], appends: list[Append]) -> None:
        """Write and sync the appends of some jobs as one, and report them."""
        log, meta = appends[0].log, appends[0].meta
        if len(appends) > 1:
            log = [pair for append in appends for pair in append.log]
            meta = [pair for append in appends for pair in append.meta]

        _, error = self._try(partial(self._store.append, log, meta))
        if error is None:
            _, error = self._try(self._store.sync)
        if error is None:
            self.syncs += 1
            self.appends += len(jobs)
        self._report([(job.sink, None, error) for job in jobs if job.sink is not None])
        if error is not None:
            return
        for append in appends:
            self._ends.ids[append.segments] = append.ends
            self._ends.epochs[append.segments] = append.epochs
        self._ends_due = self._ends_due or self._now() + self._times.ends_within_s

    def _write_ends(self) -> None:
        """Write the ends if they changed. Where there is no space the next ones say it all; any other error fences the store."""
        if self._ends_due:
            self._ends_due = 0.0
            self._try(partial(self._store.write_ends, self._ends))

    def _apply(self, puts: list[Put], *, are_sorted: bool) -> None:
        ordered = puts if are_sorted else _by_segment(puts)
        for low in range(0, len(ordered), _STATE_PUTS_A_WRITE):
            if low:
                self._overtake()
            self._store.apply(ordered[low : low + _STATE_PUTS_A_WRITE])

    def _cut(self, cuts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        plan = plan_cuts(self._store, cuts, ends=self._ends)
        if plan.is_empty:
            return plan.ends
        for (segment, _), (end, epoch) in zip(cuts, plan.ends, strict=True):
            self._ends.ids[segment], self._ends.epochs[segment] = end, epoch
        self._store.drop(plan.log_ranges, [], plan.meta_ranges, meta=plan.meta, ends=self._ends)
        return plan.ends

    def _forget(self, segments: Sequence[int], delete: Callable[[StoreEnds], None]) -> None:
        self._ends.ids[list(segments)] = 0
        self._ends.epochs[list(segments)] = 0
        delete(self._ends)

    def _try(self, act: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        if self._fenced is not None:
            return None, self._fenced
        try:
            return act(), None
        except StoreFenced as fenced:
            return None, self._fence(fenced)
        except EventLogError as known:
            return None, known
        except Exception as unknown:  # the edge of the thread: whatever it is, the waiter must hear of it
            log.exception("storage_failed")
            return None, unknown

    def _fence(self, error: BaseException) -> StoreFenced:
        if self._fenced is None:
            why = str(error) if isinstance(error, EventLogError) else UNEXPECTED
            self._fenced = error if isinstance(error, StoreFenced) else StoreFenced(why=why)
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._on_fenced, self._fenced)
        return self._fenced

    def _report(self, done: _Done) -> None:
        if done:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(_deliver, done)


def _no_space() -> DiskFull:
    return DiskFull(free_bytes=0, reserve_bytes=0)


def fail(error: EventLogError) -> NoReturn:
    """Raise `error`: for a job that finds out before its turn that it cannot be done."""
    raise error


def _stretches(jobs: list[_Job]) -> list[list[_Job]]:
    """Return jobs with each barrier by itself."""
    stretches: list[list[_Job]] = [[]]
    for job in jobs:
        if job.is_barrier:
            stretches += [[job], []]
        else:
            stretches[-1].append(job)
    return [stretch for stretch in stretches if stretch]


def _by_segment(puts: list[Put]) -> list[Put]:
    """Return `puts` by the segments that their keys begin with; those to one key keep their order."""
    segments = np.frombuffer(b"".join([key[:2] for key, _ in puts]), ">u2").astype(np.uint16)
    return [puts[index] for index in np.argsort(segments, kind="stable").tolist()]


def _deliver(done: _Done) -> None:
    for sink, result, error in done:
        if not isinstance(sink, asyncio.Future):
            _tell(sink, error)
        elif sink.done():
            continue
        elif error is None:
            sink.set_result(result)
        else:
            sink.set_exception(error)


def _tell_all(told: list[Told], error: BaseException | None) -> None:
    for one in told:
        _tell(one, error)


def _tell(told: Told, error: BaseException | None) -> None:
    try:
        told(error)
    except Exception as bug:  # noqa: BLE001 -- the edge of the loop: the others are told all the same
        asyncio.get_running_loop().call_exception_handler({"message": "a bug in what was told of an append", "exception": bug})
