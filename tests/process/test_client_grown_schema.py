"""An Avro cache whose schema has grown: who has heard of it and who has not read each other's values, wherever values are answered."""

import json
from typing import Any

import pytest

import eventlog
from eventlog.client.client import connect
from eventlog.errors import BadPredicate, BadValue, InvalidArgument
from tests.process.nodes import NodeProcess
from tests.process.one_node import using

ID = {"name": "id", "type": "long"}
PAID = {"name": "paid", "type": "boolean", "default": True}
TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]}


def order(*more: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [ID, *more]})


NEW = {"id": 2, "paid": False, "tags": ["a"]}


async def values(cache: eventlog.Cache) -> list[Any]:
    return [one.value async for one in cache.events(from_id="earliest")]


async def got(cache: eventlog.Cache | eventlog.NearCache, *keys: str) -> list[Any]:
    found = [entry and entry.value for entry in await cache.get_many(keys)]
    assert found == [entry and entry.value for entry in [await cache.get(key) for key in keys]]
    return found


async def entries(cache: eventlog.Cache, **options: Any) -> dict[Any, Any]:
    return {key: entry.value async for key, entry in cache.entries(**options)}


async def grown(client: eventlog.Client, name: str) -> eventlog.Cache:
    """Return a cache as it was looked up before its schema grew; it holds an old value under `old`, and an old one replaced under `new`."""
    cache = await client.create_cache(name, format="avro", schema=order())
    await cache.put_many([("old", {"id": 1}), ("new", {"id": 9})])
    await client.alter_cache(name, schema=order(PAID, TAGS))
    return cache


def test_old_values_have_the_defaults_of_new_fields_wherever_they_are_read(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        await grown(client, "wherever")
        async with connect(node.address) as other:
            cache = await other.cache("wherever")
            old, replaced = ({"id": number, "paid": True, "tags": ["none"]} for number in (1, 9))
            stored = await cache.put("new", NEW, previous=True)
            assert stored.previous == replaced
            assert await got(cache, "old", "new") == [old, NEW]
            assert await entries(cache) == {"old": old, "new": NEW}
            events = [one async for one in cache.events(from_id="earliest")]
            assert [(one.key, one.value, one.before) for one in events] == [
                ("old", old, None),
                ("new", replaced, None),
                ("new", NEW, replaced),
            ]
            table = await cache.scan().to_arrow()
            assert sorted(table["value"].to_pylist(), key=lambda value: value["id"]) == [old, NEW]
            for where, keys in (("value.paid", {"old"}), ("NOT value.paid", {"new"}), ("value.tags[0] = 'none'", {"old"})):
                assert set(await entries(cache, where=where)) == keys, where
            chosen = await entries(cache, where="key = 'old'", select=["value.paid", "value.tags"])
            assert chosen == {"old": {"paid": True, "tags": ["none"]}}
            async with cache.near(max_entries=10) as near:
                assert await got(near, "old", "new") == [old, NEW]

    using(node, test)


def test_who_has_looked_the_cache_up_before_reads_what_it_knows_of(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await grown(client, "before")
        async with cache.near(max_entries=10) as near, connect(node.address) as other:
            await (await other.cache("before")).put("new", NEW)
            assert await got(cache, "new") == [{"id": 2}]
            assert await got(near, "new") == [{"id": 2}]
            assert await values(cache) == [{"id": 1}, {"id": 9}, {"id": 2}]
            assert list(await entries(cache, where="NOT value.paid")) == ["new"]
            await cache.put("old", {"id": 3})
            assert await got(await other.cache("before"), "old") == [{"id": 3, "paid": True, "tags": ["none"]}]
            with pytest.raises(BadValue, match="paid"):
                await cache.put("old", NEW)

    using(node, test)


def test_what_else_a_schema_may_become_is_refused_with_why(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        await grown(client, "refused")
        for schema, why in (
            (order(PAID), "the fields id, paid, tags stay"),
            (order(PAID | {"default": False}, TAGS), "the default of paid stays"),
            (order(PAID, TAGS, {"name": "tax", "type": "int"}), "the new field tax has no default"),
        ):
            with pytest.raises(InvalidArgument, match=why):
                await client.alter_cache("refused", schema=schema)
        assert (await client.describe_cache("refused")).schema == order(PAID, TAGS)
        assert await client.create_cache("refused", format="avro", schema=order(), if_exists="use")

    using(node, test)


def test_values_are_checked_by_the_schema_of_now(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("checked", format="avro", schema=order(), validate=True)
        await cache.put("a", b"\x02")
        with pytest.raises(BadPredicate, match="no field 'paid'"):
            await entries(cache, where="value.paid")
        await client.alter_cache("checked", schema=order(PAID))
        async with connect(node.address) as other:
            newer = await other.cache("checked")
            for key, value in (("short", b"\x04"), ("whole", b"\x04\x00")):
                await newer.put(key, value)
            with pytest.raises(BadValue):
                await newer.put("cut", b"\x80")
            assert await got(newer, "short", "whole") == [{"id": 2, "paid": True}, {"id": 2, "paid": False}]

    using(node, test)


def test_a_grown_schema_is_there_after_kill_9(tmp_path: Any) -> None:
    async def before(client: eventlog.Client) -> None:
        await grown(client, "kept")
        async with connect(node.address) as other:
            await (await other.cache("kept")).put("new", NEW)

    async def after(client: eventlog.Client) -> None:
        cache = await client.cache("kept")
        assert (await cache.info()).schema == order(PAID, TAGS)
        assert list(await entries(cache, where="value.paid")) == ["old"]
        assert await values(cache) == [
            {"id": 1, "paid": True, "tags": ["none"]},
            {"id": 9, "paid": True, "tags": ["none"]},
            NEW,
        ]

    with NodeProcess(tmp_path, "--segments", "4") as node:
        using(node, before)
        node.kill()
        with NodeProcess(tmp_path, "--segments", "4") as again:
            using(again, after)
