import resource

import pytest

from eventlog.errors import DiskFull
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store
from tests.process.disks import memory_disk, resize
from tests.process.store_child import SEGMENTS, SMALL, expected, faults, groups_upto, last_acknowledged, read_all
from tests.process.stores import run_story


@pytest.mark.needs_root("a full disk is a small tmpfs, and mounting one needs root")
def test_a_full_disk_refuses_writes_keeps_reading_and_goes_on_when_there_is_space(tmp_path):
    with memory_disk(tmp_path / "disk", nbytes=48 << 20) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(24 << 20))
        lines = run_story("fill", disk / "store", str(ballast))
        full = next(index for index, line in enumerate(lines) if line.startswith("DISK_FULL"))
        assert int(lines[full].split()[1]) < 1 << 20, "it was really full"
        assert lines[full + 1] == "read 0", "all that was acknowledged is read, and nothing else"
        assert lines[-1] == "resumed"
        acknowledged = last_acknowledged(lines)
        assert acknowledged > last_acknowledged(lines[:full]), "writes went on"

        store = open_store(disk / "store", segments=SEGMENTS, options=SMALL)
        recovery = recover(store, keyed={1}, acknowledged=acknowledged)
        assert recovery.refusals == ()
        assert recovery.last_id == acknowledged
        assert read_all(store) == expected(groups_upto(acknowledged))
        assert faults(store) == []
        store.close()


@pytest.mark.needs_root("a full disk is a small tmpfs, and mounting one needs root")
@pytest.mark.parametrize("pages", [3, 6, 9])
def test_a_disk_without_room_for_a_new_store_is_told_from_damage_and_leaves_none(tmp_path, pages):
    with memory_disk(tmp_path / "disk", nbytes=pages * resource.getpagesize()) as disk:
        with pytest.raises(DiskFull):
            open_store(disk / "store", segments=SEGMENTS)
        resize(disk, nbytes=48 << 20)
        open_store(disk / "store", segments=SEGMENTS).close()
