"""Entries as they were, over three nodes on one loop: against a model that replays what was written."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import eventlog
from eventlog.errors import BadPredicate, InvalidArgument, KeyExists, NoState, NotFinal, VersionMismatch
from eventlog.ids import EPOCH_MS, ID_MAX, TIME_SHIFT, time_of
from tests.process.one_loop.clients import client_of
from tests.process.one_loop.cluster import Cluster, with_cluster

EXAMPLES = 10
KEYS = ["a", "b", "c", "aa"]
Entries = dict[str, tuple[Any, int, int]]  # value, version, deadline in milliseconds since 1970 or 0


async def replay(cache: eventlog.Cache) -> Mapping[int, Entries]:
    """Return the entries after each event."""
    now: Entries = {}
    found: dict[int, Entries] = {}
    async for batch in cache.event_batches():
        for event, expiry in zip(batch, batch.expiry.tolist(), strict=True):
            now.pop(str(event.key), None)
            if event.kind in {"CREATED", "MODIFIED"}:
                now[str(event.key)] = (event.value, event.id, expiry and expiry + EPOCH_MS)
            time_ms = time_of(event.id)
            found[event.id] = {key: was for key, was in now.items() if not 0 < was[2] <= time_ms}
    return found


async def entries_at(cache: eventlog.Cache, at: int, **options: Any) -> Entries:
    return {str(key): (entry.value, entry.version, entry.expires_ms or 0) for key, entry in await cache.entries(at=at, **options)}


async def entry_at(cache: eventlog.Cache, key: str, at: int) -> tuple[Any, int, int] | None:
    entry = await cache.get(key, at=at)
    return entry and (entry.value, entry.version, entry.expires_ms or 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "absent", "version", "remove", "short", "long", "many", "clear"]), st.sampled_from(KEYS)),
    min_size=1,
    max_size=12,
)


async def do(cache: eventlog.Cache, act: str, key: str, number: int) -> None:
    match act:
        case "put":
            await cache.put(key, number)
        case "absent":
            await cache.put(key, number, if_absent=True)
        case "version":
            entry = await cache.get(key)
            await cache.replace(key, number, if_version=1 if entry is None else entry.version)
        case "remove":
            await cache.remove(key)
        case "many":
            await cache.put_many([(name, number) for name in KEYS])
        case "clear":
            await cache.clear()
        case _:
            await cache.put(key, number, lifespan_ms=5 if act == "short" else 3_600_000)


async def check(cache: eventlog.Cache, steps: list[tuple[str, str]]) -> None:
    for number, (what, key) in enumerate(steps):
        with suppress(KeyExists, VersionMismatch):
            await do(cache, what, key, number)
    replayed = await replay(cache)
    for id_, wanted in replayed.items():
        assert await entries_at(cache, id_) == wanted, (id_, steps)
        for key in KEYS:
            assert await entry_at(cache, key, id_) == wanted.get(key), (key, id_, steps)
        begun = {key: was for key, was in wanted.items() if key.startswith("a")}
        assert await entries_at(cache, id_, prefix="a", parallel=3) == begun, (id_, steps)
        odd = {key: was for key, was in wanted.items() if was[0] % 2 and key != "b"}
        assert await entries_at(cache, id_, where="value % 2 = ? AND key <> 'b'", parameters=[1]) == odd, (id_, steps)
        newer = {key: was for key, was in wanted.items() if was[1] == id_}
        assert await entries_at(cache, id_, where=f"id >= {id_}", parallel=2) == newer, (id_, steps)
        one = {key: was for key, was in wanted.items() if key == "a" and not was[2]}
        assert {key: was for key, was in (await entries_at(cache, id_, where="key = 'a'")).items() if not was[2]} == one, (id_, steps)
    if replayed:
        assert await entries_at(cache, min(replayed) - 1) == {}


def test_every_id_has_the_entries_that_a_replay_of_the_log_has(tmp_path: Path) -> None:
    examples: list[tuple[bool, list[tuple[str, str]]]] = []

    @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate])
    @given(st.booleans(), STEPS)
    def collect(before: bool, steps: list[tuple[str, str]]) -> None:
        examples.append((before, steps))

    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        async with client_of(cluster) as client:
            for number, (before, steps) in enumerate(examples):
                await check(await client.create_cache(f"x{number}", format="json", before=before), steps)

    collect()
    with_cluster(tmp_path, act)


def test_while_others_write_nothing_that_was_changes(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        async with client_of(cluster) as client:
            cache = await client.create_cache("x", format="json")
            at = (await cache.put_many([(f"k{number}", 0) for number in range(50)])).last_id
            assert at is not None
            wanted = await entries_at(cache, at)
            is_over = asyncio.Event()

            async def write() -> None:
                number = 0
                while not is_over.is_set():
                    number += 1
                    await cache.put(f"k{number % 50}", number)
                    await cache.remove(f"k{number * 7 % 50}")

            writing = asyncio.create_task(write())
            for _ in range(10):
                assert await entries_at(cache, at) == wanted
            is_over.set()
            await writing

    with_cluster(tmp_path, act)


def test_what_may_still_change_is_refused_by_name(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        async with client_of(cluster) as client:
            cache = await client.create_cache("x", format="json")
            stored = await cache.put("a", 1)
            assert stored.id is not None
            at = stored.id + (30_000 << TIME_SHIFT)
            with pytest.raises(NotFinal) as told:
                await cache.get("a", at=at)
            assert told.value.at == at > told.value.upto
            with pytest.raises(NotFinal):
                await cache.entries(at=at)
            for at in (ID_MAX, stored.id + (3_600_000 << TIME_SHIFT)):  # nobody can have issued it
                with pytest.raises(InvalidArgument, match=f"id {at} lies ahead of every id that can have been issued by now"):
                    await cache.get("a", at=at)
                with pytest.raises(InvalidArgument, match="lies ahead of every id"):
                    await cache.entries(at=at)
            with pytest.raises(InvalidArgument, match="not an id"):
                await cache.get("a", at=-1)
            with pytest.raises(InvalidArgument, match="leave consistency"):
                await cache.get("a", at=1, consistency="any")
            for option, name in (("filter", "filter 'sample' runs on the nodes"), ("scope", "scope 'sample' runs on the nodes")):
                with pytest.raises(InvalidArgument, match=name):
                    cache.entries(at=1, **{option: "sample"})
            with pytest.raises(BadPredicate, match="there is no column valu"):
                await cache.entries(at=stored.id, where="valu > 1")
            bare = await client.create_cache("bare", format="json", state=False)
            with pytest.raises(NoState):
                await bare.get("a", at=1)

    with_cluster(tmp_path, act)
