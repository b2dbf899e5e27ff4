"""What is given of a wrong type is refused by its name, before any node hears of it."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from eventlog.errors import InvalidArgument
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


@pytest.mark.parametrize("option", ["hold", "hold_ms", "expire_ms"])
@pytest.mark.parametrize("given", ["1GiB", 7.5, True, [1], -1, 1 << 70])
def test_a_bound_of_a_wrong_type_is_refused_by_its_name(option: str, given: Any) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            with pytest.raises(InvalidArgument, match=f"{option} is .*: give a whole number"):
                await cache.register(**{option: given})
            with pytest.raises(InvalidArgument, match=f"{option} is .*: give a whole number"):
                await client.listeners.alter("l", **{option: given})

    run(main())


def test_the_id_of_a_listener_is_text() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            with pytest.raises(InvalidArgument, match="id is 7: give text"):
                await cache.register(id=7)  # type: ignore[arg-type]

    run(main())


def test_names_are_text() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            calls: list[Callable[[Any], Awaitable[Any]]] = [
                client.create_cache,
                client.alter_cache,
                client.drop_cache,
                client.listeners.describe,
                lambda given: client.listeners.alter(given, hold=1),
                lambda given: client.listeners.acknowledge(given, 1),
                client.listeners.remove,
                client.groups.describe,
                lambda given: client.groups.reset(given, to_id="latest"),
                client.groups.delete,
                client.admin.drain,
                client.admin.remove,
                lambda given: client.admin.replace(given, "n1"),
                lambda given: client.admin.replace("n1", given),
                lambda given: client.admin.force_primary([0], node=given),
            ]
            for call in calls:
                for given in (7, 1.5, True, b"n1", ["n1"]):
                    with pytest.raises(InvalidArgument, match=r"give text|is no name for a group"):
                        await call(given)

    run(main())


def test_what_operators_name_is_checked_likewise() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            calls: list[tuple[str, Any]] = [
                ("replicas", client.admin.set_replicas),
                ("throttle_bytes", lambda given: client.admin.start_rebalance(throttle_bytes=given)),
                ("overlap_ms", lambda given: client.admin.rotate_key(overlap_ms=given)),
                ("segment", lambda given: client.admin.compare_copies([given])),
                ("segment", lambda given: client.admin.force_primary([given])),
            ]
            for option, call in calls:
                for given in ("x", 7.5, True, -1, 1 << 70):
                    with pytest.raises(InvalidArgument, match=f"{option} is "):
                        await call(given)

    run(main())


TEXT = ("kafka", "name", "topic", "prefix", "format", "encoding", "key_field", "schema", "schema_type", "registry", "on_too_large")
ADDING = [
    *((option, given, "give text") for option in TEXT for given in (7, True, b"x", ["x"])),
    *((option, "", "leave it out, or give one") for option in TEXT),
    *(
        (option, given, "give a whole number")
        for option in ("partitions", "interval_ms", "hold")
        for given in ("x", 7.5, True, -1, 1 << 70)
    ),
    *((option, given, "give True or False") for option in ("tombstones", "dry_run") for given in ("no", 1, None)),
    ("partitions", 0, "give a whole number from 1"),
    ("hold", 0, "give a size"),
]


@pytest.mark.parametrize(("option", "given", "why"), ADDING)
def test_what_a_mirror_is_to_be_is_checked_by_its_name(option: str, given: Any, why: str) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            with pytest.raises(InvalidArgument, match=f"{option} is .*{why}"):
                await client.mirrors.add("c", **{"kafka": "127.0.0.1:9092", option: given})

    run(main())


def test_settings_and_names_of_mirrors_are_text_and_what_is_chosen_is_a_flag() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            mirrors: Any = client.mirrors
            calls: list[tuple[str, Awaitable[Any]]] = [
                ("retention.ms is 5: give text", mirrors.add("c", kafka="b:1", topic_settings={"retention.ms": 5})),
                ("cache is None: give text", mirrors.add(None, kafka="b:1")),
                ("dry_run is 1: give True or False", mirrors.reset("m", to=1, dry_run=1)),
                ("accept_diverged is 1: give True or False", mirrors.resume("m", accept_diverged=1)),
                ("delete_topics is 'no': give True or False", mirrors.remove("m", delete_topics="no")),
                *((f"wait_ms is {wait!r}: give a whole number", mirrors.status("m", wait_ms=wait)) for wait in ("1", -1, 1 << 31, 0.5)),
            ]
            for function in (
                mirrors.describe,
                mirrors.status,
                mirrors.verify,
                mirrors.pause,
                mirrors.resume,
                mirrors.remove,
                mirrors.alter,
            ):
                calls += [(f"mirror is {given!r}: give text", function(given)) for given in (7, None, b"m")]
                calls.append(("name a mirror", function("")))
            for why, call in calls:
                with pytest.raises(InvalidArgument, match=re.escape(why)):
                    await call

    run(main())
