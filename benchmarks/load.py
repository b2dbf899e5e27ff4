"""`eventlog load` of JSON lines of some 100 B: the command's CPU a line, against orjson.loads and xxh3 of the key."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks import ceilings
from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.inputs import key_of
from benchmarks.processes import Node, cpu_seconds, in_child, scratch

LINES = MILLION
ROUNDS = 3
RATIO_AT_MOST = 3.0


def run(scale: Scale) -> Iterator[Row]:
    lines = scale.of(LINES, quick=100_000)
    with scratch() as directory, Node(directory / "data") as node:
        path = directory / "lines.jsonl"
        _write_lines(path, lines)
        empty = directory / "one.jsonl"
        _write_lines(empty, 1)
        start_cpu, _ = _load(node.address.text, "start", empty)
        cpus, walls, servers, bares = [], [], [], []
        for number in range(ROUNDS):
            server = cpu_seconds(node.address.pid)
            cpu, seconds = _load(node.address.text, f"lines-{number}", path)
            servers.append(cpu_seconds(node.address.pid) - server)
            cpus.append(cpu - start_cpu)
            walls.append(seconds)
            bares.append(in_child(ceilings.json_lines, path)[1])
    ours, bare = median(cpus) / lines * 1e6, median(bares) / lines * 1e6
    yield against("load jsonl", ours=ours, bare=bare, unit="us/line of the command's CPU", at_most=RATIO_AT_MOST)
    yield note("load jsonl, wall", f"{lines / median(walls) / 1000:.0f} k lines/s, start-up {start_cpu:.2f} s of CPU not counted")
    yield note("server meanwhile", f"{median(servers) / lines * 1e6:.2f} us/line: keyed, before-images, JSON checked")


def _write_lines(path: Path, lines: int) -> None:
    with path.open("wb") as file:
        for number in range(lines):
            file.write(b'{"key": "%s", "total": %d, "text": "%s"}\n' % (key_of(number), number % 10_000, b"x" * 44))


def _load(server: str, cache: str, path: Path) -> tuple[float, float]:
    """Return the CPU seconds of the command and how long it took."""
    import time

    script = Path(sys.executable).parent / "eventlog"
    environment = {**os.environ, "EVENTLOG_SERVER": server}
    begun = time.monotonic()
    process = subprocess.Popen([script, "load", cache, path, "--key", "key", "--create"], stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"eventlog load ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun
