"""Which Java is taken for Spark."""

from pathlib import Path

import pytest

from eventlog_cli.java import java_lacks


def java_of(folder: Path, told: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / "java"
    found.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    found.chmod(0o755)
    return found


@pytest.mark.parametrize("told", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "25" 2025-09-16'])
def test_a_new_one_is_taken(tmp_path: Path, told: str) -> None:
    java_of(tmp_path, told)
    assert java_lacks({"PATH": f"{tmp_path}:/bin"}) is None


@pytest.mark.parametrize(
    ("told", "why"), [('java version "1.8.0_412"', "is 1, and"), ('openjdk version "11.0.2"', "is 11, and"), ("hello", "is of no version")]
)
def test_an_old_one_is_named_with_its_version(tmp_path: Path, told: str, why: str) -> None:
    found = java_of(tmp_path, told)
    assert (java_lacks({"PATH": f"{tmp_path}:/bin"}) or "").startswith(f"{found} {why}")


def test_that_of_java_home_comes_before_that_of_the_path(tmp_path: Path) -> None:
    java_of(tmp_path / "new" / "bin", 'openjdk version "21.0.1"')
    java_of(tmp_path / "old", 'openjdk version "11.0.2"')
    path = f"{tmp_path / 'old'}:/bin"
    assert java_lacks({"PATH": path, "JAVA_HOME": str(tmp_path / "new")}) is None
    assert "there is no Java in JAVA_HOME" in (java_lacks({"PATH": path, "JAVA_HOME": str(tmp_path / "none")}) or "")
