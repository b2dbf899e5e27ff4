"""The synchronous client has all that the asynchronous one has, and what it does beside calling that."""

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

from eventlog import blocking
from eventlog.blocking import Entries
from eventlog.client.cache import Cache
from eventlog.client.client import Client
from eventlog.client.cluster import ClusterAdmin
from eventlog.client.groups import GroupAdmin
from eventlog.client.listeners import ListenerAdmin
from eventlog.client.loop_thread import LoopThread
from eventlog.client.members.consumer import Consumer
from eventlog.client.members.work import Task, WorkConsumer
from eventlog.client.near.near_cache import NearCache
from eventlog.client.reading.entries import Entries as AsyncEntries

LIFE = {"open", "close"}  # `with` does it


@pytest.mark.parametrize(
    ("asynchronous", "same", "machinery"),
    [
        (Client, blocking.Client, {"open"}),
        (Cache, blocking.Cache, {"new_consumer", "new_worker", "query_begin", "query_lists"}),
        (Consumer, blocking.Consumer, LIFE | {"events", "event_lists", "may_hand", "hand", "finish"}),
        (WorkConsumer, blocking.WorkConsumer, LIFE | {"tasks", "settle"}),
        (NearCache, blocking.NearCache, set()),
        (GroupAdmin, blocking.GroupAdmin, set()),
        (ListenerAdmin, blocking.ListenerAdmin, set()),
        (ClusterAdmin, blocking.ClusterAdmin, set()),
    ],
)
def test_what_the_asynchronous_one_has_is_here_too(asynchronous: type, same: type, machinery: set[str]) -> None:
    assert public(asynchronous) - machinery <= public(same)


def test_a_task_has_what_the_asynchronous_one_has() -> None:
    assert public(Task) | set(Task.__annotations__) - {"_consumer"} <= public(blocking.Task)


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_entries_may_be_left_while_the_next_ones_are_fetched() -> None:
    ended = threading.Event()

    async def batches(*, metadata: bool) -> AsyncGenerator[int, None]:
        try:
            yield int(metadata)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    thread = LoopThread("test")
    try:
        with Entries(thread, AsyncEntries(batches, limit=0, metadata=False)) as rows:
            assert next(iter(rows.batches())) == 0
        assert ended.is_set()
    finally:
        thread.stop()
