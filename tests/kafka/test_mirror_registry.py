"""A mirror whose schemas are in another registry: that of a cluster of its own, under the same paths."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from eventlog.errors import InvalidArgument, NoConnection, OutboundRefused, RegistryFailed, SchemaRefused
from tests.kafka.mirrors import ORDER, WAIT_MS, by_confluent, read, wait
from tests.kafka.test_mirror_misled import rude, server, silent
from tests.process.cli_ends import Shell
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node of another cluster, whose registry has something in it."""
    with NodeProcess(tmp_path / "other", "--segments", "4") as running:
        for number in range(1, 6):
            ask(running, "POST", "/subjects/before/versions", {"schema": json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})})
            ask(running, "PUT", "/config/before", {"compatibility": "NONE"})
        yield running


def ask(node: NodeProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{node.http}{path}", data=data, headers={"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def state_of(client: blocking.Client, mirror: str, state: str) -> str:
    """Wait until a mirror of one shard is in a state, and return why."""
    while (shard := client.mirrors.status(mirror).shards[0]).state != state:
        pass  # the timeout of the test ends it
    return shard.why


def test_readers_find_the_ids_of_the_other_registry_there(
    node: NodeProcess, client: blocking.Client, other: NodeProcess, broker: str, name: str
) -> None:
    ask(other, "POST", "/subjects/declared/versions", {"schema": json.dumps(ORDER)})
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", {"total": number, "note": None}) for number in range(50)])
    asked = ("--kafka", broker, "--encoding", "avro", "--schema", "declared", "--registry", f"http://{other.http}", "--json")
    topic = Shell(node).ok("mirror", "add", name, *asked).row["topic"]
    wait(client, name)
    assert client.mirrors.describe(name).registry == f"http://{other.http}"
    rows = {key["_key"]: value["after"]["total"] for key, value in by_confluent(broker, other.http, topic)}
    assert rows == {f"k{number}": number for number in range(50)}
    ids = {(int.from_bytes(one.key[1:5]), int.from_bytes((one.value or b"")[1:5])) for one in read(broker, topic)}
    assert ids == {
        (ask(other, "GET", f"/subjects/{topic}-key/versions/1")["id"], ask(other, "GET", f"/subjects/{topic}-value/versions/1")["id"])
    }
    assert f"{topic}-value" not in ask(node, "GET", "/subjects")
    client.mirrors.add(
        name, kafka=broker, encoding="avro", registry="internal", schema=json.dumps(ORDER), name=f"{name}.own", topic=f"{name}.own"
    )
    assert client.mirrors.describe(f"{name}.own").registry == ""
    assert f"{name}.own-value" in ask(node, "GET", "/subjects")


def test_a_shard_waits_for_the_registry_and_halts_where_it_refuses(
    client: blocking.Client, other: NodeProcess, broker: str, name: str
) -> None:
    cache = client.create_cache(name)
    cache.put("a", {"total": 1})
    url = f"http://{other.http}"
    topic = client.mirrors.add(name, kafka=broker, encoding="avro", schema=json.dumps(ORDER), registry=url, partitions=1).mirror.topic
    wait(client, name)
    client.mirrors.pause(name)
    cache.put("b", {"total": 2})
    other.kill()
    client.mirrors.resume(name)
    assert state_of(client, name, "waiting").startswith(f"the registry {url}: does not answer")
    other.start()
    wait(client, name)
    client.mirrors.pause(name)
    ask(other, "DELETE", f"/subjects/{topic}-value")
    ask(other, "PUT", "/mode", {"mode": "READONLY"})
    client.mirrors.resume(name)
    assert "read-only mode; once it takes what it refused: eventlog mirror resume" in state_of(client, name, "halted")
    ask(other, "PUT", "/mode", {"mode": "READWRITE"})
    cache.put("c", {"total": 3})
    client.mirrors.resume(name)
    wait(client, name)
    assert [value["after"]["total"] for _, value in by_confluent(broker, other.http, topic)] == [1, 2, 3]
    assert client.mirrors.verify(name).is_alike


@pytest.mark.parametrize("is_own", [True, False])
def test_a_dry_run_asks_the_registry_and_leaves_nothing_there(
    node: NodeProcess, client: blocking.Client, other: NodeProcess, broker: str, name: str, is_own: bool
) -> None:
    client.create_cache(name)
    asked, registry = (node, "internal") if is_own else (other, f"http://{other.http}")
    given: dict[str, Any] = {"kafka": broker, "encoding": "avro", "schema": json.dumps(ORDER), "registry": registry, "dry_run": True}
    client.mirrors.add(name, **given)
    assert [subject for subject in ask(asked, "GET", "/subjects") if name in subject] == []
    ask(asked, "POST", f"/subjects/eventlog.{name}-value/versions", {"schema": '"long"'})
    with pytest.raises(SchemaRefused, match=f"eventlog.{name}-value.*incompatible with an earlier schema: .*cannot read"):
        client.mirrors.add(name, **given)
    other.kill()
    if not is_own:
        with pytest.raises(RegistryFailed, match="does not answer"):
            client.mirrors.add(name, **given)


def test_what_cannot_be_asked_is_refused_at_add_in_one_sentence(
    node: NodeProcess, client: blocking.Client, other: NodeProcess, broker: str, name: str
) -> None:
    client.create_cache(name).put("k", {"total": 1})

    def refusal(kind: type[Exception], registry: str, **options: Any) -> str:
        given = {"encoding": "avro", "schema": json.dumps(ORDER), **options}
        with pytest.raises(kind) as refused:
            client.mirrors.add(name, kafka=broker, registry=registry, **given)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert "does not answer" in refusal(RegistryFailed, "http://127.0.0.1:1")
    with server(silent) as address:
        assert "does not answer in time" in refusal(RegistryFailed, f"http://{address}")
    with server(rude) as address:
        assert f"http://{address}" in refusal(RegistryFailed, f"http://{address}")
    assert "it is none" in refusal(RegistryFailed, f"http://{node.http}/health")
    assert "allow_outbound" in refusal(OutboundRefused, "http://192.0.2.1:8081")
    assert "no table [registry.main]" in refusal(NoConnection, "main")
    assert "hunter2" not in refusal(InvalidArgument, "http://u:hunter2@127.0.0.1:1")
    assert "give --encoding avro" in refusal(InvalidArgument, f"http://{other.http}", encoding="json")
    ask(other, "POST", f"/subjects/eventlog.{name}-value/versions", {"schema": '"long"'})
    assert "incompatible" in refusal(SchemaRefused, f"http://{other.http}")
    assert "not found" in refusal(SchemaRefused, f"http://{other.http}", schema=None, schema_subject="nothing-of-the-kind")
    assert name not in {mirror.name for mirror in client.mirrors.list()}
    assert f"mirror.{name}" not in {one.id for one in client.listeners.list()}
    assert "hunter2" not in node.log_text()
    client.mirrors.add(name, kafka=broker, encoding="avro", schema=json.dumps(ORDER), registry="internal")
    assert not client.mirrors.status(name, wait_ms=WAIT_MS).is_behind
