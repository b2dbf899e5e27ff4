"""What a node asks of the C library's allocator."""

import ctypes
import subprocess
import sys

import pytest

TRY = """
import resource, sys, threading
from eventlog.assemble import keep_freed_memory
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
