"""Stopping a node: not while it holds what all others of its host wait for."""

import os
import signal
import subprocess
import sys

from tests.process.clusters import is_committing

PROGRAM = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
connection.execute("CREATE TABLE some (number INTEGER)")
for statement in ("BEGIN IMMEDIATE", "COMMIT"):
    connection.execute(statement)
    print(statement, flush=True)
    sys.stdin.readline()
"""


def test_a_process_in_the_middle_of_a_commit_is_known_by_its_lock(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "file.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for statement, commits in (("BEGIN IMMEDIATE", True), ("COMMIT", False)):
            assert process.stdout.readline().strip() == statement
            os.kill(process.pid, signal.SIGSTOP)
            assert is_committing(process.pid) == commits
            os.kill(process.pid, signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
