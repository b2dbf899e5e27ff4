"""The schema registry over HTTP: at three nodes at once while they die, and with the clients that it is made for."""

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.registry_histories import Asked, violations
from tests.schema.registries import body, record

TYPE = "application/vnd.schemaregistry.v1+json"
ASKED_S = 20


def ask(node: NodeProcess, method: str, path: str, data: bytes | None = None) -> Any:
    """Return the answer of a registry.

    Raises:
        urllib.error.HTTPError: it is not 200.
        OSError: there is none.
    """
    request = urllib.request.Request(f"http://{node.http}{path}", data=data, headers={"Content-Type": TYPE}, method=method)
    with urllib.request.urlopen(request, timeout=ASKED_S) as answer:
        return json.load(answer)


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Callable[[], SchemaRegistryClient]]:
    """Makes clients, each of which knows nothing yet."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SchemaRegistryClient({"url": f"http://{node.http}"}))


# ---------------------------------------------------------------- three nodes


class Hands:
    """Threads that register, delete and list at random nodes, and write down what they were answered."""

    def __init__(self, cluster: ClusterProcesses, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.history: list[Asked] = []
        self.is_over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(4)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        while not self.is_over.is_set():
            node = chance.choice(self.cluster.nodes)
            subject = chance.choice(["s", "t"])
            began = time.monotonic()
            kind = chance.choice(["register", "register", "list", "list", "delete"])
            schema = f'{{"type": "fixed", "name": "F", "size": {chance.randrange(1, 60)}}}' if kind == "register" else ""
            version = chance.randrange(1, 30) if kind == "delete" else 0
            answer = self._ask(node, kind, subject, schema or str(version))
            self.history.append(
                Asked(kind=kind, subject=subject, schema=schema, version=version, began=began, ended=time.monotonic(), answer=answer)
            )

    def _ask(self, node: NodeProcess, kind: str, subject: str, word: str) -> Any:
        try:
            if kind == "register":
                return ask(node, "POST", f"/subjects/{subject}/versions", body(word))
            if kind == "list":
                return ask(node, "GET", f"/subjects/{subject}/versions")
            return ask(node, "DELETE", f"/subjects/{subject}/versions/{word}")
        except urllib.error.HTTPError as error:
            with error:
                code = json.loads(error.read())["error_code"]
            assert code in {40401, 40402, 40406, 50003}, code
        except (OSError, ValueError):  # the node is dead, or dies
            pass
        return None


def final_of(node: NodeProcess) -> dict[str, dict[int, int]]:
    """Return the id of each version of each subject, deleted ones included."""
    found: dict[str, dict[int, int]] = {}
    for subject in ask(node, "GET", "/subjects?deleted=true"):
        numbers = ask(node, "GET", f"/subjects/{subject}/versions?deleted=true")
        found[subject] = {number: ask(node, "GET", f"/subjects/{subject}/versions/{number}?deleted=true")["id"] for number in numbers}
    return found


@pytest.mark.timeout(300)
def test_what_is_answered_holds_at_every_node_though_nodes_die(tmp_path: Path):
    with ClusterProcesses(tmp_path) as cluster:
        ask(cluster[0], "PUT", "/config", b'{"compatibility": "NONE"}')
        with Hands(cluster, seed=7) as hands:
            for index in (0, 1, 2, 1):
                wait_for(hands, 40)
                cluster.kill(index)
                wait_for(hands, 20)
                cluster.start()
            wait_for(hands, 40)
        cluster.settle()
        finals = [final_of(node) for node in cluster]
    assert finals[0] == finals[1] == finals[2]
    assert list(violations(hands.history, finals[0])) == []
    answered = [one for one in hands.history if one.answer is not None]
    assert len({one.schema for one in answered if one.kind == "register"}) > 10
    assert sum(one.kind == "delete" for one in answered) > 3


def wait_for(hands: Hands, answers: int) -> None:
    """Wait until so many more requests have been answered."""
    wanted = sum(one.answer is not None for one in list(hands.history)) + answers
    deadline = time.monotonic() + 90
    while sum(one.answer is not None for one in list(hands.history)) < wanted:
        assert time.monotonic() < deadline, "no answers any more"
        hands.is_over.wait(0.05)  # nothing tells of answers but the history


# ---------------------------------------------------------------- clients


VALUE = SerializationContext("orders", MessageField.VALUE)
ORDER = record("total", optional=("tax",), name="Order")
WIDER = record("total", optional=("tax", "discount"), name="Order")


def test_avro_is_written_and_read_by_confluents_serializers(client: Callable[[], SchemaRegistryClient]):
    registry = client()
    written = AvroSerializer(registry, json.dumps(ORDER))({"total": 5, "tax": 1}, VALUE)
    assert AvroDeserializer(client())(written, VALUE) == {"total": 5, "tax": 1}
    registry.register_schema("orders-value", Schema(json.dumps(WIDER), "AVRO"))
    latest = AvroSerializer(client(), conf={"auto.register.schemas": False, "use.latest.version": True})
    again = latest({"total": 6, "tax": 0, "discount": 2}, VALUE)
    assert AvroDeserializer(client())(again, VALUE) == {"total": 6, "tax": 0, "discount": 2}
    assert AvroDeserializer(client(), json.dumps(WIDER))(written, VALUE) == {"total": 5, "tax": 1, "discount": 0}
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("orders-value", Schema(json.dumps(record("total", "other", name="Order")), "AVRO"))
    assert refused.value.http_status_code == 409


def test_json_is_written_and_read_by_confluents_serializers(client: Callable[[], SchemaRegistryClient]):
    schema = json.dumps({"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    where = SerializationContext("points", MessageField.VALUE)
    written = JSONSerializer(schema, client())({"x": 5}, where)
    assert JSONDeserializer(schema, schema_registry_client=client())(written, where) == {"x": 5}
    latest = JSONSerializer(None, client(), conf={"auto.register.schemas": False, "use.latest.version": True})
    assert JSONDeserializer(None, schema_registry_client=client())(latest({"x": 6}, where), where) == {"x": 6}


def test_confluents_client_looks_after_subjects(client: Callable[[], SchemaRegistryClient]):
    registry = client()
    schema = Schema(json.dumps(record("a", name="Looked")), "AVRO")
    registered = registry.register_schema_full_response("looked-value", schema)
    assert registry.lookup_schema("looked-value", schema).version == 1
    assert registry.get_schema(registered.schema_id).schema_type == "AVRO"
    assert registry.get_schema_by_guid(registered.guid).schema_str == schema.schema_str
    assert "looked-value" in registry.get_subjects()
    assert registry.get_versions("looked-value") == [1]
    assert registry.test_compatibility("looked-value", schema) is True
    registry.set_compatibility("looked-value", "FULL_TRANSITIVE")
    assert registry.get_compatibility("looked-value") == "FULL_TRANSITIVE"
    assert registry.delete_version("looked-value", 1) == 1
    assert registry.delete_subject("looked-value", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as missing:
        registry.get_versions("looked-value")
    assert missing.value.error_code == 40401
