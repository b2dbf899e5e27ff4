"""What an installation offers to others: entry points, the console script, the version."""

import shutil
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path


def test_every_storage_entry_point_loads_something_to_call() -> None:
    found = {point.name: point for point in entry_points(group="eventlog.storage")}
    assert sorted(found) == ["memory", "rocksdb"]
    assert [name for name, point in found.items() if not callable(point.load())] == []


def test_the_console_script_stands_beside_the_interpreter_and_tells_the_version() -> None:
    script = shutil.which("eventlog", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout.split() == ["eventlog", version("eventlog")]
