"""Signals that ask a command to end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eventlog_cli.consume import Interrupts
from eventlog_cli.conventions import AskedToEnd, EndingInOrder


@contextmanager
def handled(number: signal.Signals, by: Any) -> Iterator[None]:
    previous = signal.signal(number, by)
    try:
        yield
    finally:
        signal.signal(number, previous)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("interrupt", [signal.default_int_handler, signal.SIG_IGN])
def test_it_ends_as_an_interrupt_would_even_where_those_are_ignored(number: signal.Signals, interrupt: Any) -> None:
    with handled(number, signal.SIG_DFL), handled(signal.SIGINT, interrupt):
        with pytest.raises(AskedToEnd) as told, EndingInOrder():
            signal.raise_signal(number)
        assert told.value.number == number
        assert signal.getsignal(number) is signal.SIG_DFL


def test_what_is_ignored_and_who_sees_to_it_himself_are_left_alone() -> None:
    seen: list[int] = []
    for handler in (signal.SIG_IGN, lambda number, _: seen.append(number)):
        with handled(signal.SIGTERM, handler), EndingInOrder():
            signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGTERM]


def test_an_interrupt_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt) as told, EndingInOrder():
        signal.raise_signal(signal.SIGINT)
    assert type(told.value) is KeyboardInterrupt


def test_what_breaks_once_it_was_asked_to_end_is_the_outcome_of_that() -> None:
    def break_off(*_: object) -> None:
        raise RuntimeError("a call was broken off")

    with pytest.raises(RuntimeError), EndingInOrder():
        break_off()
    with handled(signal.SIGTERM, signal.SIG_DFL), handled(signal.SIGINT, break_off), pytest.raises(AskedToEnd), EndingInOrder():
        signal.raise_signal(signal.SIGTERM)


def test_what_breaks_while_an_interrupt_is_held_back_is_told() -> None:
    def print_one() -> None:
        with Interrupts():
            signal.raise_signal(signal.SIGINT)
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        print_one()


def test_it_is_held_back_as_interrupts_are() -> None:
    done: list[str] = []

    @EndingInOrder()
    def command() -> None:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGTERM)
            done.append("printed")
            with interrupts.let_through():
                done.append("waited")

    with handled(signal.SIGTERM, signal.SIG_DFL), pytest.raises(AskedToEnd):
        command()
    assert done == ["printed"]
