"""A cluster of which each node's wall clock can be moved by itself."""

import sys
from pathlib import Path

from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess


class JumpingNode(NodeProcess):
    """A node whose wall clock is moved by the milliseconds in a file."""

    @property
    def offset(self) -> Path:
        """The file."""
        return self.directory / "offset"

    def command_line(self) -> list[str]:
        self.jump(int(self.offset.read_text()) if self.offset.exists() else 0)
        words = [word for word in super().command_line()[2:] if word != "--insecure"]
        more = ["--insecure", "true"] if "--insecure" in self.options else []
        return [sys.executable, "-m", "tests.process.jumping_node", str(self.offset), *words, *more]

    def jump(self, ms: int) -> None:
        """Set how far the clock is from the machine's, now."""
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self.directory / "offset.new"
        new.write_text(str(ms))
        new.replace(self.offset)


class JumpingCluster(ClusterProcesses):
    """Nodes whose wall clocks jump, each by itself."""

    def make(self, directory: Path, *options: str) -> NodeProcess:
        return JumpingNode(directory, *options)
