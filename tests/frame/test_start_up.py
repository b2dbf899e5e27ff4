"""What starting costs: the heavy packages stay out of `import eventlog` and of the command line's help."""

import json
import subprocess
import sys

import pytest

HEAVY = ("aiohttp", "asyncio", "fastavro", "google.protobuf", "numpy", "pyarrow", "rocksdict", "sqlglot", "sqlite3", "uvloop")

REPORT = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
AT_EXIT = f"import atexit; atexit.register(lambda: exec({REPORT!r})); from eventlog_cli.main import main"
STARTS = {
    "import eventlog": f"import eventlog; {REPORT}",
    "import eventlog_cli.main": f"import eventlog_cli.main; {REPORT}",
    "eventlog --help": f"{AT_EXIT}; main(['--help'])",
    "eventlog --version": f"{AT_EXIT}; main(['--version'])",
    "eventlog id decode": f"{AT_EXIT}; main(['id', 'decode', '1'])",
}


def modules_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return set(json.loads(done.stderr))


@pytest.mark.parametrize("start", STARTS)
def test_starting_loads_nothing_heavy(start: str) -> None:
    loaded = modules_after(STARTS[start])
    assert "eventlog" in loaded or "eventlog_cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_check_sees_a_heavy_package_when_there_is_one() -> None:
    assert "numpy" in modules_after(f"import numpy; {REPORT}")


def test_a_node_starts_without_the_packages_of_any_extra():
    lacking = ("aiokafka", "deltalake", "duckdb", "grpc", "opentelemetry", "pyspark", "sqlalchemy")
    code = f"import sys; sys.modules.update(dict.fromkeys({lacking})); import eventlog.assemble, eventlog.blocking, eventlog_cli.serve"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
