"""Entries as they were: beyond retention, over a kill, and on the command line."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import eventlog
import eventlog.blocking
from eventlog.client.reading.past import FINAL_WAIT_MS
from eventlog.errors import EventsTrimmed
from eventlog.ids import TIME_SHIFT, time_of
from tests.process.cli_ends import Shell, running_node
from tests.process.clusters import ClusterProcesses
from tests.process.jumping_cluster import JumpingNode
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node"), **RETENTION_WHEN_TOLD) as found:
        yield found


async def trim(client: eventlog.Client, cache: eventlog.Cache, upto: int) -> None:
    """Have retention remove what was written so far: time passes, and it counts by time."""
    while not ((await cache.log_ends()).first_id or upto + 1) > upto:
        await client.run_retention(cache.name)
        await asyncio.sleep(0.05)


def test_of_a_log_in_which_nothing_happens_the_past_goes_on_to_its_end(shell: Shell) -> None:
    with eventlog.blocking.connect(shell.node.address) as client:
        cache = client.create_cache("idle")
        cache.put("a", 1)
        began = cache.log_ends().last_id
        assert [key for key, _ in cache.entries(at=began)] == ["a"]  # the node keeps what was read for others
        while time_of(at := cache.log_ends().last_id) <= time_of(began) + FINAL_WAIT_MS:
            pass
        assert [key for key, _ in cache.entries(at=at)] == ["a"]
        assert cache.get("a", at=at).value == 1


@pytest.mark.source
@pytest.mark.parametrize("before", [True, False])
def test_behind_retention_is_said_what_can_be_proved_and_nothing_else(tmp_path: Path, before: bool) -> None:
    async def run(node: JumpingNode) -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("c", format="json", before=before, retain_time_ms=10 * DAY_MS)
            first = {key: (await cache.put(key, 1)).id for key in ("same", "changed", "removed", "ended", "gone")}
            await cache.put("ended", 1, lifespan_ms=12 * DAY_MS)
            trimmed = (await cache.remove("gone")).id
            assert trimmed is not None
            node.jump(11 * DAY_MS)
            at = (await cache.put("other", 1)).id
            assert at is not None
            await trim(client, cache, trimmed)
            node.jump(11 * DAY_MS + DAY_MS // 2)
            await cache.put("changed", 2)
            await cache.remove("removed")
            await cache.put("made", 1)
            assert (await cache.get("same", at=at)).version == first["same"]
            assert await cache.get("gone", at=at) is None
            assert await cache.get("made", at=at) is None
            assert (await cache.get("ended", at=at)).value == 1
            for key in ("changed", "removed"):
                if before:
                    entry = await cache.get(key, at=at)
                    assert (entry.value, entry.version, entry.expires_ms) == (1, 0, None)
                else:
                    with pytest.raises(EventsTrimmed):
                        await cache.get(key, at=at)
            if before:
                ended = cache.entries(at=at, where="value = 1 AND key LIKE '%ed'")
                assert {key async for key, _ in ended} == {"changed", "removed", "ended"}
                table = await cache.scan(as_of=at, where="key = 'changed'").to_arrow()
                assert table.select(["id", "time", "value"]).to_pylist() == [{"id": 0, "time": None, "value": "1"}]
                with pytest.raises(EventsTrimmed):  # whether it was changed later than that nobody knows any more
                    await cache.entries(at=at, where=f"id > {first['same']} AND key = 'changed'")
                assert {key: entry.value for key, entry in await cache.entries(at=at)} == dict.fromkeys(
                    ("same", "changed", "removed", "ended", "other"), 1
                )
            else:
                with pytest.raises(EventsTrimmed):
                    await cache.entries(at=at)
            assert (await cache.get("same", at=first["gone"])).version == first["same"]
            with pytest.raises(EventsTrimmed):
                await cache.get("gone", at=first["gone"])
            node.jump(13 * DAY_MS)
            async for event in cache.events(at, where="kind = 'EXPIRED'", follow=True):
                assert event.key == "ended"
                break
            with pytest.raises(EventsTrimmed):  # its lifespan may have ended before as well as after
                await cache.get("ended", at=at)

    with JumpingNode(tmp_path, "--segments", "1") as node:
        asyncio.run(run(node))


SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": ["null", "string"]}]}
WHERES = [
    {"where": "value.n > 3"},
    {"where": "value.n IN (1, 2) OR key LIKE 'k1%'", "select": "value.n"},
    {"where": "value.t IS NULL AND segment < ?", "parameters": [8]},
    {"where": "key = ?", "parameters": ["k4"]},
    {"where": "key IN ('k1', 'k12', 'nobody')", "segments": range(4, 16)},
    {"where": "kind = 'STATE' AND id > 5 AND time > TIMESTAMP '2026-01-01 00:00:00'"},
    {"where": "before IS NULL AND headers['h'] IS NULL", "limit": 3},
    {"where": "value.n < 0"},
    {"select": ["value.t"]},
]


@pytest.mark.parametrize("options", WHERES, ids=lambda options: options.get("where", "select"))
@pytest.mark.parametrize("form", [{"format": "json", "promote": "value.n"}, {"format": "avro", "schema": json.dumps(SCHEMA)}])
def test_filters_find_in_the_past_what_the_nodes_found_then(node: NodeProcess, form: dict[str, Any], options: dict[str, Any]) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(f"past-{form['format']}", if_exists="use", **form)
        cache.put_many([(f"k{number}", {"n": number, "t": None if number % 2 else "x"}) for number in range(20)])
        at = cache.log_ends().last_id
        found = list(cache.entries(**options))
        table = cache.scan(**options).to_arrow()
        cache.put_many([(f"k{number}", {"n": -number, "t": "later"}) for number in range(5, 30)])
        assert list(cache.entries(at=at, **options)) == found
        assert cache.scan(as_of=at, **options).to_arrow().equals(table)
        assert cache.scan(**options).to_arrow() != table or options.get("where") == "key = ?"


def test_a_kill_changes_nothing_of_what_was(tmp_path: Path) -> None:
    async def read(cache: eventlog.Cache, at: int) -> dict[str, tuple[Any, int]]:
        return {str(key): (entry.value, entry.version) for key, entry in await cache.entries(at=at, parallel=8)}

    async def run(cluster: ClusterProcesses) -> None:
        async with eventlog.connect(*[node.address for node in cluster.nodes], timeout_ms=60_000) as client:
            cache = await client.create_cache("c", format="json")
            moments = []
            for number in range(6):
                await cache.put_many([(f"k{key}", number) for key in range(number, 60, 2)])
                await cache.remove(f"k{number}")
                at = (await cache.log_ends()).last_id  # ids of two segments need not be in the order of the calls
                moments.append((at, {str(key): (entry.value, entry.version) async for key, entry in cache.entries()}))
            for at, wanted in moments:
                assert await read(cache, at) == wanted
            reading = asyncio.gather(*[read(cache, at) for at, _ in moments])
            await asyncio.to_thread(cluster.kill, 1)
            assert await reading == [wanted for _, wanted in moments]
            await cache.put_many([(f"k{key}", "later") for key in range(60)])
            for at, wanted in moments:
                assert await read(cache, at) == wanted
                entry = await cache.get("k58", at=at)
                assert (entry.value, entry.version) == wanted["k58"]

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(run(cluster))


def test_the_command_line_takes_an_id_a_time_and_how_long_ago(shell: Shell) -> None:
    shell.ok("cache", "create", "days")
    first = shell.ok("put", "days", "a", "1", "--json").row["id"]
    second = shell.ok("put", "days", "a", "2", "--json").row["id"]
    time = datetime.fromtimestamp((time_of(second) - 1) / 1000, UTC).isoformat()
    assert shell.ok("get", "days", "a", "--at", str(first)).out == "1"
    assert shell.ok("get", "days", "a", "--at", time).out == ("1" if time_of(first) < time_of(second) else "")
    assert shell.ok("entries", "days", "--at", str(first)).row == {"key": "a", "value": 1, "version": first, "version_str": str(first)}
    assert shell.run("get", "days", "a", "--at", "1h").code == 1
    assert shell.ok("entries", "days", "--at", str(first), "--where", "value = 1").row["version"] == first
    assert shell.ok("entries", "days", "--at", str(first), "--where", "value = 2").out == ""
    refused = shell.run("entries", "days", "--at", str(first), "--filter", "sample", "--param", "every=2")
    assert (refused.code, "filter 'sample' runs on the nodes" in refused.err) == (1, True)
    near = shell.run("get", "days", "a", "--at", str(second + (30_000 << TIME_SHIFT)))
    assert (near.code, near.err.split(":")[1]) == (3, " NOT_FINAL")
    future = shell.run("get", "days", "a", "--at", str(second + (1 << 60)))
    assert (future.code, "lies ahead of every id that can have been issued" in future.err) == (1, True)
    assert "wrong" in shell.run("get", "days", "a", "--at", "wrong").err


def test_the_command_line_names_what_retention_took(shell: Shell) -> None:
    shell.ok("cache", "create", "few", "--retain-events", "10")
    first = shell.ok("put", "few", "a", "1", "--json").row["id"]
    shell.ok("load", "few", "-", "--key", "k", given=b"".join(b'{"k":"a","n":%d}\n' % number for number in range(200)))
    shell.ok("admin", "retention", "run", "few")
    for words in (("get", "few", "a"), ("entries", "few")):
        refused = shell.run(*words, "--at", str(first))
        assert (refused.code, refused.err.split(":")[1]) == (1, " EVENTS_TRIMMED")
        assert "the first id kept is" in refused.err
