"""Caches that take only what their schema takes: every way to write, through clients, HTTP and the command line, against real nodes."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eventlog
from eventlog import blocking
from eventlog.batch.one import build_one
from eventlog.errors import BadValue, CacheDiffers, InvalidArgument, PartlyWritten, TooLarge
from eventlog.events import Kind
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import CHECKED_SCHEMA_BYTES_MAX
from eventlog.transport.connect import connect
from eventlog.wire.eventlog_pb2 import Message, Write
from tests.process.cli_ends import Shell, running_node
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.one_node import SEGMENTS, using

ORDER = json.dumps({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}, "additionalProperties": False})
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
GOOD, BAD = {"id": 1}, {"id": "x"}
SAID = "value.id is a string, not an integer"


def refused(error: BadValue, key: str = "k") -> bool:
    return (error.key, error.why) == (key, SAID)


def test_every_way_to_write_is_checked_and_leaves_nothing(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("ways", format="json", schema=ORDER, validate=True)
        info = await client.describe_cache("ways")
        assert (info.validate, info.schema) == (True, ORDER)
        stored = await cache.put("k", GOOD)
        table = pa.table({"key": ["a", "k"], "value": [json.dumps(GOOD), json.dumps(BAD)]})
        for write in (
            lambda: cache.put("k", BAD),
            lambda: cache.put("k", BAD, if_version=stored.id),
            lambda: cache.replace("k", BAD, if_version=stored.id),
            lambda: cache.put("k", BAD, previous=True),
            lambda: cache.put_many([("a", GOOD), ("k", BAD)]),
            lambda: cache.put_arrow(table),
        ):
            with pytest.raises(BadValue) as caught:
                await write()
            assert refused(caught.value)
        with pytest.raises(BadValue) as caught:
            await cache.put("new", BAD, if_absent=True)
        assert refused(caught.value, "new")
        assert (await cache.log_ends()).events == 1
        assert (await cache.put_many([("a", GOOD), ("k", {"id": 2}), ("a", eventlog.REMOVE)])).kinds

    using(node, test)


def test_what_is_refused_ends_nothing_of_what_is_written_around_it(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("around", format="json", schema=ORDER, validate=True)
        found = await asyncio.gather(
            *(cache.put(f"{number}", BAD if number % 10 == 3 else {"id": number}) for number in range(500)), return_exceptions=True
        )
        assert [isinstance(one, BadValue) for one in found] == [number % 10 == 3 for number in range(500)]
        assert await cache.size() == 450
        many = [(f"{number}", {"id": number}) for number in range(40_000)] + [("odd", BAD)]
        with pytest.raises((BadValue, PartlyWritten)) as caught:
            await cache.put_many(many)
        assert SAID in str(caught.value)
        if isinstance(caught.value, PartlyWritten):
            assert 40_000 in caught.value.none

    using(node, test)


def test_a_batch_that_is_laid_ready_is_checked_then_and_appears_whatever_the_schema_has_become(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("staged", format="json", schema=ORDER, validate=True)
        with pytest.raises(BadValue) as caught:
            await cache.stage().put_many([("k", BAD)])
        assert refused(caught.value)
        good = cache.stage()
        await good.put_many([("k", GOOD)])
        await client.alter_cache("staged", schema='{"type": "string"}')
        await cache.publish("t", 1, [good.staged()])
        assert (await cache.get("k")).value == GOOD

    using(node, test)


def test_avro_that_somebody_encodes_on_his_own_is_checked(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("avro", format="avro", schema=AVRO, validate=True)
        await cache.put("k", GOOD)
        body = build_one(b"k", b"\x02\x02", kind=Kind.CREATED, segment=segment_of(hash_key(b"k"), SEGMENTS))
        host, port = node.address.rsplit(":", 1)
        connection = await connect(host, int(port))
        try:
            with pytest.raises(BadValue, match="value is followed by 1 bytes that are not of the schema"):
                await connection.request(Message(write=Write(cache_id=(await cache.info()).id, blocks=1)), body)
        finally:
            connection.close()
            await connection.wait_closed()
        assert (await cache.get("k")).value == GOOD

    using(node, test)


def test_options_are_checked_told_and_altered(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("options", format="json", schema=ORDER)
        await cache.put("k", BAD)
        assert (await client.alter_cache("options", validate=True)).validate
        with pytest.raises(BadValue):
            await cache.put("k", BAD)
        assert (await cache.get("k")).value == BAD, "what is there stays"
        await client.alter_cache("options", schema='{"type": "string"}')
        await cache.put("k", "text")
        assert not (await client.alter_cache("options", validate=False)).validate
        await cache.put("k", 5)
        with pytest.raises(InvalidArgument, match="give one"):
            await client.create_cache("without", validate=True)
        with pytest.raises(CacheDiffers, match="validate false, not true"):
            await client.create_cache("options", validate=True, if_exists="use", schema='{"type": "string"}')
        with pytest.raises(TooLarge, match="that values are checked by"):
            await client.create_cache("large", schema=json.dumps({"title": "x" * CHECKED_SCHEMA_BYTES_MAX}), validate=True)

    using(node, test)


def test_http_makes_such_a_cache_and_says_what_does_not_fit(node: NodeProcess) -> None:
    def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
        with closing(HTTPConnection(node.http, timeout=30)) as connection:
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    status, cache = ask("POST", "/v1/caches", {"name": "posted", "schema": ORDER, "validate": True})
    assert (status, cache["validate"], cache["schema"]) == (201, True, ORDER)
    assert ask("PUT", "/v1/caches/posted/entries/k", GOOD)[0] in {200, 201}
    status, told = ask("PUT", "/v1/caches/posted/entries/k", BAD)
    assert (status, told["error"]) == (400, "BAD_VALUE")
    assert SAID in told["message"]


def test_whoever_leads_checks_also_after_kills(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        with blocking.connect(*cluster.addresses) as client:
            client.create_cache("c", format="json", schema=ORDER, validate=True)
        for address in cluster.addresses:
            with blocking.connect(address, routing="any") as client:  # most of it is another node's to write
                check_refused(client)
        cluster.nodes[0].kill()
        with blocking.connect(*cluster.addresses[1:]) as client:
            check_refused(client)
        cluster.nodes[0].start()
        with blocking.connect(cluster.addresses[0], routing="any") as client:
            check_refused(client)


def check_refused(client: blocking.Client) -> None:
    cache = client.cache("c")
    cache.put_many([(f"{number}", GOOD) for number in range(100)])
    for number in range(20):
        with pytest.raises(BadValue):
            cache.put(f"{number}", BAD)
    assert [entry.value for entry in cache.get_many([f"{number}" for number in range(100)])] == [GOOD] * 100


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node")) as found:
        yield found


def test_the_command_line_makes_shows_and_alters_such_a_cache(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(ORDER)
    row = shell.ok("cache", "create", "c", "--schema", str(file), "--validate", "--json").row
    assert (row["validate"], row["schema"]) == (True, json.loads(ORDER))
    told = shell.run("put", "c", "k", json.dumps(BAD))
    assert (told.code, told.err) == (1, f"error: BAD_VALUE: value of key 'k': {SAID}\n")
    assert "values         checked by the schema" in shell.ok("cache", "describe", "c").out
    assert "values         not checked" in shell.ok("cache", "alter", "c", "--no-validate").out
    shell.ok("put", "c", "k", json.dumps(BAD))


def test_a_subject_of_the_registry_is_the_schema_of_a_json_cache(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTLOG_REGISTRY", f"http://{shell.node.http}")
    file = tmp_path / "order.json"
    file.write_text(ORDER)
    shell.ok("schema", "register", "orders-value", str(file), "--type", "json")
    shell.ok("cache", "create", "of-subject", "--schema", "orders-value", "--validate")
    assert shell.run("put", "of-subject", "k", json.dumps(BAD)).code == 1
    proto = tmp_path / "order.proto"
    proto.write_text('syntax = "proto3"; message Order { int64 id = 1; }')
    shell.ok("schema", "register", "proto-value", str(proto), "--type", "protobuf")
    told = shell.run("cache", "create", "of-proto", "--schema", "proto-value")
    assert (told.code, "takes a JSON Schema that" in told.err) == (1, True)


def test_a_row_that_does_not_fit_is_reported_with_its_line_and_the_others_are_written(shell: Shell, tmp_path: Path) -> None:
    schema = tmp_path / "row.json"
    schema.write_text('{"properties": {"n": {"type": "integer"}}}')
    shell.ok("cache", "create", "rows", "--schema", str(schema), "--validate")
    rows = [{"id": f"{number}", "n": number if number != 50 else "x"} for number in range(100)]
    jsonl, table = tmp_path / "rows.jsonl", tmp_path / "rows.csv"
    jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "line 51: value.n is a string, not an integer"
    told = shell.run("load", "rows", str(jsonl), "--key", "id", "--txn", "t")
    assert (told.code, said in told.err, shell.ok("size", "rows").out) == (1, True, "0\n")
    loaded = shell.ok("load", "rows", str(jsonl), "--key", "id", "--max-errors", "1", "--json")
    assert (loaded.row["loaded"], loaded.row["rejected"], said in loaded.err) == (99, 1, True)
    table.write_text("id,n\na,1\n")  # in csv everything is text
    assert "line 2: value.n is a string, not an integer" in shell.run("load", "rows", str(table), "--key", "id").err
    told = shell.run("load", "rows", "-", "--key-separator", "=", given=b'a={"n": 1}\nb={"n": "x"}\n')
    assert (told.code, "line 2: value.n is a string" in told.err) == (1, True)
    assert shell.ok("get", "rows", "a").out == '{"n": 1}'
