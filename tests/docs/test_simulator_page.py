"""The page of the simulator has every planted bug as it is planted, and names tests that are there."""

import re

import pytest

from tests.docs.pages import TOP
from tests.sim.hunt import mutants

pytestmark = pytest.mark.source

PAGE = (TOP / "docs" / "simulator.md").read_text()


def rows_of(heading: str) -> list[list[str]]:
    """Return the rows of the only table of a section, without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_planted_bug_is_listed_with_its_seed_and_no_other():
    listed = rows_of("The planted bugs")
    assert listed == [[mutant.name, mutant.world, str(mutant.seed)] for mutant in mutants()]


def test_a_rule_that_no_seed_needs_has_a_test_that_is_there():
    rows = rows_of("Rules that seeds do not need")
    assert len(rows) > 5
    for rule, reason, test in rows:
        found = re.fullmatch(r"`(\w+\.py)::(test_\w+)`", test)
        assert found, rule
        assert reason, rule
        assert any(f"\ndef {found[2]}(" in path.read_text() for path in TOP.joinpath("tests").rglob(found[1])), rule
