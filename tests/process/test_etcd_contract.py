"""The etcd store keeps the contract."""

import asyncio
from pathlib import Path

import pytest

from eventlog.control.metastore import MetaStore
from eventlog.control.metastores import etcd_pb2
from eventlog.control.metastores.etcd import COMPACT, Endpoints, EtcdOptions, open_etcd
from eventlog.testing.metastore_contract import MetaStoreContract
from tests.process.etcds import EtcdCluster, fresh_prefix, named_endpoints, wait_for_answers


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    if named := named_endpoints():
        yield named
        return
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster.endpoints


class TestEtcdStore(MetaStoreContract):
    @pytest.fixture(autouse=True)
    def _there(self, endpoints, monkeypatch):
        wait_for_answers(monkeypatch)
        self.options = EtcdOptions(endpoints=endpoints, prefix=fresh_prefix())

    async def open_store(self, path: Path) -> MetaStore:
        return await open_etcd(self.options)

    async def pass_time(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)  # its leases live by its own clock

    async def forget(self, upto: int) -> None:
        calls = Endpoints(self.options.endpoints)
        await calls.ask(COMPACT, etcd_pb2.CompactionRequest(revision=upto + 1))
        await calls.close()
