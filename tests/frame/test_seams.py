"""How tests get at the product: by what it gives to everybody. Two ways around that are counted, and their counts only go down.

What a test puts in the place of a product's name, and what it reads or sets below a leading underscore, breaks with every change
of the inside, also one that changes nothing for anybody; and a thing that can only be tested so has no way in that is worth one.
A limit, a clock or a port that a test has to choose is an argument instead, and what it has to see a result.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frame.test_tree import TOP, place, python_files, tree_of

pytestmark = pytest.mark.source

PUT_IN_PLACE_MAX = 30
"""A quarter is Python's own: the resolver, the loop's calls. Most of the others make a step inside fail or come late."""
PRIVATE_NAMES_MAX = 30
"""Most are moments inside of a node or a connection that nothing outside brings about, a few each."""
_SIM = TOP / "tests" / "sim"
APART = (TOP / "tests" / "benchmarks", _SIM / "cluster" / "mutants.py", _SIM / "cluster" / "credulous.py")
"""What the first tests is no product; planted bugs, in the others, stand in place of what is inside."""

_PRIVATE = re.compile(r"\b_[A-Za-z]\w*")
_GIVEN = re.compile(r"(?:\b(?:def|class) +|\bself\.|^)(_[A-Za-z]\w*)", re.MULTILINE)
_USE = re.compile(r"(?<!\bself)(?<!\bcls)\._[A-Za-z]")
_IMPORT = re.compile(r"import .*\b_[A-Za-z]")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def uses_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each use of a private name of something else than the object itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not is_own(node.value):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))


def private_names(tree: ast.AST) -> set[str]:
    """Return the private names that a module gives: functions, classes, variables, and attributes of its own objects."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
    return {name for name in found if is_private(name)}


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def put_in_place(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where a patch of pytest's replaces an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            yield node.lineno


def counted(found: dict[Path, int]) -> str:
    files = Counter({place(path): count for path, count in found.items() if count})
    return ", ".join(f"{name} {count}" for name, count in files.most_common())


def test_little_is_put_in_the_place_of_the_products_names() -> None:
    found = {path: len(list(put_in_place(tree_of(path)))) for path in python_files("tests") if "setattr" in path.read_text()}
    assert sum(found.values()) <= PUT_IN_PLACE_MAX, counted(found)


def test_few_private_names_of_the_product_are_used() -> None:
    product = {name for path in python_files("eventlog", "cli") for name in _GIVEN.findall(path.read_text())}
    found = {}
    for path in python_files("tests"):
        text = path.read_text()
        # Of what is neither, `_replace` of a named tuple for instance, no tree is made: most files have nothing else.
        if _PRIVATE.search(text) and not set(APART) & {path, *path.parents} and (_USE.search(text) or _IMPORT.search(text)):
            tree = tree_of(path)
            own = private_names(tree)
            found[path] = sum(name in product and name not in own for _, name in uses_of(tree))
    assert sum(found.values()) <= PRIVATE_NAMES_MAX, counted(found)


@pytest.mark.parametrize(
    "code", ["monkeypatch.setattr(limits, 'X', 1)", "with monkeypatch.context() as patch:\n    patch.setattr(a, 'b', 1)"]
)
def test_the_check_sees_every_way_to_put_something_in_place(code: str) -> None:
    assert list(put_in_place(ast.parse(code)))


@pytest.mark.parametrize("code", ["node.reads._rounds", "node.one()._two = 3", "from eventlog.ids import _inner", "module._LIMIT"])
def test_the_check_sees_every_use_of_a_private_name(code: str) -> None:
    assert len(list(uses_of(ast.parse(code)))) == 1


def test_what_is_the_tests_own_is_no_private_name_of_the_product() -> None:
    assert list(uses_of(ast.parse("self._mine\ncls._mine\nself.__dict__"))) == []
    assert private_names(ast.parse("_A = 1\nclass B:\n    def _c(self): self._d = _e = 1\n    def f(self): pass")) == {
        "_A",
        "_c",
        "_d",
        "_e",
    }
