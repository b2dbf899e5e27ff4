"""Bugs that are planted into a copy of the sources: a test has to find each, or it would pass whatever it is about."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(300)]
ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 200


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A line of a file, what stands in its place, the test that finds it, and what that one says then."""

    file: str
    line: str
    instead: str
    test: str
    says: str


PLANTED: Final = {
    "a plan goes beyond the low watermark": Planted(
        file="eventlog/node/handlers/events.py",
        line="    if upto > node.reads.limit():",
        instead="    if False:",
        test="tests/process/one_loop/test_plan.py::test_a_plan_ends_where_readers_see_everything_whatever_end_was_asked_for",
        says="events of other segments may still come below it",
    ),
    "a batch is committed before it is published": Planted(
        file="eventlog/integrations/spark/sink.py",
        line="cache.publish(transaction, batch, [one.staged for one in parts], insert=insert",
        instead="__import__('threading').Timer(5, cache.publish, (transaction, batch, [])).start(); dict(insert=insert",
        test="tests/spark/test_sink.py::test_a_batch_of_a_named_transaction_is_written_once",
        says="AssertionError",
    ),
    "a hold moves on before the commit": Planted(
        file="eventlog/integrations/archive/rounds.py",
        line="        table.commit(parts, done)",
        instead="        is_held and client.listeners.acknowledge(listener, plan.upto)\n        table.commit(parts, done)",
        test="tests/archive/test_archive.py::test_a_round_that_is_not_committed_is_held_back_all_the_same",
        says="position_id",
    ),
    "the archive ends an event before the seam": Planted(
        file="eventlog/integrations/archive/events.py",
        line="self._archive.history(self._start, self.end,",
        instead="self._archive.history(self._start, self.end - 1,",
        test="tests/archive/test_over_both.py::test_everything_is_there_once_and_looks_the_same",
        says="AssertionError",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    planted = PLANTED[name]
    for folder in ("eventlog", "cli", "tests", "schemas"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".build").symlink_to(ROOT / ".build")
    place = tmp_path / planted.file
    text = place.read_text()
    assert text.count(planted.line) == 1
    place.write_text(text.replace(planted.line, planted.instead))
    words = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={tmp_path / 'cache'}", planted.test]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{tmp_path / 'cli'}"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert (done.returncode, "1 failed" in done.stdout, planted.says in done.stdout) == (1, True, True), done.stdout + done.stderr
