"""The lane runner: nothing that did not run, or that ran nothing, may look as if it had passed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import Case, Lane, Outcome, Verdict, conclude, environment, judge, lanes, main, read_report, show
from tests.words import FAULTS_HIT, UNTRIED

TOP = Path(__file__).resolve().parents[2]
TESTS = Lane(name="unit", commands=(), runs_tests=True)
TOOL = Lane(name="lint", commands=())
PASSED = Case(name="a::test_one", result="passed")
SKIPPED = Case(name="a::test_two", result="skipped", reason="no such machine")
ROOT_ONLY = Case(name="a::test_three", result="skipped", reason=f"{UNTRIED}mounts a disk")
FAILED = Case(name="a::test_four", result="failed", reason="assert 1 == 2")

SAMPLE = """
import pytest
def test_passes(): pass
def test_fails(): assert False
@pytest.mark.skip(reason="not today")
def test_is_skipped(): pass
@pytest.fixture
def broken(): raise OSError("no disk")
def test_has_no_fixture(broken): pass
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False
"""


def pytest_report(folder: Path, *options: str) -> list[Case]:
    report = folder / "report.xml"
    # Without a plugin that takes a quarter of a second to import; our settings leave it out as well.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", f"--junitxml={report}", *options]
    subprocess.run(command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return read_report(report)


def test_a_tool_counts_as_one() -> None:
    assert judge(TOOL, cases=[], why="", in_ci=True) == Verdict(passed=1, failed=0, skipped=(), why="")
    assert judge(TOOL, cases=[], why="ruff exited with 1", in_ci=True) == Verdict(passed=0, failed=1, skipped=(), why="ruff exited with 1")


def test_a_lane_without_a_test_fails_although_its_command_passed() -> None:
    assert judge(TESTS, cases=[], why="", in_ci=False) == Verdict(passed=0, failed=1, skipped=(), why="no test was collected")


def test_a_lane_that_broke_outside_its_tests_fails_although_they_passed() -> None:
    assert judge(TESTS, cases=[PASSED], why="pytest exited with 3", in_ci=False).failed == 1


def test_a_failed_test_fails_the_lane_whatever_the_command_said() -> None:
    verdict = judge(TESTS, cases=[PASSED, FAILED], why="", in_ci=False)
    assert (verdict.passed, verdict.failed) == (1, 1)
    assert verdict.why


def test_a_skip_fails_in_ci_only() -> None:
    assert judge(TESTS, cases=[PASSED, SKIPPED], why="", in_ci=False) == Verdict(passed=1, failed=0, skipped=(SKIPPED,), why="")
    assert judge(TESTS, cases=[PASSED, SKIPPED], why="", in_ci=True).failed == 1


def test_what_only_root_can_try_does_not_fail_in_ci() -> None:
    assert judge(TESTS, cases=[PASSED, ROOT_ONLY], why="", in_ci=True) == Verdict(passed=1, failed=0, skipped=(ROOT_ONLY,), why="")


def test_the_last_line_has_the_counts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {
        "unit": judge(TESTS, cases=[PASSED, SKIPPED, ROOT_ONLY], why="", in_ci=False),
        "lint": judge(TOOL, cases=[], why="", in_ci=False),
    }
    assert conclude(verdicts, is_root=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        "skipped in unit: a::test_two: no such machine",
        "ran without root; left untried here: a::test_three (mounts a disk)",
        "2 passed, 0 failed, 2 skipped",
    ]


def test_one_failure_makes_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude({"unit": judge(TESTS, cases=[PASSED, FAILED], why="", in_ci=False)}, is_root=True) == 1
    assert capsys.readouterr().out.splitlines() == [
        "failed: unit: tests failed",
        "failed in unit: a::test_four: assert 1 == 2",
        "ran as root; left untried here: nothing",
        "1 passed, 1 failed",
    ]


def test_commands_get_what_is_meant_for_tests_and_no_configuration_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVENTLOG_TEST_ETCD", "EVENTLOG_DATA", "PYTHONPATH"):
        monkeypatch.setenv(name, "x")
    assert {"EVENTLOG_TEST_ETCD", "EVENTLOG_DATA", "PYTHONPATH"} & set(environment()) == {"EVENTLOG_TEST_ETCD"}


def test_an_unknown_lane_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unit", "unti"]) == 2
    assert "process spark unit coverage quick sim wheel types lint contracts" in capsys.readouterr().err


def test_the_quick_lane_runs_what_the_unit_lane_does() -> None:
    chosen = {name: [words[words.index("-m") + 1] for words in lane.commands] for name, lane in lanes().items() if lane.runs_tests}
    assert (chosen["process"], chosen["unit"], chosen["quick"]) == (["process and not spark"], ["not process"], ["not process"])


def test_a_report_of_pytest_is_read_with_reasons(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    cases = {case.name.removeprefix("test_sample::"): (case.result, case.reason) for case in pytest_report(tmp_path)}
    assert cases == {
        "test_passes": ("passed", ""),
        "test_fails": ("failed", "assert False"),
        "test_is_skipped": ("skipped", "not today"),
        "test_has_no_fixture": ("failed", 'failed on setup with "OSError: no disk"'),
        "test_is_expected_to_fail": ("skipped", "no reason given"),
    }


def test_a_module_that_cannot_be_imported_counts_as_failed(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("import nothing_of_that_name")
    assert [case.result for case in pytest_report(tmp_path)] == ["failed"]


def test_a_report_that_was_never_written_holds_no_test(tmp_path: Path) -> None:
    assert read_report(tmp_path / "absent.xml") == []


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree with our conftest.py and settings, and nothing else."""
    (tmp_path / "tests" / "process").mkdir(parents=True)
    shutil.copy(TOP / "pyproject.toml", tmp_path)
    for name in ("__init__.py", "conftest.py", "examples.py", "words.py"):
        shutil.copy(TOP / "tests" / name, tmp_path / "tests")
    return tmp_path


def test_what_needs_root_or_must_not_be_root_is_left_untried_with_its_reason(small_tree: Path) -> None:
    (small_tree / "tests" / "test_rights.py").write_text(
        "import pytest\n"
        "@pytest.mark.needs_root('mounts a disk')\ndef test_root(): pass\n"
        "@pytest.mark.needs_user('root may write everywhere')\ndef test_user(): pass\n"
    )
    left, tried, reason = ("user", "root", "root may write everywhere") if os.geteuid() == 0 else ("root", "user", "mounts a disk")
    cases = {case.name.rpartition("_")[2]: case for case in pytest_report(small_tree)}
    assert cases[left].reason == UNTRIED + reason
    assert cases[tried].result == "passed"


def test_the_folder_of_process_tests_gives_the_mark_and_where_none_is_wanted_none_is_imported(small_tree: Path) -> None:
    (small_tree / "tests" / "process" / "test_far.py").write_text("def test_far(): pass")
    (small_tree / "tests" / "test_near.py").write_text("def test_near(): pass")
    assert [case.name.rpartition(":")[2] for case in pytest_report(small_tree, "-m", "process")] == ["test_far"]
    for mark, name in (("[pytest.mark.process, pytest.mark.timeout(9)]", "one"), ("[\n    pytest.mark.process,\n]", "other")):
        lacking = f"import nothing_of_that_name, pytest\npytestmark = {mark}\ndef test_lacks(): pass"
        (small_tree / "tests" / f"test_{name}.py").write_text(lacking)
    assert [case.name.rpartition(":")[2] for case in pytest_report(small_tree, "-m", "not process")] == ["test_near"]


def test_the_inner_loop_tries_a_property_a_few_times_however_many_it_asks_for(small_tree: Path) -> None:
    (small_tree / "tests" / "test_many.py").write_text(
        "from hypothesis import given, settings, strategies as st\nfrom tests.examples import examples\ntried = []\n"
        "@settings(max_examples=examples(40))\n@given(st.integers())\ndef test_any(number): tried.append(number)\n"
        "def test_few(): assert len(tried) <= 15\ndef test_all(): assert len(tried) == 40\n"
    )
    passed = {"--hypothesis-profile=quick": ["any", "few"], "--hypothesis-profile=dev": ["any", "all"]}
    for profile, names in passed.items():
        cases = pytest_report(small_tree, profile)
        assert [case.name.rpartition("_")[2] for case in cases if case.result == "passed"] == names


def test_a_warning_fails_a_test(small_tree: Path) -> None:
    (small_tree / "tests" / "test_warns.py").write_text("import warnings\ndef test_warns(): warnings.warn('old', DeprecationWarning)")
    assert [case.result for case in pytest_report(small_tree)] == ["failed"]


def test_what_the_faults_of_passed_tests_hit_is_said_at_the_end_and_in_the_line_of_the_lane(
    small_tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "".join(f"def test_{name}(): print('{FAULTS_HIT}{hits}')\n" for name, hits in (("one", '{"a": 4, "b": 7}'), ("two", '{"c": 3}')))
    (small_tree / "tests" / "test_faults.py").write_text(said)
    command = [sys.executable, "-m", "pytest", "-q"]
    output = subprocess.run(command, cwd=small_tree, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True).stdout
    assert "test_one: a: 4; b: 7\ntest_two: c: 3\nfaults: 3, the least hit 3 operations in flight\n" in output
    show(Outcome(lane=TESTS, seconds=1, verdict=judge(TESTS, cases=[PASSED], why="", in_ci=True), output=output))
    assert capsys.readouterr().out.endswith("1 tests, faults 3, the least hit 3 operations\n")
