import subprocess

import pytest

from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store
from tests.process.disks import cut_power, image_disk, make_image
from tests.process.store_child import SEGMENTS, SMALL, expected, faults, groups_upto, last_acknowledged, read_all
from tests.process.stores import ROOT, command


def write_until_the_power_fails(disk, acknowledgements):
    """Return the last id that was acknowledged by then."""
    with subprocess.Popen(
        command("write", disk / "store"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledgements)]
        cut_power(disk, child.pid)
        child.kill()
        lines += child.stdout.readlines()
    return last_acknowledged([line.strip() for line in lines if line.endswith("\n")])


@pytest.mark.needs_root("a power cut needs a disk of its own, and mounting one needs root")
@pytest.mark.parametrize("acknowledgements", [1, 40, 300])
def test_a_power_cut_leaves_everything_that_was_acknowledged(tmp_path, acknowledgements):
    make_image(tmp_path / "image")
    with image_disk(tmp_path / "image", tmp_path / "disk") as disk:
        acknowledged = write_until_the_power_fails(disk, acknowledgements)
    assert groups_upto(acknowledged) >= acknowledgements
    with image_disk(tmp_path / "image", tmp_path / "disk") as disk:
        store = open_store(disk / "store", segments=SEGMENTS, options=SMALL)
        assert not store.stopped_cleanly
        recovery = recover(store, keyed={1}, acknowledged=acknowledged)
        assert recovery.refusals == ()
        assert read_all(store) == expected(groups_upto(recovery.last_id))
        assert faults(store) == []
        store.close()
