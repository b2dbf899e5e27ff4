"""Replacements that believe whoever speaks, where a core asks the records: each is a planted bug of `mutants.py`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eventlog.replication.messages import BEGIN


def name_any_source(self: Any, segments: Any, _sender: Any) -> Any:
    return self._columns.sources[segments] > 0


def believe_any_epoch(kind: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def take(self: Any, message: Any, *, now_ms: int) -> Any:
            columns, commands = self.columns, []
            for segment, _, epoch, *_ in np.frombuffer(message.rows, kind).tolist():
                if epoch > columns.epochs[segment]:
                    commands += self._resign([segment], now_ms=now_ms)
                    source = columns._numbers.setdefault(message.sender, len(columns._numbers) + 1)
                    columns.fence(segment, epoch=epoch, source=source)
            return [*commands, *original(self, message, now_ms=now_ms)]

        return take

    return make


def let_anybody_begin(original: Any) -> Any:
    def check(self: Any, sender: Any, table: Any) -> Any:
        return {} if (table["flags"] == BEGIN).all() else original(self, sender, table)

    return check


def count_by_node(original: Any) -> Any:
    def acknowledged(self: Any, message: Any, *, now_ms: int) -> Any:
        of_node = (replica for replica in self.streams.links if replica.node == message.sender.node)
        return original(self, replace(message, sender=next(of_node, message.sender)), now_ms=now_ms)

    return acknowledged


def hear_any_promise(_self: Any, _sender: Any, segments: Any, *, epochs: Any) -> Any:
    return np.ones(len(segments), bool)


async def take_anybody_for_a_member(_self: Any, _number: int, _incarnation: str, **_: Any) -> None:
    """Greet whoever has the directory of no member: else he would be refused before he can say anything."""
