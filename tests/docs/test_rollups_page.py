"""docs/rollups.md, run as it is written but for shorter windows, against a node of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eventlog import blocking
from tests.docs.pages import TOP, blocks_of
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.source, pytest.mark.process, pytest.mark.timeout(120)]


def test_every_block_runs(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--segments", "8") as node, blocking.connect(node.address) as client:
        orders = client.create_cache("orders")
        orders.put_many([(f"k{key}", {"shop": ("north", "south")[key % 2], "total": key}) for key in range(100)])
        time.sleep(0.3)
        orders.put("last", {"shop": "north", "total": 0})
        time.sleep(0.3)
        environment = os.environ | {"EVENTLOG_SERVER": node.address, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        printed = []
        for block in blocks_of((TOP / "docs" / "rollups.md").read_text()):
            shell = ["bash", "-ec"] if block.language == "sh" else [sys.executable, "-c"]
            text = block.text.replace("127.0.0.1:7400", node.address).replace("--window 1h", "--window 100ms").replace("3_600_000", "100")
            done = subprocess.run([*shell, text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (block, done.stderr)
            printed.append(done.stdout)
        into = client.cache("orders-by-shop")
        assert sum(entry.value["count"] for _, entry in into.entries()) == 101
        assert {json.loads(key)[1] for key, _ in into.entries()} == {"north", "south"}
    assert len(printed) == 7
    assert "101 events of orders came to" in printed[0]
    assert "2500.0" in printed[1]
    assert json.loads(printed[2])["entries"] >= 3
    assert "100 events of orders came to" in printed[3], "the last window of an archive may not be whole"
    assert printed[5] == "101 different keys of all shops and hours\n"
    assert int(printed[6].split()[1]) >= 3
