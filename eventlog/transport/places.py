"""Who gives way when every place for a connection is taken. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Idle(Generic[C]):
    """A connection that is asked nothing: the host at its other end, and since when nothing was heard of it."""

    connection: C
    host: str
    heard_at: float


def in_order(idle: Iterable[Idle[C]], hosts: Counter[str]) -> list[C]:
    """Return idle connections in the order in which they give way: each time the one of the host with most that is idle longest.

    `hosts` counts the connections of each host, busy ones too.
    """
    found: list[tuple[int, float, int, C]] = []
    gone: Counter[str] = Counter()
    for number, one in enumerate(sorted(idle, key=lambda one: one.heard_at)):
        found.append((gone[one.host] - hosts[one.host], one.heard_at, number, one.connection))
        gone[one.host] += 1
    return [connection for *_, connection in sorted(found, key=lambda row: row[:3])]
