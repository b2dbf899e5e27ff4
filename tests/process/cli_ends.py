"""A node as a process and the command line as processes, for the tests beside this."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.process.nodes import PATIENT, NodeProcess

PROGRAM = (sys.executable, "-m", "eventlog_cli")
SECONDS_MAX = 120


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return stdout as JSON objects."""
        return [orjson.loads(line) for line in self.out.splitlines()]

    @property
    def row(self) -> dict[str, Any]:
        """Return the one JSON object on stdout."""
        [row] = self.rows
        return row


@dataclass(frozen=True)
class Shell:
    """Runs commands against one node."""

    node: NodeProcess

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"EVENTLOG_SERVER": self.node.address}

    def run(self, *words: str, given: bytes = b"", timeout: float = SECONDS_MAX) -> Done:
        """Run a command to its end."""
        found = subprocess.run([*PROGRAM, *words], input=given, capture_output=True, timeout=timeout, env=self.environment, check=False)
        return Done(found.returncode, found.stdout.decode(), found.stderr.decode())

    def ok(self, *words: str, given: bytes = b"") -> Done:
        """Run a command that must exit with 0, and is given time for it."""
        done = self.run(*PATIENT, *words, given=given)
        assert done.code == 0, f"{' '.join(words)} ended with {done.code}: {done.err}"
        return done

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a command."""
        return subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)


@contextmanager
def running_node(directory: Path, **environment: str) -> Iterator[Shell]:
    """Yield a shell on a new node, which is stopped afterwards."""
    with NodeProcess(directory, environment=environment) as node:
        yield Shell(node)
