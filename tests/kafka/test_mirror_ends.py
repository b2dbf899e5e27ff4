"""What a mirror cannot go on from by itself, and what somebody types then: its events were trimmed, given up, or their cache dropped."""

import json
import re
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from eventlog import blocking
from eventlog.errors import CacheDropped, PrimariesMissing
from tests.kafka.mirrors import folded, read, wait
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


def standing(client: blocking.Client, name: str, state: str) -> str:
    """Wait until a mirror of one shard stands still in a state, and return why."""
    while True:  # the timeout of the test ends it
        with suppress(PrimariesMissing):
            (shard,) = client.mirrors.status(name).shards
            if shard.state == state:
                return shard.why


def lag_ms(node: NodeProcess, name: str) -> int:
    with urllib.request.urlopen(f"http://{node.http}/metrics") as page:
        found = page.read().decode()
    (line,) = re.findall(rf'^eventlog_mirror_lag_ms{{mirror="{name}",shard="0"}} (\d+)$', found, re.MULTILINE)
    return int(line)


def test_how_old_what_stands_still_is_stands_among_the_metrics(client: blocking.Client, node: NodeProcess, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    client.mirrors.add(name, kafka=broker, partitions=1, topic_settings={"max.message.bytes": "1000"})
    cache.put("k", 1)
    wait(client, name)
    assert lag_ms(node, name) == 0
    cache.put("k", "x" * 2_000)
    standing(client, name, "halted")
    before = lag_ms(node, name)
    while lag_ms(node, name) <= before:
        pass  # it grows; the timeout of the test ends it
    client.mirrors.alter(name, on_too_large="dead-letter")
    wait(client, name)
    assert lag_ms(node, name) == 0


def test_what_retention_took_from_beyond_its_hold_is_said_and_told_again_as_entries(
    client: blocking.Client, broker: str, name: str
) -> None:
    cache = client.create_cache(name, retain_events=1)
    topic = client.mirrors.add(name, kafka=broker, partitions=1, hold=1).mirror.topic
    client.mirrors.pause(name)
    first = cache.put("first", {"n": 0}).id
    for round_ in range(60):  # retention takes whole stored values, and leaves some
        cache.put_many([(f"k{number}", {"n": round_}) for number in range(200)])
    while (client.run_retention(name), cache.log_ends().first_id)[1] <= first:
        pass  # a hold that is used up all at once is warned by one run, and lost with the next; the timeout of the test ends it
    for resume in (client.mirrors.resume, client.mirrors.resume):
        resume(name)
        assert f"eventlog mirror pause {name}, reset it --to snapshot or earliest, and resume it" in standing(client, name, "trimmed")
    assert read(broker, topic) == [], "no gap is written over"
    client.mirrors.pause(name)
    client.mirrors.reset(name, to="snapshot")
    client.mirrors.resume(name)
    wait(client, name)
    cache.remove("first")
    wait(client, name)
    records = read(broker, topic)
    assert folded(records) == {f"k{number}": {"n": 59} for number in range(200)}
    assert {one.kind for one in records} == {"S", "R"}


def test_what_a_forced_primary_gave_up_stays_in_the_topic_and_it_goes_on_when_that_is_accepted(
    broker: str, name: str, tmp_path: Path
) -> None:
    with ClusterProcesses(tmp_path, segments=4) as cluster, blocking.connect(*cluster.addresses) as client:
        cache = client.create_cache(name)
        topic = client.mirrors.add(name, kafka=broker, partitions=1).mirror.topic
        cache.put("a", 1)
        wait(client, name)
        cluster.kill(2)
        cluster.until(lambda found: found.nodes_live == 2 and not found.without_primary)
        cache.put("a", 2)
        wait(client, name)
        cluster.kill(0, 1)
        cluster[2].start()
        cluster.until(lambda found: found.without_primary == 4, node=2)
        cluster.command("admin", "force-primary", "--all-lost", "--accept-data-loss", node=2)
        cluster.until(lambda found: found.without_primary == 0, node=2)
        for _ in range(2):
            why = standing(client, name, "diverged")
            assert f"eventlog mirror resume {name} --accept-diverged goes on" in why
            client.mirrors.resume(name)
        cluster[0].start()
        cluster[1].start()
        cluster.settle(live=3)
        last = cache.put("a", 3)
        client.mirrors.resume(name, accept_diverged=True)
        wait(client, name)
        records = read(broker, topic)
        assert [json.loads(one.value or b"")["after"]["value"] for one in records] == [1, 2, 3]
        assert records[-1].id == last.id
        (gone,) = client.mirrors.verify(name).differences
        assert (gone.id, gone.in_log, gone.in_topic) == (records[1].id, 0, 1)


def test_a_mirror_of_a_cache_that_is_dropped_ends_and_stays_until_it_is_removed(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put("k", 1)
    topic = client.mirrors.add(name, kafka=broker, partitions=1).mirror.topic
    wait(client, name)
    client.drop_cache(name)
    assert standing(client, name, "ended") == f"cache {name!r} was dropped: eventlog mirror remove {name} --yes"
    client.create_cache(name).put("k", 2)
    client.mirrors.resume(name)
    assert standing(client, name, "ended") == f"cache {name!r} was dropped: eventlog mirror remove {name} --yes"
    with pytest.raises(CacheDropped):
        client.mirrors.verify(name)
    client.mirrors.remove(name)
    assert len(read(broker, topic)) == 1
