"""One SparkSession for all of these tests, which are the lane of their own that has PySpark; a node for each module."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.module_node import client, node

__all__ = ["client", "node", "spark"]
_QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60s",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    place = tmp_path_factory.mktemp("spark")
    python = _python(place)
    os.environ["PYSPARK_PYTHON"] = str(python)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2,3]").appName("eventlog-tests").config("spark.local.dir", str(place))
    builder = builder.config("spark.sql.warehouse.dir", str(place / "warehouse"))
    for name, value in _QUICK.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _python(place: Path) -> Path:
    """Return a Python for workers that has no archives on its path: nothing of theirs is compiled, so each process would do that anew."""
    found = place / "python"
    found.write_text(
        f"#!/bin/sh\nPYTHONPATH=$(printf %s \"$PYTHONPATH\" | tr ':' '\\n' | grep -v '[.]zip$' | paste -sd: -)\n"
        f'export PYTHONPATH\nexec "{sys.executable}" "$@"\n'
    )
    found.chmod(0o755)
    return found
