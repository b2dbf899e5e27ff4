"""Mirrors for tests."""

from typing import Any

import msgspec

from eventlog.mirror.book import Mirror

PLAIN = Mirror(
    name="m",
    cache="c",
    cache_id=7,
    kafka="main",
    topic="eventlog.c",
    prefix="eventlog",
    partitions=16,
    shards=16,
    format="upsert",
    encoding="json",
    generation=1,
    from_id=100,
)


def mirror(**differs: Any) -> Mirror:
    return msgspec.structs.replace(PLAIN, **differs)
