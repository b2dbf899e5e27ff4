"""Small disks of our own, as root: one that fills up, one whose power can be cut."""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.nodes import wait_stopped

MIB = 1 << 20
_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_LOSE_UNSYNCED = 2  # FS_GOING_DOWN: without flushing the log
_TRIES, _PAUSE_S = 400, 0.05


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """Mount at `folder`, unmount at the end."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder: Path) -> None:
    """Unmount `folder` for good where that can be had: who was killed may hold its files a moment longer."""
    for _ in range(_TRIES):
        if not subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode:
            return
        time.sleep(_PAUSE_S)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def memory_disk(folder: Path, *, nbytes: int) -> Iterator[Path]:
    """A disk of `nbytes` in memory."""
    with mounted(folder, "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs") as disk:
        yield disk


def resize(disk: Path, *, nbytes: int) -> None:
    """Make a disk in memory as large as that; it may not be smaller than what is on it."""
    subprocess.run(["mount", "-o", f"remount,size={nbytes}", str(disk)], check=True)


def fill_up(ballast: Path, *, free: int = 20 * MIB) -> None:
    """Let a file of ours take all but `free` bytes of its disk; nodes may write to it meanwhile."""
    with ballast.open("wb", buffering=0) as file:
        while (room := shutil.disk_usage(ballast.parent).free - free) > 0:
            file.write(bytes(min(room, MIB)))


def make_image(image: Path) -> None:
    """Make a file that `image_disk` can mount."""
    with image.open("wb") as file:
        file.truncate(512 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)


@contextmanager
def image_disk(image: Path, folder: Path) -> Iterator[Path]:
    """The disk in `image`; never beside an earlier mount of it that somebody still holds: that one would write over this one's blocks."""
    for _ in range(_TRIES):
        if not subprocess.run(["losetup", "--associated", str(image)], capture_output=True, check=True).stdout:
            break
        time.sleep(_PAUSE_S)
    else:
        pytest.fail(f"{image} is still mounted")
    with mounted(folder, "-o", "loop", str(image)) as disk:
        yield disk


def cut_power(disk: Path, *pids: int) -> None:
    """Let the file system go down as if the power failed: what was not synced is lost.

    The processes that write to it have to be named. They are stopped before: a power cut leaves nobody to hear of a sync, while
    ext4, going down, tells a sync that is under way that all is well, and loses it.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        wait_stopped(pid)
    handle = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _LOSE_UNSYNCED))
    finally:
        os.close(handle)


@contextmanager
def slow_syncs(pid: int, *, ms: int) -> Iterator[None]:
    """Let every sync of a running process take so much longer, its metadata's as well."""
    inject = ("-e", "trace=fdatasync,fsync", "-e", f"inject=fdatasync,fsync:delay_enter={ms * 1_000}")
    with subprocess.Popen(["strace", "-f", "-p", str(pid), "-o", "/dev/null", *inject], stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        try:
            said = strace.stderr.readline()
            assert "attached" in said, said
            yield
        finally:
            strace.terminate()
