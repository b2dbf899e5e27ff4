"""Commands that ask no node: ids taken apart, and contexts, which say whom a command asks when nothing else does."""

import json
from pathlib import Path

import click
import orjson
import pytest
from click.testing import CliRunner

from eventlog.ids import make_id
from eventlog_cli.conventions import SERVER_DEFAULT, common_options, settings
from eventlog_cli.main import main


@pytest.fixture(autouse=True)
def _own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("EVENTLOG_SERVER", raising=False)


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.stdout, result.stderr


@click.command()
@common_options
def asked() -> None:
    click.echo(" ".join(settings().addresses))


def addresses(*words: str, **environment: str) -> str:
    return CliRunner().invoke(asked, words, env=environment).output.strip()


def test_the_first_context_is_used_until_another_is_chosen() -> None:
    assert addresses() == SERVER_DEFAULT
    assert run("context", "add", "prod", "--server", "n1:7400,n2:7400") == (0, "context prod: n1:7400, n2:7400, in use\n", "")
    run("context", "add", "test", "--server", "t1:7400")
    assert addresses() == "n1:7400 n2:7400"
    assert run("context", "use", "test")[0] == 0
    assert addresses() == "t1:7400"
    rows = [json.loads(line) for line in run("context", "list", "--json")[1].splitlines()]
    assert [(row["context"], row["used"]) for row in rows] == [("prod", False), ("test", True)]


def test_an_option_goes_before_the_environment_and_that_before_the_context() -> None:
    run("context", "add", "prod", "--server", "n1:7400")
    assert addresses(EVENTLOG_SERVER="e:1") == "e:1"
    assert addresses("--server", "o:1", EVENTLOG_SERVER="e:1") == "o:1"


def test_a_removed_context_is_asked_no_more() -> None:
    run("context", "add", "prod", "--server", "n1:7400")
    assert run("context", "remove", "prod")[0] == 0
    assert addresses() == SERVER_DEFAULT


@pytest.mark.parametrize("words", [("use", "nowhere"), ("remove", "nowhere"), ("add", "x"), ("add", " x", "--server", "a:1")])
def test_what_names_no_context_is_a_usage_error_in_one_line(words: tuple[str, ...]) -> None:
    code, stdout, stderr = run("context", *words)
    assert (code, stdout, stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("content", ["{", "[]", '{"contexts": {"a": 7}, "used": "a"}', '{"contexts": {}}'])
def test_a_file_that_is_damaged_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "eventlog").mkdir()
    (tmp_path / "eventlog" / "contexts.json").write_text(content)
    code, _, stderr = run("get", "cache", "key")
    assert code == 2
    assert "contexts.json" in stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("7", "it is not an object"),
        ("[1]", "it is not an object"),
        ('{"contexts": {}}', "it is not an object"),
        ('{"contexts": {"a": ["h:1"]}, "used": ["a"]}', '"used", a text'),
        ('{"contexts": {"a": "h:1"}, "used": "a"}', "the nodes of 'a' are not a list of addresses"),
        ('{"contexts": {"a": []}, "used": "a"}', "the nodes of 'a' are not"),
        ('{"contexts": {"a": [7]}, "used": "a"}', "the nodes of 'a' are not"),
        ('{"contexts": {"a": null}, "used": "a"}', "the nodes of 'a' are not"),
    ],
)
def test_a_file_of_another_form_is_told_in_words_and_no_other_node_is_asked(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "eventlog").mkdir()
    (tmp_path / "eventlog" / "contexts.json").write_text(content)
    for words in (("context", "list"), ("get", "c", "k")):
        code, _, stderr = run(*words)
        assert (code, why in stderr) == (2, True), stderr


@pytest.mark.parametrize("server", ["", " ", "a:1,,b:2", ","])
def test_a_server_that_is_empty_is_not_the_node_of_this_host(server: str) -> None:
    for words in (("context", "add", "prod", "--server", server), ("get", "c", "k", "--server", server)):
        code, _, stderr = run(*words)
        assert (code, "names no node: write HOST:PORT" in stderr) == (2, True), stderr


@pytest.mark.parametrize("server", ["a:99999", "a:x", "[::1", "h/x:1"])
def test_a_context_is_made_of_addresses_alone(server: str) -> None:
    code, _, stderr = run("context", "add", "prod", "--server", server)
    assert (code, "'--server'" in stderr) == (2, True), stderr
    assert run("context", "list")[1].count("\n") <= 1


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    run("context", "add", "prod", "--server", "n1:7400")
    assert (tmp_path / "eventlog" / "contexts.json").stat().st_mode & 0o777 == 0o600


ID = make_id(1_795_168_800_123, 7, 3)


def run_id(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["id", *words])
    return result.exit_code, result.stdout, result.stderr


def test_decode_names_time_sequence_and_node() -> None:
    assert run_id("decode", str(ID)) == (0, "time 2026-11-20T10:00:00.123Z  sequence 7  node 3\n", "")
    _, stdout, _ = run_id("decode", str(ID), "--json")
    assert orjson.loads(stdout) == {"id": ID, "id_str": str(ID), "time": "2026-11-20T10:00:00.123Z", "sequence": 7, "node": 3}


def test_at_is_the_last_id_before_the_moment() -> None:
    assert run_id("at", "2026-11-20T10:00:00.123Z") == (0, f"{make_id(1_795_168_800_123, 0, 0) - 1}\n", "")
    assert orjson.loads(run_id("at", "2019-01-01", "--json")[1]) == {"id": 0, "id_str": "0"}


@pytest.mark.parametrize("words", [["decode", "x"], ["decode", "-1"], ["decode", str(1 << 63)], ["at", "noon"], ["decode"]])
def test_what_is_no_id_or_time_is_a_usage_error(words: list[str]) -> None:
    code, stdout, stderr = run_id(*words)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: USAGE: ")
    assert stderr.count("\n") == 1
