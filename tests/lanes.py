"""Run lanes of checks side by side, say how each went and how long it took, and end with one line of counts.

`python tests/lanes.py NAME ...` runs the named lanes; `make test` and `make check` say which. A lane passes when its
command exits with 0 and, where it runs pytest, at least one test ran. Nothing is skipped in silence: every skipped test
is named with its reason, and in CI it counts as failed. The one exception is who runs this: what needs root (or must not
be root) is left untried elsewhere, and that is said once.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree as ET

TOP = Path(__file__).resolve().parent.parent
LOGS = TOP / ".build" / "logs"
BIN = TOP / ".venv" / "bin"
LANE_SECONDS_MAX = 1500
UNTRIED = "untried: "
"""How tests/conftest.py begins the reason of a skip that only depends on being root."""

_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Commands that run one after the other; `runs_tests` says that one of them writes a JUnit report."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    runs_tests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a lane. `skipped` holds (test, reason) pairs; `why` is empty where the lane passed."""

    lane: Lane
    seconds: float
    passed: int
    failed: int
    skipped: tuple[tuple[str, str], ...]
    why: str
    note: str


def lanes() -> dict[str, Lane]:
    """Return the lanes by name, the longest first."""
    tool = {name: str(BIN / name) for name in ("pytest", "ruff", "mypy", "lint-imports")}
    covered = ("--cov", "--cov-report=term")
    known = (
        Lane(name="process", commands=((tool["pytest"], "-m", "process", _report("process")),), runs_tests=True),
        Lane(name="unit", commands=((tool["pytest"], "-m", "not process", "-n", "2", *covered, _report("unit")),), runs_tests=True),
        Lane(
            name="wheel",
            commands=((str(TOP / ".ci" / "wheel"), "-m", "not source and (smoke or not process)", "-n", "2", _report("wheel")),),
            runs_tests=True,
        ),
        Lane(name="types", commands=((tool["mypy"],),)),
        Lane(name="lint", commands=((tool["ruff"], "check"), (tool["ruff"], "format", "--check"))),
        Lane(name="contracts", commands=((tool["lint-imports"], "--no-logo", "--cache-dir", ".build/imports"),)),
    )
    return {lane.name: lane for lane in known}


def main(names: list[str]) -> int:
    """Run the named lanes and return the exit code."""
    known = lanes()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        print(f"usage: lanes.py NAME ..., of: {' '.join(known)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    LOGS.mkdir(parents=True, exist_ok=True)
    workers = max(2, os.cpu_count() or 1)
    print(f"lanes: {' '.join(names)} ({workers} at a time, logs in .build/logs)", flush=True)
    outcomes = []
    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(run, known[name]) for name in names]):
            outcomes.append(done.result())
            show(outcomes[-1])
    return conclude(outcomes)


def run(lane: Lane) -> Outcome:
    """Run one lane to its end and judge it."""
    started = time.monotonic()
    _report_path(lane.name).unlink(missing_ok=True)
    with _log_path(lane.name).open("wb") as log:
        why = "; ".join(filter(None, [_run_command(command, log) for command in lane.commands]))
    return judge(lane, seconds=time.monotonic() - started, why=why)


def _run_command(command: tuple[str, ...], log: IO[bytes]) -> str:
    # A session of its own, so that whatever a stopped lane started is stopped with it.
    process = subprocess.Popen(
        command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=_environment(), start_new_session=True
    )
    _running.add(process)
    overdue = threading.Timer(LANE_SECONDS_MAX, _kill, (process,))
    overdue.start()
    code = process.wait()
    late = not overdue.is_alive()
    overdue.cancel()
    _running.discard(process)
    if late:
        return f"{Path(command[0]).name} was stopped after {LANE_SECONDS_MAX} seconds"
    return f"{Path(command[0]).name} exited with {code}" if code else ""


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_")}
    return kept | {"NO_COLOR": "1", "COLUMNS": "140"}


def judge(lane: Lane, *, seconds: float, why: str) -> Outcome:
    """Turn what a lane left behind into counts; a lane of tests without a test, and in CI any skip, is a failure."""
    if not lane.runs_tests:
        return Outcome(lane=lane, seconds=seconds, passed=int(not why), failed=int(bool(why)), skipped=(), why=why, note="")
    cases = list(_cases(_report_path(lane.name)))
    failed = sum(1 for _, kind, _ in cases if kind == "failed")
    skipped = tuple((name, reason) for name, kind, reason in cases if kind == "skipped")
    passed = len(cases) - failed - len(skipped)
    refused = [name for name, reason in skipped if not reason.startswith(UNTRIED)] if os.environ.get("CI") else []
    if not cases:
        why = why or "no test was collected"
    elif refused:
        why = why or f"{len(refused)} skipped, which CI does not allow"
    # A lane that broke outside its tests must not end with "0 failed".
    failed = max(failed + len(refused), int(bool(why)))
    note = f"{passed} tests" + _coverage(lane)
    return Outcome(lane=lane, seconds=seconds, passed=passed, failed=failed, skipped=skipped, why=why, note=note)


def _cases(report: Path) -> Iterator[tuple[str, str, str]]:
    if not report.exists():
        return
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", ""
        elif skip is not None:
            yield name, "skipped", skip.get("message") or "no reason given"
        else:
            yield name, "passed", ""


def _coverage(lane: Lane) -> str:
    total = re.search(r"^TOTAL\s.*\s(\d+)%$", _log_path(lane.name).read_text(errors="replace"), re.MULTILINE)
    return f", coverage {total[1]} %" if total else ""


def show(outcome: Outcome) -> None:
    """Print one line for a lane, and its whole output where it failed."""
    verdict = "FAILED" if outcome.why else "ok"
    print(f"  {outcome.lane.name:<10} {verdict:<7} {outcome.seconds:6.1f} s  {outcome.note}", flush=True)
    if outcome.why:
        print(f"---- {outcome.lane.name}: {outcome.why}; its output:", flush=True)
        print(_log_path(outcome.lane.name).read_text(errors="replace"), end="", flush=True)
        print(f"---- end of {outcome.lane.name}", flush=True)


def conclude(outcomes: list[Outcome]) -> int:
    """Print what was skipped and what was left untried, then the counts; return the exit code."""
    for outcome in outcomes:
        for name, reason in outcome.skipped:
            if not reason.startswith(UNTRIED):
                print(f"skipped in {outcome.lane.name}: {name}: {reason}")
    print(_who_ran([skip for outcome in outcomes for skip in outcome.skipped]))
    passed, failed = sum(outcome.passed for outcome in outcomes), sum(outcome.failed for outcome in outcomes)
    skipped = sum(len(outcome.skipped) for outcome in outcomes)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return int(failed > 0)


def _who_ran(skipped: list[tuple[str, str]]) -> str:
    untried = {f"{name} ({reason.removeprefix(UNTRIED)})" for name, reason in skipped if reason.startswith(UNTRIED)}
    who = "as root" if os.geteuid() == 0 else "without root"
    return f"ran {who}; left untried because of it: {', '.join(sorted(untried)) or 'nothing'}"


def _log_path(name: str) -> Path:
    return LOGS / f"{name}.log"


def _report_path(name: str) -> Path:
    return LOGS / f"{name}.xml"


def _report(name: str) -> str:
    return f"--junitxml={_report_path(name)}"


def _stop(_number: int, _frame: object) -> None:
    for process in list(_running):
        _kill(process)
    os._exit(130)


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself just now


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
