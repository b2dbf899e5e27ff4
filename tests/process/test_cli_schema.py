"""Schemas on the command line, against a real node."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli_ends import Shell, running_node
from tests.schema.registries import record


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture
def schema(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The shell, with the registry of its node known."""
    monkeypatch.setenv("EVENTLOG_REGISTRY", f"http://{shell.node.http}")
    return shell


def written(path: Path, tree: object) -> str:
    path.write_text(json.dumps(tree))
    return str(path)


def test_a_schema_is_registered_checked_printed_and_deleted(schema: Shell, tmp_path: Path):
    first, second = written(tmp_path / "a.avsc", record("a")), written(tmp_path / "b.avsc", record("a", optional=("b",)))
    found = schema.ok("schema", "register", "orders-value", first, "--json").row
    assert found["subject"] == "orders-value"
    assert "version 1 of orders-value has schema id" in schema.ok("schema", "register", "orders-value", first).out
    assert schema.ok("schema", "check", "orders-value", second).out == "compatible\n"
    bad = schema.run("schema", "check", "orders-value", written(tmp_path / "c.avsc", record("a", "c")), "--json")
    assert (bad.code, bad.row["is_compatible"]) == (1, False)
    assert "value.c" in bad.row["messages"][0]
    refused = schema.run("schema", "register", "orders-value", str(tmp_path / "c.avsc"))
    assert refused.code == 1
    assert refused.err.startswith("error: OPERATION_REFUSED: ")
    assert "(409)" in refused.err
    schema.ok("schema", "register", "orders-value", second)
    assert schema.ok("schema", "list").out == "orders-value\n"
    assert [row["version"] for row in schema.ok("schemas", "list", "orders-value", "--json").rows] == [1, 2]
    assert json.loads(schema.ok("schema", "get", "orders-value").out) == record("a", optional=("b",))
    assert json.loads(schema.ok("schema", "get", "orders-value", "--version", "1").out) == record("a")
    assert schema.ok("schema", "get", "--id", str(found["id"]), "--json").row["guid"]
    assert "deleted version 1" in schema.ok("schema", "delete", "orders-value", "--version", "1").err
    assert schema.ok("schema", "delete", "orders-value", "--json").row["versions"] == [2]
    assert schema.ok("schema", "list").out == ""
    assert schema.ok("schema", "list", "--deleted").out == "orders-value\n"
    assert schema.run("schema", "delete", "orders-value", "--permanent").code == 2
    assert schema.ok("schema", "delete", "orders-value", "--permanent", "--yes", "--json").row["versions"] == [1, 2]


def test_types_are_told_by_the_name_of_the_file_and_by_option(schema: Shell, tmp_path: Path):
    words = ["schema", "register", "points-value"]
    schema.ok(*words, written(tmp_path / "p.json", {"type": "object"}))
    assert schema.ok("schema", "get", "points-value", "--json").row["schemaType"] == "JSON"
    (tmp_path / "p.proto").write_text('syntax = "proto3"; message P {}')
    schema.ok("schema", "register", "proto-value", str(tmp_path / "p.proto"))
    assert schema.ok("schema", "get", "proto-value", "--json").row["schemaType"] == "PROTOBUF"
    schema.ok("schema", "register", "stdin-value", "-", "--type", "json", given=b'{"type": "string"}')
    assert schema.run("schema", "register", "x", written(tmp_path / "q.json", {"type": "nope"})).code == 1


def test_a_schema_may_need_others(schema: Shell, tmp_path: Path):
    schema.ok("schema", "register", "inner", written(tmp_path / "i.avsc", record("a", name="Inner")))
    outer = written(tmp_path / "o.avsc", {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]})
    schema.ok("schema", "register", "outer", outer, "--reference", "Inner=inner:1")
    refused = schema.run("schema", "delete", "inner")
    assert "(42206)" in refused.err
    assert schema.run("schema", "register", "outer", outer, "--reference", "Inner").code == 2


def test_levels_and_modes_are_set_and_reset(schema: Shell):
    assert schema.ok("schema", "config", "--json").row == {"subject": None, "level": "BACKWARD", "mode": "READWRITE"}
    found = schema.ok("schema", "config", "set-value", "--level", "full", "--mode", "readonly", "--json").row
    assert found == {"subject": "set-value", "level": "FULL", "mode": "READONLY"}
    assert schema.run("schema", "register", "set-value", "-", given=b'"string"').code == 1
    schema.ok("schema", "config", "set-value", "--mode", "readwrite")
    assert schema.ok("schema", "config", "set-value", "--reset", "--json").row["level"] == "BACKWARD"
    assert schema.run("schema", "config", "--reset", "--level", "FULL").code == 2


def test_a_registry_that_is_none_is_said_in_one_line(schema: Shell, monkeypatch: pytest.MonkeyPatch):
    nobody = schema.run("schema", "list", "--registry", "http://127.0.0.1:1")
    assert (nobody.code, nobody.err.count("\n")) == (3, 1)
    assert nobody.err.startswith("error: CONNECTION_LOST: ")
    other = schema.run("schema", "list", "--registry", f"http://{schema.node.http}/health")
    assert (other.code, other.err.count("\n")) == (1, 1)
    wire = schema.run("schema", "list", "--registry", f"http://{schema.node.address}", "--timeout", "5s")
    assert (wire.code, wire.err.count("\n")) == (3, 1)
    assert schema.run("schema", "list", "--registry", "ftp://x").code == 2


def test_a_cache_takes_the_latest_schema_of_a_subject(schema: Shell, tmp_path: Path):
    for names in (("a",), ("a", "b")):
        tree = record("a", optional=names[1:])
        schema.ok("schema", "register", "cached-value", written(tmp_path / "s.avsc", tree))
    schema.ok("cache", "create", "cached", "--format", "avro", "--schema", "cached-value")
    kept = schema.ok("cache", "describe", "cached", "--json").row["schema"]
    assert [field["name"] for field in kept["fields"]] == ["a", "b"]
    none = schema.run("cache", "create", "none", "--format", "avro", "--schema", "no-such-subject")
    assert (none.code, none.err.startswith("error: OPERATION_REFUSED: reading the schema of no-such-subject")) == (1, True)
    file = schema.run("cache", "create", "none", "--format", "avro", "--schema", "missing.avsc")
    assert (file.code, "missing.avsc is no file" in file.err) == (2, True)
    schema.ok("schema", "register", "json-value", written(tmp_path / "s.json", {"type": "object"}), "--type", "json")
    other = schema.run("cache", "create", "none", "--format", "avro", "--schema", "json-value")
    assert (other.code, "takes an Avro schema that" in other.err) == (1, True)
    schema.ok("cache", "create", "json-cached", "--schema", "json-value")
    other = schema.run("cache", "create", "none", "--schema", "cached-value")
    assert (other.code, "takes a JSON Schema that" in other.err) == (1, True)
