"""What a node asks of the C library's allocator."""

import ctypes
import subprocess
import sys

import pytest

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
