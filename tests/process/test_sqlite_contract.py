"""The SQLite store keeps the contract."""

from pathlib import Path

from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.sqlite import SqliteOptions, open_sqlite
from eventlog.testing.clocks import ManualClock
from eventlog.testing.metastore_contract import REVISIONS_KEPT, MetaStoreContract


class TestSqliteStore(MetaStoreContract):
    def setup_method(self):
        self.clock = ManualClock()

    async def open_store(self, path: Path) -> MetaStore:
        options = SqliteOptions(poll_ms=2, revisions_kept=REVISIONS_KEPT, now_ms=self.clock.monotonic_ms)
        return await open_sqlite(path / "meta" / "meta.db", create=True, options=options)

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)

    async def forget(self, upto: int) -> None:
        pass  # it keeps so few by itself
