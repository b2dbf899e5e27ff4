"""A node whose wall clock is moved by a file: `python -m tests.process.jumping_node OFFSET_FILE [serve options]`."""

import sys
from pathlib import Path

from eventlog.assemble import load_config, serve
from eventlog.clock import SystemClock


class JumpingClock(SystemClock):
    """The machine's clocks, the wall clock moved by the milliseconds that stand in a file at each moment."""

    __slots__ = ("_file",)

    def __init__(self, file: Path) -> None:
        self._file = file

    def wall_ms(self) -> int:
        return super().wall_ms() + int(self._file.read_text() or 0)


def main() -> None:
    offset, *words = sys.argv[1:]
    pairs = zip(words[::2], words[1::2], strict=True)
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in pairs}
    serve(load_config(options), clock=JumpingClock(Path(offset)))


if __name__ == "__main__":
    main()
