"""The page of the benchmarks has a place for the table of each."""

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.figures import without_place
from tests.docs.pages import TOP

pytestmark = pytest.mark.source


def test_each_benchmark_has_a_place_for_its_table():
    page = (TOP / "docs" / "benchmarks.md").read_text()
    assert without_place(page, NAMES) == []
    assert without_place(page.replace("<!-- /short -->", ""), NAMES) == ["short"]


def test_no_table_is_of_a_benchmark_that_could_not_run():
    assert "is not installed" not in (TOP / "docs" / "benchmarks.md").read_text()
