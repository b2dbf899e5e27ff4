"""`eventlog put` and `remove`: what is wrong on the line is said before any node is asked."""

from typing import Any

import pytest
from click.testing import CliRunner

from eventlog_cli.main import main


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
        (["get", "c", "k", "--timeout", "0"], "write a duration above 0"),
        (["--timeout", "0s", "get", "c", "k"], "write a duration above 0"),
    ],
)
def test_values_that_mean_nothing_or_exclude_each_other_are_a_usage_error(words: list[str], why: str) -> None:
    result = CliRunner().invoke(main, words, obj=unreachable)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: USAGE: ")
    assert why in result.stderr
