"""The store in memory keeps the contract."""

from pathlib import Path

from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.testing.clocks import ManualClock
from eventlog.testing.metastore_contract import REVISIONS_KEPT, MetaStoreContract


class TestMemoryStore(MetaStoreContract):
    def setup_method(self):
        self.clock = ManualClock()
        self.store = None

    async def open_store(self, path: Path) -> MetaStore:
        self.store = self.store or MemoryMetaStore(now_ms=self.clock.monotonic_ms, revisions_kept=REVISIONS_KEPT)
        return self.store

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)

    async def forget(self, upto: int) -> None:
        pass  # it keeps so few by itself
