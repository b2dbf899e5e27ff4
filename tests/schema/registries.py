"""A registry as its caller keeps it: requests are decided, their records written, and folded into what there is."""

import json
from collections.abc import Callable
from typing import Any

from eventlog.schema.registry import Registry, encoded
from eventlog.schema.requests import Decided, Given, given_of


def body(schema: Any, **more: Any) -> bytes:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return json.dumps({"schema": text, **more}).encode()


def offered(schema: Any, **more: Any) -> Given:
    return given_of(body(schema, **more))


def record(*names: str, optional: tuple[str, ...] = (), name: str = "R") -> dict[str, Any]:
    fields: list[dict[str, Any]] = [{"name": one, "type": "int"} for one in names]
    return {"type": "record", "name": name, "fields": [*fields, *({"name": one, "type": "int", "default": 0} for one in optional)]}


class Kept:
    """What `__schemas` would hold, and the registry folded from it step by step."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.entries: dict[str, bytes] = {}
        self.written: set[str] = set()

    def do(self, decide: Callable[..., Decided], *args: Any, **options: Any) -> Any:
        """Decide and write; return the answer."""
        decided = decide(self.registry, *args, **options)
        if decided.records:
            head = self.registry.head.after(decided.records, token="t", next_id=decided.next_id or self.registry.head.next_id)
            stored = encoded({**decided.records, "head": head})
            self.written = set(stored)
            for key, value in stored.items():
                if value is None:
                    self.entries.pop(key, None)
                else:
                    self.entries[key] = value
            self.registry = self.registry.folded(stored)
        return decided.answer


class Alone:
    """A registry of this process alone."""

    def __init__(self) -> None:
        self.kept = Kept()

    async def read(self) -> Registry:
        return self.kept.registry

    async def change(self, decide: Callable[[Registry], Decided]) -> Any:
        return self.kept.do(decide)

    async def judge(self, decide: Callable[[Registry], Any], registry: Registry) -> Any:
        return decide(registry)
