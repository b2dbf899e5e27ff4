"""Rules about the source tree that no linter has: sizes, the environment, and words that must not be committed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

TOP = Path(__file__).resolve().parents[2]
CODE = ("eventlog", "cli", "tests", "benchmarks")
TEXT = (*CODE, ".ci", "docker", "docs", "requirements", "schemas")
MODULE_LINES_MAX = 650
FUNCTION_LINES_MAX = 70

# The brackets keep this file from finding itself.
REGISTRIES = re.compile(r"index[-]url|find[-]links|https?://[\w.-]*(?:pypi|pythonhosted|npm|crates|maven|golang)")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home)/[\w.]")

ENVIRONMENT = re.compile(r"environ|getenv|putenv")
READS_ENVIRONMENT = ("eventlog/node/config.py", "eventlog/integrations/spark/session.py", "cli/", "tests/", "benchmarks/")

WALL_CLOCK = re.compile(r"wall_ms|time\.time\b|\btime_ns\(|datetime\.now|utcnow")
READS_WALL_CLOCK = {
    "eventlog/clock.py": "is the clock",
    "eventlog/ids.py": "makes the bounded clock of it",
    "eventlog/node/node.py": "gives it to the comparison of members' clocks",
    "eventlog/node/cluster/peers.py": "compares the members' clocks",
    "eventlog/node/entering.py": "notes when a cluster was made, for people to read",
    "eventlog/node/cluster/controller.py": "notes when a rebalance began, for people to read",
    "eventlog/node/handlers/cluster_admin.py": "as above",
    "eventlog/client/reading/past.py": "tells an id that is to come soon from one that nobody can have issued; both are refused",
    "eventlog/integrations/kafka/mirrors.py": "shows how far mirrors are behind, and when a shard came to stand still",
    "eventlog/integrations/kafka/copying.py": "tells readers of a topic when an event was mirrored",
    "eventlog/integrations/kafka/shard.py": "shows since when a shard is in its state",
    "eventlog/integrations/archive/merging.py": "leaves files of new events alone",
    "eventlog/integrations/archive/table.py": "tells readers of a table when a file came into it",
    "eventlog/integrations/rollup/table.py": "as above",
    "eventlog/assemble.py": "has no clock of a cluster: it makes the records of one that is stopped",
}
"""Modules that may look at the wall clock, and why: nothing that decides who works on what, or when, goes by it."""


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted((TOP / folder).rglob("*.py")) if not path.stem.endswith("_pb2"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())  # not kept: the collector would go through a million nodes again and again


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what may be or hold a function; going through expressions as well would take ten times as long."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield node
            yield from statements(node)


def text_files() -> Iterator[Path]:
    tops = [path for path in TOP.iterdir() if path.is_file() and path.name != ".git"]  # in a worktree it is a file
    for path in sorted([*tops, *(path for folder in TEXT for path in (TOP / folder).rglob("*"))]):
        if path.is_file() and "__pycache__" not in path.parts and b"\0" not in path.read_bytes()[:8192]:
            yield path


def place(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{place(path)}:{number}: {line.strip()[:100]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def reads_environment(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "getenvb", "putenv"}:
            yield node.lineno
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "environb", "getenv"} & {name.name for name in node.names}
        ):
            yield node.lineno


def test_no_module_is_longer_than_the_wall() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in python_files(*CODE)}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_no_function_is_longer_than_the_wall() -> None:
    long = [
        f"{place(path)}:{node.lineno}: {node.name}"
        for path in python_files(*CODE)
        for node in statements(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_the_environment_is_read_in_configuration_and_command_line_only() -> None:
    found = [
        f"{place(path)}:{line}"
        for path in python_files("eventlog", "cli")
        if not place(path).startswith(READS_ENVIRONMENT)
        if ENVIRONMENT.search(path.read_text())  # going through every tree takes seconds
        for line in reads_environment(tree_of(path))
    ]
    assert found == []


@pytest.mark.parametrize("code", ["import os\nos.environ['A']", "import os\nos.getenv('A')", "from os import environ"])
def test_the_check_sees_every_way_to_read_the_environment(code: str) -> None:
    assert list(reads_environment(ast.parse(code)))


def test_nothing_goes_by_the_wall_clock_that_is_not_known_to() -> None:
    found = {place(path) for path in python_files("eventlog") if WALL_CLOCK.search(path.read_text())}
    assert {name for name in found if not name.startswith("eventlog/testing/")} == set(READS_WALL_CLOCK)


def test_no_file_says_where_packages_come_from() -> None:
    assert matches(REGISTRIES) == []


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    assert matches(MACHINE_PATHS) == []


def test_every_package_has_an_init_module() -> None:
    # Without one, neither import-linter nor `make check CHANGED=1` sees the package, and its imports go unchecked.
    files = python_files("eventlog", "cli/eventlog_cli", "benchmarks", "tests")
    bare = {place(path.parent) for path in files if not path.with_name("__init__.py").exists()}
    assert bare == set()
