"""Check what a change touches, and nothing else: `python -m tests.changed [COMMIT]`, which is `make check CHANGED=1`.

Changed is what differs from where the branch left `main`, or from the commit that is named; what is not committed yet belongs
to it. The tests are those that reach a changed file by imports, the nearest first, as many as take `TESTS_S_MAX` going by earlier
runs; ruff and mypy see the changed files alone, and the import contracts are checked where a line of imports differs. So it takes
seconds, also where a change at the bottom reaches nearly everything. The rest, and callers of what changed whose types no longer
fit, are left to `make check`, which belongs before a commit; what starts processes, as always, to `make test`.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree as ET

from tests.lanes import BIN, LOGS, TOP, Lane, run_lanes
from tests.words import NO_PROCESS, PROCESS_FOLDER, is_process_module

ROOTS = {"eventlog": "eventlog", "eventlog_cli": "cli/eventlog_cli", "benchmarks": "benchmarks", "tests": "tests"}
"""The packages whose imports are followed, and their folders."""
SETTINGS = "pyproject.toml"
"""Every test and every tool runs under it: a change of it touches everything."""
READS_SOURCE = "mark.source"
"""How tests say that they look at the files of the tree, which no import shows."""
TESTS_S_MAX = 6.0
"""How long the tests of one run took together when they ran before; two processes share them."""
FILE_S_DEFAULT = 0.4
"""The mean of a file of tests, for one that has not run before."""
APART_S = 2.0
"""What takes less is no faster with a second process, which takes as long to start."""
SECONDS = TOP / ".build" / "test_seconds.json"
"""How long each file of tests took when it ran last."""

_NAMED = re.compile(rf"""["']((?:{"|".join(ROOTS)})\b(?:\.\w+)*)(\.{{)?""")

Needs = Mapping[str, frozenset[str]]
"""By file, the files that it needs directly. Files are named from the top of the tree, with slashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs from `base`: the files that are there now, and those that no longer are."""

    base: str
    files: tuple[str, ...]
    gone: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(file for file in self.files if file.endswith(".py"))


def main(arguments: list[str]) -> int:
    """Find out what changed, run what it touches, and return the exit code."""
    if len(arguments) > 1:
        print("usage: python -m tests.changed [COMMIT]", file=sys.stderr)
        return 2
    change = read_change(arguments[0] if arguments else None)
    if broken := [f"{file}: {error}" for file in change.modules if (error := _syntax_error(file))]:
        print(*broken, sep="\n", file=sys.stderr)
        return 1
    texts = {file: (TOP / file).read_text() for file in _git("ls-files", "-z", "*.py", top=TOP) if (TOP / file).exists()}
    texts |= {file: (TOP / file).read_text() for file in change.modules}
    needs = read_needs(texts, data=[file for file in change.files if not file.endswith(".py")])
    touched = touched_tests(
        [*change.files, *change.gone], needs=needs, readers=[file for file, text in texts.items() if READS_SOURCE in text]
    )
    seconds = remembered_seconds([LOGS / f"{name}.xml" for name in ("unit", "quick", "changed")])
    near = [file for file in touched if not (file.startswith(PROCESS_FOLDER) or is_process_module(texts.get(file, "")))]
    tests = fitting(near, always=change.files, seconds=seconds)
    print(
        f"changed since {change.base[:12]}: {len(change.files) + len(change.gone)} files; of the {len(near)} files of tests that reach them"
        f" the nearest {len(tests)} are run ({len(touched) - len(near)} more start processes)"
    )
    typed = tomllib.loads((TOP / SETTINGS).read_text())["tool"]["mypy"]["files"]
    is_long = sum(seconds.get(file, FILE_S_DEFAULT) for file in tests) > APART_S
    lanes = lanes_for(change, tests=tests, processes=2 if is_long else 1, typed=typed, moves_imports=moves_imports(change))
    return run_lanes(lanes) if lanes else 0


def touched_tests(changed: Iterable[str], *, needs: Needs, readers: Iterable[str]) -> list[str]:
    """Return the files of tests that need a changed one, whatever lies between, those with the fewest steps first.

    A changed conftest, or one that is reached, touches the tests beneath it, and so does a file of data among tests. `readers`
    look at the tree itself, so that any change touches them; they come last.
    """
    changed = set(changed)
    steps = steps_to(changed, needs=needs)
    known = {file for file in needs if _is_test(file)}
    found = {file: count for file, count in steps.items() if file in known}
    for file, count in steps.items():
        if _is_conftest(file) or (file in changed and file.startswith("tests/") and not file.endswith(".py")):
            folder = PurePosixPath(file).parent
            for test in known:
                if PurePosixPath(test).is_relative_to(folder):
                    found[test] = min(found.get(test, count + 1), count + 1)
    far = max(found.values(), default=0) + 1
    others = known if SETTINGS in changed else known.intersection(readers) if changed else ()
    for test in others:
        found.setdefault(test, far)
    return sorted(found, key=lambda test: (found[test], test))


def steps_to(changed: Collection[str], *, needs: Needs) -> dict[str, int]:
    """Return how many imports lie between each file and the nearest changed one; files that reach none are not in it."""
    users: dict[str, list[str]] = {}
    for file, needed in needs.items():
        for other in needed:
            users.setdefault(other, []).append(file)
    steps = dict.fromkeys(sorted(changed), 0)
    waiting = deque(steps)
    while waiting:
        file = waiting.popleft()
        for user in users.get(file, ()):
            if user not in steps:
                steps[user] = steps[file] + 1
                waiting.append(user)
    return steps


def fitting(tests: Iterable[str], *, always: Collection[str], seconds: Mapping[str, float]) -> list[str]:
    """Return tests in their order as far as they fit into `TESTS_S_MAX`: one that takes too long leaves its place to those behind it."""
    chosen, left = [], TESTS_S_MAX
    for file in tests:
        takes = seconds.get(file, FILE_S_DEFAULT)
        if file in always or takes <= left:
            chosen.append(file)
            left -= takes
    return chosen


def seconds_of(report: Path) -> dict[str, float]:
    """Return how long each file of tests took by a JUnit report, none where there is no whole report."""
    found: dict[str, float] = {}
    with suppress(OSError, ET.ParseError):
        for element in ET.parse(report).getroot().iter("testcase"):
            parts = element.get("classname", "").split(".")
            at = next((at for at, part in enumerate(parts) if part.startswith("test_")), len(parts))  # a class may follow
            file = "/".join(parts[: at + 1]) + ".py"
            found[file] = found.get(file, 0.0) + float(element.get("time", 0))
    return found


def remembered_seconds(reports: Iterable[Path], *, kept: Path = SECONDS) -> dict[str, float]:
    """Return how long each file of tests took when it ran last, and keep it: the next run writes a report over its own."""
    seconds: dict[str, float] = {}
    with suppress(OSError, ValueError):
        seconds = json.loads(kept.read_text())
    for report in sorted((report for report in reports if report.exists()), key=lambda report: report.stat().st_mtime):
        seconds |= seconds_of(report)
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(seconds))
    return seconds


def lanes_for(change: Change, *, tests: list[str], processes: int, typed: Iterable[str], moves_imports: bool) -> list[Lane]:
    """Return the lanes that a change needs. `typed` are the files and folders that mypy knows."""
    whole = SETTINGS in change.files
    tops = [PurePosixPath(top) for top in typed]
    files = {
        "mypy": [
            file
            for file in change.modules
            if any(PurePosixPath(file).is_relative_to(top) for top in tops) and not file.endswith("_pb2.py")  # it has a stub
        ],
        "ruff": list(change.modules),
    }
    tool = {name: str(BIN / name) for name in ("pytest", "ruff", "mypy", "lint-imports")}
    lanes = []
    if tests:
        # Tests of one file stay together: what a module of them reads once, the whole tree for instance, is not read by every process.
        shared = ("-n", str(processes), "--dist", "loadfile") if processes > 1 else ("-n", "0")
        options = ("-m", NO_PROCESS, "--hypothesis-profile=quick", *shared)
        lanes.append(
            Lane(name="changed", commands=((tool["pytest"], *options, f"--junitxml={LOGS / 'changed'}.xml", *tests),), runs_tests=True)
        )
    if whole or files["mypy"]:
        lanes.append(Lane(name="types", commands=((tool["mypy"], *(() if whole else files["mypy"])),)))
    if whole or files["ruff"]:
        named = () if whole else ("--force-exclude", *files["ruff"])
        lanes.append(Lane(name="lint", commands=((tool["ruff"], "check", *named), (tool["ruff"], "format", "--check", *named))))
    if whole or moves_imports:
        lanes.append(Lane(name="contracts", commands=((tool["lint-imports"], "--no-logo", "--cache-dir", ".build/imports"),)))
    return lanes


def read_change(since: str | None, *, top: Path = TOP) -> Change:
    """Return what differs from a commit, or from where this branch left `main`; on `main` itself, what is not committed."""
    if since is None:
        found = subprocess.run(["git", "merge-base", "HEAD", "main"], cwd=top, capture_output=True, text=True, check=False)
        since = found.stdout.strip() or "HEAD"  # a clone of one branch has no main
    (base,) = _git("rev-parse", "--verify", f"{since}^{{commit}}", top=top)
    base = base.strip()
    names = set(_git("diff", "--name-only", "--no-renames", "-z", base, "--", top=top))
    names.update(_git("ls-files", "--others", "--exclude-standard", "-z", top=top))
    files = sorted(name for name in names if (top / name).is_file())
    return Change(base=base, files=tuple(files), gone=tuple(sorted(names.difference(files))))


def read_needs(texts: Mapping[str, str], *, data: Collection[str]) -> dict[str, frozenset[str]]:
    """Return what the modules with these texts need: imports, for types alone too, and modules, groups of plugins and `data` they name.

    What runs on the way, the `__init__` of each package above a module, is not among it unless it is imported itself: nearly
    all of them hold words alone, and the one of `eventlog` names everything.
    """
    import grimp  # comes with a tool of development, and the tests of this file are also collected where only the wheel's packages are

    graph = grimp.build_graph(*ROOTS, cache_dir=str(TOP / ".build" / "imports"))
    files = {module: file for module in graph.modules if (file := _file_of(module, texts)) is not None}
    plugins = tomllib.loads((TOP / SETTINGS).read_text())["project"]["entry-points"]
    groups = {group: {place.partition(":")[0] for place in places.values()} for group, places in plugins.items()}
    needs = {}
    for module, file in files.items():
        modules = graph.find_modules_directly_imported_by(module) | named_modules(texts[file], modules=files.keys(), groups=groups)
        named = {name for name in data if PurePosixPath(name).name in texts[file]}
        needs[file] = frozenset({files[name] for name in modules if name in files} | named) - {file}
    return needs


def named_modules(text: str, *, modules: Collection[str], groups: Mapping[str, Collection[str]]) -> set[str]:
    """Return the modules that strings of `text` name, or whose names begin as a formatted string does; a group names its plugins."""
    found: set[str] = set()
    for name, is_beginning in set(_NAMED.findall(text)):
        found.update(groups.get(name, ()))
        if is_beginning:
            found.update(module for module in modules if module.startswith(f"{name}."))
        elif "." in name:
            parts = name.split(".")  # what follows the module is an attribute
            places = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
            found.update(next(({place} for place in places if place in modules), ()))
        else:
            # The bare name of a package is mostly a word; where the package can be run, this may be what is meant.
            found.update({f"{name}.__main__"}.intersection(modules))
    return found


def moves_imports(change: Change, *, top: Path = TOP) -> bool:
    """Return whether a product module came, went, or imports something else than before."""
    product = tuple(f"{ROOTS[name]}/" for name in ("eventlog", "eventlog_cli"))
    if any(file.startswith(product) for file in change.gone):
        return True
    for file in change.modules:
        if file.startswith(product):
            before = subprocess.run(["git", "show", f"{change.base}:{file}"], cwd=top, capture_output=True, text=True, check=False)
            if before.returncode or imports_of(before.stdout) != imports_of((top / file).read_text()):
                return True
    return False


def imports_of(text: str) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)}


def _syntax_error(file: str) -> SyntaxError | None:
    try:
        ast.parse((TOP / file).read_text())
    except SyntaxError as error:
        return error
    return None


def _file_of(module: str, texts: Mapping[str, Any]) -> str | None:
    root, _, rest = module.partition(".")
    stem = "/".join([ROOTS[root], *filter(None, rest.split("."))])
    return next((file for file in (f"{stem}.py", f"{stem}/__init__.py") if file in texts), None)


def _is_test(file: str) -> bool:
    return file.startswith("tests/") and PurePosixPath(file).match("test_*.py")


def _is_conftest(file: str) -> bool:
    return PurePosixPath(file).name == "conftest.py"


def _git(*arguments: str, top: Path) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=top, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
