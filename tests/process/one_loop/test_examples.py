"""The package of examples that the pages walk through: built, unpacked where nodes find it, and used as an application would."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import InvalidArgument
from eventlog.node.state import iterations as entry_points
from eventlog.predicate import factories
from tests.process.one_loop.clients import address, fill
from tests.process.one_loop.cluster import Cluster, with_cluster

pytestmark = pytest.mark.source
EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The examples on the path, as an installer would put them there."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=EXAMPLES, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for found in (factories.installed, entry_points.installed):
        found.cache_clear()
    yield
    for found in (factories.installed, entry_points.installed):
        found.cache_clear()


@pytest.mark.usefixtures("installed")
def test_a_filter_a_scope_and_a_task_are_found_by_their_entry_points(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 30)
        await fill(cluster, 5, prefix=b"large", value=b"v" * 100)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = client.cache("c")
            assert "weekday" in {found.name for found in await client.list_filters()}
            days = [[event async for event in cache.events(filter="weekday", params={"day": day})] for day in range(7)]
            assert sum(map(len, days)) == 35
            assert (await cache.for_each("larger", {"than": 50})).totals == {"larger": 5}
            with pytest.raises(InvalidArgument, match="larger"):
                await cache.for_each("larger")
            found = []
            for node in cluster.up:
                async with cache.entries(scope="led-by", scope_parameters={"node": node.number}) as rows:
                    own = [key async for key, _ in rows]
                assert all(cluster.leader(key.encode()) is node for key in own)
                found += own
            assert len(found) == len(set(found)) == 35

    with_cluster(tmp_path / "nodes", act)
