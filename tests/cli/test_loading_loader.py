"""The loader: order, counting, and the row at which it stops."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from eventlog.errors import DiskFull
from eventlog_cli import load as load_command
from eventlog_cli.loading.loader import WRITES_IN_FLIGHT_MAX, LoadedRows, Loader
from eventlog_cli.loading.rows import Rejection, RowBatch
from eventlog_cli.loading.source import open_source

FULL = DiskFull(free_bytes=1, reserve_bytes=2)


class Memory:
    """A cache in memory that answers when asked, and fails at the writes it was told to."""

    def __init__(self, *, fails_at: set[int] | None = None) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        self.in_flight = self.in_flight_peak = self.writes = 0
        self._fails_at = fails_at or set()

    def write(self, batch: RowBatch) -> "Answer":
        self.writes += 1
        self.in_flight += 1
        self.in_flight_peak = max(self.in_flight_peak, self.in_flight)
        if self.writes in self._fails_at:
            return Answer(self, None)
        first = len(self.rows) + 1
        self.rows += zip(batch.keys, batch.values, strict=True)
        removed_nothing = sum(batch.removals)
        return Answer(self, LoadedRows(events=len(batch.keys) - removed_nothing, first_id=first, last_id=len(self.rows)))


class Answer:
    def __init__(self, memory: Memory, written: LoadedRows | None) -> None:
        self._memory = memory
        self._written = written

    def result(self) -> LoadedRows:
        self._memory.in_flight -= 1
        if self._written is None:
            raise FULL
        return self._written


class Rows:
    """A reader of one line after another: text is a row, None a bad one."""

    def __init__(self, lines: list[str | None], size: int) -> None:
        self._lines = lines
        self._size = size

    def batches(self) -> Iterator[RowBatch]:
        for low in range(0, len(self._lines), self._size):
            batch = RowBatch()
            for number, line in enumerate(self._lines[low : low + self._size], low + 1):
                if line is None:
                    batch.reject(number, "bad")
                else:
                    batch.keys.append(line.encode())
                    batch.values.append(b"{}")
                batch.last_line = number
            yield batch


def load(memory: Memory, lines: list[str | None], *, errors_max: int = 0, size: int = 3) -> tuple[Loader, Rejection | None, list[int]]:
    told: list[int] = []
    loader = Loader(
        memory, errors_max=errors_max, gathers=False, on_rejection=lambda rejection: told.append(rejection.line), on_progress=lambda _: None
    )
    return loader, loader.run(Rows(lines, size)), told


def test_rows_arrive_in_order_with_a_few_writes_on_their_way() -> None:
    memory = Memory()
    loader, stop, told = load(memory, [str(number) for number in range(100)])
    assert stop is None
    assert told == []
    assert [key for key, _ in memory.rows] == [b"%d" % number for number in range(100)]
    assert memory.in_flight == 0
    assert memory.in_flight_peak == WRITES_IN_FLIGHT_MAX
    assert (loader.summary.loaded, loader.summary.events, loader.summary.rejected) == (100, 100, 0)
    assert (loader.summary.first_id, loader.summary.last_id, loader.summary.last_line) == (1, 100, 100)


@pytest.mark.parametrize("bad", [1, 2, 3, 4, 7, 9])
def test_the_first_bad_row_stops_it_and_nothing_before_it_is_lost_nor_anything_after_it_written(bad: int) -> None:
    memory = Memory()
    lines = [None if number == bad else str(number) for number in range(1, 10)]
    loader, stop, told = load(memory, lines)
    assert stop is not None
    assert stop.line == bad
    assert told == []
    assert [int(key) for key, _ in memory.rows] == list(range(1, bad))
    assert (loader.summary.loaded, loader.summary.rejected) == (bad - 1, 1)


def test_bad_rows_up_to_the_limit_are_told_and_skipped_and_the_next_one_stops_it() -> None:
    memory = Memory()
    lines = ["1", None, "3", None, "5", None, "7"]
    loader, stop, told = load(memory, lines, errors_max=2)
    assert stop is not None
    assert stop.line == 6
    assert told == [2, 4]
    assert [key for key, _ in memory.rows] == [b"1", b"3", b"5"]
    memory = Memory()
    loader, stop, told = load(memory, lines, errors_max=3)
    assert stop is None
    assert told == [2, 4, 6]
    assert loader.summary.rejected == 3
    assert loader.summary.last_line == 7


def test_damage_stops_it_whatever_the_limit() -> None:
    class Cut:
        def batches(self) -> Iterator[RowBatch]:
            batch = RowBatch(keys=[b"a"], values=[b"{}"], last_line=1)
            batch.reject(2, "cut short", is_last=True)
            yield batch

    memory = Memory()
    loader = Loader(memory, errors_max=100, gathers=False, on_rejection=lambda _: None, on_progress=lambda _: None)
    stop = loader.run(Cut())
    assert stop is not None
    assert stop.line == 2
    assert len(memory.rows) == 1


def test_after_a_failed_write_the_others_are_waited_for_and_counted() -> None:
    memory = Memory(fails_at={2})
    loader = Loader(memory, errors_max=0, gathers=False, on_rejection=lambda _: None, on_progress=lambda _: None)
    with pytest.raises(DiskFull):
        loader.run(Rows([str(number) for number in range(30)], 3))
    assert memory.in_flight == 0
    assert loader.summary.loaded == len(memory.rows)
    assert loader.summary.loaded > 3
    assert loader.summary.last_line == 3
    assert memory.writes < 10


def test_an_interrupt_waits_for_what_is_on_its_way() -> None:
    class Interrupted(Rows):
        def batches(self) -> Iterator[RowBatch]:
            yield from super().batches()
            raise KeyboardInterrupt

    memory = Memory()
    loader = Loader(memory, errors_max=0, gathers=False, on_rejection=lambda _: None, on_progress=lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        loader.run(Interrupted(["1", "2", "3", "4"], 3))
    assert (loader.summary.loaded, loader.summary.last_line, memory.in_flight) == (4, 4, 0)


def test_an_interrupt_while_an_answer_is_waited_for_takes_nothing_from_the_count() -> None:
    class Interrupts(Memory):
        def write(self, batch: RowBatch) -> Answer:
            return Impatient(super().write(batch)) if self.writes == 1 else super().write(batch)

    class Impatient(Answer):
        def __init__(self, answer: Answer) -> None:
            self._answer = answer
            self._is_interrupted = False

        def result(self) -> LoadedRows:
            if not self._is_interrupted:
                self._is_interrupted = True
                raise KeyboardInterrupt
            return self._answer.result()

    for fails_at, expected, last_line in ((None, KeyboardInterrupt, None), ({2}, DiskFull, 3)):
        memory = Interrupts(fails_at=fails_at)
        loader = Loader(memory, errors_max=0, gathers=False, on_rejection=lambda _: None, on_progress=lambda _: None)
        with pytest.raises(expected):
            loader.run(Rows([str(number) for number in range(30)], 3))
        assert memory.in_flight == 0
        assert loader.summary.loaded == len(memory.rows)
        assert loader.summary.last_line == (last_line or loader.summary.loaded)


def test_a_removal_of_nothing_is_a_row_and_no_event() -> None:
    class Removal:
        def batches(self) -> Iterator[RowBatch]:
            yield RowBatch(keys=[b"a", b"b"], values=[b"{}", b""], removals=[False, True], last_line=2)

    loader = Loader(Memory(), errors_max=0, gathers=False, on_rejection=lambda _: None, on_progress=lambda _: None)
    loader.run(Removal())
    assert (loader.summary.loaded, loader.summary.events) == (2, 1)


@pytest.mark.parametrize("bad", [None, 1, 5, 30])
def test_gathered_batches_are_sent_together_and_nothing_changes_but_the_number_of_writes(bad: int | None) -> None:
    memory = Memory()
    loader = Loader(memory, errors_max=0, gathers=True, on_rejection=lambda _: None, on_progress=lambda _: None)
    stop = loader.run(Rows([None if number == bad else str(number) for number in range(1, 31)], 3))
    end = bad or 31
    assert [int(key) for key, _ in memory.rows] == list(range(1, end))
    assert (stop.line if stop else None) == bad
    assert (loader.summary.loaded, loader.summary.last_line) == (end - 1, end - 1)
    assert memory.writes <= 1


def test_gathered_rows_and_bytes_are_bounded() -> None:
    class Large:
        def batches(self) -> Iterator[RowBatch]:
            for number in range(10):
                yield RowBatch(keys=[b"%d" % number] * 1_000, values=[b"x" * 500] * 1_000, last_line=number + 1)

    sizes: list[int] = []

    class Measured(Memory):
        def write(self, batch: RowBatch) -> "Answer":
            sizes.append(len(batch.keys))
            return super().write(batch)

    Loader(Measured(), errors_max=0, gathers=True, on_rejection=lambda _: None, on_progress=lambda _: None).run(Large())
    assert sizes == [3_000, 3_000, 3_000, 1_000]


def test_a_load_that_fails_says_up_to_which_row_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.jsonl").write_bytes(b"")
    with open_source(str(tmp_path / "some.jsonl")) as source, click.Context(click.Command("load")), pytest.raises(DiskFull):
        load_command._load(replace(source, size=None), Rows([str(number) for number in range(30)], 3), Memory(fails_at={4}), errors_max=0)
    assert "rows up to line 9 are written; of those after it some may be" in capsys.readouterr().err
