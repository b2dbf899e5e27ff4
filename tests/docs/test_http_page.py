"""The examples of docs/http.md, run as they stand there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import TOP, blocks_of, pattern_of
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.source, pytest.mark.timeout(300)]
ADDRESS = "127.0.0.1:7480"


def test_every_example_prints_what_the_page_shows(tmp_path: Path):
    blocks = blocks_of((TOP / "docs" / "http.md").read_text())
    with NodeProcess(tmp_path) as node:
        environment = os.environ | {
            "EVENTLOG_SERVER": node.address,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        shown = 0
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            if block.language != "sh":
                continue
            command = block.text.replace(ADDRESS, node.http)
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=60, check=False)
            assert done.returncode == 0, f"line {block.line}: {done.stderr}"
            if after is not None and after.language == "text":
                printed = done.stdout.strip("\n") + "\n"
                assert pattern_of(after.text).match(printed), f"line {block.line} printed {printed}"
                shown += 1
    assert shown == 19, "so many examples show what they print"
