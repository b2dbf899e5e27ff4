"""What holds while something is imported, and afterwards."""

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from eventlog_cli.importing import Importing


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_looked_through_for_garbage_meanwhile_and_what_was_there_not_later() -> None:
    with Importing():
        assert not gc.isenabled()
        with Importing():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with Importing():
        pass
    assert not gc.isenabled()


def test_an_interrupt_raises_again_afterwards() -> None:
    with Importing():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_at_exit_of_a_command_hardly_anything_is_left_to_look_through() -> None:
    report = "atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count()))"
    program = f"import atexit, gc; {report}; from eventlog_cli.__main__ import run; run()"
    done = subprocess.run([sys.executable, "-c", program, "id", "decode", "1"], capture_output=True, check=True, timeout=120)
    left, frozen = map(int, done.stdout.splitlines()[-1].split())
    assert left < frozen / 4
