"""The page of the simulator has every planted bug as it is planted, found in every range, and names tests that are there."""

import re
import statistics

import pytest

from tests.docs.pages import TOP
from tests.sim.hunt import RANGES, SEEDS_MAX, mutants

pytestmark = pytest.mark.source

PAGE = (TOP / "docs" / "simulator.md").read_text()


def rows_of(heading: str) -> list[list[str]]:
    """Return the rows of the only table of a section, without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_planted_bug_is_listed_and_no_other():
    listed = [(name, world) for name, world, *_ in rows_of("After how many seeds they are found")]
    assert listed == [(mutant.name, mutant.world) for mutant in mutants()]


def test_each_was_found_in_every_range():
    for (name, _, *cells), mutant in zip(rows_of("After how many seeds they are found"), mutants(), strict=True):
        *counts, median = map(int, cells)
        assert len(counts) == len(RANGES), name
        assert all(0 < count <= SEEDS_MAX[mutant.world] for count in counts), name
        assert median == int(statistics.median(counts)), name


def test_a_rule_that_no_seed_needs_has_a_test_that_is_there():
    rows = rows_of("Rules that seeds do not need")
    assert len(rows) > 5
    for rule, reason, test in rows:
        found = re.fullmatch(r"`(\w+\.py)::(test_\w+)`", test)
        assert found, rule
        assert reason, rule
        assert any(f"\ndef {found[2]}(" in path.read_text() for path in TOP.joinpath("tests").rglob(found[1])), rule
