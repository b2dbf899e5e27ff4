"""What each kind of message is for, read from the schema by three rules, and errors as messages.

A kind that ends in `_answer` answers; one whose message has a `credit` field opens a stream; `error`, `done` and the stream's
frames are named below. Everything else asks once and is answered once, so a new request needs no entry here unless it changes something.
"""

import json
from collections.abc import Collection
from enum import IntEnum
from typing import Any, Final

from eventlog.errors import EventLogError, from_wire
from eventlog.wire.eventlog_pb2 import Error, Message

ERROR_FACTS_BYTES_MAX: Final = 16 << 10
_ITEMS_MAX: Final = 8  # of a list, where facts are too large


class ExchangeShape(IntEnum):
    """What a message does to the exchange that its opaque names."""

    UNKNOWN = 0
    REQUEST = 1  # asks, is answered once
    STREAM = 2  # asks, is answered by items and an end
    ANSWER = 3
    ERROR = 4
    ITEM = 5
    END = 6
    CREDIT = 7
    END_STREAM = 8
    PING = 9


_NAMED: Final = {
    "error": ExchangeShape.ERROR,
    "done": ExchangeShape.ANSWER,
    "stream_item": ExchangeShape.ITEM,
    "stream_end": ExchangeShape.END,
    "credit": ExchangeShape.CREDIT,
    "end_stream": ExchangeShape.END_STREAM,
    "ping": ExchangeShape.PING,
}

CHANGES: Final = frozenset(
    {
        *("write", "clear", "stage", "publish", "for_each"),
        *("create_cache", "alter_cache", "drop_cache", "run_retention"),
        *("register_listener", "alter_listener", "acknowledge_listener", "remove_listener"),
        *("commit_group", "leave_group", "take_tasks", "settle_tasks", "reset_group", "delete_group"),
        *("change_cluster", "force_primary", "add_mirror", "change_mirror"),
    }
)
"""Requests of clients after which, unanswered, nobody knows whether something was changed.

What members ask of each other is not in here: they ask again until they know. Nor is what lasts as long as a connection or a session.
"""


def _shape_of(name: str, message_fields: Collection[str]) -> ExchangeShape:
    if name in _NAMED:
        return _NAMED[name]
    if name.endswith("_answer"):
        return ExchangeShape.ANSWER
    return ExchangeShape.STREAM if "credit" in message_fields else ExchangeShape.REQUEST


def _shapes() -> dict[str | None, ExchangeShape]:
    kinds: Any = Message.DESCRIPTOR.oneofs_by_name["kind"].fields  # typed as possibly not messages
    return {kind.name: _shape_of(kind.name, kind.message_type.fields_by_name) for kind in kinds}


SHAPES: Final = _shapes()
"""Every kind of the schema. A message of a later schema has none and reads as None, which is not in here."""


def error_message(error: EventLogError) -> Message:
    """Return the message that tells a peer about `error`; of facts that are too large it tells the beginning."""
    facts = _encoded(error.facts())
    if len(facts) > ERROR_FACTS_BYTES_MAX:
        share = ERROR_FACTS_BYTES_MAX // len(error.fact_names)
        facts = _encoded({name: _beginning(fact, share) for name, fact in error.facts().items()})
    return Message(error=Error(code=error.code, outcome=error.outcome, facts=facts))


def read_error(error: Error) -> EventLogError:
    """Return the error that a peer described; whatever cannot be understood is kept as text."""
    try:
        facts = json.loads(error.facts or b"{}")
    except (ValueError, RecursionError):
        facts = {"why": repr(error.facts[:200])}
    return from_wire(error.code, error.outcome, facts if isinstance(facts, dict) else {"why": repr(facts)})


def _encoded(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, default=_printable, separators=(",", ":")).encode()


def _beginning(fact: Any, nbytes: int) -> Any:
    """Return as much of a fact as `nbytes` of JSON hold with its name, at up to 12 bytes a character."""
    if isinstance(fact, (list, tuple)):
        return [_beginning(item, nbytes // _ITEMS_MAX) for item in fact[:_ITEMS_MAX]]
    if fact is None or isinstance(fact, (int, float)):
        return fact
    text, count = fact if isinstance(fact, str) else _printable(fact), nbytes // 12 - 8
    return text if len(text) <= count else f"{text[:count]}..."


def _printable(fact: Any) -> Any:
    return bytes(fact).decode(errors="backslashreplace") if isinstance(fact, (bytes, bytearray, memoryview)) else str(fact)
