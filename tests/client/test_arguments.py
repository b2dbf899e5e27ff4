"""What a call is given of a wrong type or beyond its bounds: refused by the name of its argument, before any node hears of it."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eventlog.client.client import connect
from eventlog.errors import InvalidArgument
from eventlog.routing.retry import RetryPolicy
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run

NO_NUMBERS: list[Any] = ["7", b"7", 1.5, True, [], [1], {1: 2}, -1, int, object()]
NO_TEXTS: list[Any] = [b"x", 7, True, ["x"], "\ud800", str, object()]
NO_FLAGS: list[Any] = ["yes", 1, 0, [], {}, 1.0, object()]
NO_LISTS: list[Any] = ["x", b"x", 7, True, 1.5, list, object()]
READS = ("events", "event_batches", "scan_events", "poll")
WRONG: dict[str, tuple[list[Any], tuple[str, ...]]] = {  # by the argument: what it cannot be, and of which calls it is one
    "segments": ([[True], [1, True], 7, "x", [1.5], [None], object()], (*READS, "entries", "scan", "plan", "for_each")),
    "until_id": (NO_NUMBERS, READS),
    "from_id": ([1.5, True, -1, object(), int, 1 << 70], ("events", "event_batches", "scan_events", "register")),
    "from_time": (["x", 1.5, True, int, object()], ("events", "event_batches", "scan_events")),
    "tail": ([*NO_NUMBERS, 0], ("events", "event_batches", "scan_events")),
    "follow": (NO_FLAGS, ("events", "event_batches")),
    "state_first": (NO_FLAGS, READS),
    "accept_diverged": (NO_FLAGS, READS),
    "continuous": (NO_FLAGS, (*READS, "register")),
    "durable": (NO_FLAGS, ("register",)),
    "metadata": (NO_FLAGS, ("entries",)),
    "insert": (NO_FLAGS, ("publish",)),
    "where": (NO_TEXTS, (*READS, "entries", "scan", "register", "for_each", "continuous_query", "new_consumer", "new_worker")),
    "filter": (NO_TEXTS, (*READS, "entries", "scan", "register", "for_each", "new_consumer", "new_worker")),
    "select": ([7, True, "\ud800", ["\ud800"], object()], (*READS, "entries", "scan", "register", "new_consumer", "continuous_query")),
    "listener": (NO_TEXTS, ("events", "event_batches", "poll")),
    "scope": (NO_TEXTS, ("entries",)),
    "task": (NO_TEXTS, ("for_each",)),
    "transaction": (NO_TEXTS, ("publish",)),
    "poll_interval_ms": (["7", True, 0, -1, int, object()], ("events", "event_batches")),
    "max_bytes": (NO_NUMBERS, ("event_batches", "poll", "plan", "near", "new_consumer")),
    "max_events": (NO_NUMBERS, ("plan",)),
    "limit": ([*NO_NUMBERS, 0], ("keys", "entries", "scan", "scan_events")),
    "batch_size": ([*NO_NUMBERS, 0], ("entries", "for_each")),
    "batch_bytes": ([*NO_NUMBERS, 0], ("entries", "for_each")),
    "parallel": ([*NO_NUMBERS, 0], ("entries", "scan", "for_each")),
    "prefetch": ([*NO_NUMBERS, 0], ("entries",)),
    "max_entries": ([*NO_NUMBERS, 0], ("near",)),
    "max_staleness_ms": (["7", True, 0, -1, int, object()], ("near",)),
    "keep_ms": ([*NO_NUMBERS, 0, 1 << 70], ("stage",)),
    "batch": ([*NO_NUMBERS, 1 << 70], ("publish",)),
    "timeout_ms": (["7", True, -1, int, object()], ("publish",)),
    "columns": (NO_LISTS, ("event_batches", "entries", "scan", "scan_events")),
    "include": (NO_LISTS, ("scan", "scan_events")),
    "keys": ([7, True, 1.5, object(), list, "text", b"bytes"], ("get_many", "remove_many")),
    "pairs": ([7, True, 1.5, object(), list], ("put_many",)),
    "consistency": ([["any"], {}, 7, "some", None], ("get", "get_many")),
    "at_least": (NO_NUMBERS, ("get",)),
    "at": ([*NO_NUMBERS[:-2], int], ("get", "entries")),
}
NEEDED: dict[str, dict[str, Any]] = {
    "get": {"key": "k"},
    "get_many": {"keys": ["k"]},
    "plan": {"after": 0},
    "publish": {"transaction": "t", "batch": 1, "staged": []},
    "for_each": {"task": "touch"},
    "new_consumer": {"group": "g"},
    "new_worker": {"group": "g"},
}
CASES = [(call, option) for option, (_, calls) in WRONG.items() for call in calls]


async def used(made: Any) -> None:
    """Have what a call returns begin."""
    if inspect.isawaitable(made):
        await made
    elif inspect.isasyncgen(made) or hasattr(made, "__aiter__"):
        async for _ in made:
            break
    elif hasattr(made, "__aenter__"):
        async with made as entered:
            await used(entered)
    elif hasattr(made, "to_arrow"):
        await made.to_arrow()


@pytest.mark.parametrize(("call", "option"), CASES)
def test_what_an_argument_cannot_be_is_refused_by_its_name(call: str, option: str) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            made: Callable[..., Any] = getattr(cache, call)
            for given in WRONG[option][0]:
                with pytest.raises(InvalidArgument) as refused:
                    await used(made(**NEEDED.get(call, {}) | {option: given}))
                assert option in str(refused.value), given
                assert len(str(refused.value)) < 250, given

    run(main())


def test_what_numpy_has_is_as_good() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            stored = await cache.put("k", 1)
            numbers = np.arange(client.segments_count)
            read = cache.events(np.int64(0), until_id=np.int64(stored.id), segments=numbers, state_first=np.False_, follow=np.False_)
            assert [event.key async for event in read] == ["k"]
            assert (await cache.poll(np.int64(0), max_events=np.int32(1), max_bytes=np.int64(1_000))).last_id == stored.id

    run(main())


OF_CLIENT: dict[str, tuple[str, ...]] = {  # by the argument: of which calls it is one
    "name": ("cache", "create_cache", "describe_cache", "alter_cache", "drop_cache"),
    "cache": ("segments", "run_retention", "check", "wait_for"),
    "schema": ("create_cache",),
    "promote": ("create_cache",),
    "wait_listeners": ("alter_cache",),
    "events": ("create_cache",),
    "validate": ("create_cache",),
    "internal": ("list_caches",),
    "dry_run": ("run_retention", "groups.reset"),
    "id": ("wait_for",),
    "group": ("groups.describe", "groups.reset", "groups.delete"),
    "lag": ("groups.describe",),
    "segments": ("groups.reset",),
    "shift_by": ("groups.reset",),
    "cache_id": ("groups.reset", "groups.delete", "listeners.list"),
    "listener": ("listeners.describe", "listeners.alter", "listeners.acknowledge", "listeners.remove"),
}
FLAGS = ("events", "validate", "internal", "dry_run", "lag")
OTHERS: dict[str, list[Any]] = {
    "promote": [7, b"x", True, [7], ["\ud800"], "\ud800", object()],
    "wait_listeners": [7, b"x", True, [7], ["\ud800"], "\ud800", object()],
    "id": NO_NUMBERS,
    "cache_id": NO_NUMBERS,
    "shift_by": ["7", 1.5, True, int, object(), 1 << 70],
    "segments": [[True], 7, "x", [1.5], object()],
}


@pytest.mark.parametrize(("call", "option"), [(call, option) for option, calls in OF_CLIENT.items() for call in calls])
def test_so_is_what_no_cache_no_group_and_no_listener_can_be(call: str, option: str) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            place, _, name = call.rpartition(".")
            made: Callable[..., Any] = getattr(getattr(client, place) if place else client, name)
            needed: dict[str, Any] = {"group": "g", "listener": "l", "upto": 1, "cache": "c", "name": "c", "id": 1}
            if name == "reset" and option != "shift_by":
                needed["to_id"] = "earliest"
            taken = {known: needed[known] for known in inspect.signature(made).parameters if known in needed}
            for given in OTHERS.get(option, NO_FLAGS if option in FLAGS else NO_TEXTS):
                with pytest.raises(InvalidArgument) as refused:
                    await used(made(**taken | {option: given}))
                assert option in str(refused.value), given

    run(main())


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("name", NO_TEXTS),
        ("idempotent", NO_FLAGS),
        ("operator", NO_FLAGS),
        ("retry", [5, "x", None, {}, RetryPolicy]),
        ("routing", [5, "all", None, ["any"]]),
        ("timeout_ms", ["7", None, True, 0, int]),
    ],
)
def test_so_is_what_no_option_of_a_client_can_be(option: str, wrong: list[Any]) -> None:
    for given in wrong:
        with pytest.raises(InvalidArgument, match=option):
            connect("127.0.0.1:1", **{option: given})
