"""What a client pays to make JSON and Avro of values, beside what its libraries take for the same without a look at what is in them.

python -m benchmarks.encoding
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro
import msgspec

from eventlog.client.formats import CacheFormat
from eventlog.client.values import CacheInfo

VALUES = 1_000
ROUNDS = 60
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
Encode = Callable[[list[Any]], object]


def flat(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "total": number * 2.5, "tags": ["x", "y"], "ok": True}


def with_null(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "total": number * 2.5, "note": None}


def texts_with_null(number: int) -> dict[str, Any]:
    return {"id": f"{number}", "name": f"name {number}", "city": "Köln", "note": None}


def with_time(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "at": datetime(2026, 1, 1, 12, 0, number % 60, tzinfo=UTC)}


def nested(number: int) -> dict[str, Any]:
    items = [{"sku": f"s{index}", "quantity": index, "price": index * 1.5} for index in range(8)]
    return {"order": number, "customer": {"name": "Bob", "city": "X", "id": 7}, "items": items, "paid": True}


def record(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "total": number * 2.5, "tags": ["x", "y"], "note": None}


def form(**options: Any) -> CacheFormat:
    given: dict[str, Any] = dict.fromkeys(("retain_time_ms", "retain_bytes", "retain_events", "lifespan_ms"))
    flags: dict[str, Any] = {"events": True, "state": True, "before": True, "route_by_prefix": False}
    return CacheFormat(CacheInfo(name="c", id=1, key_format="utf8", from_id=0, **given, **flags, **options))


def fastest_ns(ways: dict[str, Encode], values: list[Any]) -> dict[str, float]:
    """Return nanoseconds a value of each way, the best of rounds that take turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, encode in ways.items():
            began = time.perf_counter_ns()
            encode(values)
            best[name] = min(best[name], (time.perf_counter_ns() - began) / len(values))
    return best


def main() -> None:
    """Print a line for each shape of value."""
    as_json, as_avro = form(format="json"), form(format="avro", schema=json.dumps(SCHEMA))
    bare, schema, keys = msgspec.json.Encoder().encode, fastavro.parse_schema(SCHEMA), ["k"] * VALUES
    shapes = {"flat": flat, "with null": with_null, "texts, null": texts_with_null, "with time": with_time, "nested": nested}
    for name, make in shapes.items():
        values = [make(number) for number in range(VALUES)]
        ways: dict[str, Encode] = {"client": lambda given: as_json.values(keys, given), "msgspec": lambda given: list(map(bare, given))}
        show(f"JSON, {name}", fastest_ns(ways, values))
    records = [record(number) for number in range(VALUES)]
    stored = as_avro.values(keys, records)
    write: Encode = lambda given: [fastavro.schemaless_writer(BytesIO(), schema, value) for value in given]  # noqa: E731
    read: Encode = lambda given: [fastavro.schemaless_reader(BytesIO(value), schema, None) for value in given]  # noqa: E731
    show("Avro, written", fastest_ns({"client": lambda given: as_avro.values(keys, given), "fastavro": write}, records))
    show("Avro, read", fastest_ns({"client": lambda given: list(map(as_avro.read_value, given)), "fastavro": read}, stored))


def show(name: str, found: dict[str, float]) -> None:
    """Print what the client takes, what its library does, and the ratio."""
    (_, own), (library, other) = found.items()
    print(f"{name:17} client {own:7,.0f} ns   {library} {other:7,.0f} ns   {own / other:.2f}x")


if __name__ == "__main__":
    main()
