"""The table of faults says nothing that is not tested: each cell is filled, and each test it names is there."""

import ast
import re

import pytest

from tests.docs.pages import TOP
from tests.process.every_consumer import KINDS

pytestmark = pytest.mark.source

SECTION = (TOP / "docs" / "consuming.md").read_text().partition("## When something breaks\n")[2]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("|")]
LEGEND = set(re.findall(r"^- \*(\w+)\*:", SECTION, re.MULTILINE))


def names_in(file: str) -> set[str]:
    tree = ast.parse((TOP / "tests" / "process" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_cell_says_how_it_was_tried():
    head, _, *rows = ROWS
    assert len(rows) == 9
    for name, *cells in rows:
        assert len(cells) == len(head) - 1
        assert all(cell in LEGEND or "::" in cell or cell.startswith("as ") for cell in cells), name


def test_the_tests_that_are_named_are_there():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", SECTION)
    assert len(named) >= len(ROWS)
    assert [f"{file}::{test}" for file, test in named if test not in names_in(file)] == []


def test_a_consumer_of_every_row_is_among_those_that_bear_the_faults():
    words = {"state", "filtered", "iteration", "tasks", "group", "work", "query", "near", "listener"}
    assert {kind.partition("-")[0] for kind in KINDS} == words
    assert len(words) == len(ROWS) - 2
