"""What the tests of the documents read out of them: pages, fenced blocks, shown output."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGES = tuple(sorted([*TOP.glob("*.md"), *TOP.glob("docs/*.md"), *TOP.glob("schemas/*.md")]))

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_VARIES = re.compile(
    r"(?P<any>…)"
    r"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"
    r"|(?P<id>\b\d{15,19}\b)"
    r"|(?P<process>\b4711\b)"
    r"|(?P<count>\b\d{1,3}(?:,\d{3})+\b)"
    r"|(?P<space> +)"
)
_STANDS_FOR = {
    "any": ".*",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z",
    "id": r"\d{15,19}",
    "process": r"\d+",
    "count": r"[\d,]+",
    "space": " +",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def name_of(page: Path) -> str:
    """Return a page as it is named in a failure."""
    return page.relative_to(TOP).as_posix()


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(language=found[2], text=found[3], line=text.count("\n", 0, found.start()) + 1) for found in _FENCE.finditer(text)]


def prose_of(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", text)


def anchors_of(text: str) -> set[str]:
    """Return the anchors that a page's headings make, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose_of(text))}


def section_of(text: str, heading: str) -> str:
    """Return what stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {heading}"
    return found[1]


def pattern_of(shown: str) -> re.Pattern[str]:
    """Return what output matches what a page shows: ids, times, counts and process 4711 stand for any, `…` for anything.

    A line that is `…` alone stands for any number of lines. Runs of blanks may be longer or shorter.
    """
    return re.compile("".join(_line_patterns(shown.strip("\n").split("\n"))) + r"\Z")


def _line_patterns(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield r"(?:.*\n)*?" if line.strip() == "…" else _line_pattern(line.rstrip()) + r" *\n"


def _line_pattern(line: str) -> str:
    parts, at = [], 0
    for found in _VARIES.finditer(line):
        parts += [re.escape(line[at : found.start()]), _STANDS_FOR[found.lastgroup or ""]]
        at = found.end()
    return "".join(parts) + re.escape(line[at:])
