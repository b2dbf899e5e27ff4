"""Settings of every test run: Hypothesis profiles, the marks that folders give, and what a run as root (or not) leaves untried."""

import gc
import json
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from tests.examples import QUICK
from tests.words import FAULTS_HIT, NO_PROCESS, PROCESS_FOLDER, UNTRIED, is_process_module

_TESTS = Path(__file__).parent
_IS_ROOT = os.geteuid() == 0
_PROCESS = _TESTS.parent / PROCESS_FOLDER
PROCESS_S_MAX = 300  # a process test waits for several states, up to a minute for each

set_hypothesis_home_dir(_TESTS.parent / ".build" / "hypothesis")
# No deadlines, and none for making examples either: the machine's load must not decide whether a test passes.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
_UNTIMED = hypothesis.settings.get_profile("untimed")
# `make test` tries the same examples every time, so that its verdict on a tree is one; runs by hand and `make check` look further.
hypothesis.settings.register_profile("gate", _UNTIMED, derandomize=True, max_examples=100, print_blob=True)
hypothesis.settings.register_profile("packed", _UNTIMED, derandomize=True, max_examples=QUICK, print_blob=True)
hypothesis.settings.register_profile("dev", _UNTIMED, max_examples=50)
hypothesis.settings.register_profile("quick", _UNTIMED, max_examples=QUICK)
hypothesis.settings.load_profile("dev")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector from going through what the run itself consists of, again and again: it all stays to the end.

    What is garbage by then stays as well: to find these few megabytes takes each process a third of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module that has process tests alone where none is wanted: that takes seconds, and packages that not all lanes have."""
    if config.option.markexpr != NO_PROCESS:
        return None
    if collection_path == _PROCESS:
        return True
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        return is_process_module(collection_path.read_text()) or None
    return None


@pytest.hookimpl(tryfirst=True)  # the marks must be there before -m selects by them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_PROCESS):
            item.add_marker(pytest.mark.process)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PROCESS_S_MAX))
        if _IS_ROOT and (mark := item.get_closest_marker("needs_user")):
            item.add_marker(pytest.mark.skip(reason=UNTRIED + _reason(item, mark)))
        if not _IS_ROOT and (mark := item.get_closest_marker("needs_root")):
            item.add_marker(pytest.mark.skip(reason=UNTRIED + _reason(item, mark)))
        if (mark := item.get_closest_marker("needs_program")) and shutil.which(mark.args[0]) is None:
            item.add_marker(pytest.mark.skip(reason=f"{UNTRIED}{mark.args[0]} is not on the PATH"))


@pytest.fixture(scope="session", autouse=True)
def _who_is_interrupted_hears_it() -> None:
    """Have this process and those that it starts end on SIGINT, also where a shell has told all that run behind it to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the faults of passed tests hit: what else these print is shown nowhere."""
    hits: list[int] = []
    for report in terminalreporter.getreports("passed"):
        for line in report.capstdout.splitlines():
            if line.startswith(FAULTS_HIT):
                found = json.loads(line.removeprefix(FAULTS_HIT))
                named = "; ".join(f"{name}: {count}" for name, count in found.items())
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {named}")
                hits += found.values()
    if hits:
        terminalreporter.write_line(f"faults: {len(hits)}, the least hit {min(hits)} operations in flight")


def _reason(item: pytest.Item, mark: pytest.Mark) -> str:
    if not mark.args:
        raise pytest.UsageError(f"{item.nodeid}: say why, as in @pytest.mark.{mark.name}('root may write everywhere')")
    return str(mark.args[0])
