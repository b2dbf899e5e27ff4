"""Noticing that nobody reads stdout, on real pipes."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog_cli.readers import StdoutWatch

SECONDS_MAX = 60


@contextmanager
def printing_to_a_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the reading end."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        yield reading


def test_a_reader_that_closes_its_end_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()
    with printing_to_a_pipe(monkeypatch) as reading, StdoutWatch(gone.set):
        assert not gone.is_set()
        os.close(reading)
        assert gone.wait(SECONDS_MAX)


def test_a_watch_that_was_left_tells_nothing_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, threads = threading.Event(), set(threading.enumerate())
    with printing_to_a_pipe(monkeypatch) as reading:
        with StdoutWatch(gone.set):
            assert len(set(threading.enumerate()) - threads) == 1
        assert set(threading.enumerate()) <= threads
        os.close(reading)
    assert not gone.is_set()


def test_a_file_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        threads = set(threading.enumerate())
        with StdoutWatch(lambda: None):
            assert set(threading.enumerate()) <= threads
