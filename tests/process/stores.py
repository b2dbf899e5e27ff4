"""Starting and killing processes that write to a store."""

import subprocess
import sys
from pathlib import Path

from tests.process.store_child import last_acknowledged

ROOT = Path(__file__).parents[2]


def command(story: str, path: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.process.store_child", story, str(path), *more]


def run_story(story: str, path: Path, *more: str, before: tuple[str, ...] = ()) -> list[str]:
    """Run a story to its end, whatever that is; return its lines."""
    done = subprocess.run([*before, *command(story, path, *more)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def write_until_killed(path: Path, acknowledgements: int, *, story: str = "write") -> int:
    """Let a process write until it acknowledged so many groups, kill it; return the last id it acknowledged."""
    with subprocess.Popen(command(story, path), cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledgements)]
        child.kill()
        lines += child.stdout.readlines()
    whole = [line.strip() for line in lines if line.endswith("\n")]
    return last_acknowledged(whole)
