"""`eventlog put`, `remove` and `load`: what is wrong on the line is said before any node is asked."""

import io
from typing import Any, cast

import pytest
from click.testing import CliRunner

from eventlog.limits import MIB
from eventlog_cli import entry
from eventlog_cli.main import main


class Endless(io.RawIOBase):
    """An input that never ends; `given` is how much of it was read."""

    given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self.given += len(buffer)
        return len(buffer)


def unreachable(*_: Any, **__: Any) -> Any:
    raise AssertionError("nobody is asked")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["put", "c", "k", "1", "--if-absent", "--if-version", "3"], "--if-absent and --if-version exclude each other"),
        (["put", "c", "k", "1", "--if-version", "0"], "no entry has version 0"),
        (["remove", "c", "k", "--if-version", "0"], "no entry has version 0"),
        (["remove", "c", "k", "--if-version", "x"], "'x' is not an id"),
        (["put", "c", "k", "1", "--header", "a"], "'a': write NAME=TEXT"),
        (["put", "c", "k", "1", "--header", "=a"], "'=a': write NAME=TEXT"),
        (["put", "c", "k", "1", "--lifespan", "0"], "write a duration above 0"),
        (["put", "c"], "Missing argument 'KEY'"),
        (["put", "c", "k"], "Missing argument 'VALUE'"),
        (["put", "c", "k", "--key-separator", ":"], "leave KEY and VALUE out"),
        (["put", "c", "--key-separator", ":", "--if-absent"], "--key-separator and --if-absent exclude each other"),
        (["put", "c", "--key-separator", ":", "--if-version", "3"], "--key-separator and --if-version exclude each other"),
        (["put", "c", "--key-separator", ":", "--lifespan", "1s"], "--key-separator and --lifespan exclude each other"),
        (["put", "c", "--key-separator", ":", "--header", "a=b"], "--key-separator and --header exclude each other"),
        (["put", "c", "--key-separator", ""], "'' separates nothing within a line"),
        (["load", "c", "-", "--key-separator", r"a\n"], "separates nothing within a line"),
        (["load", "c", "-", "--key-separator", r"\q"], "means nothing: write one of"),
        (["load", "c", "-"], "say where the key is: --key FIELD, or --key-separator SEP"),
        (["load", "c", "-", "--key-separator", ":", "--key", "k"], "--key-separator and --key exclude each other"),
        (["load", "c", "-", "--key-separator", ":", "--op", "k"], "--key-separator and --op exclude each other"),
        (["load", "c", "-", "--key-separator", ":", "--format", "csv"], "--key-separator and --format exclude each other"),
        (["get", "c", "k", "--timeout", "0"], "write a duration above 0"),
        (["--timeout", "0s", "get", "c", "k"], "write a duration above 0"),
    ],
)
def test_values_that_mean_nothing_or_exclude_each_other_are_a_usage_error(words: list[str], why: str) -> None:
    result = CliRunner().invoke(main, words, obj=unreachable)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: USAGE: ")
    assert why in result.stderr


def test_no_more_of_stdin_is_read_than_any_node_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "VALUE_BYTES_CAP", MIB)
    endless = Endless()
    result = CliRunner().invoke(main, ["put", "c", "k", "-"], input=cast("Any", io.BufferedReader(endless)), obj=unreachable)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: TOO_LARGE: what stdin gives has {MIB + 1} bytes, the limit is {MIB}; make it smaller\n"
    assert endless.given <= 2 * MIB
