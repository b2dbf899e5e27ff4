"""The image: no container engine is needed to see that everything it is built from is there and not ignored."""

import json
import re
import shlex
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

TOP = Path(__file__).resolve().parents[2]


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (TOP / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def copied_from_the_tree() -> list[str]:
    words = [shlex.split(rest) for name, rest in instructions() if name == "COPY"]
    return [source for copy in words if not copy[0].startswith("--from=") for source in copy[:-1]]


def values(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def test_everything_that_is_copied_exists() -> None:
    sources = copied_from_the_tree()
    assert sources
    assert [source for source in sources if not (TOP / source).exists()] == []


def test_nothing_that_is_copied_is_ignored() -> None:
    lines = (TOP / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert [source for source in copied_from_the_tree() if Path(source).parts[0] not in kept] == []
    assert [name for name in kept if not (TOP / name).exists()] == []


def test_what_the_build_installs_was_copied_before() -> None:
    seen: set[str] = set()
    for name, rest in instructions():
        if name == "COPY" and "--from=" not in rest:
            seen.update(shlex.split(rest)[-1:])
        if name == "RUN":
            used = re.findall(r"/src\S*", rest)
            assert [path for path in used if not any(copied.startswith(path) for copied in seen)] == []


def test_the_last_stage_runs_one_node_as_somebody_without_rights_and_keeps_its_data_in_a_volume() -> None:
    assert values("USER") == ["eventlog"]
    command = json.loads(values("ENTRYPOINT")[0]) + json.loads(values("CMD")[0])
    assert command[:2] == ["eventlog", "serve"]
    data = Path(command[command.index("--data") + 1])
    # The metadata store is made beside the data directory: a volume on the directory itself would lose it.
    assert [str(data.parent)] == values("VOLUME")


def test_the_health_check_asks_the_port_that_is_served_and_exposed() -> None:
    command = json.loads(values("CMD")[0])
    ports = [command[command.index(option) + 1].rpartition(":")[2] for option in ("--listen", "--http")]
    assert values("EXPOSE")[0].split() == ports
    assert f"http://127.0.0.1:{ports[1]}/health/live" in values("HEALTHCHECK")[0]


def test_the_health_check_is_python_that_compiles() -> None:
    command = json.loads(values("HEALTHCHECK")[0].partition("CMD ")[2])
    compile(command[2], "health check", "exec")
