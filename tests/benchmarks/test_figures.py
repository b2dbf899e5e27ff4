import json

import pytest

from benchmarks.figures import Row, Scale, against, amount, bounded, many, markdown, note, rate, render, write_document, write_json


def test_a_cost_is_divided_by_the_bare_one():
    row = against("a", ours=3.0, bare=2.0, unit="us", at_most=1.4)
    assert (row.ratio, row.reached, row.target) == (1.5, False, "<= 1.4x")
    assert (row.measured, row.bare) == ("3.00 us", "2.00 us")


def test_a_ratio_at_its_bound_is_reached():
    assert against("a", ours=3.0, bare=2.0, unit="us", at_most=1.5).reached is True


def test_a_bare_cost_of_nothing_is_no_division_by_it():
    row = against("a", ours=3.0, bare=0.0, unit="us", at_most=1.5)
    assert (row.ratio, row.reached) == (float("inf"), False)


def test_without_a_bound_nothing_is_reached_or_missed():
    row = against("a", ours=3.0, bare=2.0, unit="us", at_most=None)
    assert (row.reached, row.target, row.cells()[-1]) == (None, "", "")


@pytest.mark.parametrize(("per_second", "reached"), [(999_999.0, False), (1_000_000.0, True)])
def test_a_rate_must_be_at_least_its_target(per_second, reached):
    row = rate("a", per_second=per_second, unit="events/s", at_least=1_000_000, bare=2_000_000.0)
    assert row.reached is reached
    assert row.target == ">= 1.00 M"
    assert row.ratio == per_second / 2_000_000


def test_a_rate_beside_nothing_has_no_ratio():
    assert rate("a", per_second=5.0, unit="events/s", at_least=None).ratio is None


@pytest.mark.parametrize(("value", "reached"), [(600.0, True), (600.1, False)])
def test_a_bounded_figure_may_be_the_bound(value, reached):
    assert bounded("a", value=value, unit="MiB", at_most=600).reached is reached


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0451, "0.045"), (0.9999, "1.000"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12_345.6, "12,346")],
)
def test_an_amount_has_three_digits_that_count(value, text):
    assert amount(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12.4, "12"), (999.0, "999"), (1_000.0, "1.0 k"), (45_678.0, "45.7 k"), (2_440_000.0, "2.44 M")]
)
def test_many_is_told_in_thousands_and_millions(value, text):
    assert many(value) == text


def test_a_quick_run_is_a_twentieth_and_never_nothing():
    assert Scale().of(1_000) == 1_000
    assert Scale(quick=True).of(1_000) == 50
    assert Scale(quick=True).of(7) == 1
    assert Scale(quick=True).of(1_000, quick=3) == 3


def test_columns_of_a_printed_table_begin_at_the_same_place():
    lines = render([note("short", "1"), Row(case="a longer case", measured="2 us", reached=False)]).splitlines()
    assert [line.index(word) for line, word in zip(lines, ("measured", "1", "2 us"), strict=True)] == [15, 15, 15]
    assert lines[2].endswith("MISSED")


def test_a_page_gets_each_table_between_its_marks_and_keeps_the_rest(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- one -->\nold\n<!-- /one -->\nbetween\n<!-- two -->\nkept\n<!-- /two -->\nend\n")
    rows = [against("case", ours=3.0, bare=2.0, unit="us", at_most=2.0)]
    write_document(page, "2 cores", [("one", "1.0 s", rows)])
    table = markdown(rows)
    assert "| case | 3.00 us | 2.00 us | 1.50x | <= 2x | reached |" in table
    assert page.read_text() == (
        f"# Page\n\n<!-- one -->\n2 cores; 1.0 s.\n\n{table}\n<!-- /one -->\nbetween\n<!-- two -->\nkept\n<!-- /two -->\nend\n"
    )


def test_writing_a_page_again_replaces_what_was_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- one -->\n<!-- /one -->\n")
    write_document(page, "old machine", [("one", "9 s", [note("case", "old")])])
    write_document(page, "2 cores", [("one", "1 s", [note("case", "new")])])
    assert "old" not in page.read_text()
    assert page.read_text().count("| case |") == 2, "the headings and the row"


def test_a_long_remark_is_folded(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- one -->\n<!-- /one -->\n")
    write_document(page, "words " * 60, [("one", "1 s", [])])
    assert max(map(len, page.read_text().splitlines())) <= 130


def test_a_page_without_a_place_for_a_table_is_left_as_it_is(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- one -->\nno end\n")
    with pytest.raises(ValueError, match="no place for one"):
        write_document(page, "2 cores", [("one", "1 s", [])])
    assert page.read_text() == "<!-- one -->\nno end\n"


def test_results_are_kept_as_json(tmp_path):
    path = tmp_path / "deeper" / "results.json"
    row = against("case", ours=3.0, bare=2.0, unit="us", at_most=2.0)
    write_json(path, "2 cores", [("one", "1 s", [row])])
    found = json.loads(path.read_text())
    assert (found["machine"], found["results"][0]["name"], found["results"][0]["remark"]) == ("2 cores", "one", "1 s")
    assert Row(**found["results"][0]["rows"][0]) == row
