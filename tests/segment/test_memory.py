from pathlib import Path

import pytest

from eventlog.errors import DiskFull, StoreFenced
from eventlog.segment.memory import MemoryDisk, MemoryStore, open_store
from eventlog.segment.port import Store, StoreEnds, StoreOptions
from eventlog.testing.store_contract import ALL, SEGMENTS, StoreContract, ends_at, log_pairs


class TestMemoryStore(StoreContract):
    disk: MemoryDisk

    def open_store(self, path: Path, options: StoreOptions) -> Store:
        if not hasattr(self, "disk"):
            self.disk = MemoryDisk(segments=SEGMENTS, ends=StoreEnds.empty(SEGMENTS))
        return MemoryStore(self.disk, options)

    def crash(self, store: Store, path: Path, options: StoreOptions) -> Store:
        self.disk.crash()
        return self.open_store(path, options)


def test_a_crash_loses_exactly_what_was_not_synced():
    store = open_store("", segments=SEGMENTS)
    store.append(log_pairs(5)[:3], [])
    store.sync(ends_at(3))
    store.append(log_pairs(5)[3:], [])
    store.apply([(b"a", b"1")])
    store.disk.crash()
    after = MemoryStore(store.disk)
    assert after.read_log(*ALL, bytes_max=1 << 20) == log_pairs(5)[:3]
    assert after.get_many([b"a"]) == [None]


def test_a_failed_sync_fences():
    store = open_store("", segments=SEGMENTS)
    store.disk.next_sync_fails = "the disk is gone"
    store.append(log_pairs(1), [])
    with pytest.raises(StoreFenced, match="the disk is gone"):
        store.sync(ends_at(1))
    with pytest.raises(StoreFenced):
        store.append(log_pairs(1), [])
    store.close()
    assert MemoryStore(store.disk).read_log(*ALL, bytes_max=1) == []


def test_a_full_disk_refuses_a_write_whole_and_takes_the_next():
    store = open_store("", segments=SEGMENTS)
    store.disk.bytes_free = 150
    with pytest.raises(DiskFull):
        store.append(log_pairs(2), [])
    assert store.read_log(*ALL, bytes_max=1) == []
    store.append(log_pairs(1), [])
