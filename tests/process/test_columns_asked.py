"""Columns that are not asked for stay at the node: what comes is the same in those that are, and of the others there are no bytes."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import eventlog
from eventlog import blocking
from eventlog.errors import InvalidArgument
from tests.process.nodes import NodeProcess
from tests.process.roads import Roads

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
EVENTS = 2_000
KEYED, VALUED, IMAGED, HEADED = "keyed", "valued", "imaged", "headed"
CONTENT = {"key": KEYED, "value": VALUED, "before": IMAGED, "headers": HEADED}
SIZE = 200
FILTERS: list[dict[str, Any]] = [{}, {"where": "segment >= 0"}, {"where": "value.n >= 0 OR kind = 'REMOVED'"}, {"segments": range(16)}]


def noise(name: str, number: int) -> str:
    """Return text that no compression makes small, and that says what it is of."""
    return f"{name}-{random.Random(f'{name}{number}').randbytes(SIZE // 2).hex()}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--segments", "16") as running, blocking.connect(running.address) as client:
        cache = client.create_cache("wide", before=True)
        for name in (IMAGED, VALUED):
            rows = {noise(KEYED, number): {"n": number, "text": noise(name, number)} for number in range(EVENTS // 2)}
            cache.put_many(list(rows.items()))
        for number in range(0, EVENTS // 2, 50):
            cache.put(noise(KEYED, number), {"n": number, "text": noise(VALUED, number)}, headers={"h": noise(HEADED, number).encode()})
            cache.remove(noise(KEYED, number + 1))
        yield running


@pytest.fixture
def road(node: NodeProcess) -> Iterator[Roads]:
    with Roads([node.address]) as roads:
        yield roads


def table_of(batches: Any) -> pa.Table:
    return pa.Table.from_batches([batch.arrow() for batch in batches if len(batch)])


def read(road: Roads, **options: Any) -> tuple[pa.Table, int]:
    """Return what is read as a table, and how many bytes came for it."""
    with blocking.connect(road.addresses[0], routing="any") as client:
        cache = client.cache("wide")
        cache.info()
        before = road.passed()
        found = table_of(cache.event_batches(**options))
        return found, road.passed() - before


@pytest.mark.parametrize("filtered", FILTERS, ids=str)
@pytest.mark.parametrize(
    "columns", [("id",), ("id", "key"), ("value", "id"), ("kind", "before", "offset"), ("headers",), ("key", "value", "before", "headers")]
)
def test_events_have_what_was_asked_for_and_nothing_else_comes(road: Roads, columns: tuple[str, ...], filtered: dict[str, Any]) -> None:
    whole, all_bytes = read(road, **filtered)
    assert len(whole) > EVENTS
    found, came = read(road, columns=columns, **filtered)
    assert found.schema.names == list(columns)
    assert found == whole.select(columns)
    content = sum(whole.column(name).nbytes for name in CONTENT if name not in columns)
    assert all_bytes - came >= content * 0.9
    named = sum(whole.column(name).nbytes for name in CONTENT if name in columns)
    assert came < named + 40 * len(whole)


@pytest.mark.parametrize("filtered", FILTERS[:2], ids=str)
@pytest.mark.parametrize("columns", [("id",), ("id", "key", "time"), ("value",)])
def test_entries_have_what_was_asked_for_and_nothing_else_comes(road: Roads, columns: tuple[str, ...], filtered: dict[str, Any]) -> None:
    def entries(client: blocking.Client, **options: Any) -> tuple[pa.Table, int]:
        before = road.passed()
        with client.cache("wide").entries(**filtered, **options) as rows:
            return table_of(rows.batches()), road.passed() - before

    with blocking.connect(road.addresses[0], routing="any") as client:
        client.cache("wide").info()
        whole, all_bytes = entries(client)
        found, came = entries(client, columns=columns)
    assert found == whole.select(columns)
    content = sum(whole.column(name).nbytes for name in ("key", "value") if name not in columns)
    assert all_bytes - came >= content * 0.9


def test_the_asynchronous_client_and_scans_ask_for_as_little(road: Roads) -> None:
    async def scan() -> tuple[pa.Table, int]:
        async with eventlog.connect(road.addresses[0], routing="any") as client:
            cache = client.cache("wide")
            await cache.info()
            before = road.passed()
            return await cache.scan_events(columns=["key", "id"]).to_arrow(), road.passed() - before

    whole, all_bytes = read(road, columns=("key", "id"))
    found, came = asyncio.run(scan())
    assert found == whole
    assert abs(came - all_bytes) < 10_000


def test_what_was_not_asked_for_is_refused(node: NodeProcess) -> None:
    with blocking.connect(node.address) as client:
        cache = client.cache("wide")
        batch = next(cache.event_batches(columns=("id", "key")))
        assert len(batch.ids) == len(batch.keys.to_list()) == len(batch)
        for name in ("values", "before", "headers"):
            with pytest.raises(InvalidArgument, match="was not asked for: these are id, key"):
                getattr(batch, name)
        with pytest.raises(InvalidArgument, match="column 'value' was not asked for"):
            list(batch.events())
        with pytest.raises(InvalidArgument, match="choose of id, key"):
            batch.arrow(columns=["value"])
        pairs = next(cache.event_batches(columns=("key", "value")))
        assert [event.before_bytes for event in pairs.events()] == [None] * len(pairs)
        with cache.entries(columns=("id", "value")) as rows, pytest.raises(InvalidArgument, match="column 'key' was not asked for"):
            list(rows)
        for wrong, why in ((("no",), "choose of"), ((), "is empty"), (("id", "id"), "twice"), ("id", "is the text")):
            with pytest.raises(InvalidArgument, match=why):
                cache.event_batches(columns=wrong)
            with pytest.raises(InvalidArgument, match=why):
                cache.entries(columns=wrong)


def test_a_read_that_begins_with_the_state_shows_the_same(node: NodeProcess) -> None:
    with blocking.connect(node.address) as client:
        cache = client.cache("wide")
        whole = table_of(cache.event_batches(state_first=True))
        found = table_of(cache.event_batches(state_first=True, columns=("id", "kind")))
        assert found == whole.select(("id", "kind"))
        assert set(found.column("kind").to_pylist()) == {"STATE"}


def test_one_column_of_values_that_do_not_fit_is_told_with_their_key(node: NodeProcess) -> None:
    with blocking.connect(node.address) as client, pytest.raises(eventlog.errors.BadValue, match=f"of key '{KEYED}-"):
        client.cache("wide").scan_events(columns=["value"], value_schema=pa.struct([("n", pa.int64())])).to_arrow()
