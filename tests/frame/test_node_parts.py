"""The parts of a node ask for what they need: none names the whole, and no files import each other in a circle."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frame.test_tree import TOP

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


def modules() -> dict[str, ast.Module]:
    """Return the tree of every module of the package but generated ones, by its name without `eventlog.`."""
    found = {}
    for path in (TOP / "eventlog").rglob("*.py"):
        if not path.name.endswith("_pb2.py"):
            name = path.relative_to(TOP / "eventlog").with_suffix("").as_posix().replace("/", ".")
            found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


MODULES = modules()


def imported(name: str) -> Iterator[str]:
    """Yield what a module imports of the package, for types alone too."""
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                whole = f"{node.module}.{one.name}".removeprefix("eventlog.")
                found = whole if whole in MODULES else node.module.removeprefix("eventlog.")
                if found in MODULES and found != name:
                    yield found


def members(kind: ast.ClassDef) -> int:
    return sum(isinstance(one, ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef) for one in kind.body)


def test_nobody_names_the_whole_node_but_what_assembles_it():
    assert {name for name in MODULES if "node.node" in imported(name)} == ASSEMBLING


def test_no_files_of_a_node_import_each_other_in_a_circle():
    left = {name: {one for one in imported(name) if one.startswith("node.")} for name in MODULES if name.startswith("node.")}
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert left == {}


def test_a_part_asks_for_few_things():
    found = {
        kind.name: members(kind)
        for name, tree in MODULES.items()
        for kind in tree.body
        if name.startswith("node.") and isinstance(kind, ast.ClassDef) and kind.name.endswith("Ground")
    }
    assert len(found) > 40
    assert {name: count for name, count in found.items() if count > LARGER.get(name, MEMBERS_MAX)} == {}
    assert {name for name in LARGER if found[name] < LARGER[name]} == set(), "it became smaller: say so"


def test_places_of_the_tree_are_found():
    assert Path(TOP / "eventlog" / "node" / "node.py").is_file()
    assert "node.node" in MODULES
