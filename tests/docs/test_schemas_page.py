"""docs/schemas.md, run as it is written: every command and the program, against a new node."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import TOP, Block, blocks_of, pattern_of
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.source, pytest.mark.timeout(300)]


def test_every_block_does_what_the_page_shows(tmp_path: Path):
    blocks = blocks_of((TOP / "docs" / "schemas.md").read_text())
    assert {block.language for block in blocks} == {"sh", "python", "text"}
    with NodeProcess(tmp_path / "node") as node:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"EVENTLOG_REGISTRY": f"http://{node.http}", "EVENTLOG_SERVER": node.address, "PATH": path}
        for block, after in pairwise([*blocks, Block(language="", text="", line=0)]):
            if block.language == "text":
                continue
            assert after.language == "text", f"line {block.line}: what does it print?"
            program = ["bash", "-e", "-c", block.text] if block.language == "sh" else [sys.executable, "-c", block.text]
            done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
            told = f"line {block.line}:\n{block.text}\nshown:\n{after.text}\nprinted:\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, told
            assert pattern_of(after.text).match(done.stdout), told
