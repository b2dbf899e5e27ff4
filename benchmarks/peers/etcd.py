"""Members of etcd, and puts to them through gRPC's asyncio client."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from eventlog.control.metastores.etcd import EtcdOptions, open_etcd
from tests.process.etcds import EtcdCluster


@contextlib.contextmanager
def members(directory: Path, count: int) -> Iterator[tuple[str, ...]]:
    """Give the endpoints of running members."""
    directory.mkdir(parents=True)
    with EtcdCluster(directory, members=count) as found:
        yield found.endpoints


def put_latencies(endpoints: Sequence[str], *, count: int) -> list[float]:
    """Return the seconds of single puts of 100 B, one in flight, to the first endpoint."""

    async def run() -> list[float]:
        store = await open_etcd(EtcdOptions(endpoints=tuple(endpoints)))
        found = []
        for number in range(count + 50):
            began = time.perf_counter()
            await store.commit({}, puts={f"k{number % 1_000}": bytes(100)})
            found.append(time.perf_counter() - began)
        await store.close()
        return found[50:]

    return asyncio.run(run())
