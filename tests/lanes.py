"""Run lanes of checks side by side, say how each went and how long it took, and end with one line of counts.

`python -m tests.lanes NAME ...` runs the named lanes; `make test` and `make check` say which, and `changed.py` beside this file
makes those of one change. A lane passes when its command exits with 0 and, where it runs pytest, at least one test ran. Nothing
is skipped in silence: every skipped test is named with its reason, and in CI it counts as failed. The one exception is who runs
this, and which programs are there: what needs root (or must not be root) or a program is left untried elsewhere, and that is said once.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree as ET

from tests.words import NO_PROCESS, UNTRIED

TOP = Path(__file__).resolve().parent.parent
LOGS = TOP / ".build" / "logs"
BIN = TOP / ".venv" / "bin"
LANE_SECONDS_MAX = 4500
_REASON_MAX = 200
FOR_TESTS = "EVENTLOG_TEST_"
SEEDS = {
    "clusters": "0:300",
    "groups": "0:50",
    "work": "0:30",
    "near": "0:30",
    "reading": "0:30",
    "mirroring": "0:60",
    "clients": "0:27",
}
"""Of each kind of simulated runs."""

_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Commands that run one after the other; `runs_tests` says that one of them writes a JUnit report."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    runs_tests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test of a lane; `result` is passed, failed or skipped, and `reason` says why it did not pass."""

    name: str
    result: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a lane. `why` says what went wrong, and is empty exactly where `failed` is 0."""

    passed: int
    failed: int
    skipped: tuple[Case, ...]
    why: str
    failures: tuple[Case, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A lane that has ended, its verdict and its whole output."""

    lane: Lane
    seconds: float
    verdict: Verdict
    output: str


def lanes() -> dict[str, Lane]:
    """Return the lanes by name, the longest first."""
    report = {name: f"--junitxml={LOGS / name}.xml" for name in ("process", "unit", "coverage", "quick", "wheel", "spark")}
    tool = {name: str(BIN / name) for name in ("pytest", "ruff", "mypy", "lint-imports")}
    python = str(BIN / "python")
    covered = ("--cov", "--cov-report=term")
    # Each process gets tests that lie side by side, and so share what a module makes once; who is done takes over half of another's.
    spread = ("--dist", "worksteal")
    gate, packed = "--hypothesis-profile=gate", "--hypothesis-profile=packed"
    known = (
        # Most of a process test is waiting, so several share a core; tests of one file stay together and share its nodes.
        Lane(
            name="process",
            commands=((tool["pytest"], "-m", "process and not spark", gate, "-n", "3", "--dist", "loadfile", report["process"]),),
            runs_tests=True,
        ),
        Lane(name="spark", commands=((tool["pytest"], "-m", "spark", gate, report["spark"]),), runs_tests=True),
        Lane(name="unit", commands=((tool["pytest"], "-m", NO_PROCESS, gate, "-n", "2", *spread, report["unit"]),), runs_tests=True),
        # The same, with the lines that no test of it passes. That takes twice the CPU, so it is run when somebody asks for it.
        Lane(
            name="coverage",
            commands=((tool["pytest"], "-m", NO_PROCESS, gate, "-n", "2", *spread, *covered, report["coverage"]),),
            runs_tests=True,
        ),
        # Run before every commit: without what waits for sockets, disks and processes.
        Lane(
            name="quick",
            commands=((tool["pytest"], "-m", NO_PROCESS, "--hypothesis-profile=quick", "-n", "3", *spread, report["quick"]),),
            runs_tests=True,
        ),
        Lane(
            name="sim",
            commands=(
                *((python, "-m", "tests.sim", kind, seeds, "--known", "--processes", "1") for kind, seeds in SEEDS.items()),
                (python, "-m", "tests.sim.hunt", "--known", "--processes", "1"),
            ),
        ),
        # That the wheel has what the tree has, which the lanes above look at closely: few examples of each property do.
        Lane(
            name="wheel",
            commands=(
                (str(TOP / ".ci" / "wheel"), "-m", "not source and (smoke or not process)", packed, "-n", "2", *spread, report["wheel"]),
            ),
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
        print(f"usage: python -m tests.lanes NAME ..., of: {' '.join(known)}", file=sys.stderr)
        return 2
    return run_lanes([known[name] for name in names])


def run_lanes(chosen: list[Lane]) -> int:
    """Run lanes side by side, show each as it ends, and return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    LOGS.mkdir(parents=True, exist_ok=True)
    workers = max(2, os.cpu_count() or 1)
    print(f"lanes: {' '.join(lane.name for lane in chosen)} ({workers} at a time, logs in .build/logs)", flush=True)
    outcomes = []
    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(run, lane) for lane in chosen]):
            outcomes.append(done.result())
            show(outcomes[-1])
    return conclude({outcome.lane.name: outcome.verdict for outcome in outcomes}, is_root=os.geteuid() == 0)


def run(lane: Lane) -> Outcome:
    """Run one lane to its end and judge it."""
    started = time.monotonic()
    report, log = LOGS / f"{lane.name}.xml", LOGS / f"{lane.name}.log"
    report.unlink(missing_ok=True)
    with log.open("wb") as out:
        why = "; ".join(filter(None, [_run_command(command, out) for command in lane.commands]))
    verdict = judge(lane, cases=read_report(report), why=why, in_ci=bool(os.environ.get("CI")))
    return Outcome(lane=lane, seconds=time.monotonic() - started, verdict=verdict, output=log.read_text(errors="replace"))


def _run_command(command: tuple[str, ...], log: IO[bytes]) -> str:
    # A session of its own, so that whatever a stopped lane started is stopped with it.
    process = subprocess.Popen(
        command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
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


def environment() -> dict[str, str]:
    """Return what commands run with: neither the configuration of a node nor a PYTHONPATH with another tree than the tested one."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(FOR_TESTS) or not name.startswith(("EVENTLOG_", "PYTHON"))}
    return kept | {"NO_COLOR": "1", "COLUMNS": "140"}


def judge(lane: Lane, *, cases: list[Case], why: str, in_ci: bool) -> Verdict:
    """Turn what a lane left behind into counts; a lane of tests without a test, and in CI any skip, is a failure."""
    if not lane.runs_tests:
        return Verdict(passed=int(not why), failed=int(bool(why)), skipped=(), why=why)
    counts = Counter(case.result for case in cases)
    skipped = tuple(case for case in cases if case.result == "skipped")
    refused = [case for case in skipped if not case.reason.startswith(UNTRIED)] if in_ci else []
    if not cases:
        why = why or "no test was collected"
    elif refused:
        why = why or f"{len(refused)} skipped, which CI does not allow"
    # A lane that broke outside its tests must not end with "0 failed".
    failed = max(counts["failed"] + len(refused), int(bool(why)))
    failures = tuple(case for case in cases if case.result == "failed")
    return Verdict(
        passed=counts["passed"], failed=failed, skipped=skipped, why=why or ("tests failed" if failed else ""), failures=failures
    )


def read_report(report: Path) -> list[Case]:
    """Return the tests of a JUnit report, none where there is no report."""
    if not report.exists():
        return []
    return [_case(element) for element in ET.parse(report).getroot().iter("testcase")]


def _case(element: ET.Element) -> Case:
    name = f"{element.get('classname')}::{element.get('name')}"
    if (failure := element.find("failure")) is not None or (failure := element.find("error")) is not None:
        return Case(name=name, result="failed", reason=(failure.get("message") or "no reason given").splitlines()[0])
    skip = element.find("skipped")
    if skip is not None:
        return Case(name=name, result="skipped", reason=skip.get("message") or "no reason given")
    return Case(name=name, result="passed")


def _coverage(log: str) -> str:
    total = re.search(r"^TOTAL\s.*\s(\d+)%$", log, re.MULTILINE)
    return f", coverage {total[1]} %" if total else ""


def _faults(log: str) -> str:
    total = re.search(r"^faults: (\d+, the least hit \d+ operations) in flight$", log, re.MULTILINE)
    return f", faults {total[1]}" if total else ""


def show(outcome: Outcome) -> None:
    """Print one line for a lane, and its whole output where it failed."""
    name, verdict = outcome.lane.name, outcome.verdict
    note = f"{verdict.passed} tests{_coverage(outcome.output)}{_faults(outcome.output)}" if outcome.lane.runs_tests else ""
    print(f"  {name:<10} {'FAILED' if verdict.failed else 'ok':<7} {outcome.seconds:6.1f} s  {note}".rstrip(), flush=True)
    if verdict.failed:
        print(f"---- {name}: {verdict.why}; its output:\n{outcome.output}\n---- end of {name}", flush=True)


def conclude(verdicts: dict[str, Verdict], *, is_root: bool) -> int:
    """Print what failed, what was skipped and what was left untried, then the counts; return the exit code.

    What failed is told again where it is found at once, also by whoever keeps the end of the output alone.
    """
    for lane, verdict in verdicts.items():
        if verdict.failed:
            print(f"failed: {lane}: {verdict.why}")
        for case in verdict.failures:
            print(f"failed in {lane}: {case.name}: {case.reason[:_REASON_MAX]}")
    skipped = [(lane, case) for lane, verdict in verdicts.items() for case in verdict.skipped]
    for lane, case in skipped:
        if not case.reason.startswith(UNTRIED):
            print(f"skipped in {lane}: {case.name}: {case.reason}")
    untried = {f"{case.name} ({case.reason.removeprefix(UNTRIED)})" for _, case in skipped if case.reason.startswith(UNTRIED)}
    print(f"ran {'as root' if is_root else 'without root'}; left untried here: {', '.join(sorted(untried)) or 'nothing'}")
    passed, failed = (sum(getattr(verdict, name) for verdict in verdicts.values()) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed" + (f", {len(skipped)} skipped" if skipped else ""), flush=True)
    return int(failed > 0)


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
