"""The schema registry over HTTP with the clients that it is made for; `test_faults_registry.py` has it at nodes that fail."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.process.nodes import NodeProcess
from tests.schema.registries import record


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Callable[[], SchemaRegistryClient]]:
    """Makes clients, each of which knows nothing yet."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SchemaRegistryClient({"url": f"http://{node.http}"}))


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
