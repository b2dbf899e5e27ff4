"""What a node asks of the C library's allocator, and what it leaves out of its memory."""

import ctypes
import subprocess
import sys
import urllib.request

import pytest

import eventlog.blocking
from tests.process.nodes import NodeProcess

TRY = """
import resource, sys, threading
from eventlog.node.freed_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
def take():
    for _ in range(4):
        values = [bytes(4 << 20) for _ in range(4)]
        del values
    before = faults()
    for _ in range(8):
        values = [bytes(4 << 20) for _ in range(4)]
        del values
    print(faults() - before)
thread = threading.Thread(target=take)
thread.start()
thread.join()
"""


def faults(how):
    return int(subprocess.run([sys.executable, "-c", TRY, how], capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="a C library without thresholds")
def test_values_that_are_read_one_after_the_other_are_not_paged_in_anew():
    assert faults("kept") * 10 < faults("returned")


def test_a_node_loads_no_pandas_where_it_is_installed(tmp_path, monkeypatch):
    installed, loaded = tmp_path / "installed" / "pandas", tmp_path / "loaded"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text(f"import pathlib; pathlib.Path({str(loaded)!r}).touch(); __version__ = '2.2.0'")
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))  # it is what `import pandas` finds
    subprocess.run([sys.executable, "-c", "import pyarrow; pyarrow.scalar(0)"], check=False, capture_output=True, timeout=60)
    assert loaded.exists(), "any other process of pyarrow loads it"
    loaded.unlink()
    with NodeProcess(tmp_path / "data") as node, eventlog.blocking.connect(node.address) as client:
        client.create_cache("c").put_many([(f"key-{number}", {"n": number}) for number in range(100)])
        with urllib.request.urlopen(f"http://{node.http}/v1/caches/c/events", timeout=30) as answer:
            assert len(answer.read().splitlines()) == 100
    assert not loaded.exists()


HOLES = """
import asyncio, sys
from eventlog.node import freed_memory
freed_memory.keep_freed_memory()
memory = freed_memory.FreedMemory()
async def main():
    await memory.give_back()
    blocks = [bytes([1]) * (64 << 10) for _ in range(int(sys.argv[1]) * 16)]
    kept = blocks[::32]  # so that no end of it is free
    del blocks
    before = freed_memory.resident_bytes()
    await memory.give_back()
    print(before - freed_memory.resident_bytes() >> 20)
asyncio.run(main())
"""


def given_back(mib):
    run = subprocess.run([sys.executable, "-c", HOLES, str(mib)], capture_output=True, text=True, check=True, timeout=60)
    return int(run.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="a C library that gives nothing back")
def test_much_that_lies_free_between_what_is_used_is_given_back_and_little_is_not():
    assert given_back(200) > 150
    assert given_back(10) < 2
