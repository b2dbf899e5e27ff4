"""What a change touches: no test that could tell may be passed over."""

import subprocess
from pathlib import Path

import pytest

from tests.changed import (
    TESTS_S_MAX,
    Change,
    fitting,
    imports_of,
    lanes_for,
    main,
    moves_imports,
    named_modules,
    read_change,
    read_needs,
    remembered_seconds,
    touched_tests,
)
from tests.lanes import TOP

NEEDS = {
    "eventlog/ids.py": frozenset[str](),
    "eventlog/state/replay.py": frozenset({"eventlog/ids.py"}),
    "eventlog/node/node.py": frozenset({"eventlog/state/replay.py", "eventlog/transport/link.py"}),
    "eventlog/transport/link.py": frozenset[str](),
    "tests/node/bench.py": frozenset({"eventlog/node/node.py"}),
    "tests/node/conftest.py": frozenset({"tests/node/bench.py"}),
    "tests/node/test_node.py": frozenset({"tests/node/bench.py"}),
    "tests/node/test_far.py": frozenset[str](),
    "tests/state/test_replay.py": frozenset({"eventlog/state/replay.py"}),
    "tests/transport/test_link.py": frozenset({"eventlog/transport/link.py"}),
    "tests/transport/test_words.py": frozenset({"tests/golden/words.json"}),
    "tests/frame/test_tree.py": frozenset[str](),
}
READERS = ("tests/frame/test_tree.py", "eventlog/testing/marks.py")
MODULES = {"eventlog.ids", "eventlog.state", "eventlog.state.replay", "eventlog_cli.__main__", "eventlog_cli.group", "eventlog_cli.load"}


def touched(*changed: str) -> list[str]:
    return touched_tests(changed, needs=NEEDS, readers=READERS)


def test_the_nearest_test_comes_first_and_those_that_only_look_at_the_tree_last() -> None:
    assert touched("eventlog/state/replay.py") == [
        "tests/state/test_replay.py",
        "tests/node/test_node.py",
        "tests/node/test_far.py",  # by the conftest over it
        "tests/frame/test_tree.py",
    ]


def test_what_lies_between_does_not_matter() -> None:
    assert set(touched("eventlog/ids.py")) == set(touched("eventlog/state/replay.py"))


def test_a_changed_test_is_run_and_no_other() -> None:
    assert touched("tests/state/test_replay.py") == ["tests/state/test_replay.py", "tests/frame/test_tree.py"]


@pytest.mark.parametrize("file", ["tests/transport/conftest.py", "tests/transport/words.txt"])
def test_a_conftest_and_a_file_of_data_touch_the_tests_beside_and_beneath(file: str) -> None:
    assert touched(file) == ["tests/transport/test_link.py", "tests/transport/test_words.py", "tests/frame/test_tree.py"]


def test_a_file_of_data_touches_who_names_it() -> None:
    assert touched("tests/golden/words.json") == ["tests/transport/test_words.py", "tests/frame/test_tree.py"]


def test_a_page_touches_those_that_look_at_the_tree() -> None:
    assert touched("docs/design.md") == ["tests/frame/test_tree.py"]


def test_the_settings_touch_every_test() -> None:
    assert set(touched("pyproject.toml")) == {file for file in NEEDS if "/test_" in file}


def test_nothing_touches_nothing() -> None:
    assert touched() == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("'eventlog.ids'", {"eventlog.ids"}),
        ('"eventlog.state.replay:open_replay"', {"eventlog.state.replay"}),
        ('setattr("eventlog.state.replay.ROWS.first", 1)', {"eventlog.state.replay"}),
        ("'eventlog.unknown'", set()),
        ("'eventlog' 'eventlog.'", set()),
        ("['-m', 'eventlog_cli']", {"eventlog_cli.__main__"}),
        ('f"eventlog_cli.{name}"', {"eventlog_cli.__main__", "eventlog_cli.group", "eventlog_cli.load"}),
        ("entry_points(group='eventlog.storage')", {"eventlog.ids"}),
        ("# eventlog.ids, in words", set()),
    ],
)
def test_a_string_that_names_a_module_needs_it(text: str, names: set[str]) -> None:
    assert named_modules(text, modules=MODULES, groups={"eventlog.storage": {"eventlog.ids"}}) == names


def test_imports_are_compared_wherever_they_stand_and_however_they_are_written() -> None:
    assert imports_of("import a\nfrom b import (\n    c,\n    d,\n)\n") == imports_of("from b import c, d\nx = 1\nimport a")
    assert imports_of("def late():\n    import a\n") == {"import a"}


def lanes_of(*files: str, tests: list[str], moves: bool = False) -> dict[str, list[str]]:
    """Return the files that each lane names."""
    change = Change(base="0" * 40, files=files)
    found = lanes_for(change, tests=tests, processes=1, typed=["eventlog", "tests/lanes.py"], moves_imports=moves)
    return {lane.name: [word for command in lane.commands for word in command if word.endswith(".py")] for lane in found}


def test_each_tool_sees_what_it_knows_of_the_changed_files() -> None:
    files = ("docs/design.md", "eventlog/ids.py", "tests/lanes.py", "tests/test_ids.py", "eventlog/wire/eventlog_pb2.py")
    assert lanes_of(*files, tests=["tests/test_ids.py"]) == {
        "changed": ["tests/test_ids.py"],
        "types": ["eventlog/ids.py", "tests/lanes.py"],
        "lint": [*files[1:], *files[1:]],
    }


def test_contracts_are_checked_where_an_import_moved() -> None:
    assert "contracts" not in lanes_of("eventlog/ids.py", tests=[])
    assert "contracts" in lanes_of("eventlog/ids.py", tests=[], moves=True)


def test_changed_settings_make_every_tool_look_at_everything() -> None:
    assert lanes_of("pyproject.toml", "eventlog/ids.py", tests=[]) == {"types": [], "lint": [], "contracts": []}


def test_no_change_makes_no_lane() -> None:
    assert lanes_of(tests=[]) == {}


def test_tests_that_two_processes_share_are_not_taken_apart_within_a_file() -> None:
    for processes, options in ((1, ["-n", "0"]), (2, ["-n", "2", "--dist", "loadfile"])):
        (lane,) = lanes_for(Change(base="", files=()), tests=["tests/test_ids.py"], processes=processes, typed=[], moves_imports=False)
        words = list(lane.commands[0])
        assert words[words.index("-n") : words.index("-n") + len(options)] == options


def test_the_nearest_tests_run_that_fit_and_changed_ones_always() -> None:
    seconds = {"tests/test_long.py": TESTS_S_MAX, "tests/test_short.py": 1.0, "tests/test_own.py": 2 * TESTS_S_MAX}
    assert fitting(["tests/test_short.py", "tests/test_long.py", "tests/test_new.py"], always=(), seconds=seconds) == [
        "tests/test_short.py",
        "tests/test_new.py",
    ]
    assert fitting(["tests/test_own.py", "tests/test_short.py"], always=["tests/test_own.py"], seconds=seconds) == ["tests/test_own.py"]


REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_one" name="x" time="0.5"/><testcase classname="tests.a.test_one.TestAll" name="y" time="0.25"/>
<testcase classname="tests.test_two" name="z" time="1"/></testsuite></testsuites>"""


def test_what_tests_took_is_kept_beyond_the_report_of_the_next_run(tmp_path: Path) -> None:
    report, kept = tmp_path / "changed.xml", tmp_path / "build" / "seconds.json"
    assert remembered_seconds([report], kept=kept) == {}
    report.write_text(REPORT)
    assert remembered_seconds([report], kept=kept) == {"tests/a/test_one.py": 0.75, "tests/test_two.py": 1.0}
    report.write_text(REPORT.replace("test_two", "test_three"))
    assert remembered_seconds([report], kept=kept).keys() == {"tests/a/test_one.py", "tests/test_two.py", "tests/test_three.py"}
    kept.write_text("{")
    report.write_text("<testsuites>")  # the run was stopped
    assert remembered_seconds([report], kept=kept) == {}


def test_two_commits_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["HEAD", "main"]) == 2
    assert capsys.readouterr().err.startswith("usage: ")


@pytest.mark.source
def test_the_tree_is_read_with_imports_names_and_data() -> None:
    texts = {path.relative_to(TOP).as_posix(): path.read_text() for path in (TOP / "tests").rglob("*.py")}
    needs = read_needs(texts, data=["tests/golden/ids.json", "docs/absent.md"])
    assert {"tests/changed.py", "tests/lanes.py"} <= needs["tests/frame/test_changed.py"]
    assert "tests/golden/ids.json" in needs["tests/test_ids.py"]
    assert "tests/lanes.py" in needs["tests/changed.py"]


class Repository:
    """A repository of git in a folder of its own, with one commit on `main`."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("eventlog/kept.py", "import a\n")
        self.write("eventlog/gone.py", "")
        self.commit()

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=self.top, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(exist_ok=True)
        (self.top / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x")

    def change(self, since: str | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = read_change(since, top=self.top)
        return found.files, found.gone

    def moves_imports(self) -> bool:
        return moves_imports(read_change(None, top=self.top), top=self.top)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_change_is_the_branch_with_what_is_not_committed(repository: Repository) -> None:
    assert repository.change() == ((), ())
    repository.git("switch", "--quiet", "--create", "branch")
    repository.write("eventlog/made.py", "")
    repository.commit()
    repository.write("eventlog/kept.py", "import a\nx = 1\n")
    repository.write("eventlog/new name.py", "")
    (repository.top / "eventlog/gone.py").unlink()
    assert repository.change() == (("eventlog/kept.py", "eventlog/made.py", "eventlog/new name.py"), ("eventlog/gone.py",))
    assert repository.change("HEAD") == (("eventlog/kept.py", "eventlog/new name.py"), ("eventlog/gone.py",))


def test_a_clone_without_main_compares_with_its_last_commit(repository: Repository) -> None:
    repository.git("branch", "--move", "other")
    repository.write("eventlog/kept.py", "")
    assert repository.change() == (("eventlog/kept.py",), ())


@pytest.mark.parametrize(
    ("name", "text", "moves"),
    [
        ("eventlog/kept.py", "x = 1\nimport a\n", False),
        ("eventlog/kept.py", "import b\n", True),
        ("eventlog/made.py", "", True),
        ("tests/test_made.py", "import b\n", False),
    ],
)
def test_imports_move_with_a_line_of_imports_or_a_product_module(repository: Repository, *, name: str, text: str, moves: bool) -> None:
    repository.write(name, text)
    assert repository.moves_imports() == moves


def test_imports_move_with_a_module_that_is_gone(repository: Repository) -> None:
    (repository.top / "eventlog/gone.py").unlink()
    assert repository.moves_imports()
