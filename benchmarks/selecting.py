"""Reading one event in a hundred of JSON: chosen by the nodes, or by a client that reads all. Run by `processes.in_child`."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import uvloop

from benchmarks.processes import Address, cpu_seconds

CUSTOMERS = 100  # one event in a hundred has a customer's number
REGIONS = 1_000  # one key in a thousand begins with a region
REMOVED_EVERY = 10
CUSTOMER, REGION = 42, "r042/"
_BATCH = 1_000
_TEXT = "a line of text as orders have them, not to be searched by anybody who is in his right mind, or so it is hoped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """What it took to find so many among so many events; `servers_cpu` is what nodes or brokers used."""

    found: int
    events: int
    seconds: float
    client_cpu: float
    servers_cpu: float

    @property
    def ns_per_event(self) -> float:
        """CPU of both sides in nanoseconds an event that was there."""
        return (self.client_cpu + self.servers_cpu) / self.events * 1e9


class Meter:
    """CPU of this process and of others, from here to `selected`."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._servers, self._client, self._began = self._cpu(), time.process_time(), time.monotonic()

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, self._pids))

    def selected(self, *, found: int, events: int) -> Selected:
        """Return what was spent."""
        seconds, client = time.monotonic() - self._began, time.process_time() - self._client
        return Selected(found=found, events=events, seconds=seconds, client_cpu=client, servers_cpu=self._cpu() - self._servers)


def key_of(number: int) -> str:
    """Return the key of an event: its region, spread over all of the log, and a number."""
    return f"r{number * 7_919 % REGIONS:03d}/{number:09d}"


def value_of(number: int) -> bytes:
    """Return some 200 bytes of JSON."""
    return msgspec.json.encode(
        {
            "order": number,
            "customer": number * 31 % CUSTOMERS,
            "total": number % 10_007 / 100,
            "currency": "EUR",
            "text": _TEXT[: 90 + number % 20],
            "paid": number % 3 == 0,
        }
    )


def _is_of_customer(number: int) -> bool:
    return number * 31 % CUSTOMERS == CUSTOMER and number % REMOVED_EVERY != 0


_IN: dict[str, Callable[[int], bool]] = {
    "value": _is_of_customer,
    "promoted": _is_of_customer,
    "key": lambda number: key_of(number).startswith(REGION),
    "kind": lambda number: number % REMOVED_EVERY == 0,
}


def _numbers(events: list[int]) -> Iterator[list[int]]:
    for low in range(0, len(events), _BATCH):
        yield events[low : low + _BATCH]


def write(address: Address, cache: str, *, events: int, promote: str = "", only: str = "") -> int:
    """Write the events in batches of a thousand; every tenth is a removal. `only`: those that a case wants. Return the bytes written."""
    import eventlog

    async def run() -> int:
        nbytes = 0
        async with eventlog.connect(address.text) as client:
            handle = await client.create_cache(cache, format="json", state=False, before=False)
            if promote:
                await client.alter_cache(cache, promote=promote)
            waiting: list[Any] = []
            for numbers in _numbers([number for number in range(events) if not only or _IN[only](number)]):
                keys = [key_of(number).encode() for number in numbers]
                removed = [number % REMOVED_EVERY == 0 for number in numbers]
                values = [b"" if gone else value_of(number) for number, gone in zip(numbers, removed, strict=True)]
                nbytes += sum(map(len, keys)) + sum(map(len, values))
                waiting.append(await handle.send_columns(keys, values, removed=removed))
            await asyncio.gather(*waiting)
        return nbytes

    return uvloop.run(run())


def chosen_by_client(address: Address, cache: str, case: str, *, events: int) -> Selected:
    """Read everything with the client library and drop what is not wanted."""
    import eventlog

    async def run() -> Selected:
        wanted = _WANTED[case]
        async with eventlog.connect(address.text) as client:
            handle = client.cache(cache)
            await handle.info()
            meter = Meter([address.pid])
            found = 0
            async for event in handle.events():
                if wanted(event):
                    found += 1
            return meter.selected(found=found, events=events)

    return uvloop.run(run())


def _by_customer(event: Any) -> bool:
    value = event.value
    return value is not None and value["customer"] == CUSTOMER


_WANTED: dict[str, Callable[[Any], bool]] = {
    "value": _by_customer,
    "promoted": _by_customer,
    "key": lambda event: event.key.startswith(REGION),
    "kind": lambda event: event.kind == "REMOVED",
}
_WHERE = {
    "value": f"value.customer = {CUSTOMER}",
    "promoted": f"value.customer = {CUSTOMER}",
    "key": f"key LIKE '{REGION}%'",
    "kind": "kind = 'REMOVED'",
}


def where_of(case: str, *, again: int = 0) -> str:
    """Return the predicate of a case; asked `again` it is spelled in another way, so that the node has not kept the answers."""
    return _WHERE[case] + " " * again


def chosen_by_nodes(address: Address, cache: str, where: str, *, events: int) -> Selected:
    """Have the node choose; its parser of predicates has been loaded before."""
    import eventlog

    async def run() -> Selected:
        async with eventlog.connect(address.text) as client:
            handle = client.cache(cache)
            await handle.info()
            await handle.poll(position=None, after="latest", where=where)
            meter = Meter([address.pid])
            found = 0
            async for _event in handle.events(where=where):
                found += 1
            return meter.selected(found=found, events=events)

    return uvloop.run(run())


def all_events(address: Address, cache: str, *, events: int) -> Selected:
    """Read a cache that holds nothing but what is wanted among so many events."""
    import eventlog

    async def run() -> Selected:
        async with eventlog.connect(address.text) as client:
            handle = client.cache(cache)
            await handle.info()
            meter = Meter([address.pid])
            found = 0
            async for _event in handle.events():
                found += 1
            return meter.selected(found=found, events=events)

    return uvloop.run(run())


def removals_as_columns(address: Address, cache: str, *, where: str = "", events: int) -> Selected:
    """Count the removals as columns: chosen by the node, or without `where` among all."""
    import eventlog

    async def run() -> Selected:
        async with eventlog.connect(address.text) as client:
            handle = client.cache(cache)
            await handle.info()
            meter = Meter([address.pid])
            found = 0
            async for batch in handle.event_batches(where=where or None):
                found += int((batch.kinds == eventlog.Kind.REMOVED).sum())
            return meter.selected(found=found, events=events)

    return uvloop.run(run())


def decode_field(events: int) -> float:
    """Return the nanoseconds that msgspec takes for the one field of a value."""
    kind: Any = msgspec.defstruct("Order", [("customer", int | None, None)])
    decode = msgspec.json.Decoder(kind).decode
    values = [value_of(number) for number in range(events)]
    began = time.process_time()
    found = sum(decode(value).customer == CUSTOMER for value in values)
    spent = time.process_time() - began
    assert found, "some match"
    return spent / events * 1e9


def kafka_write(addresses: str, topic: str, *, events: int) -> None:
    """Produce the same events with aiokafka; a removal has no value."""
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=addresses, max_batch_size=128 * 1024)
        await producer.start()
        batch = producer.create_batch()
        for number in range(events):
            key, value = key_of(number).encode(), None if number % REMOVED_EVERY == 0 else value_of(number)
            if batch.append(key=key, value=value, timestamp=None) is None:
                await producer.send_batch(batch, topic, partition=number % 3)
                batch = producer.create_batch()
                batch.append(key=key, value=value, timestamp=None)
        await producer.send_batch(batch, topic, partition=0)
        await producer.stop()

    asyncio.run(run())


def kafka_read(addresses: str, topic: str, case: str, *, pids: list[int], events: int) -> Selected:
    """Read the topic with aiokafka and drop what is not wanted."""
    from aiokafka import AIOKafkaConsumer

    async def run() -> Selected:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=addresses, auto_offset_reset="earliest", enable_auto_commit=False)
        await consumer.start()
        decode, wanted, region = msgspec.json.Decoder().decode, case, REGION.encode()
        meter = Meter(pids)
        found = seen = 0
        while seen < events:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                seen += len(records)
                if wanted == "key":
                    found += sum(record.key.startswith(region) for record in records)
                elif wanted == "kind":
                    found += sum(record.value is None for record in records)
                else:
                    found += sum(record.value is not None and decode(record.value)["customer"] == CUSTOMER for record in records)
        selected = meter.selected(found=found, events=events)
        await consumer.stop()
        return selected

    return asyncio.run(run())
