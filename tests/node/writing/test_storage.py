"""The storage thread: results in order, appends that wait as one, and which errors end all writing."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from time import monotonic
from typing import NoReturn

import numpy as np
import pytest

from eventlog.batch.layout import ValueHead, encode_value
from eventlog.errors import DiskFull, StoreFenced
from eventlog.node.workers import ThreadWorker
from eventlog.node.writing.storage import STORAGE_TIMES, Append, StorageThread, StorageTimes
from eventlog.segment.keys import encode_epoch, log_key
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds
from tests.stores import SteppedStore

SEGMENTS = 4
Puts = Sequence[tuple[bytes, bytes | None]]
MUCH = 40_000  # puts: handed over at once, in ten writes


class Bench:
    """A storage thread over a store in memory."""

    def __init__(self, times: StorageTimes) -> None:
        self.store = SteppedStore(MemoryDisk(segments=SEGMENTS, ends=StoreEnds.empty(SEGMENTS)))
        self.fenced: list[StoreFenced] = []
        self.storage = StorageThread(
            self.store, ends=StoreEnds.empty(SEGMENTS), on_fenced=self.fenced.append, worker=ThreadWorker("storage"), times=times
        )

    def hold(self) -> threading.Event:
        """Keep the thread busy until the event is set; what is queued meanwhile is its next turn."""
        begun, free = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            free.wait(60)

        self.storage.post(wait)
        assert begun.wait(60)
        return free


def run(act: Callable[[Bench], Awaitable[None]], times: StorageTimes = STORAGE_TIMES) -> Bench:
    bench = Bench(times)

    async def main() -> None:
        bench.storage.start()
        await act(bench)
        await bench.storage.stop()
        await asyncio.sleep(0)

    asyncio.run(main())
    return bench


def append(segment: int, base: int, *, epoch: int = 1) -> Append:
    head = ValueHead(flags=0, sections=0, epoch=epoch, count=0, bitmap=0, kinds=0, producers=0, base=base, first_offset=0)
    data = encode_value(head, segment=segment, cache=1, sections=[])
    at = np.array([segment])
    return Append(
        log=[(log_key(segment, 1, base), data)],
        meta=[],
        segments=at,
        ends=np.array([base]),
        epochs=np.array([epoch], np.uint32),
        nbytes=len(data),
    )


def full() -> NoReturn:
    raise DiskFull(free_bytes=0, reserve_bytes=0)


def broken() -> NoReturn:
    raise ZeroDivisionError


def fence() -> NoReturn:
    raise StoreFenced(why="the disk is gone")


def test_jobs_run_in_order_and_all_of_them_before_the_end():
    done: list[int] = []

    async def act(bench: Bench) -> None:
        for number in range(100):
            bench.storage.post(lambda number=number: done.append(number))
        assert await bench.storage.run(lambda: len(done)) == 100
        bench.storage.post(lambda: done.append(100))

    assert run(act).fenced == []
    assert done == list(range(101))


def test_appends_that_wait_are_one_write_and_one_sync_and_overtake_other_jobs():
    async def act(bench: Bench) -> None:
        free = bench.hold()
        appends = [bench.storage.append(append(segment, 10 + segment)) for segment in (0, 1)]
        state = bench.storage.run(lambda: bench.store.ends.ids.tolist() and bench.storage.syncs)
        appends.append(bench.storage.append(append(2, 12)))
        free.set()
        await asyncio.gather(*appends)
        assert await state == 1

    bench = run(act)
    assert (bench.storage.syncs, bench.storage.appends) == (1, 3)
    assert bench.store.disk.ends.ids.tolist() == [10, 11, 12, 0]


def test_what_several_groups_put_into_the_state_is_one_job_before_whatever_is_queued_later():
    told: list[tuple[str, BaseException | None]] = []

    async def act(bench: Bench) -> None:
        bench.storage.apply_and_tell([(b"one", b"1"), (b"gone", None)], lambda error: told.append(("first", error)))
        bench.storage.apply_and_tell([(b"one", b"2")], lambda error: told.append(("second", error)))
        await bench.storage.append(append(0, 10))
        assert bench.store.get_many([b"one"]) == [None]  # an append does not wait for it, nor bring it about
        assert await bench.storage.run(lambda: bench.store.get_many([b"one", b"gone"])) == [b"2", None]

    run(act, StorageTimes(state_within_s=600))
    assert told == [("first", None), ("second", None)]


def test_what_is_put_into_the_state_is_there_soon_though_nothing_else_is_queued():
    async def act(bench: Bench) -> None:
        done = asyncio.Event()
        bench.storage.apply_and_tell([(b"one", b"1")], lambda _: done.set())
        await asyncio.wait_for(done.wait(), 60)
        assert bench.store.get_many([b"one"]) == [b"1"]

    run(act)


def test_what_is_put_into_the_state_before_the_end_is_there():
    async def act(bench: Bench) -> None:
        bench.storage.apply_and_tell([(b"one", b"1")], lambda _: None)

    assert run(act).store.get_many([b"one"]) == [b"1"]


def test_what_several_groups_put_into_the_state_goes_there_segment_by_segment():
    written: list[tuple[bytes, bytes | None]] = []

    async def act(bench: Bench) -> None:
        bench.store.instead["apply"] = lambda _, puts: written.extend(puts)
        bench.storage.apply_and_tell([(b"\0\2b", b"1"), (b"\0\1a", b"1")], lambda _: None)
        bench.storage.apply_and_tell([(b"\0\2a", b"2"), (b"\0\2b", None), (b"\0\1b", b"2")], lambda _: None)
        await bench.storage.run(lambda: None)

    run(act)
    assert written == [(b"\0\1a", b"1"), (b"\0\1b", b"2"), (b"\0\2b", b"1"), (b"\0\2a", b"2"), (b"\0\2b", None)]


def test_a_job_that_needs_no_state_does_not_hurry_what_waits_to_be_put_there():
    async def act(bench: Bench) -> None:
        bench.storage.apply_and_tell([(b"one", b"1")], lambda _: None)
        assert await bench.storage.run(lambda: bench.store.get_many([b"one"]), needs_state=False) == [None]

    assert run(act, StorageTimes(state_within_s=600)).store.get_many([b"one"]) == [b"1"]


def test_what_is_large_or_much_is_put_into_the_state_at_once():
    async def act(bench: Bench) -> None:
        bench.storage.apply_and_tell([(b"%05d" % number, b"1") for number in range(MUCH)], lambda _: None)
        bench.storage.apply_and_tell([(b"large", b"1")], lambda _: None, nbytes=9 << 20)
        found = await bench.storage.run(lambda: bench.store.get_many([b"09999", b"large"]), needs_state=False)
        assert found == [b"1", b"1"]

    run(act)


class Slow:
    """Holds the second of the writes that put much into the state, until it is let go."""

    def __init__(self, bench: Bench) -> None:
        self.written: list[int] = []
        self.begun, self._free = threading.Event(), threading.Event()
        bench.store.instead["apply"] = self._slowly
        bench.storage.apply_and_tell([(b"\0\0%05d" % number, b"1") for number in range(MUCH)], lambda _: None)
        assert self.begun.wait(60)

    def _slowly(self, plain: Callable[[Puts], None], puts: Puts) -> None:
        if len(self.written) == 1:
            self.begun.set()
            self._free.wait(60)
        plain(puts)
        self.written.append(len(puts))

    def go_on(self) -> None:
        self._free.set()


def test_appends_overtake_what_is_put_into_the_state_between_its_writes():
    async def act(bench: Bench) -> None:
        slow = Slow(bench)
        behind = bench.storage.run(lambda: sum(slow.written))
        bench.store.instead["append"] = lambda plain, *rows: seen.append(len(slow.written)) or plain(*rows)
        late = bench.storage.append(append(0, 10))
        slow.go_on()
        await late
        assert await behind == MUCH

    seen: list[int] = []
    assert run(act).fenced == []
    assert seen == [2]


def test_appends_between_writes_of_the_state_do_not_overtake_what_makes_the_log_shorter():
    async def act(bench: Bench) -> None:
        await bench.storage.append(append(0, 10))
        await bench.storage.append(append(0, 20))
        slow = Slow(bench)
        cut = bench.storage.cut([(0, 10)])
        late = bench.storage.append(append(0, 15, epoch=2))
        slow.go_on()
        assert await cut == [(10, 0)]
        await late
        assert sum(slow.written) == MUCH

    bench = run(act)
    assert [key for key, _ in bench.store.read_log(b"", b"\xff", bytes_max=1 << 20)] == [log_key(0, 1, 10), log_key(0, 1, 15)]


def test_appends_do_not_overtake_a_cut_that_was_queued_together_with_what_goes_into_the_state():
    async def act(bench: Bench) -> None:
        await bench.storage.append(append(0, 10))
        await bench.storage.append(append(0, 20))
        free = bench.hold()
        done: list[BaseException | None] = []
        bench.storage.apply_and_tell([(b"\0\0%05d" % number, b"1") for number in range(MUCH)], done.append)
        cut = bench.storage.cut([(0, 10)])
        begun, go_on = threading.Event(), threading.Event()

        def apply(plain: Callable[[Puts], None], puts: Puts) -> None:
            begun.set()
            go_on.wait(60)
            plain(puts)

        bench.store.instead["apply"] = apply
        free.set()
        assert begun.wait(60)
        late = bench.storage.append(append(0, 15, epoch=2))
        go_on.set()
        assert await cut == [(10, 0)]
        await late
        assert done == [None]

    bench = run(act)
    assert [key for key, _ in bench.store.read_log(b"", b"\xff", bytes_max=1 << 20)] == [log_key(0, 1, 10), log_key(0, 1, 15)]


def test_a_state_that_cannot_be_written_fences_the_store():
    told: list[BaseException | None] = []

    async def act(bench: Bench) -> None:
        bench.store.instead["apply"] = lambda *_: broken()
        bench.storage.apply_and_tell([(b"one", b"1")], told.append)
        with pytest.raises(StoreFenced):
            await bench.storage.run(lambda: None)

    assert len(run(act).fenced) == 1
    assert [type(error) for error in told] == [StoreFenced]


def full_for(bench: Bench) -> Callable[[], None]:
    """Let the store find no space for the state; return what gives it some."""
    spaceless = threading.Event()
    spaceless.set()
    bench.store.instead["apply"] = lambda plain, puts: full() if spaceless.is_set() else plain(puts)
    return spaceless.clear


def test_a_change_of_the_state_that_finds_no_space_waits_for_it_and_those_behind_it_keep_their_order():
    told: list[BaseException | None] = []

    async def act(bench: Bench) -> None:
        make_room = full_for(bench)
        bench.storage.apply_and_tell([(b"one", b"1")], told.append)
        later = bench.storage.run(lambda: bench.store.apply([(b"one", b"2")]), is_vital=True)
        with pytest.raises(DiskFull):  # what needs the state is not told of an older one
            await bench.storage.run(lambda: None)
        assert await bench.storage.run(lambda: 1, needs_state=False) == 1
        await bench.storage.append(append(0, 10))
        assert (told, later.done()) == ([], False)
        make_room()
        await later
        assert await bench.storage.run(lambda: 2) == 2

    bench = run(act, StorageTimes(space_every_s=0.001))
    assert (bench.fenced, told) == ([], [None])
    assert bench.store.get_many([b"one"]) == [b"2"]


def test_what_makes_the_log_shorter_fences_the_store_while_the_state_waits_for_space():
    async def act(bench: Bench) -> None:
        full_for(bench)
        bench.storage.apply_and_tell([(b"one", b"1")], lambda _: None)
        with pytest.raises(StoreFenced):
            await bench.storage.cut([(0, 0)])

    assert len(run(act).fenced) == 1


def test_who_waits_for_space_at_the_end_hears_that_there_is_none():
    told: list[BaseException | None] = []

    async def act(bench: Bench) -> None:
        full_for(bench)
        bench.storage.apply_and_tell([(b"one", b"1")], told.append)

    assert run(act).fenced == []
    assert [type(error) for error in told] == [DiskFull]


def test_an_append_does_not_overtake_what_makes_the_log_shorter():
    async def act(bench: Bench) -> None:
        await bench.storage.append(append(0, 10))
        await bench.storage.append(append(0, 20))
        free = bench.hold()
        cut = bench.storage.cut([(0, 10)])
        late = bench.storage.append(append(0, 15, epoch=2))
        free.set()
        assert await cut == [(10, 0)]
        await late

    bench = run(act)
    assert [key for key, _ in bench.store.read_log(b"", b"\xff", bytes_max=1 << 20)] == [log_key(0, 1, 10), log_key(0, 1, 15)]
    assert bench.store.disk.ends.ids.tolist() == [15, 0, 0, 0]
    assert bench.store.disk.ends.epochs.tolist() == [2, 0, 0, 0]


def test_a_cut_is_durable_when_it_is_reported():
    async def act(bench: Bench) -> None:
        first = append(0, 10)
        await bench.storage.append(first)
        second = append(0, 20, epoch=2)
        row = encode_epoch(0, 2, 20, previous=10)
        await bench.storage.append(
            Append(log=second.log, meta=[row], segments=second.segments, ends=second.ends, epochs=second.epochs, nbytes=second.nbytes)
        )
        assert await bench.storage.cut([(0, 10), (1, 10)]) == [(10, 0), (0, 0)]
        bench.store.disk.crash()

    bench = run(act)
    left = MemoryStore(bench.store.disk)
    assert [key for key, _ in left.read_log(b"", b"\xff", bytes_max=1 << 20)] == [log_key(0, 1, 10)]
    assert left.read_meta(b"epoch", b"epocj") == []
    assert left.ends.ids.tolist() == [10, 0, 0, 0]


def test_a_full_disk_fails_the_appends_that_wait_together_and_no_later_ones():
    async def act(bench: Bench) -> None:
        bench.store.disk.bytes_free = 10
        free = bench.hold()
        appends = [bench.storage.append(append(segment, 10)) for segment in (0, 1)]
        free.set()
        found = await asyncio.gather(*appends, return_exceptions=True)
        assert [type(error) for error in found] == [DiskFull, DiskFull]
        bench.store.disk.bytes_free = 1 << 30
        await bench.storage.append(append(0, 10))

    bench = run(act)
    assert bench.fenced == []
    assert bench.store.disk.ends.ids.tolist() == [10, 0, 0, 0]


def test_who_waits_is_told_before_the_ends_are_written_and_of_their_failure_nothing():
    async def act(bench: Bench) -> None:
        failed = threading.Event()

        def fail(*_: object) -> NoReturn:
            failed.set()
            full()

        bench.store.instead["write_ends"] = fail
        await bench.storage.append(append(0, 10))
        assert await asyncio.to_thread(failed.wait, 60)
        bench.store.instead.clear()
        await bench.storage.append(append(1, 11))

    bench = run(act, StorageTimes(ends_within_s=0.001))
    assert bench.fenced == []
    assert bench.store.disk.ends.ids.tolist() == [10, 11, 0, 0], "the next ones say it all"


def test_ends_are_written_soon_though_nothing_else_is_queued():
    async def act(bench: Bench) -> None:
        written = threading.Event()
        bench.store.instead["write_ends"] = lambda plain, ends: (plain(ends), written.set())
        await bench.storage.append(append(0, 10))
        assert await asyncio.to_thread(written.wait, 60)
        assert bench.store.disk.ends.ids.tolist() == [10, 0, 0, 0]

    run(act)


def test_ends_are_written_while_appends_never_cease():
    written: list[int] = []
    written_when_they_ceased: list[list[int]] = []
    ceased = threading.Event()

    async def act(bench: Bench) -> None:
        ids, end = count(11), monotonic() + 10

        def write_ends(plain: Callable[[StoreEnds], None], ends: StoreEnds) -> None:
            plain(ends)
            written.append(ends.ids.item(0))

        def sync_and_go_on(plain: Callable[[], None]) -> None:
            plain()
            if not written and monotonic() < end:
                bench.storage.append_and_tell(append(0, next(ids)), lambda _: None)  # there before the thread looks for another
            else:
                written_when_they_ceased.append(written.copy())
                ceased.set()

        bench.store.instead |= {"write_ends": write_ends, "sync": sync_and_go_on}
        await bench.storage.append(append(0, 10))
        assert await asyncio.to_thread(ceased.wait, 60)

    run(act, StorageTimes(ends_within_s=0.05))
    ((first,),) = written_when_they_ceased
    assert first > 10, "not after each"


def test_ends_that_cannot_be_written_for_another_reason_than_space_fence_the_store():
    async def act(bench: Bench) -> None:
        broken = threading.Event()

        def fail(*_: object) -> NoReturn:
            broken.set()
            raise StoreFenced(why="broken")

        bench.store.instead["write_ends"] = fail
        await bench.storage.append(append(0, 10))
        assert await asyncio.to_thread(broken.wait, 60)
        with pytest.raises(StoreFenced):
            await bench.storage.append(append(0, 11))

    assert [error.why for error in run(act).fenced] == ["broken"]


def test_after_a_failed_sync_nothing_is_written_any_more():
    async def act(bench: Bench) -> None:
        bench.store.disk.next_sync_fails = "the disk is gone"
        for _ in range(2):
            with pytest.raises(StoreFenced):
                await bench.storage.append(append(0, 10))

    assert len(run(act).fenced) == 1


@pytest.mark.parametrize(("job", "kind"), [(full, DiskFull), (broken, ZeroDivisionError)])
def test_an_error_reaches_its_waiter_alone(job, kind):
    async def act(bench: Bench) -> None:
        with pytest.raises(kind):
            await bench.storage.run(job)
        assert await bench.storage.run(lambda: 1) == 1

    assert run(act).fenced == []


@pytest.mark.parametrize("job", [broken, fence])
def test_an_error_of_a_vital_job_fences_the_store(job):
    async def act(bench: Bench) -> None:
        with pytest.raises(StoreFenced):
            await bench.storage.run(job, is_vital=True)
        with pytest.raises(StoreFenced):
            await bench.storage.run(lambda: 1)

    assert len(run(act).fenced) == 1


@pytest.mark.parametrize("job", [broken, fence])
def test_an_error_that_nobody_waits_for_fences_the_store(job):
    async def act(bench: Bench) -> None:
        bench.storage.post(job)
        with pytest.raises(StoreFenced):
            await bench.storage.run(lambda: 1)

    assert len(run(act).fenced) == 1


def test_a_result_that_nobody_waits_for_any_more_is_dropped():
    async def act(bench: Bench) -> None:
        bench.storage.run(lambda: 1).cancel()
        assert await bench.storage.run(lambda: 2) == 2

    assert run(act).fenced == []
