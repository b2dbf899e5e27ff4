"""Every link and every place in the tree that a page names is there, and nothing stands in a page that does not belong there."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, TOP, anchors_of, name_of, prose_of

pytestmark = pytest.mark.source

_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_PLACE = re.compile(r"`((?:eventlog|cli|tests|docs|schemas|benchmarks|docker|\.ci)/[\w./-]+)(?:::\w+)?`")
_FIRST_FOLDERS = re.compile(
    r"`((?:batch|client|consume|control|http|interceptor|node|replication|routing|segment|transport|wire)/[\w./]+\.py)`"
)
_NAMES_TO_FILL_IN = re.compile(r"NAME|NOUN")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path):
    text = page.read_text()
    broken = []
    for link in _LINK.findall(prose_of(text)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_place_in_the_tree_is_there(page: Path):
    text = prose_of(page.read_text())
    named = _PLACE.findall(text) + [f"eventlog/{place}" for place in _FIRST_FOLDERS.findall(text)]
    assert [place for place in named if not _NAMES_TO_FILL_IN.search(place) and not (TOP / place).exists()] == []


def test_the_pages_link_to_each_other():
    linked = {(TOP / link.partition("#")[0]).resolve() for link in _LINK.findall((TOP / "README.md").read_text())}
    assert {name_of(page) for page in PAGES if page.name != "README.md" or page.parent != TOP} <= {
        name_of(page) for page in linked if page.suffix == ".md"
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_line_is_too_long_to_read(page: Path):
    shown = [line for line in prose_of(page.read_text()).splitlines() if not line.startswith("|")]
    assert [line for line in shown if len(line) > 200] == []
