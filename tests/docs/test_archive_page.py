"""docs/archive.md, run as it is written, against a node of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import blocking
from tests.archive.s3 import s3_server
from tests.docs.pages import TOP, blocks_of
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.source, pytest.mark.process, pytest.mark.timeout(120)]


def test_every_block_runs(tmp_path: Path) -> None:
    with s3_server() as store, NodeProcess(tmp_path / "node", "--segments", "8") as node, blocking.connect(node.address) as client:
        client.create_cache("orders").put_many([(f"k{key}", {"total": key}) for key in range(150)])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | store.environment | {"EVENTLOG_SERVER": node.address, "PATH": path}
        make_bucket = "import boto3; boto3.client('s3').create_bucket(Bucket='archives')"
        subprocess.run([sys.executable, "-c", make_bucket], env=environment, check=True, timeout=60)
        printed = []
        for block in blocks_of((TOP / "docs" / "archive.md").read_text()):
            shell = ["bash", "-ec"] if block.language == "sh" else [sys.executable, "-c"]
            text = block.text.replace("127.0.0.1:7400", node.address)
            done = subprocess.run([*shell, text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (block, done.stderr)
            printed.append(done.stdout)
    assert len(printed) == 13
    assert "150 events in" in printed[0]
    assert len(printed[2].splitlines()) == 49
    assert printed[3].splitlines()[:2] == ["orders 150", "150"]
    assert printed[3].splitlines()[-1].startswith("k1")
    assert f"archive        {tmp_path}/archives/orders\n" in printed[4]
    assert len(printed[4].splitlines()[-150:]) == 150
    assert "archive        none noted\n" in printed[5]
    assert "orders-again has the 150 entries" in printed[6]
    assert "none differ" in printed[6]
    assert printed[7].count("'k1") == 49
    assert "files that no commit names are removed" in printed[8]
    assert "150 events of orders" in printed[9]
    assert len(printed[9].splitlines()) == 2 + 49
    assert "CREATED" in printed[10]
    assert "150 events of orders" in printed[11]
    assert printed[12].count("'total_max'") == 49
