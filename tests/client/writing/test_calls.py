"""What became of the items of calls."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eventlog.batch.marks import ABSENT
from eventlog.client.values import Removed, Stored, StoredMany
from eventlog.client.writing.calls import Changes, Ledger, WriteCall, kinds_of
from eventlog.client.writing.singles import Condition
from eventlog.errors import DiskFull, OutcomeUnknown, PartlyWritten

DISK_FULL = DiskFull(free_bytes=1, reserve_bytes=2)
UNKNOWN = OutcomeUnknown(outcome="unknown", why="lost")


def changes(count: int, **options: Any) -> Changes:
    return Changes(cache_id=1, by_prefix=False, keys=[b"k%d" % n for n in range(count)], values=[b"v"] * count, **options)


def on_loop(test: Callable[[], None]) -> None:
    async def main() -> None:
        test()
        await asyncio.sleep(0)

    asyncio.run(main())


def call(count: int, *, is_many: bool = True, **options: Any) -> WriteCall:
    return WriteCall(changes(count, **options), timeout_ms=1_000, is_many=is_many)


def accept(ledger: Ledger, items: list[int], *, first_id: int = 100) -> None:
    ids = np.arange(first_id, first_id + len(items))
    ledger.accept(np.array(items), ids, np.zeros(len(items), np.uint8))


def test_a_call_gets_its_own_items_in_its_own_order() -> None:
    def test() -> None:
        first, second = call(2), call(3)
        ledger = Ledger([first, second])
        accept(ledger, [4, 0, 2])
        assert first.is_live
        accept(ledger, [1, 3], first_id=200)
        assert first.future.result().ids == [101, 200]
        assert second.future.result().ids == [102, 201, 100]

    on_loop(test)


def test_single_calls_that_share_a_frame_get_one_result_each() -> None:
    def test() -> None:
        calls = [call(1, is_many=False) for _ in range(3)]
        Ledger(calls).accept(np.array([2, 0, 1]), np.array([7, 0, 9]), np.array([0, ABSENT, 1], np.uint8))
        assert [each.future.result() for each in calls] == [Removed(None, None), Stored(9, "MODIFIED"), Stored(7, "CREATED")]

    on_loop(test)


def test_one_error_for_all_items_is_that_error() -> None:
    def test() -> None:
        first, second = call(2), call(1)
        ledger = Ledger([first, second])
        ledger.fail(np.array([0]), DISK_FULL)
        ledger.fail(np.array([1]), DISK_FULL)
        accept(ledger, [2])
        with pytest.raises(DiskFull):
            first.future.result()
        assert second.future.result().ids == [100]

    on_loop(test)


def test_a_call_written_in_part_says_which_part() -> None:
    def test() -> None:
        other, mixed = call(1), call(6)
        ledger = Ledger([other, mixed])
        accept(ledger, [0, 2, 4])
        ledger.fail(np.array([1, 6]), DISK_FULL)
        ledger.fail(np.array([3, 5]), UNKNOWN)
        assert other.future.result().ids == [100]
        with pytest.raises(PartlyWritten) as caught:
            mixed.future.result()
        error = caught.value
        assert (error.ok, error.none, error.unknown, error.outcome) == ([1, 3], [0, 5], [2, 4], "unknown")
        assert "1 bytes free" in str(error)

    on_loop(test)


def test_a_call_is_told_and_gives_its_bytes_back_as_soon_as_it_is_decided_itself() -> None:
    def test() -> None:
        calls = [call(2), call(1)]
        ledger = Ledger(calls)
        given: list[WriteCall] = []
        ledger.on_close = given.append
        accept(ledger, [0])
        assert given == []
        ledger.fail(np.array([2]), DISK_FULL)
        assert given == [calls[1]]
        accept(ledger, [1], first_id=101)
        assert given == [calls[1], calls[0]]
        assert calls[0].future.result().ids == [100, 101]
        assert isinstance(calls[1].future.exception(), DiskFull)

    on_loop(test)


def test_whoever_does_not_wait_any_more_is_left_alone() -> None:
    def test() -> None:
        gone, waiting = call(1, is_many=False), call(1, is_many=False)
        gone.future.cancel()
        accept(Ledger([gone, waiting]), [0, 1])
        assert waiting.future.result().id == 101
        gone.fail(DISK_FULL)
        assert gone.future.cancelled()

    on_loop(test)


def test_every_call_gets_an_error_of_its_own() -> None:
    def test() -> None:
        calls = [call(1), call(1)]
        Ledger(calls).fail(np.array([0, 1]), DISK_FULL)
        first, second = (each.future.exception() for each in calls)
        assert first is not second
        assert str(first) == str(second)

    on_loop(test)


def test_conditions_and_previous_values_need_a_frame_of_their_own() -> None:
    def test() -> None:
        assert not call(1).is_alone
        assert call(1, wants_previous=True).is_alone
        assert call(1, condition=Condition(key=b"k", version=0)).is_alone

    on_loop(test)


def test_sizes_count_keys_values_headers_and_the_layout() -> None:
    assert changes(2).nbytes == 2 * (2 + 1 + 24)
    assert changes(2, headers=[b"abc", b""]).nbytes == changes(2).nbytes + 3


def test_kinds_of_a_block_are_put_or_remove() -> None:
    assert kinds_of(None, 2).tolist() == [0, 0]
    assert kinds_of([True, False], 2).tolist() == [2, 0]


def test_results_of_many_are_made_when_they_are_asked_for() -> None:
    many = StoredMany(np.array([5, 0, 3]), np.array([0, ABSENT, 2], np.uint8))
    assert (many.ids, many.kinds, many.events, len(many)) == ([5, None, 3], ["CREATED", None, "REMOVED"], 2, 3)
    assert (many.first_id, many.last_id) == (3, 5)
    nothing = StoredMany(np.zeros(1, np.int64), np.full(1, ABSENT, np.uint8))
    assert (nothing.first_id, nothing.last_id, nothing.events) == (None, None, 0)


def test_a_call_out_of_time_says_of_each_item_how_it_fared_so_far() -> None:
    def test() -> None:
        other, late = call(1), call(5)
        ledger = Ledger([other, late])
        accept(ledger, [1, 2])
        ledger.fail(np.array([3]), DISK_FULL)
        error = ledger.so_far(late, [(np.array([0, 4]), DISK_FULL), (np.array([5]), UNKNOWN)])
        assert isinstance(error, PartlyWritten)
        assert (error.ok, error.none, error.unknown, error.outcome) == ([0, 1], [2, 3], [4], "unknown")
        assert not late.future.done()
        assert isinstance(ledger.so_far(other, [(np.array([0, 4]), DISK_FULL)]), DiskFull)

    on_loop(test)
