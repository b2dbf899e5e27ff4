"""The examples of docs/http.md, run as they stand there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import TOP, blocks_of, pattern_of
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.source, pytest.mark.timeout(300)]
ADDRESS = "127.0.0.1:7480"
MEMBER = "/v1/groups/billing/members/worker-1"
METHODS = ("get", "put", "post", "patch", "delete")


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
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=60, check=False
            )
            assert done.returncode == 0, f"line {block.line}: {done.stderr}"
            if after is not None and after.language == "text":
                printed = done.stdout.strip("\n") + "\n"
                assert pattern_of(after.text).match(printed), f"line {block.line} printed {printed}"
                shown += 1
    assert shown == 28, "so many examples show what they print"


def test_every_route_has_an_example():
    document = json.loads((TOP / "schemas" / "openapi.json").read_bytes())
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in METHODS if method in item}
    shown = set()
    for block in blocks_of((TOP / "docs" / "http.md").read_text()):
        for command in block.text.replace("\\\n", "").split("curl ")[1:] if block.language == "sh" else []:
            method = re.search(r"-X (\w+)", command)
            path = re.search(rf"{re.escape(ADDRESS)}([^\s'\"?]*)", command)
            assert path is not None, f"line {block.line}: {command}"
            shown.add((method[1] if method else "GET", path[1].replace("$path", MEMBER)))
    missing = {(method, path) for method, path in routes if not any(_is_of(path, found) for how, found in shown if how == method)}
    assert missing == set()


def _is_of(path: str, found: str) -> bool:
    return re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), found) is not None
