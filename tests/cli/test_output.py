"""Rows and tables."""

import os
from contextlib import redirect_stderr

from eventlog_cli.output import note, table


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() -> None:
    assert table(("name", "size", "kept"), [("a", 5, True), ("longer", 12_345, False)]).splitlines() == [
        "name     size  kept",
        "a           5  yes",
        "longer  12345  no",
    ]
    assert table(("n",), [("1,000",), ("7",)]).splitlines() == ["    n", "1,000", "    7"]


def test_what_is_missing_is_a_dash_and_no_rows_are_heads_alone() -> None:
    assert table(("a", "b"), [(None, "x")]) == "a  b\n-  x"
    assert table(("a", "b"), []) == "a  b"


def test_a_line_that_nobody_reads_any_more_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stderr, redirect_stderr(stderr):
        for _ in range(2):
            note("progress")
