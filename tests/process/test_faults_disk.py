"""Disks of one node of a cluster that lose their power, fill up, fail, are emptied or exchanged: the others go on with everything."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process.clusters import ClusterProcesses
from tests.process.disks import MIB, cut_power, fill_up, image_disk, make_image, memory_disk
from tests.process.nodes import NodeProcess
from tests.process.trials import Trial, most_primaries

pytestmark = pytest.mark.timeout(300)

IMAGE_BYTES = 256 * MIB


class DiskCluster(ClusterProcesses):
    """Nodes whose data lie on a disk each, whose power can be cut."""

    def __init__(self, directory: Path) -> None:
        self.disks: dict[str, ExitStack] = {}
        super().__init__(directory, "--disk-reserve", "32MiB")

    def make(self, directory: Path, *options: str) -> NodeProcess:
        directory.mkdir(parents=True)
        make_image(directory / "image")
        node = NodeProcess(directory, *options)
        node.data = directory / "disk" / "data"
        self.disks[directory.name] = ExitStack()
        self.plug_in(node)
        return node

    def plug_in(self, node: NodeProcess) -> None:
        """Give a node its disk (back)."""
        self.disks[node.directory.name].enter_context(image_disk(node.directory / "image", node.directory / "disk"))

    def cut_power(self, *indexes: int) -> None:
        """Let the power of nodes fail: what was not synced is gone; then there is power again, and nobody runs."""
        pids = [self[index].pid for index in indexes]
        for index in indexes:
            cut_power(self[index].directory / "disk", *pids)
        self.kill(*indexes)
        for index in indexes:
            self.disks[self[index].directory.name].close()
            self.plug_in(self[index])

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[arg-type]
        for disk in self.disks.values():
            disk.close()


@pytest.mark.needs_root("a power cut needs a disk of its own, and mounting one needs root")
def test_the_power_of_one_node_fails_and_then_that_of_all(tmp_path):
    with DiskCluster(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:
        for _ in range(2):
            victim = most_primaries(cluster)
            trial.happen(f"power cut of n{victim + 1}", lambda victim=victim: cluster.cut_power(victim))
            trial.busy()
            cluster.start()
            cluster.settle()
        trial.happen("power cut of all", lambda: cluster.cut_power(0, 1, 2))
        cluster.restart_all()
        trial.busy()
        trial.verdict()


class WrappedCluster(ClusterProcesses):
    """A cluster of which the last node runs in a wrapper, its data on a small disk in memory."""

    def __init__(self, directory: Path, *options: str, wrapper: tuple[str, ...] = ()) -> None:
        self._wrapper = wrapper
        super().__init__(directory, *options)

    def make(self, directory: Path, *options: str) -> NodeProcess:
        return NodeProcess(directory, *options, wrapper=self._wrapper if directory.name == "n3" else ())


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_the_disk_of_one_node_is_full_and_writes_come_back_with_the_space(tmp_path):
    (tmp_path / "n3").mkdir()
    with (
        memory_disk(tmp_path / "n3", nbytes=200 * MIB) as disk,
        ClusterProcesses(tmp_path, "--disk-reserve", "32MiB") as cluster,
        Trial(cluster, tmp_path) as trial,
    ):
        cluster.spread()
        ballast = disk / "ballast"
        trial.happen("n3's disk is full", lambda: fill_up(ballast))
        found = cluster.until(lambda status: status.health == "unavailable")  # what n3 leads takes no writes, whoever is asked
        assert 0 < found.unwritable < found.segments
        assert any(line.startswith("the data disk of n3 has ") and line.endswith("eventlog admin drain n3") for line in found.advice), found
        ballast.unlink()
        trial.busy()
        trial.verdict()


def test_a_sync_fails_at_one_node_which_stops_and_the_others_go_on(tmp_path):
    assert shutil.which("strace"), "strace is needed to make a sync fail: install the package strace"
    inject = ("-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync:error=EIO:when=200+")
    wrapper = ("strace", "-f", "-qq", "-o", "/dev/null", *inject)
    with WrappedCluster(tmp_path, wrapper=wrapper) as cluster, Trial(cluster, tmp_path) as trial:
        failing = cluster[2]
        trial.happen("n3's disk fails", failing.wait)
        assert "error: STORE_FENCED" in failing.log_text()
        trial.busy()
        failing.wrapper = ()
        cluster.start()
        cluster.settle()
        trial.busy()
        history = trial.verdict()
    assert history.errors() == []


def test_a_disk_is_replaced_by_an_empty_one_and_the_node_is_filled_again(tmp_path):
    with ClusterProcesses(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:
        victim = most_primaries(cluster)
        node = cluster[victim]

        def replace() -> None:
            cluster.kill(victim)
            shutil.rmtree(node.data)

        trial.happen(f"n{victim + 1} loses its disk", replace)
        trial.busy()
        cluster.start()
        cluster.settle()
        trial.busy()
        history = trial.verdict()
    assert history.errors() == []


def test_a_node_on_another_nodes_directory_is_refused(tmp_path):
    with ClusterProcesses(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:

        def exchange() -> None:
            cluster.kill(1, 2)
            first, second = cluster[1].data, cluster[2].data
            first.rename(first.with_name("kept"))
            shutil.copytree(second, first)

        trial.happen("n2 has n3's disk", exchange)
        cluster[2].start()
        with pytest.raises(AssertionError, match="error"):
            cluster[1].start()
        trial.busy()
        shutil.rmtree(cluster[1].data)
        cluster[1].data.with_name("kept").rename(cluster[1].data)
        cluster[1].start()
        trial.busy()
        trial.verdict()
