"""Rows of results: what was measured, what the bare thing costs in the same run, the ratio, and the target."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill

MILLION = 1_000_000
HEADINGS = ("case", "measured", "bare", "ratio", "target", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a result. `reached` is None where there is no target."""

    case: str
    measured: str
    bare: str = ""
    ratio: float | None = None
    target: str = ""
    reached: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = "" if self.reached is None else "reached" if self.reached else "MISSED"
        return self.case, self.measured, self.bare, "" if self.ratio is None else f"{self.ratio:.2f}x", self.target, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is: the full sizes, or a fraction of them to see that everything runs; `events`: as many as are named, else 0."""

    quick: bool = False
    events: int = 0

    def of(self, full: int, *, quick: int | None = None) -> int:
        """Return a size: `full`, or in a quick run `quick`, a twentieth where that is not given."""
        if not self.quick:
            return full
        return quick if quick is not None else max(full // 20, 1)


def against(case: str, *, ours: float, bare: float, unit: str, at_most: float | None) -> Row:
    """Return a row whose ratio is our cost against the bare one."""
    ratio = ours / bare if bare else float("inf")
    return Row(
        case=case,
        measured=f"{amount(ours)} {unit}",
        bare=f"{amount(bare)} {unit}",
        ratio=ratio,
        target="" if at_most is None else f"<= {at_most:g}x",
        reached=None if at_most is None else ratio <= at_most,
    )


def rate(case: str, *, per_second: float, unit: str, at_least: float | None, bare: float | None = None) -> Row:
    """Return a row about how many a second; `bare` is how many the bare thing does, the ratio ours against it."""
    return Row(
        case=case,
        measured=f"{many(per_second)} {unit}",
        bare="" if bare is None else f"{many(bare)} {unit}",
        ratio=None if not bare else per_second / bare,
        target="" if at_least is None else f">= {many(at_least)}",
        reached=None if at_least is None else per_second >= at_least,
    )


def bounded(case: str, *, value: float, unit: str, at_most: float) -> Row:
    """Return a row about an absolute bound."""
    return Row(case=case, measured=f"{amount(value)} {unit}", target=f"<= {amount(at_most)} {unit}", reached=value <= at_most)


def note(case: str, measured: str) -> Row:
    """Return a row that only tells."""
    return Row(case=case, measured=measured)


def amount(value: float) -> str:
    """Return a figure with three significant digits, never in powers of ten."""
    if value == 0:
        return "0"
    digits = 3
    for bound in (1, 10, 100):
        if abs(value) >= bound:
            digits -= 1
    return f"{value:,.{digits}f}"


def many(value: float) -> str:
    """Return a rate as thousands or millions."""
    if value >= MILLION:
        return f"{value / MILLION:.2f} M"
    return f"{value / 1_000:.1f} k" if value >= 1_000 else f"{value:.0f}"


def render(rows: Sequence[Row]) -> str:
    """Return rows as a table of aligned columns."""
    cells = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table of a Markdown page."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PAGE_COLUMNS = 130


def without_place(page: str, names: Iterable[str]) -> list[str]:
    """Return the names of those whose table has no place on a page."""
    return [name for name in names if not re.search(f"^<!-- {name} -->\n.*^<!-- /{name} -->$", page, re.DOTALL | re.MULTILINE)]


def write_document(path: Path, machine: str, results: Sequence[tuple[str, str, Sequence[Row]]]) -> None:
    """Put the tables of results into a page, each between its two marks `<!-- NAME -->` and `<!-- /NAME -->`."""
    page = path.read_text()
    if lacking := without_place(page, (name for name, _, _ in results)):
        raise ValueError(f"{path} has no place for {', '.join(lacking)}")
    for name, remark, rows in results:
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        said = fill(" ".join(f"{machine}; {remark}.".split()), PAGE_COLUMNS)
        page = f"{before}{mark}{said}\n\n{markdown(rows)}\n{end}{after}"
    path.write_text(page)


def write_json(path: Path, machine: str, results: Iterable[tuple[str, str, Sequence[Row]]]) -> None:
    """Keep all results, (name, remark, rows), for whoever compares runs."""
    found = [{"name": name, "remark": remark, "rows": [asdict(row) for row in rows]} for name, remark, rows in results]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "results": found}, indent=1) + "\n")
