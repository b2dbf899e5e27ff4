"""The pinned requirements: hashed, without an index address, and as wide as pyproject.toml asks."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.source

TOP = Path(__file__).resolve().parents[2]
FILES = {"base": (), "test": ("test",), "dev": ("test", "dev"), "spark": ("test", "dev", "spark")}
"""Each requirements file, and the extras that it covers."""
ALL = [path.stem for path in (TOP / "requirements").glob("*.txt")]


def entries(name: str) -> list[str]:
    text = (TOP / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def pins(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries(name):
        package, version = re.match(r"([A-Za-z0-9._-]+)(?:\[[a-z0-9, -]+\])?==([^\s;]+)", entry).groups()
        found.setdefault(canonicalize_name(package), []).append(version)
    return found


def wanted(name: str) -> list[Requirement]:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + [line for extra in FILES[name] for line in project["optional-dependencies"][extra]]
    lines += [line for line in (TOP / "requirements" / "build.in").read_text().splitlines() if not line.startswith("#")]
    return [requirement for requirement in map(Requirement, lines) if requirement.name != "eventlog"]


@pytest.mark.parametrize("name", ALL)
def test_every_requirement_is_one_version_with_hashes(name: str) -> None:
    assert [
        entry for entry in entries(name) if not re.match(r"[a-z0-9._-]+(\[[a-z0-9, -]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)
    ] == []


@pytest.mark.parametrize("name", ALL)
def test_no_address_and_no_option_stands_between_the_requirements(name: str) -> None:
    text = (TOP / "requirements" / f"{name}.txt").read_text()
    assert re.findall(r"(?:^|\s)-(?!-hash=)\S+|\w+://\S+| @ ", text, re.MULTILINE) == []


@pytest.mark.parametrize("name", FILES)
def test_what_the_project_asks_for_is_pinned_at_a_version_it_accepts(name: str) -> None:
    pinned = pins(name)
    missing = [
        str(need) for need in wanted(name) if not any(need.specifier.contains(pin) for pin in pinned.get(canonicalize_name(need.name), []))
    ]
    assert missing == []


@pytest.mark.parametrize(("narrow", "wide"), [("base", "test"), ("test", "dev"), ("dev", "spark")])
def test_the_wider_file_holds_the_narrower_one_at_the_same_versions(narrow: str, wide: str) -> None:
    assert pins(narrow).items() <= pins(wide).items()


def test_protobuf_is_asked_for_from_the_release_on_that_takes_the_generated_code() -> None:
    needs = next(one for one in wanted("base") if one.name == "protobuf").specifier
    made = {
        re.search(r"^# Protobuf Python Version: (\S+)$", path.read_text(), re.MULTILINE)[1] for path in (TOP / "eventlog").rglob("*_pb2.py")
    }
    assert made == {one.version for one in needs if one.operator == ">="}
    assert needs.contains("6.33.5")  # of which the code of Spark Connect is
