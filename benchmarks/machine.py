"""What the benchmarks ran on, and whether they had it to themselves."""

import mmap
import os
import platform
import resource
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

BUSY_CORES_MAX = 0.15  # by others; above it figures of time are marked


def describe() -> str:
    """Return one line about the machine and the versions that matter."""
    names = ("rocksdict", "numpy", "uvloop", "protobuf")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores {_model()}, {_memory_gib():.0f} GiB, {system}, {versions}"


@dataclass(frozen=True, slots=True)
class Watch:
    """A stretch of time on this machine: what all processes used of it, and what we and our ended children did."""

    at: float
    everyone: float
    ours: float

    @staticmethod
    def start() -> "Watch":
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        ours = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        return Watch(time.monotonic(), _busy_seconds(), ours)

    def remark(self) -> str:
        """Return how long it took and what others used meanwhile; call it when all children have ended."""
        now = Watch.start()
        seconds = now.at - self.at
        others = max((now.everyone - self.everyone) - (now.ours - self.ours), 0.0) / max(seconds, 0.001)
        mark = "" if others <= BUSY_CORES_MAX else "  LOADED MACHINE: others were busy, times are too long"
        return f"{seconds:.1f} s, other processes used {others:.2f} cores{mark}"


def warm_memory(nbytes: int) -> None:
    """Touch so much memory and give it back to the kernel, right before something is measured.

    A virtual machine's free memory may not be backed by its host, and what has been free for a second or two is taken away again:
    whoever touches such a page first, if only by writing a file, pays ten times the price of the copy (measured: 2.3 s of CPU a GiB
    instead of 0.2), and the same run costs up to twice as much as the next. Afterwards the pages are there for about two seconds, so
    what is measured had better be short, and repeated.
    """
    available = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE
    size = min(nbytes, available // 2)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def _busy_seconds() -> float:
    """Return the seconds that all cores together were busy since boot, stolen time included."""
    user, nice, system, _, _, interrupt, soft_interrupt, steal = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + interrupt + soft_interrupt + steal) / os.sysconf("SC_CLK_TCK")


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
