"""What a command costs: CPU of the process from its start to its end, beside that of `python -c pass`.

The floor is the libraries alone that a short command speaks to a node with: no client can cost less. What it does without stands beside
it. All are run by turns, and of the runs of each the middle counts.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.figures import Row, Scale, note
from benchmarks.processes import Node, scratch

ROUNDS = 15
PASS = ("-c", "pass")
OVER_PASS_MS_AT_MOST = 120
COMMANDS = {
    "--help": ("--help",),
    "completion bash": ("completion", "bash"),
    "id decode": ("id", "decode", "1"),
    "cache list": ("cache", "list"),
    "put": ("put", "commands", "k", "1"),
    "get": ("get", "commands", "k"),
    "remove": ("remove", "commands", "k"),
    "keys": ("keys", "commands"),
    "entries": ("entries", "commands"),
}
FLOORS = {
    "import click": "import click",
    "import google.protobuf, and the messages": "import eventlog.wire.eventlog_pb2",
    "import socket, click, and the messages": "import socket, click, eventlog.wire.eventlog_pb2",
}
WITHOUT = {
    "import asyncio, ssl": "import asyncio, ssl",
    "import numpy": "import numpy",
}


def run(scale: Scale) -> Iterator[Row]:
    """Yield a row for each command."""
    rounds = scale.of(ROUNDS, quick=3)
    with scratch() as directory, Node(directory / "data") as node:
        environment = os.environ | {"EVENTLOG_SERVER": node.address.text}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it every run compiles what it imports
        _cpu_ms(_command("cache", "create", "commands"), environment)
        cases = {"python -c pass": PASS, **{name: _command(*words) for name, words in COMMANDS.items()}}
        cases |= {name: ("-c", code) for name, code in (FLOORS | WITHOUT).items()}
        found: dict[str, list[float]] = {name: [] for name in cases}
        for turn in range(1 + rounds):  # the first one compiles
            for name, words in cases.items():
                cpu_ms = _cpu_ms(words, environment)
                if turn:
                    found[name].append(cpu_ms)
    middle = {name: sorted(runs)[len(runs) // 2] for name, runs in found.items()}
    bare = middle["python -c pass"]
    yield note("python -c pass", f"{bare:.0f} ms")
    for name in FLOORS:
        yield note(f"floor: {name}", f"{middle[name] - bare:.0f} ms more")
    for name in WITHOUT:
        yield note(f"without: {name}", f"{middle[name] - bare:.0f} ms more")
    for name in COMMANDS:
        over = middle[name] - bare
        yield Row(
            case=name,
            measured=f"{over:.0f} ms more",
            bare=f"{bare:.0f} ms",
            ratio=middle[name] / bare,
            target=f"<= {OVER_PASS_MS_AT_MOST} ms more",
            reached=over <= OVER_PASS_MS_AT_MOST,
        )


def _command(*words: str) -> tuple[str, ...]:
    return "-m", "eventlog_cli", *words


def _cpu_ms(words: tuple[str, ...], environment: dict[str, str]) -> float:
    """Return the user and system time of one process."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.stderr is not None and process.stderr.read()
    return 1_000 * (usage.ru_utime + usage.ru_stime)
