import shutil
from pathlib import Path

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
