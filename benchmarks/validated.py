"""What it costs a node to check values by their cache's schema: its CPU for an event, beside that of a cache that takes any value.

An order of six fields, as a JSON Schema and as an Avro schema say it. The two caches are written to by turns, and the middle round counts.
The check by itself stands beside a full decode of the same bytes by the library that readers use.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Literal

import msgspec

from benchmarks.figures import Row, Scale, against, bounded
from benchmarks.processes import Address, Node, cpu_seconds, in_child, scratch
from eventlog.client.avro import AvroFormat
from eventlog.limits import CHECK_LOOP_STEPS_MAX
from eventlog.schema.avro_check import AvroCheck
from eventlog.schema.json_check import JsonCheck
from eventlog.schema.meter import Meter, OutOfSteps, steps_of

EVENTS = 200_000
PUTS = 20_000
BATCH = 1_000
PUTS_AT_ONCE = 64
ROUNDS = 5
CHECKS = 200_000
ON_LOOP_MS_AT_MOST = 1.0
ORDER = {"id": 48_151, "total": 16.23, "customer": "customer-42", "tags": ["new", "gift"], "state": "paid", "note": None}
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "required": ["id", "total", "customer"],
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "total": {"type": "number", "minimum": 0},
            "customer": {"type": "string", "maxLength": 100},
            "tags": {"type": "array", "items": {"type": "string"}},
            "state": {"enum": ["new", "paid", "sent"]},
            "note": {"type": ["string", "null"]},
        },
        "additionalProperties": False,
    }
)
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "total", "type": "double"},
            {"name": "customer", "type": "string"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["new", "paid", "sent"]}},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
Format = Literal["json", "avro"]
SCHEMAS: dict[Format, str] = {"json": JSON_SCHEMA, "avro": AVRO_SCHEMA}


def run(scale: Scale) -> Iterator[Row]:
    """Yield rows for the check by itself, and for what a node does with it."""
    yield from _alone(scale)
    for kind in SCHEMAS:
        for name, write, events in (
            (f"{kind}, batches of {BATCH:,}", _write_batches, scale.of(EVENTS)),
            (f"{kind}, single puts, {PUTS_AT_ONCE} at once", _write_singly, scale.of(PUTS)),
        ):
            with scratch() as directory, Node(directory / "data") as node:
                found = in_child(_by_turns, node.address, write, kind=kind, events=events, rounds=scale.of(ROUNDS, quick=1))
            yield against(name, ours=found[True], bare=found[False], unit="us CPU/event", at_most=None)


def _alone(scale: Scale) -> Iterator[Row]:
    form, times = AvroFormat(AVRO_SCHEMA), scale.of(CHECKS)
    text, data = msgspec.json.encode(ORDER), form.encode(ORDER)
    for name, check, value, decode in (
        ("json, the check alone", JsonCheck(JSON_SCHEMA).check, text, msgspec.json.Decoder().decode),
        ("avro, the check alone", AvroCheck(AVRO_SCHEMA).check, data, form.decode),
    ):
        checks = _us(lambda check=check, value=value: check(value, Meter(steps_of(value))), times)  # type: ignore[misc]
        decodes = _us(lambda decode=decode, value=value: decode(value), times)  # type: ignore[misc]
        yield against(name, ours=checks, bare=decodes, unit="us", at_most=None)
    many = b"[" + b",".join([text] * 1_000) + b"]"
    longest = JsonCheck(json.dumps({"items": json.loads(JSON_SCHEMA)})).check
    yield bounded("the most that the loop does of a frame", value=_ms_of_loop(longest, many), unit="ms", at_most=ON_LOOP_MS_AT_MOST)


def _us(call: Callable[[], object], times: int) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times // ROUNDS):
            call()
        rounds.append((time.perf_counter() - began) / (times // ROUNDS))
    return median(rounds) * 1e6


def _ms_of_loop(check: Callable[[bytes, Meter], None], value: bytes) -> float:
    """Return how long a check takes that is ended by the steps of the loop."""
    rounds = []
    for _ in range(100):
        began = time.perf_counter()
        try:
            check(value, Meter(CHECK_LOOP_STEPS_MAX + 2 + len(value) // 32))
        except OutOfSteps:
            rounds.append(time.perf_counter() - began)
    return median(rounds) * 1e3


def _by_turns(address: Address, write: Callable[[Any, int], Any], *, kind: Format, events: int, rounds: int) -> dict[bool, float]:
    """Return the node's CPU for an event in microseconds, without and with the check."""
    import eventlog

    async def run() -> dict[bool, float]:
        found: dict[bool, list[float]] = {False: [], True: []}
        async with eventlog.connect(address.text) as client:
            caches = {
                is_checked: await client.create_cache(
                    f"checked-{is_checked}".lower(), format=kind, schema=SCHEMAS[kind], validate=is_checked, state=False
                )
                for is_checked in found
            }
            for cache in caches.values():
                await write(cache, BATCH)
            for _ in range(rounds):
                for is_checked, cache in caches.items():
                    before = cpu_seconds(address.pid)
                    await write(cache, events)
                    found[is_checked].append((cpu_seconds(address.pid) - before) / events * 1e6)
        return {is_checked: median(costs) for is_checked, costs in found.items()}

    return asyncio.run(run())


async def _write_batches(cache: Any, events: int) -> None:
    for low in range(0, events, BATCH):
        await cache.put_many([(f"{low + number}", ORDER) for number in range(BATCH)])


async def _write_singly(cache: Any, events: int) -> None:
    async def writer(number: int) -> None:
        for turn in range(events // PUTS_AT_ONCE):
            await cache.put(f"{number}-{turn}", ORDER)

    await asyncio.gather(*map(writer, range(PUTS_AT_ONCE)))
