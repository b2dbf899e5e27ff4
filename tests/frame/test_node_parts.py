"""The parts of a node ask for what they need: none names the whole, and no files import each other in a circle."""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.frame.test_tree import TOP, python_files, statements, tree_of

pytestmark = pytest.mark.source

ASSEMBLING = {"assemble", "node.figures", "node.handlers", "node.periodic", "node.start"}
"""What puts the node together, or goes through all of it."""
MEMBERS_MAX = 10
LARGER = {
    "CacheChangesGround": 12,  # a dropped cache is told to its readers, its writers, its log and its state
    "HealthGround": 13,  # says what is wrong with anything
    "IncomingGround": 11,
    "MendingGround": 12,
    "RetentionGround": 13,
    "TakeOverGround": 18,  # begins and ends terms: everything that is led begins and ends with them
    "CopiesGround": 12,
    "InnerGround": 11,
}
"""Cut them where they are two, and take them off here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a module imports of the package, for types alone too, and how many members each of its grounds has."""

    imports: frozenset[str]
    grounds: Mapping[str, int]


@pytest.fixture(scope="module")
def parts() -> dict[str, Part]:
    """Every module of the package but generated ones, by its name without `eventlog.`."""
    paths = {name_of(path): path for path in python_files("eventlog")}
    return {name: part_of(name, tree_of(path), paths.keys()) for name, path in paths.items()}


def name_of(path: Path) -> str:
    name = path.relative_to(TOP / "eventlog").with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix(".__init__")


def part_of(name: str, tree: ast.Module, known: Collection[str]) -> Part:
    grounds = {one.name: members(one) for one in tree.body if isinstance(one, ast.ClassDef) and one.name.endswith("Ground")}
    return Part(imports=frozenset(imported(name, tree, known)), grounds=grounds)


def imported(name: str, tree: ast.Module, known: Collection[str]) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                whole = f"{node.module}.{one.name}".removeprefix("eventlog.")
                found = whole if whole in known else node.module.removeprefix("eventlog.")
                if found in known and found != name:
                    yield found


def members(kind: ast.ClassDef) -> int:
    return sum(isinstance(one, ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef) for one in kind.body)


def test_nobody_names_the_whole_node_but_what_assembles_it(parts: dict[str, Part]) -> None:
    assert {name for name, part in parts.items() if "node.node" in part.imports} == ASSEMBLING


def test_no_files_of_a_node_import_each_other_in_a_circle(parts: dict[str, Part]) -> None:
    node = {name: part for name, part in parts.items() if name.startswith("node.")}
    left = {name: {one for one in part.imports if one.startswith("node.")} for name, part in node.items()}
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert left == {}


def test_a_part_asks_for_few_things(parts: dict[str, Part]) -> None:
    found = {ground: count for name, part in parts.items() if name.startswith("node.") for ground, count in part.grounds.items()}
    assert len(found) > 40
    assert {name: count for name, count in found.items() if count > LARGER.get(name, MEMBERS_MAX)} == {}
    assert {name for name in LARGER if found[name] < LARGER[name]} == set(), "it became smaller: say so"


def test_places_of_the_tree_are_found(parts: dict[str, Part]) -> None:
    assert Path(TOP / "eventlog" / "node" / "node.py").is_file()
    assert "node.node" in parts
