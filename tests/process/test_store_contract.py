import shutil
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from eventlog.segment.port import Store, StoreOptions
from eventlog.segment.rocks.store import open_store
from eventlog.testing.store_contract import SEGMENTS, StoreContract


class TestRocksStore(StoreContract):
    crashes = 0

    def open_store(self, path: Path, options: StoreOptions) -> Store:
        return open_store(path, segments=SEGMENTS, options=options)

    def crash(self, store: Store, path: Path, options: StoreOptions) -> Store:
        """What a killed process leaves is what the kernel has by then: a copy of the files."""
        self.crashes += 1
        copy = path.with_name(f"{path.name}-crash-{self.crashes}")
        shutil.copytree(path, copy)
        store.close()
        return self.open_store(copy, options)


@pytest.mark.parametrize("engine", ["rocksdb", "memory"])
def test_engines_are_found_by_name_and_opened_alike(engine, tmp_path):
    (found,) = entry_points(group="eventlog.storage", name=engine)
    store = found.load()(tmp_path, segments=4, options=None)
    assert store.segments == 4
    assert store.identity is None
    store.close()
