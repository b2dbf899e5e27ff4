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
