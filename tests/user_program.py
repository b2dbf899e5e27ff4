"""A program of a user: what type checkers know of the client. Checked by mypy in the lane of types, run by `test_user_program`.

Each `type: ignore` is a mistake that has to be found: one that is found no more is an error, too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, assert_type

import eventlog
import eventlog.blocking
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.iterating import EntryBatch

if TYPE_CHECKING:
    import pyarrow as pa


async def use(address: str) -> None:
    """Use the asynchronous client."""
    async with eventlog.connect(address, timeout_ms=30_000, routing="direct", name="user") as client:
        cache = await client.create_cache("asynchronous", format="json", before=True, if_exists="use")
        stored = await cache.put("a", {"n": 1}, if_absent=True)
        assert_type(stored, eventlog.Stored)
        assert_type(stored.id, int)
        assert_type(await cache.replace("a", {"n": 2}, if_version=stored.id), eventlog.Stored)
        assert_type((await cache.remove("b")).id, int | None)
        assert_type(await cache.get("a", at=stored.id), eventlog.Entry | None)
        async for event in cache.events(stored.id - 1, until_id=stored.id, where="value.n > 0"):
            assert_type(event, eventlog.Event)
        async for batch in cache.event_batches(order="segment"):
            assert_type(batch, EventBatch)
            columns: pa.RecordBatch = batch.arrow(columns=["id", "key"])
            assert columns.num_columns == 2
        async for key, entry in cache.entries("a", at=stored.id):
            assert_type(key, str | bytes)
            assert_type(entry, eventlog.Entry)
        table: pa.Table = await cache.scan(columns=["key"]).to_arrow()
        assert table.column_names == ["key"]
        async with cache.consumer("readers", auto_commit=False, from_id="earliest") as consumer:
            async for event in consumer:
                assert_type(event, eventlog.Event)
                break
            assert_type(await consumer.commit(), None)
            assert_type(consumer.assignment, frozenset[int])
        async with cache.consumer("workers", mode="work", prefetch=1) as workers:
            async for task in workers:
                assert_type(task.event, eventlog.Event)
                await task.ack()
                break


def use_blocking(address: str) -> None:
    """Use the synchronous client."""
    with eventlog.blocking.connect(address, timeout_ms=30_000, idempotent=True) as client:
        assert_type(client, eventlog.blocking.Client)
        cache = client.create_cache("synchronous", format="json", before=True, if_exists="use")
        assert_type(cache, eventlog.blocking.Cache)
        stored = cache.put("a", {"n": 1})
        assert_type(stored.id, int)
        assert_type(cache.remove("b", previous=True), eventlog.Removed)
        assert_type(cache.put_many({"c": {"n": 2}}).last_id, int | None)
        for event in cache.events(stored.id - 1, until_id=stored.id):
            assert_type(event, eventlog.Event)
        for batch in cache.event_batches(max_bytes=1 << 16):
            assert_type(batch, EventBatch)
            columns: pa.RecordBatch = batch.arrow(include=())
            assert columns.num_rows == len(batch)
        for _, entry in cache.entries(limit=1):
            assert_type(entry, eventlog.Entry)
        with cache.entries(where="value.n > 0") as rows:
            assert_type(rows.batches(), Iterator[EntryBatch])
        schema: pa.Schema = cache.scan(value_schema="infer").schema
        assert "value" in schema.names
        with cache.consumer("readers", auto_commit=False, from_id="earliest") as consumer:
            assert_type(consumer, eventlog.blocking.Consumer)
            for event in consumer:
                assert_type(event, eventlog.Event)
                break
            for batch in consumer.batches(until_id=cache.log_ends().last_id):
                assert_type(batch, EventBatch)
            assert_type(consumer.commit(metadata="so far"), None)
            assert_type(consumer.member_id, str)
            assert_type(consumer.generation, int)
            assert_type(consumer.assignment, frozenset[int])
            assert_type(consumer.position, str | None)
        with cache.consumer("workers", mode="work", max_deliveries=3) as workers:
            assert_type(workers, eventlog.blocking.WorkConsumer)
            for task in workers:
                assert_type(task, eventlog.blocking.Task)
                assert_type(task.deliveries, int)
                assert_type(task.retry(after_ms=0, reason="again"), None)
                break


def mistakes(client: eventlog.blocking.Client, cache: eventlog.blocking.Cache, waiting: eventlog.Cache) -> Iterator[Any]:
    """Make mistakes that are found before the program runs."""
    yield eventlog.connect("n1", timeout=5)  # type: ignore[call-arg]
    yield eventlog.connect("n1", timeout_ms="5")  # type: ignore[arg-type]
    yield eventlog.blocking.connect("n1", routing="nearest")  # type: ignore[arg-type]
    yield client.create_cache("c", befor=True)  # type: ignore[call-arg]
    yield cache.entries(prefix="a", att=5)  # type: ignore[call-arg]
    yield cache.scan(where=5)  # type: ignore[arg-type]
    yield cache.events(from_time="yesterday")  # type: ignore[arg-type]
    yield cache.consumer("g", prefetch=1)  # type: ignore[call-overload]
    yield cache.consumer("g", mode="work", auto_commit=True)  # type: ignore[call-overload]
    yield waiting.consumer("g", on_trimmed="resync-please")  # type: ignore[call-overload]
    yield cache.consumer("g").comit()  # type: ignore[attr-defined]
    yield cache.remove("k").id + 1  # type: ignore[operator]
