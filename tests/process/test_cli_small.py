"""Short commands do without an event loop and without what reads and writes many, and mean what the client's own calls mean."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.process.cli_ends import Shell, running_node

MANY = ("numpy", "pyarrow", "fastavro", "importlib.metadata", "eventlog.blocking", "eventlog.client.client")
RARE = ("pathlib", "fractions", "difflib", "eventlog.client.reports")
LOOP = ("asyncio", "uvloop", "ssl", "concurrent.futures", "logging", "subprocess")
REPORT = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
PROGRAM = f"import atexit, sys; atexit.register(lambda: exec({REPORT!r})); from eventlog_cli.main import main; main(sys.argv[1:])"
SMALL = [
    ["put", "things", "a", '{"n": 1}'],
    ["put", "things", "b", "2", "--if-absent", "--header", "by=me"],
    ["get", "things", "a"],
    ["get", "things", "a", "--json"],
    ["remove", "things", "b"],
    ["keys", "things"],
    ["keys", "things", "--prefix", "a", "--max", "1", "--json"],
    ["cache", "list"],
    ["id", "decode", "1"],
    ["--help"],
    ["put", "--help"],
    ["completion", "bash"],
]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node")) as found:
        found.ok("cache", "create", "things")
        found.ok("put", "things", "a", "0")
        yield found


def modules_of(shell: Shell, *words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, env=shell.environment, check=True, timeout=120)
    return set(json.loads(done.stderr))


@pytest.mark.parametrize("words", SMALL, ids=" ".join)
def test_a_short_command_imports_neither_arrays_nor_an_event_loop(shell: Shell, words: list[str]) -> None:
    loaded = modules_of(shell, *words)
    assert "eventlog_cli.main" in loaded
    assert [name for name in (*MANY, *LOOP, *RARE) if name in loaded] == []


def test_a_command_of_many_does(shell: Shell) -> None:
    assert {"numpy", "asyncio"} <= modules_of(shell, "entries", "things")


def test_many_keys_come_through_frames_of_their_own_without_arrays(shell: Shell) -> None:
    shell.ok("cache", "create", "long")
    names = sorted(f"{number:05}-{'x' * 1_500}" for number in range(3_000))
    shell.ok("load", "long", "-", "--key", "id", given="".join(f'{{"id": "{name}"}}\n' for name in names).encode())
    assert "numpy" not in modules_of(shell, "keys", "long")
    assert sorted(shell.ok("keys", "long").out.splitlines()) == names


def test_headers_and_kinds_are_those_of_any_put(shell: Shell) -> None:
    shell.ok("cache", "create", "heads")
    first = shell.ok("put", "heads", "k", "1", "--header", "by=me", "--json").row
    second = shell.ok("put", "heads", "k", "2", "--if-version", str(first["id"]), "--json").row
    assert (first["kind"], second["kind"]) == ("CREATED", "MODIFIED")
    events = shell.ok("consume", "heads", "--json").rows
    assert [(event["id"], event["value"]) for event in events] == [(first["id"], 1), (second["id"], 2)]
    assert events[0]["headers"] == {"by": "me"}


def test_a_put_with_a_lifespan_goes_through_the_other_client(shell: Shell) -> None:
    shell.ok("put", "things", "brief", "1", "--lifespan", "1h")
    assert shell.ok("get", "things", "brief").out == "1"


def test_a_cache_that_waits_for_a_listener_waits_here_too(shell: Shell) -> None:
    shell.ok("cache", "create", "awaited", "--wait", "100ms")
    shell.ok("listener", "register", "awaited", "--id", "slow", "--durable")
    shell.ok("cache", "alter", "awaited", "--wait-listeners", "slow")
    refused = shell.run("put", "awaited", "k", "1")
    assert refused.err.startswith("error: LISTENER_TIMEOUT: ")
    assert shell.ok("get", "awaited", "k").out == "1"
