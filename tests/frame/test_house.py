"""How the packages are cut: few files, each an idea of its own, in no circle. What a file is allowed to be long stands in `test_tree`."""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.frame.test_tree import TOP, python_files, statements, tree_of

pytestmark = pytest.mark.source

DENSE_LINES_MIN = 1_000  # below it a package may have any number of files
FILES_PER_1000_LINES_MAX = 5
CLOSE_LINES_MAX = 80
CALLABLES_MAX = 3
NAMES_USED_TWICE_MAX = 15
"""Class names at the top of more than one module, those for tests included. The synchronous client has the names of the client."""

CUT = (
    "batch",
    "cli",
    "client",
    "control",
    "control.metastores",
    "errors",
    "groups",
    "http",
    "integrations",
    "integrations.archive",
    "integrations.kafka",
    "integrations.rollup",
    "kafka",
    "mirror",
    "node",
    "node.cluster",
    "node.consumers",
    "node.copying",
    "node.handlers",
    "node.reading",
    "node.state",
    "node.writing",
    "predicate",
    "query",
    "read",
    "replication",
    "routing",
    "schema",
    "segment",
    "state",
    "transport",
    "wire",
    "write",
)
"""The packages that are held to this page, `cli` for the command line's. A package comes in when it has been cut, and none goes out."""

KEPT_APART: Mapping[str, str] = {}
"""Short files that one sibling alone imports, and why they are files all the same."""


class Module:
    """One module: what it imports, its classes and constructors, and how long it is. Generated ones are not looked at.

    Its tree is not kept: with those of all modules the collector would go through a million nodes again and again.
    """

    def __init__(self, path: Path) -> None:
        parts = path.relative_to(TOP / "cli" if "cli" in path.parts else TOP).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.package = ".".join(parts[:-1])
        self.name = self.package if self.is_package else ".".join(parts)
        self.lines = len(path.read_text().splitlines())
        tree = tree_of(path)
        self.classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        self.constructors = [
            callables_of(node) for node in statements(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        ]
        self.imports = imports_in(tree)

    def imported(self, modules: Iterable[str]) -> set[str]:
        """Return those of `modules` that this one imports, those for types alone included."""
        known, found = set(modules), set()
        for node in self.imports:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif node.module is not None:
                found |= {f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in known else node.module for alias in node.names}
        return found & known - {self.name}


def imports_in(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in statements(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def callables_of(constructor: ast.FunctionDef) -> tuple[int, int]:
    """Return the line of a constructor, and how many callables it takes."""
    taken = [*constructor.args.args, *constructor.args.kwonlyargs]
    return constructor.lineno, sum("Callable" in ast.unparse(own.annotation) for own in taken if own.annotation)


@pytest.fixture(scope="module")
def house() -> dict[str, Module]:
    return {module.name: module for module in map(Module, python_files("eventlog", "cli"))}


@pytest.fixture(scope="module")
def imports(house: dict[str, Module]) -> dict[str, set[str]]:
    return {name: module.imported(house) for name, module in house.items()}


def of_package(house: dict[str, Module], package: str) -> list[Module]:
    top = "eventlog_cli" if package == "cli" else f"eventlog.{package}"
    found = [module for name, module in house.items() if name == top or name.startswith(f"{top}.")]
    assert found, f"there is no package {top}"
    return found


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of two or more modules each of which reaches every other of its set."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for name in imports[waiting.pop()] & imports.keys() - found:
                found.add(name)
                waiting.append(name)
        return found

    reach = {name: reached(name) for name in imports}
    sets = {frozenset(other for other in reach[name] if name in reach[other]) for name in imports}
    return [set(found) for found in sets if len(found) > 1]


@pytest.mark.parametrize("package", CUT)
def test_a_large_package_has_few_files(house: dict[str, Module], package: str) -> None:
    modules = of_package(house, package)
    lines = sum(module.lines for module in modules)
    assert lines < DENSE_LINES_MIN or 1000 * len(modules) / lines <= FILES_PER_1000_LINES_MAX, (len(modules), lines)


@pytest.mark.parametrize("package", CUT)
def test_what_one_sibling_alone_imports_is_an_idea_of_its_own(house: dict[str, Module], imports: dict[str, set[str]], package: str) -> None:
    importers = {module.name: [name for name, found in imports.items() if module.name in found] for module in of_package(house, package)}
    close = {
        name: only[0]
        for name, only in importers.items()
        if len(only) == 1
        and not house[name].is_package
        and house[name].lines < CLOSE_LINES_MAX
        and house[only[0]].package == house[name].package
    }
    assert {name: importer for name, importer in close.items() if name not in KEPT_APART} == {}


@pytest.mark.parametrize("package", CUT)
def test_no_module_reaches_itself(house: dict[str, Module], imports: dict[str, set[str]], package: str) -> None:
    assert circles({module.name: imports[module.name] for module in of_package(house, package)}) == []


def test_the_check_sees_a_circle_of_types_and_a_longer_one() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    module = Module(TOP / "tests/frame/test_house.py")
    module.imports = imports_in(ast.parse("if TYPE_CHECKING:\n    from a.b import C\ndef late():\n    from a import d\n"))
    assert module.imported({"a.b", "a.d", "a"}) == {"a.b", "a.d"}


@pytest.mark.parametrize("package", CUT)
def test_one_word_is_one_class_in_a_package(house: dict[str, Module], package: str) -> None:
    names = Counter(name for module in of_package(house, package) for name in module.classes)
    assert [name for name, count in names.items() if count > 1] == []


def test_few_words_are_several_classes(house: dict[str, Module]) -> None:
    names = Counter(name for module in house.values() for name in module.classes)
    twice = sorted(name for name, count in names.items() if count > 1)
    assert len(twice) <= NAMES_USED_TWICE_MAX, ", ".join(twice)


@pytest.mark.parametrize("package", CUT)
def test_no_constructor_takes_many_callables(house: dict[str, Module], package: str) -> None:
    found = [
        f"{module.name}:{line}" for module in of_package(house, package) for line, count in module.constructors if count > CALLABLES_MAX
    ]
    assert found == []
