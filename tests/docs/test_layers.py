"""The layers are one list: the import contract, the table of the README and the drawing of the design."""

import re
import tomllib
from collections.abc import Iterable

import pytest

from tests.docs.pages import TOP, blocks_of, section_of

pytestmark = pytest.mark.source

_PACKAGE = re.compile(r"`eventlog/(\w+)(?:\.py)?`")
Layers = list[frozenset[str]]


def contract() -> Layers:
    """The layers of the contract, without names that are reserved for what is not there yet."""
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["id"] == "layers")
    return filled(frozenset(name for name in re.findall(r"\w+", layer) if is_there(name)) for layer in layers)


def readme() -> Layers:
    rows = [line.split("|") for line in (TOP / "README.md").read_text().splitlines() if line.startswith("| ") and line.count("|") == 4]
    return filled(frozenset(_PACKAGE.findall(row[2])) for row in rows)


def design() -> Layers:
    (drawn,) = blocks_of(section_of((TOP / "docs" / "design.md").read_text(), "4. Parts and layers"))
    rows = [re.split(r" {2,}", line)[0] for line in drawn.text.splitlines() if line.startswith("eventlog/")]
    return [frozenset(name.removesuffix(".py") for name in row.removeprefix("eventlog/").split(" | ")) for row in rows]


def is_there(name: str) -> bool:
    return (TOP / "eventlog" / name).is_dir() or (TOP / "eventlog" / f"{name}.py").is_file()


def filled(layers: Iterable[frozenset[str]]) -> Layers:
    return [layer for layer in layers if layer]


def test_the_readme_has_the_layers_of_the_contract():
    assert readme() == contract()


def test_the_design_has_the_layers_of_the_contract():
    assert design() == contract()
