"""What a process of a node says of the interpreter that runs it."""

import pytest

from eventlog.assemble import is_unoptimized

PROFILED = {"PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction"}


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (PROFILED | {"CONFIG_ARGS": "'--enable-shared'"}, True),
        (PROFILED | {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, False),
        ({"PGO_PROF_USE_FLAG": "", "CONFIG_ARGS": "'--enable-shared'"}, False),  # Debian's, which is profiled by its own rules
        (PROFILED | {"CONFIG_ARGS": "'--enable-optimizations'", "Py_DEBUG": 1}, True),
        ({}, False),
    ],
)
def test_an_interpreter_compiled_without_a_profile_is_told_from_others(built: dict[str, object], expected: bool) -> None:
    assert is_unoptimized(built) is expected
