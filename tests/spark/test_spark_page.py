"""docs/spark.md, run as it is written, block by block, against a node of its own: with its addresses and folders in place of the page's."""

import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from tests.docs.pages import TOP, blocks_of
from tests.process.nodes import NodeProcess
from tests.spark.servers import confs

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.source, pytest.mark.timeout(300)]
FOLDERS = ("/archives", "/checkpoints", "/landing", "/rollups")
ORDERS = 200
WITHIN_S = 120


def written_for(text: str, node: NodeProcess, folder: Path) -> str:
    """Return a block with the places that there are."""
    for said, meant in (
        ("n1:7400,n2:7400", node.address),
        ("n1:7400", node.address),
        ("--master spark://m1:7077", shlex.join(["--master", "local[1]", *confs()])),
        ("port=9404", "port=0"),
        ("query.awaitTermination()", "query.processAllAvailable()"),
        ("2026-11-20T12:00:00Z", datetime.now(UTC).isoformat()),
        *((f"{name}/", f"{folder}{name}/") for name in FOLDERS),
    ):
        text = text.replace(said, meant)
    return text


def run_in_shell(text: str, node: NodeProcess) -> str:
    environment = os.environ | {"EVENTLOG_SERVER": node.address, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", text], capture_output=True, check=False, env=environment, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, (text, done.stderr[-3000:])
    return done.stdout


def test_every_block_runs(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    landing = tmp_path / "landing" / "orders"
    landing.mkdir(parents=True)
    (landing / "a.jsonl").write_text('{"id": "L-1", "total": 3, "op": "A"}\n{"id": "k1", "op": "D"}\n')
    said: list[str] = []
    with NodeProcess(tmp_path / "node", "--segments", "8") as node, blocking.connect(node.address) as client:
        orders, totals = client.create_cache("orders", before=True), client.create_cache("totals")
        orders.put_many([(f"k{key}", {"customer": f"c{key % 3}", "shop": "north", "total": float(key)}) for key in range(ORDERS)])
        names: dict[str, Any] = {}
        try:
            for block in blocks_of((TOP / "docs" / "spark.md").read_text()):
                text = written_for(block.text, node, tmp_path)
                if block.language == "python":
                    exec(compile(text, f"docs/spark.md:{block.line}", "exec"), names)
                    if "query = " in text:
                        names["query"].processAllAvailable()
                elif block.language == "sql":
                    spark.sql(text)
                else:
                    said.append(run_in_shell(text, node))
        finally:
            if "listener" in names:
                spark.streams.removeListener(names["listener"])
            for query in spark.streams.active:
                query.stop()
        assert totals.size() == ORDERS - 101, "the totals above 100"
        assert spark.sql("SELECT count(*) FROM orders").head()[0] == len(list(orders.events(0)))
        assert orders.get("A-1") is not None
        assert orders.get("L-1") is not None
        assert orders.get("k1") is None, "a landed row removed it"
        assert client.cache("orders-at-noon").size() == ORDERS + 1, "before the files were landed"
    shown = capsys.readouterr().out
    assert "CREATED" in shown
    assert len(said) == 4
