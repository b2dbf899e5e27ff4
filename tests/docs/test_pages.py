"""Reading pages: what shown output stands for."""

import pytest

from tests.docs.pages import anchors_of, blocks_of, pattern_of, prose_of, section_of

pytestmark = pytest.mark.source


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("CREATED 911854703225077761", "CREATED 911899999999999999\n"),
        ("at 2026-11-21T05:45:02.690Z sharp", "at 2031-01-01T00:00:00.001Z sharp\n"),
        ("rows  1,234  kept", "rows   98,765,432 kept  \n"),
        ("kill 4711", "kill 12\n"),
        ("a\n…\nz", "a\nb\nc\nz\n"),
        ("a\n…\nz", "a\nz\n"),
        ("took …", "took 3 ms\n"),
        ("…\nz\n…", "a\nz\nb\n"),
    ],
)
def test_what_varies_from_run_to_run_may_vary(shown, printed):
    assert pattern_of(shown).match(printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("CREATED 911854703225077761", "MODIFIED 911854703225077761\n"),
        ("CREATED 911854703225077761", "CREATED 17\n"),
        ("a\nb", "a\nx\nb\n"),
        ("a", "a\nb\n"),
        ("a\nb", "b\na\n"),
        ("segment 80", "segment 81\n"),
        ("a.c", "abc\n"),
    ],
)
def test_all_else_may_not(shown, printed):
    assert not pattern_of(shown).match(printed)


PAGE = "# One\n\n```sh\n# no heading\n```\n\n## The `second`: part\n\ntext\n\n```text\nout\n```\n\n## Third\n"


def test_a_page_has_blocks_prose_and_sections():
    assert [(block.language, block.text, block.line) for block in blocks_of(PAGE)] == [("sh", "# no heading\n", 3), ("text", "out\n", 11)]
    assert "no heading" not in prose_of(PAGE)
    assert section_of("# a\n## b\nx\n## c\ny\n", "b") == "x\n"


def test_headings_are_anchors():
    assert anchors_of(PAGE) == {"one", "the-second-part", "third"}
